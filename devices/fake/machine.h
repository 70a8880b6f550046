// A GPU that isn't there: what the fake driver libraries have in common.
//
// It keeps memory, modules and events, refuses what a driver would refuse, counts what is alive,
// and fails at an entry point when told to. A kernel is a function of the test's (code that reads
// "host:NAME") or LLVM bitcode.
//
//   BEAMD_FAKE_ERRORS   "cuMemAlloc_v2:3=2,cuInit:0=34": the third call of one answers 2, every
//                       call of the other 34
//   BEAMD_FAKE_DEVICES  how many GPUs there are; 1
//   BEAMD_FAKE_VERSION  the driver's version in its own numbering
//   BEAMD_FAKE_ARCH     "sm_90", "gfx1100"
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "devices/fake/control.h"
#include "engine/base/mutex.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/kernel_image.h"

namespace beamd::fake {

// CUDA's numbers, which are HIP's too.
enum Code : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
};

struct Grid {
  unsigned groups[3];
  unsigned items[3];
};

// Code that can be launched.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // kSuccess, or what the launch breaks the context with and, in `why`, what it did.
  virtual int Run(const Grid& grid, void** parameters, std::string& why) = 0;
};

class Module {
 public:
  virtual ~Module() = default;
  // Null where it has none of this name. Lives as long as the module.
  virtual Kernel* Find(const std::string& name) = 0;
};

// Makes bitcode for the target into a module (devices/emu). Null, with the reason in `log`, where
// that can't be.
std::unique_ptr<Module> LoadEmulated(const KernelImage& image, const TargetCaps& caps,
                                     std::string& log);

// Thread-safe.
class Machine {
 public:
  // Where the environment doesn't say otherwise. `target` is what code is for, given version and
  // arch.
  using Target = absl::StatusOr<TargetCaps> (*)(int version, const std::string& arch);
  Machine(int version, std::string arch, Target target);

  // As the environment says now.
  int devices() const;
  int version() const;
  std::string arch() const;

  // First in each entry point: the code that it shall fail with, else kSuccess. Entries that need a
  // context fail with what a kernel has broken it with.
  int Enter(const char* entry, bool needs_context = true);
  // What broke the context.
  std::string why() const;

  int RetainContext(int device);
  int ReleaseContext(int device);
  int Allocate(uint64_t* address, size_t size_bytes);
  int Free(uint64_t address);
  int MemoryInfo(size_t* free, size_t* all);
  int AllocatePinned(void** memory, size_t size_bytes);
  int FreePinned(void* memory);
  // kInvalidValue unless the bytes lie in one allocation.
  int Copy(void* to, const void* from, size_t size_bytes, uint64_t device_address);
  int Fill(uint64_t address, unsigned char value, size_t size_bytes);
  // `packed`: devices/gpu/packed_image.h.
  int Load(void** module, const void* packed, std::string& log);
  int Unload(void* module);
  int Find(void** function, void* module, const char* name);
  int Launch(void* function, const Grid& grid, void** parameters);
  int CreateEvent(void** event);
  int DestroyEvent(void* event);
  int Record(void* event);
  int Elapsed(float* milliseconds, void* begin, void* end);
  int CheckEvent(void* event);

  // Tests' side (devices/fake/control.h).
  void Fail(const std::string& entry, int call, int code);
  void Reset();
  int64_t Alive() const;
  int64_t Calls(const std::string& entry) const;
  void Define(const std::string& name, HostKernel kernel);

 private:
  struct Failure {
    int call = 0;  // 0: every one
    int code = 0;
  };

  void ReadErrors(const char* text) BEAMD_REQUIRES(mutex_);
  size_t Held() const BEAMD_REQUIRES(mutex_);
  bool Inside(uint64_t address, size_t size_bytes) const BEAMD_REQUIRES(mutex_);

  const int version_;
  const std::string arch_;
  const Target target_;
  mutable Mutex mutex_;
  std::map<std::string, int64_t> calls_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::string, Failure> failures_ BEAMD_GUARDED_BY(mutex_);
  std::map<std::string, HostKernel> kernels_ BEAMD_GUARDED_BY(mutex_);
  std::map<uint64_t, size_t> memory_ BEAMD_GUARDED_BY(mutex_);  // address, bytes
  std::set<void*> pinned_ BEAMD_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<Module>> modules_ BEAMD_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<double>> events_ BEAMD_GUARDED_BY(mutex_);  // ms
  int64_t contexts_ BEAMD_GUARDED_BY(mutex_) = 0;
  int broken_ BEAMD_GUARDED_BY(mutex_) = kSuccess;
  std::string why_ BEAMD_GUARDED_BY(mutex_);
};

// The one of this library.
Machine& TheMachine();

}  // namespace beamd::fake
