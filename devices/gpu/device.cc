#include "devices/gpu/device.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "devices/gpu/packed_image.h"
#include "devices/launch.h"
#include "engine/base/error_detail.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

// Transfers go through two of these: one is copied on the host while the other travels.
constexpr size_t kStagingBytes = size_t{4} << 20;
// Below it a second copy on the host costs more than the driver's own way.
constexpr size_t kLeastStaged = size_t{256} << 10;

// The context, whether it is lost, and what all objects of a device share.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::unique_ptr<GpuContext> context) {
    std::unique_ptr<Session> session(new Session(std::move(context)));
    BEAMD_RETURN_IF_ERROR(session->Enter());
    for (void*& event : session->events_) {
      BEAMD_ASSIGN_OR_RETURN(event, session->Checked(session->context_->CreateEvent()));
    }
    return session;
  }

  ~Session() {
    EnterToRelease();
    for (void* const memory : staging_) {
      if (memory != nullptr) context_->FreePinned(memory);
    }
    for (void* const event : events_) {
      if (event != nullptr) context_->DestroyEvent(event);
    }
  }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  GpuContext& context() { return *context_; }

  // Before any call. Unavailable once the context is lost.
  absl::Status Enter() {
    if (lost_.load(std::memory_order_acquire)) {
      MutexLock lock(mutex_);
      return absl::UnavailableError(absl::StrCat("the device is lost: ", why_));
    }
    return Checked(context_->Enter());
  }

  // Before giving something back. Nobody is there to be told: a lost context refuses, and what it
  // held went with it.
  void EnterToRelease() { context_->Enter().IgnoreError(); }

  // Remembers an error that the context doesn't survive.
  absl::Status Checked(absl::Status status) {
    if (absl::IsUnavailable(status) && !lost_.load(std::memory_order_acquire)) {
      MutexLock lock(mutex_);
      why_ = std::string(status.message());
      lost_.store(true, std::memory_order_release);
    }
    return status;
  }
  template <typename T>
  absl::StatusOr<T> Checked(absl::StatusOr<T> result) {
    if (!result.ok()) return Checked(result.status());
    return result;
  }

  absl::Status Write(uint64_t to, std::span<const std::byte> bytes) {
    BEAMD_RETURN_IF_ERROR(Enter());
    const MutexLock lock(staging_mutex_);
    if (!Staged(bytes.size())) {
      BEAMD_RETURN_IF_ERROR(Checked(context_->CopyIn(to, bytes.data(), bytes.size())));
      return Checked(context_->Wait());
    }
    size_t turn = 0;
    for (size_t at = 0; at < bytes.size(); at += kStagingBytes, ++turn) {
      const size_t n = std::min(kStagingBytes, bytes.size() - at);
      void* const block = staging_[turn % 2];
      if (turn >= 2) BEAMD_RETURN_IF_ERROR(Checked(context_->WaitFor(events_[turn % 2])));
      std::memcpy(block, bytes.data() + at, n);
      BEAMD_RETURN_IF_ERROR(Checked(context_->CopyIn(to + at, block, n)));
      BEAMD_RETURN_IF_ERROR(Checked(context_->Record(events_[turn % 2])));
    }
    return Checked(context_->Wait());
  }

  absl::Status Read(uint64_t from, std::span<std::byte> bytes) {
    BEAMD_RETURN_IF_ERROR(Enter());
    const MutexLock lock(staging_mutex_);
    if (!Staged(bytes.size())) {
      BEAMD_RETURN_IF_ERROR(Checked(context_->CopyOut(bytes.data(), from, bytes.size())));
      return Checked(context_->Wait());
    }
    const size_t turns = (bytes.size() + kStagingBytes - 1) / kStagingBytes;
    for (size_t turn = 0; turn <= turns; ++turn) {
      if (turn < turns) {
        const size_t at = turn * kStagingBytes;
        const size_t n = std::min(kStagingBytes, bytes.size() - at);
        BEAMD_RETURN_IF_ERROR(Checked(context_->CopyOut(staging_[turn % 2], from + at, n)));
        BEAMD_RETURN_IF_ERROR(Checked(context_->Record(events_[turn % 2])));
      }
      if (turn == 0) continue;
      // The block before, while this one travels.
      const size_t at = (turn - 1) * kStagingBytes;
      const size_t n = std::min(kStagingBytes, bytes.size() - at);
      BEAMD_RETURN_IF_ERROR(Checked(context_->WaitFor(events_[(turn - 1) % 2])));
      std::memcpy(bytes.data() + at, staging_[(turn - 1) % 2], n);
    }
    return absl::OkStatus();
  }

  // Device time of what `start` starts, which is waited for. One at a time is timed.
  template <typename Start>
  absl::StatusOr<absl::Duration> Timed(Start start) {
    void *const begin = events_[2], *const end = events_[3];
    const MutexLock lock(timing_mutex_);
    BEAMD_RETURN_IF_ERROR(Checked(context_->Record(begin)));
    BEAMD_RETURN_IF_ERROR(start());
    BEAMD_RETURN_IF_ERROR(Checked(context_->Record(end)));
    BEAMD_RETURN_IF_ERROR(Checked(context_->WaitFor(end)));
    BEAMD_ASSIGN_OR_RETURN(const float milliseconds, Checked(context_->Milliseconds(begin, end)));
    return absl::Milliseconds(static_cast<double>(milliseconds));
  }

 private:
  explicit Session(std::unique_ptr<GpuContext> context) : context_(std::move(context)) {}

  // Whether a transfer of this size goes through pinned memory; a host that gives none does without.
  bool Staged(size_t size_bytes) BEAMD_REQUIRES(staging_mutex_) {
    if (size_bytes < kLeastStaged) return false;
    for (void*& block : staging_) {
      if (block != nullptr) continue;
      const absl::StatusOr<void*> pinned = context_->AllocatePinned(kStagingBytes);
      if (!pinned.ok()) return false;
      block = *pinned;
    }
    return true;
  }

  const std::unique_ptr<GpuContext> context_;
  std::atomic<bool> lost_{false};
  Mutex mutex_;
  std::string why_ BEAMD_GUARDED_BY(mutex_);
  Mutex staging_mutex_;
  std::array<void*, 2> staging_{};
  Mutex timing_mutex_;
  // Two of the staging blocks, then begin and end of what is timed.
  std::array<void*, 4> events_{};
};

