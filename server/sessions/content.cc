#include "server/sessions/content.h"

#include <limits.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd {

absl::StatusOr<std::shared_ptr<Content>> Content::Create(std::shared_ptr<Budget> budget,
                                                         int64_t size_bytes) {
  BEAMD_RETURN_IF_ERROR(budget->Take(size_bytes));
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory =
      SharedMemory::Create(static_cast<size_t>(size_bytes));
  if (!memory.ok()) {
    budget->Give(size_bytes);
    return memory.status();
  }
  static std::atomic<uint64_t> last_id{0};  // 0 is a device's turn
  return std::shared_ptr<Content>(new Content(std::move(budget), *std::move(memory), ++last_id));
}

Content::~Content() {
  Detach();
  budget_->Give(size_bytes());
}

void Content::Detach() {
  std::vector<std::pair<Supervisor*, PoolId>> pools;
  {
    MutexLock lock(mutex_);
    pools.swap(pools_);
  }
  for (const auto& [supervisor, pool] : pools) supervisor->Detach(pool, id_);
}

std::shared_ptr<const Attachment> Content::AttachTo(Supervisor& supervisor, PoolId pool) {
  {
    const std::pair<Supervisor*, PoolId> there(&supervisor, pool);
    MutexLock lock(mutex_);
    if (std::find(pools_.begin(), pools_.end(), there) == pools_.end()) pools_.push_back(there);
  }
  auto attachment = std::make_shared<Attachment>();
  attachment->attach.set_id(id_);
  attachment->attach.set_kind(internal::Attach::CONTENT);
  attachment->attach.set_bytes(memory_->size_bytes());
  attachment->attach.set_writable(!fixed_);
  attachment->file = memory_->file();
  attachment->owner = memory_;
  return attachment;
}

absl::Status Content::Write(int64_t offset, std::span<const std::span<const std::byte>> parts) {
  std::vector<iovec> left;
  left.reserve(parts.size());
  for (const std::span<const std::byte> part : parts) {
    if (part.empty()) continue;
    left.push_back({.iov_base = const_cast<std::byte*>(part.data()), .iov_len = part.size()});
  }
  auto next = left.begin();
  while (next != left.end()) {
    const auto count = std::min<ptrdiff_t>(left.end() - next, IOV_MAX);
    const ssize_t n = pwritev(memory_->file(), &*next, static_cast<int>(count), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for a buffer's content: ", strerror(errno)));
    }
    offset += n;
    for (auto done = static_cast<size_t>(n); done > 0;) {
      const size_t here = std::min(done, next->iov_len);
      next->iov_base = static_cast<std::byte*>(next->iov_base) + here;
      next->iov_len -= here;
      done -= here;
      if (next->iov_len == 0) ++next;
    }
  }
  return absl::OkStatus();
}

void ContentIndex::Add(const std::string& principal, const std::string& sha256,
                       const std::shared_ptr<Content>& content) {
  MutexLock lock(mutex_);
  if (contents_.size() >= sweep_at_) {
    for (auto it = contents_.begin(); it != contents_.end();) {
      it = it->second.expired() ? contents_.erase(it) : std::next(it);
    }
    sweep_at_ = 2 * contents_.size() + 1024;
  }
  contents_[{principal, sha256}] = content;
}

std::shared_ptr<Content> ContentIndex::Find(const std::string& principal, const std::string& sha256,
                                            int64_t size_bytes) {
  MutexLock lock(mutex_);
  const auto it = contents_.find({principal, sha256});
  if (it == contents_.end()) return nullptr;
  std::shared_ptr<Content> content = it->second.lock();
  return content != nullptr && content->size_bytes() == size_bytes ? content : nullptr;
}

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr);
}
Sha256Stream::~Sha256Stream() { EVP_MD_CTX_free(state_->context); }
void Sha256Stream::Add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}
std::string Sha256Stream::Finish() {
  std::string digest(32, '\0');
  EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

}  // namespace beamd
