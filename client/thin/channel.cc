#include "client/thin/channel.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <fstream>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/thin/macros.h"
#include "grpcpp/support/client_interceptor.h"

namespace beamd {
namespace {

// gRPC's own call credentials refuse channels without TLS, so also loopback and unix sockets.
class Bearer final : public grpc::experimental::Interceptor {
 public:
  explicit Bearer(const std::string& authorization) : authorization_(authorization) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", authorization_);
    }
    methods->Proceed();
  }

 private:
  const std::string& authorization_;
};

class BearerFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit BearerFactory(absl::string_view token)
      : authorization_(absl::StrCat("Bearer ", token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new Bearer(authorization_);
  }

 private:
  const std::string authorization_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream in(path, std::ios::binary);
  std::string text;
  // An iterator over the stream would throw for a folder.
  char some[4096];
  while (in.read(some, sizeof(some)), in.gcount() > 0) {
    text.append(some, static_cast<size_t>(in.gcount()));
  }
  if (in.bad() || text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("can't read ", path));
  }
  return text;
}

// 127.0.0.0/8, in numbers: "127.example.com" is elsewhere.
bool IsLoopback(const std::string& address) {
  in_addr number{};
  return inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &number) == 1 &&
         ntohl(number.s_addr) >> 24 == 127;
}

bool StaysHere(const std::string& address) {
  return absl::StartsWith(address, "unix:") || IsLoopback(address) ||
         absl::StartsWith(address, "localhost:") || absl::StartsWith(address, "[::1]:");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const Credentials& credentials) {
  std::shared_ptr<grpc::ChannelCredentials> how = grpc::InsecureChannelCredentials();
  if (!credentials.tls_ca.empty()) {
    grpc::SslCredentialsOptions options;
    BEAMD_THIN_ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile(credentials.tls_ca));
    BEAMD_THIN_ASSIGN_OR_RETURN(options.pem_cert_chain, ReadFile(credentials.tls_cert));
    BEAMD_THIN_ASSIGN_OR_RETURN(options.pem_private_key, ReadFile(credentials.tls_key));
    how = grpc::SslCredentials(options);
  }
  BEAMD_THIN_ASSIGN_OR_RETURN(const std::string token, ReadFile(credentials.token_file));
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  if (!token.empty()) {
    if (credentials.tls_ca.empty() && !StaysHere(address)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a token for ", address, " wants TLS: others could read it on its way"));
    }
    const absl::string_view word = absl::StripAsciiWhitespace(token);
    if (word.empty() || !absl::c_all_of(word, [](char c) { return absl::ascii_isgraph(c); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          credentials.token_file, " holds no token: one word of printable characters"));
    }
    factories.push_back(std::make_unique<BearerFactory>(word));
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, how, arguments,
                                                                 std::move(factories));
}

}  // namespace beamd