class GpuBuffer final : public Buffer {
 public:
  GpuBuffer(Session& session, uint64_t address, size_t size_bytes, bool owned)
      : session_(session), address_(address), size_bytes_(size_bytes), owned_(owned) {}
  ~GpuBuffer() override {
    if (!owned_) return;
    session_.EnterToRelease();
    session_.context().Free(address_);
  }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  size_t size_bytes() const override { return size_bytes_; }
  absl::Status Write(size_t offset_bytes, std::span<const std::byte> bytes) override {
    BEAMD_RETURN_IF_ERROR(CheckRange(size_bytes_, offset_bytes, bytes.size()));
    return bytes.empty() ? absl::OkStatus() : session_.Write(address_ + offset_bytes, bytes);
  }
  absl::Status Read(size_t offset_bytes, std::span<std::byte> bytes) const override {
    BEAMD_RETURN_IF_ERROR(CheckRange(size_bytes_, offset_bytes, bytes.size()));
    return bytes.empty() ? absl::OkStatus() : session_.Read(address_ + offset_bytes, bytes);
  }

  uint64_t address() const { return address_; }
  const Session& session() const { return session_; }

 private:
  Session& session_;
  const uint64_t address_;
  const size_t size_bytes_;
  const bool owned_;
};

class GpuExecutable final : public Executable {
 public:
  GpuExecutable(Session& session, void* module, void* function, KernelImage image)
      : session_(session), module_(module), function_(function), image_(std::move(image)) {}
  ~GpuExecutable() override {
    session_.EnterToRelease();
    session_.context().UnloadModule(module_);
  }
  GpuExecutable(const GpuExecutable&) = delete;
  GpuExecutable& operator=(const GpuExecutable&) = delete;

  const Session& session() const { return session_; }
  void* function() const { return function_; }
  const KernelImage& image() const { return image_; }  // without its code

 private:
  Session& session_;
  void* const module_;
  void* const function_;
  const KernelImage image_;
};

GpuContext::Sizes Narrow(const std::array<int64_t, 3>& sizes) {
  return {static_cast<unsigned>(sizes[0]), static_cast<unsigned>(sizes[1]),
          static_cast<unsigned>(sizes[2])};
}

// Whether a launch has no work-group: drivers refuse one.
bool Empty(const KernelImage& image) {
  return std::find(image.global_size.begin(), image.global_size.end(), 0) !=
         image.global_size.end();
}

// A kernel with its arguments laid out as the driver wants them: every parameter is eight bytes.
class Arguments {
 public:
  // InvalidArgument where a buffer is another device's.
  static absl::StatusOr<Arguments> Create(const Session& session, const Launch& launch) {
    Arguments arguments;
    for (Buffer* const buffer : launch.buffers) {
      BEAMD_ASSIGN_OR_RETURN(const uint64_t address, AddressOf(session, *buffer));
      arguments.values_.push_back(address);
    }
    for (const int64_t variable : launch.variables) {
      arguments.values_.push_back(static_cast<uint64_t>(variable));
    }
    arguments.pointers_.reserve(arguments.values_.size());
    for (uint64_t& value : arguments.values_) arguments.pointers_.push_back(&value);
    return arguments;
  }

