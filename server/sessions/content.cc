#include "server/sessions/content.h"

#include <openssl/evp.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "engine/base/status.h"

namespace beamd {

absl::StatusOr<std::shared_ptr<Content>> Content::Create(Budget& budget, int64_t size_bytes) {
  BEAMD_RETURN_IF_ERROR(budget.Take(size_bytes));
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory =
      SharedMemory::Create(static_cast<size_t>(size_bytes));
  if (!memory.ok()) {
    budget.Give(size_bytes);
    return memory.status();
  }
  static std::atomic<uint64_t> last_id{0};  // 0 is a device's turn
  return std::shared_ptr<Content>(new Content(budget, *std::move(memory), ++last_id));
}

Content::~Content() {
  for (const auto& [supervisor, pool] : pools_) supervisor->Detach(pool, id_);
  budget_.Give(size_bytes());
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
