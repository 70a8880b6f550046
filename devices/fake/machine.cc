#include "devices/fake/machine.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "devices/gpu/packed_image.h"

namespace beamd::fake {
namespace {

// What this GPU holds, so that running out of it is quick.
constexpr size_t kMemoryBytes = size_t{4} << 30;
constexpr size_t kAlignment = 256;

int NumberFrom(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

double NowMilliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class HostFunction final : public Kernel, public Module {
 public:
  explicit HostFunction(HostKernel function) : function_(function) {}
  int Run(const Grid& grid, void** parameters, std::string& why) override {
    why = "the kernel of the test broke the context";
    return function_(grid.groups, grid.items, parameters);
  }
  Kernel* Find(const std::string& name) override { return name == "kernel" ? this : nullptr; }

 private:
  const HostKernel function_;
};

}  // namespace

Machine::Machine(int version, std::string arch, Target target)
    : version_(version), arch_(std::move(arch)), target_(target) {
  const MutexLock lock(mutex_);
  ReadErrors(std::getenv("BEAMD_FAKE_ERRORS"));
}

int Machine::devices() const { return NumberFrom("BEAMD_FAKE_DEVICES", 1); }
int Machine::version() const { return NumberFrom("BEAMD_FAKE_VERSION", version_); }
std::string Machine::arch() const {
  const char* const text = std::getenv("BEAMD_FAKE_ARCH");
  return text != nullptr ? text : arch_;
}

void Machine::ReadErrors(const char* text) {
  if (text == nullptr) return;
  for (const absl::string_view one : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(one, absl::ByAnyChar(":="));
    Failure failure;
    if (parts.size() == 3 && absl::SimpleAtoi(parts[1], &failure.call) &&
        absl::SimpleAtoi(parts[2], &failure.code)) {
      failures_[parts[0]] = failure;
    }
  }
}

int Machine::Enter(const char* entry, bool needs_context) {
  const MutexLock lock(mutex_);
  const int64_t call = ++calls_[entry];
  const auto failure = failures_.find(entry);
  if (failure != failures_.end() && (failure->second.call == 0 || failure->second.call == call)) {
    return failure->second.code;
  }
  return needs_context ? broken_ : kSuccess;
}

std::string Machine::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

int Machine::RetainContext(int device) {
  const MutexLock lock(mutex_);
  if (device < 0 || device >= devices()) return kInvalidDevice;
  ++contexts_;
  return kSuccess;
}

int Machine::ReleaseContext(int device) {
  const MutexLock lock(mutex_);
  if (device < 0 || device >= devices() || contexts_ == 0) return kInvalidContext;
  --contexts_;
  return kSuccess;
}

size_t Machine::Held() const {
  size_t held = 0;
  for (const auto& [begin, bytes] : memory_) held += bytes;
  return held;
}

int Machine::MemoryInfo(size_t* free, size_t* all) {
  const MutexLock lock(mutex_);
  *free = kMemoryBytes - Held();
  *all = kMemoryBytes;
  return kSuccess;
}

int Machine::Allocate(uint64_t* address, size_t size_bytes) {
  const MutexLock lock(mutex_);
  if (size_bytes == 0) return kInvalidValue;
  if (size_bytes > kMemoryBytes - Held()) return kOutOfMemory;
  void* const memory =
      std::aligned_alloc(kAlignment, (size_bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<uint64_t>(memory);
  memory_[*address] = size_bytes;
  return kSuccess;
}

int Machine::Free(uint64_t address) {
  const MutexLock lock(mutex_);
  if (memory_.erase(address) == 0) return kInvalidValue;
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}

int Machine::AllocatePinned(void** memory, size_t size_bytes) {
  const MutexLock lock(mutex_);
  *memory = std::malloc(size_bytes);
  if (*memory == nullptr) return kOutOfMemory;
  pinned_.insert(*memory);
  return kSuccess;
}

int Machine::FreePinned(void* memory) {
  const MutexLock lock(mutex_);
  if (pinned_.erase(memory) == 0) return kInvalidValue;
  std::free(memory);
  return kSuccess;
}

bool Machine::Inside(uint64_t address, size_t size_bytes) const {
  auto next = memory_.upper_bound(address);
  if (next == memory_.begin()) return false;
  const auto& [begin, bytes] = *--next;
  return address - begin <= bytes && size_bytes <= bytes - (address - begin);
}

int Machine::Copy(void* to, const void* from, size_t size_bytes, uint64_t device_address) {
  const MutexLock lock(mutex_);
  if (!Inside(device_address, size_bytes)) return kInvalidValue;
  std::memcpy(to, from, size_bytes);
  return kSuccess;
}

int Machine::Fill(uint64_t address, unsigned char value, size_t size_bytes) {
  const MutexLock lock(mutex_);
  if (!Inside(address, size_bytes)) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(address), value, size_bytes);
  return kSuccess;
}

int Machine::Load(void** module, const void* packed, std::string& log) {
  const absl::StatusOr<KernelImage> image = UnpackImage(packed);
  if (!image.ok()) {
    log = std::string(image.status().message());
    return kInvalidImage;
  }
  std::unique_ptr<Module> loaded;
  absl::string_view name = image->code;
  if (absl::ConsumePrefix(&name, "host:")) {
    const MutexLock lock(mutex_);
    const auto kernel = kernels_.find(std::string(name));
    if (kernel != kernels_.end()) {
      loaded = std::make_unique<HostFunction>(kernel->second);
    } else {
      log = absl::StrCat("the test has no kernel ", name);
    }
  } else {
    const absl::StatusOr<TargetCaps> caps = target_(version(), arch());
    if (!caps.ok()) return kInvalidImage;
    loaded = LoadEmulated(*image, *caps, log);
  }
  if (loaded == nullptr) return kInvalidImage;
  const MutexLock lock(mutex_);
  *module = loaded.get();
  modules_[*module] = std::move(loaded);
  return kSuccess;
}

int Machine::Unload(void* module) {
  const MutexLock lock(mutex_);
  return modules_.erase(module) == 0 ? kInvalidHandle : kSuccess;
}

int Machine::Find(void** function, void* module, const char* name) {
  const MutexLock lock(mutex_);
  const auto found = modules_.find(module);
  if (found == modules_.end()) return kInvalidHandle;
  Kernel* const kernel = found->second->Find(name);
  if (kernel == nullptr) return kNotFound;
  *function = kernel;
  return kSuccess;
}

int Machine::Launch(void* function, const Grid& grid, void** parameters) {
  for (int i = 0; i < 3; ++i) {
    if (grid.groups[i] == 0 || grid.items[i] == 0) return kInvalidValue;
  }
  std::string why;
  const int code = static_cast<Kernel*>(function)->Run(grid, parameters, why);
  // A launch succeeds; whoever waits for it, or comes after it, is told.
  if (code != kSuccess) {
    const MutexLock lock(mutex_);
    broken_ = code;
    why_ = why;
  }
  return kSuccess;
}

int Machine::CreateEvent(void** event) {
  const MutexLock lock(mutex_);
  auto made = std::make_unique<double>(0);
  *event = made.get();
  events_[*event] = std::move(made);
  return kSuccess;
}

int Machine::DestroyEvent(void* event) {
  const MutexLock lock(mutex_);
  return events_.erase(event) == 0 ? kInvalidHandle : kSuccess;
}

int Machine::Record(void* event) {
  const MutexLock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return kInvalidHandle;
  *found->second = NowMilliseconds();
  return kSuccess;
}

int Machine::CheckEvent(void* event) {
  const MutexLock lock(mutex_);
  return events_.contains(event) ? kSuccess : kInvalidHandle;
}

int Machine::Elapsed(float* milliseconds, void* begin, void* end) {
  const MutexLock lock(mutex_);
  const auto first = events_.find(begin), last = events_.find(end);
  if (first == events_.end() || last == events_.end()) return kInvalidHandle;
  *milliseconds = static_cast<float>(*last->second - *first->second);
  return kSuccess;
}

void Machine::Fail(const std::string& entry, int call, int code) {
  const MutexLock lock(mutex_);
  calls_[entry] = 0;
  failures_[entry] = {call, code};
}

void Machine::Reset() {
  const MutexLock lock(mutex_);
  calls_.clear();
  failures_.clear();
  kernels_.clear();
  broken_ = kSuccess;
  why_.clear();
}

int64_t Machine::Alive() const {
  const MutexLock lock(mutex_);
  return contexts_ +
         static_cast<int64_t>(memory_.size() + pinned_.size() + modules_.size() + events_.size());
}

int64_t Machine::Calls(const std::string& entry) const {
  const MutexLock lock(mutex_);
  const auto found = calls_.find(entry);
  return found == calls_.end() ? 0 : found->second;
}

void Machine::Define(const std::string& name, HostKernel kernel) {
  const MutexLock lock(mutex_);
  kernels_[name] = kernel;
}

}  // namespace beamd::fake

extern "C" {

// What the drivers look for.
extern const int beamd_takes_bitcode;
const int beamd_takes_bitcode = 1;

void beamd_fake_Fail(const char* entry, int call, int code) {
  beamd::fake::TheMachine().Fail(entry, call, code);
}
void beamd_fake_Reset() { beamd::fake::TheMachine().Reset(); }
int64_t beamd_fake_Alive() { return beamd::fake::TheMachine().Alive(); }
int64_t beamd_fake_Calls(const char* entry) { return beamd::fake::TheMachine().Calls(entry); }
void beamd_fake_Define(const char* name, beamd::fake::HostKernel kernel) {
  beamd::fake::TheMachine().Define(name, kernel);
}

}  // extern "C"
