#include "server/services/credentials.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/memory_file.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/config/config_file.h"

namespace beamd {
namespace {

constexpr unsigned kRefreshSeconds = 1;

struct Texts {
  std::string cert, key, client_ca;
};

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

BioPtr Reader(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

X509Ptr FirstCertificate(const std::string& pem) {
  return {PEM_read_bio_X509(Reader(pem).get(), nullptr, nullptr, nullptr), &X509_free};
}

absl::StatusOr<Texts> ReadTexts(const TlsFiles& files) {
  Texts texts;
  BEAMD_ASSIGN_OR_RETURN(texts.cert, ReadTextFile(files.cert));
  BEAMD_ASSIGN_OR_RETURN(texts.key, ReadTextFile(files.key));
  const X509Ptr cert = FirstCertificate(texts.cert);
  if (cert == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(files.cert, " holds no PEM certificate"));
  }
  // No passphrase is asked for: a daemon has no terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  const KeyPtr key(
      PEM_read_bio_PrivateKey(Reader(texts.key).get(), nullptr, no_passphrase, nullptr),
      &EVP_PKEY_free);
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(files.key, " holds no open PEM key"));
  }
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(files.key, " isn't the key of ", files.cert));
  }
  if (files.client_ca.empty()) return texts;
  BEAMD_ASSIGN_OR_RETURN(texts.client_ca, ReadTextFile(files.client_ca));
  if (FirstCertificate(texts.client_ca) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(files.client_ca, " holds no PEM certificate"));
  }
  return texts;
}

}  // namespace

class Certificates::Impl {
 public:
  explicit Impl(TlsFiles files) : files_(std::move(files)) {}

  absl::Status Reload() {
    BEAMD_ASSIGN_OR_RETURN(const Texts texts, ReadTexts(files_));
    MutexLock lock(mutex_);
    BEAMD_RETURN_IF_ERROR(cert_.Set(texts.cert));
    BEAMD_RETURN_IF_ERROR(key_.Set(texts.key));
    if (!files_.client_ca.empty()) BEAMD_RETURN_IF_ERROR(client_ca_.Set(texts.client_ca));
    return absl::OkStatus();
  }

  std::shared_ptr<grpc::ServerCredentials> Credentials(bool require) {
    MutexLock lock(mutex_);
    const bool mutual = !files_.client_ca.empty();
    // gRPC looks at the files once in a while. It never sees those of the disk, which may be in the
    // middle of being replaced.
    grpc::experimental::TlsServerCredentialsOptions options(
        mutual ? std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
                     key_.path(), cert_.path(), client_ca_.path(), kRefreshSeconds)
               : std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
                     key_.path(), cert_.path(), kRefreshSeconds));
    options.watch_identity_key_cert_pairs();
    if (mutual) {
      options.watch_root_certs();
      options.set_cert_request_type(require
                                        ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                        : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
    }
    return grpc::experimental::TlsServerCredentials(options);
  }

 private:
  const TlsFiles files_;
  Mutex mutex_;
  MemoryFile cert_ BEAMD_GUARDED_BY(mutex_);
  MemoryFile key_ BEAMD_GUARDED_BY(mutex_);
  MemoryFile client_ca_ BEAMD_GUARDED_BY(mutex_);
};

Certificates::Certificates(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Certificates::~Certificates() = default;

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Load(const TlsFiles& files) {
  auto impl = std::make_unique<Impl>(files);
  BEAMD_RETURN_IF_ERROR(impl->Reload());
  return std::unique_ptr<Certificates>(new Certificates(std::move(impl)));
}

std::shared_ptr<grpc::ServerCredentials> Certificates::ServerCredentials(
    bool require_client_certificate) const {
  return impl_->Credentials(require_client_certificate);
}

absl::Status Certificates::Reload() { return impl_->Reload(); }

}  // namespace beamd
