// libcuda.so.1 for tests: the entry points of devices/cuda/api.def, over the machine.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "devices/fake/machine.h"

namespace beamd::fake {
namespace {

// 80 of "sm_80".
int Capability(const std::string& arch) {
  int capability = 0;
  return absl::SimpleAtoi(arch.substr(3), &capability) ? capability : 0;
}

int Attribute(int attribute) {
  const int capability = Capability(TheMachine().arch());
  switch (attribute) {  // CUdevice_attribute
    case 1:             // threads of a block
    case 2:
    case 3:
      return 1024;
    case 4:
      return 64;
    case 5:  // blocks of a grid
      return 2147483647;
    case 6:
    case 7:
      return 65535;
    case 8:  // shared memory of a block
      return 49152;
    case 10:  // warp
      return 32;
    case 13:  // kHz
      return 1410000;
    case 16:  // multiprocessors
      return 4;
    case 36:  // kHz
      return 1215000;
    case 38:  // L2
      return 1 << 20;
    case 75:
      return capability / 10;
    case 76:
      return capability % 10;
    default:
      return 0;
  }
}

}  // namespace

Machine& TheMachine() {
  static auto* const machine =
      new Machine(12040, "sm_80", [](int version, const std::string& arch) {
        const int capability = Capability(arch);
        return CudaTarget(capability / 10, capability % 10, version);
      });
  return *machine;
}

}  // namespace beamd::fake

using beamd::fake::Grid;
using beamd::fake::kInvalidDevice;
using beamd::fake::kSuccess;
using beamd::fake::TheMachine;

// Fails where the test says so. Those of a device need no context.
#define ENTER(needs_context) \
  if (const int code = TheMachine().Enter(__func__, needs_context); code != 0) return code

extern "C" {

int cuInit(unsigned) {
  ENTER(false);
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  ENTER(false);
  *version = TheMachine().version();
  return kSuccess;
}
int cuGetErrorName(int error, const char** name) {
  ENTER(false);
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) {
  ENTER(false);
  static thread_local std::string why;
  why = error >= 700 ? TheMachine().why() : "an error of the fake driver";
  *text = why.c_str();
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = TheMachine().devices();
  return kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  ENTER(false);
  if (ordinal < 0 || ordinal >= TheMachine().devices()) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
int cuDeviceGetName(char* name, int size, int) {
  ENTER(false);
  std::snprintf(name, static_cast<size_t>(size), "Fake CUDA GPU");
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(false);
  *value = beamd::fake::Attribute(attribute);
  return kSuccess;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  ENTER(false);
  *bytes = size_t{4} << 30;
  return kSuccess;
}
int cuDeviceGetPCIBusId(char* id, int size, int device) {
  ENTER(false);
  std::snprintf(id, static_cast<size_t>(size), "0000:%02X:00.0", device + 1);
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER(false);
  *context = &TheMachine();
  return TheMachine().RetainContext(device);
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(false);
  return TheMachine().ReleaseContext(device);
}
int cuCtxSetCurrent(void*) {
  ENTER(false);
  return kSuccess;
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  ENTER(true);
  return TheMachine().Allocate(address, bytes);
}
int cuMemFree_v2(uint64_t address) {
  ENTER(false);
  return TheMachine().Free(address);
}
int cuMemGetInfo_v2(size_t* free, size_t* all) {
  ENTER(true);
  return TheMachine().MemoryInfo(free, all);
}
int cuMemAllocHost_v2(void** memory, size_t bytes) {
  ENTER(true);
  return TheMachine().AllocatePinned(memory, bytes);
}
int cuMemFreeHost(void* memory) {
  ENTER(false);
  return TheMachine().FreePinned(memory);
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  ENTER(true);
  return TheMachine().Copy(reinterpret_cast<void*>(to), from, bytes, to);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  ENTER(true);
  return TheMachine().Copy(to, reinterpret_cast<const void*>(from), bytes, from);
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void*) {
  ENTER(true);
  return TheMachine().Fill(address, value, bytes);
}
int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options,
                       void** values) {
  ENTER(true);
  std::string log;
  const int code = TheMachine().Load(module, image, log);
  // CU_JIT_ERROR_LOG_BUFFER, then its size.
  if (count == 2 && options[0] == 5 && options[1] == 6) {
    std::snprintf(static_cast<char*>(values[0]), reinterpret_cast<uintptr_t>(values[1]), "%s",
                  log.c_str());
  }
  return code;
}
int cuModuleUnload(void* module) {
  ENTER(false);
  return TheMachine().Unload(module);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER(true);
  return TheMachine().Find(function, module, name);
}
int cuLaunchKernel(void* function, unsigned groups_x, unsigned groups_y, unsigned groups_z,
                   unsigned items_x, unsigned items_y, unsigned items_z, unsigned, void*,
                   void** parameters, void**) {
  ENTER(true);
  const Grid grid = {{groups_x, groups_y, groups_z}, {items_x, items_y, items_z}};
  return TheMachine().Launch(function, grid, parameters);
}
int cuEventCreate(void** event, unsigned) {
  ENTER(true);
  return TheMachine().CreateEvent(event);
}
int cuEventDestroy_v2(void* event) {
  ENTER(false);
  return TheMachine().DestroyEvent(event);
}
int cuEventRecord(void* event, void*) {
  ENTER(true);
  return TheMachine().Record(event);
}
int cuEventSynchronize(void* event) {
  ENTER(true);
  return TheMachine().CheckEvent(event);
}
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  ENTER(true);
  return TheMachine().Elapsed(milliseconds, begin, end);
}
int cuStreamSynchronize(void*) {
  ENTER(true);
  return kSuccess;
}

}  // extern "C"