  static absl::StatusOr<uint64_t> AddressOf(const Session& session, const Buffer& buffer) {
    const auto* const own = dynamic_cast<const GpuBuffer*>(&buffer);
    if (own == nullptr || &own->session() != &session) {
      return absl::InvalidArgumentError("the buffer is not of this device");
    }
    return own->address();
  }

  void Set(size_t index, uint64_t value) { values_[index] = value; }
  void** pointers() { return pointers_.data(); }

 private:
  std::vector<uint64_t> values_;
  std::vector<void*> pointers_;
};

class GpuLaunch final : public PreparedLaunch {
 public:
  GpuLaunch(Session& session, const GpuExecutable& executable, Arguments arguments)
      : session_(session), executable_(executable), arguments_(std::move(arguments)) {}

  absl::Status SetBuffer(size_t index, Buffer& buffer, size_t offset_bytes) override {
    BEAMD_RETURN_IF_ERROR(CheckArgument(executable_.image(), index, buffer, offset_bytes));
    BEAMD_ASSIGN_OR_RETURN(const uint64_t address, Arguments::AddressOf(session_, buffer));
    arguments_.Set(index, address + offset_bytes);
    return absl::OkStatus();
  }

  absl::Status SetVariable(size_t index, int64_t value) override {
    BEAMD_RETURN_IF_ERROR(CheckVariable(executable_.image(), index, value));
    arguments_.Set(executable_.image().buffers.size() + index, static_cast<uint64_t>(value));
    return absl::OkStatus();
  }

  absl::Status Start() override {
    BEAMD_RETURN_IF_ERROR(session_.Enter());
    const KernelImage& image = executable_.image();
    if (Empty(image)) return absl::OkStatus();
    return session_.Checked(
        session_.context().Launch(executable_.function(), Narrow(image.global_size),
                                  Narrow(image.local_size), arguments_.pointers()));
  }

  absl::StatusOr<absl::Duration> Run() override {
    BEAMD_RETURN_IF_ERROR(session_.Enter());
    return session_.Timed([this] { return Start(); });
  }

 private:
  Session& session_;
  const GpuExecutable& executable_;
  Arguments arguments_;
};

class GpuDevice final : public Device {
 public:
  GpuDevice(std::unique_ptr<Session> session, TargetCaps caps, DeviceInfo info)
      : caps_(std::move(caps)), info_(std::move(info)), session_(std::move(session)) {}

  const TargetCaps& caps() const override { return caps_; }
  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t size_bytes) override {
    if (size_bytes > static_cast<size_t>(info_.memory_bytes)) {
      return NoRoom("the device is smaller", size_bytes, info_.memory_bytes);
    }
    BEAMD_RETURN_IF_ERROR(session_->Enter());
    const absl::StatusOr<uint64_t> address =
        session_->Checked(session_->context().Allocate(std::max<size_t>(size_bytes, 1)));
    if (absl::IsResourceExhausted(address.status())) {
      return NoRoom(address.status().message(), size_bytes, FreeMemory().value_or(0));
    }
    BEAMD_RETURN_IF_ERROR(address.status());
    return std::make_unique<GpuBuffer>(*session_, *address, size_bytes, /*owned=*/true);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> View(Buffer& parent, size_t offset_bytes,
                                               size_t size_bytes) override {
    BEAMD_ASSIGN_OR_RETURN(const uint64_t address, Arguments::AddressOf(*session_, parent));
    BEAMD_RETURN_IF_ERROR(CheckWindow(parent, offset_bytes, size_bytes));
    return std::make_unique<GpuBuffer>(*session_, address + offset_bytes, size_bytes,
                                       /*owned=*/false);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Load(const KernelImage& image) override {
    BEAMD_RETURN_IF_ERROR(CheckImage(image));
    BEAMD_RETURN_IF_ERROR(session_->Enter());
    GpuContext& context = session_->context();
    BEAMD_ASSIGN_OR_RETURN(
        void* const module,
        session_->Checked(context.LoadModule(
            caps_.code_form == CodeForm::kBitcode ? PackImage(image) : image.code)));
    const absl::StatusOr<void*> function = session_->Checked(context.Function(module, image.entry));
    if (!function.ok()) {
      context.UnloadModule(module);
      return function.status();
    }
    KernelImage kept = image;
    kept.code.clear();
    return std::make_unique<GpuExecutable>(*session_, module, *function, std::move(kept));
  }

  absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) override {
    BEAMD_ASSIGN_OR_RETURN(const GpuExecutable* const loaded, Own(exe));
    BEAMD_RETURN_IF_ERROR(CheckLaunch(loaded->image(), launch));
    BEAMD_ASSIGN_OR_RETURN(Arguments arguments, Arguments::Create(*session_, launch));
    BEAMD_RETURN_IF_ERROR(session_->Enter());
    GpuContext& context = session_->context();
    const GpuContext::Sizes groups = Narrow(loaded->image().global_size);
    const GpuContext::Sizes items = Narrow(loaded->image().local_size);
    const bool empty = launch.begin == launch.end || Empty(loaded->image());
    const int64_t launches = empty ? 0 : launch.repeats;
    return session_->Timed([&]() -> absl::Status {
      for (int64_t i = 0; i < launches; ++i) {
        BEAMD_RETURN_IF_ERROR(session_->Checked(
            context.Launch(loaded->function(), groups, items, arguments.pointers())));
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable& exe,
                                                          const Launch& launch) override {
    BEAMD_ASSIGN_OR_RETURN(const GpuExecutable* const loaded, Own(exe));
    BEAMD_RETURN_IF_ERROR(CheckWholeLaunch(loaded->image(), launch));
    BEAMD_ASSIGN_OR_RETURN(Arguments arguments, Arguments::Create(*session_, launch));
    return std::make_unique<GpuLaunch>(*session_, *loaded, std::move(arguments));
  }

  absl::Status Wait() override {
    BEAMD_RETURN_IF_ERROR(session_->Enter());
    return session_->Checked(session_->context().Wait());
  }

  // Writing twice the cache leaves nothing else in it. Not waited for: a launch behind it is.
  absl::Status FlushCache(std::span<Buffer* const>) override {
    const MutexLock lock(flush_mutex_);
    if (flush_ == nullptr) {
      BEAMD_ASSIGN_OR_RETURN(flush_, Allocate(2 * static_cast<size_t>(info_.cache_bytes)));
    }
    BEAMD_ASSIGN_OR_RETURN(const uint64_t address, Arguments::AddressOf(*session_, *flush_));
    BEAMD_RETURN_IF_ERROR(session_->Enter());
    return session_->Checked(
        session_->context().Fill(address, ++flush_fill_, flush_->size_bytes()));
  }

  absl::StatusOr<int64_t> FreeMemory() override {
    BEAMD_RETURN_IF_ERROR(session_->Enter());
    BEAMD_ASSIGN_OR_RETURN(const size_t free, session_->Checked(session_->context().FreeMemory()));
    return static_cast<int64_t>(free);
  }

  absl::StatusOr<DeviceCondition> Condition() override { return session_->context().Condition(); }
  bool Disturbed() override { return session_->context().Disturbed(); }

 private:
  static absl::Status NoRoom(absl::string_view why, size_t size_bytes, int64_t free_bytes) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat("no memory of the device for ", size_bytes,
                                                  " bytes, ", free_bytes, " are free: ", why)),
        {.reason = "DEVICE_MEMORY",
         .limit = free_bytes,
         .value = static_cast<int64_t>(size_bytes)});
  }

  absl::StatusOr<const GpuExecutable*> Own(const Executable& exe) const {
    const auto* const loaded = dynamic_cast<const GpuExecutable*>(&exe);
    if (loaded == nullptr || &loaded->session() != session_.get()) {
      return absl::InvalidArgumentError("loaded by another device");
    }
    return loaded;
  }

  absl::Status CheckImage(const KernelImage& image) const {
    if (image.kind != caps_.kind) {
      return absl::InvalidArgumentError("the image is not for this kind of device");
    }
    int64_t items = 1;
    for (size_t i = 0; i < 3; ++i) {
      items *= image.local_size[i];
      const bool fits = image.global_size[i] >= 0 && image.local_size[i] >= 1 &&
                        image.global_size[i] <= (*caps_.global_max)[i] &&
                        image.local_size[i] <= (*caps_.local_max)[i];
      if (!fits || items > (*caps_.local_max)[0]) {
        return absl::InvalidArgumentError(
            absl::StrCat("a launch of (", absl::StrJoin(image.global_size, ", "), ") groups of (",
                         absl::StrJoin(image.local_size, ", "), ") work-items is too large"));
      }
    }
    if (image.shared_bytes > caps_.shared_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("a work-group takes ", image.shared_bytes,
                                                     " bytes of shared memory and gets ",
                                                     caps_.shared_bytes));
    }
    return absl::OkStatus();
  }

  const TargetCaps caps_;
  const DeviceInfo info_;
  const std::unique_ptr<Session> session_;
  Mutex flush_mutex_;
  std::unique_ptr<Buffer> flush_;  // of the session: freed before it
  unsigned char flush_fill_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeGpuDevice(std::unique_ptr<GpuContext> context,
                                                      TargetCaps caps, DeviceInfo info) {
  BEAMD_CHECK(caps.global_max && caps.local_max, "a GPU has limits of a launch");
  BEAMD_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(std::move(context)));
  return std::make_unique<GpuDevice>(std::move(session), std::move(caps), std::move(info));
}

}  // namespace beamd
