// libamdhip64.so.6 for tests: the entry points of devices/hip/api.def, over the machine.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "devices/fake/machine.h"

namespace beamd::fake {
namespace {

int Attribute(int attribute) {
  switch (attribute) {  // hipDeviceAttribute_t
    case 5:             // kHz
      return 2482000;
    case 19:  // L2
      return 1 << 20;
    case 26:  // work-items of a group
    case 27:
    case 28:
    case 56:
      return 1024;
    case 29:  // groups of a grid
      return 2147483647;
    case 30:
    case 31:
      return 65535;
    case 60:  // kHz
      return 1249000;
    case 63:  // compute units
      return 4;
    case 74:  // shared memory of a group
      return 65536;
    case 87:  // wave
      return TheMachine().arch().starts_with("gfx9") ? 64 : 32;
    default:
      return 0;
  }
}

}  // namespace

Machine& TheMachine() {
  static auto* const machine = new Machine(
      60000000, "gfx1100",
      [](int version, const std::string& arch) { return HipTarget(arch, version / 10000000); });
  return *machine;
}

}  // namespace beamd::fake

using beamd::fake::Grid;
using beamd::fake::kInvalidDevice;
using beamd::fake::kInvalidValue;
using beamd::fake::kSuccess;
using beamd::fake::TheMachine;

// Fails where the test says so. Those of a device need no context.
#define ENTER(needs_context) \
  if (const int code = TheMachine().Enter(__func__, needs_context); code != 0) return code

extern "C" {

int hipInit(unsigned) {
  ENTER(false);
  return kSuccess;
}
int hipRuntimeGetVersion(int* version) {
  ENTER(false);
  *version = TheMachine().version();
  return kSuccess;
}
const char* hipGetErrorName(int error) {
  return error == 700 ? "hipErrorIllegalAddress" : "hipError";
}
const char* hipGetErrorString(int error) {
  static thread_local std::string why;
  why = error >= 700 ? TheMachine().why() : "an error of the fake runtime";
  return why.c_str();
}
int hipGetDeviceCount(int* count) {
  ENTER(false);
  *count = TheMachine().devices();
  return kSuccess;
}
int hipSetDevice(int device) {
  ENTER(false);
  return device >= 0 && device < TheMachine().devices() ? kSuccess : kInvalidDevice;
}
int hipDeviceGetName(char* name, int size, int) {
  ENTER(false);
  std::snprintf(name, static_cast<size_t>(size), "Fake HIP GPU");
  return kSuccess;
}
int hipDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(false);
  *value = beamd::fake::Attribute(attribute);
  return kSuccess;
}
int hipDeviceTotalMem(size_t* bytes, int) {
  ENTER(false);
  *bytes = size_t{4} << 30;
  return kSuccess;
}
int hipDeviceGetPCIBusId(char* id, int size, int device) {
  ENTER(false);
  std::snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0", device + 0xc1);
  return kSuccess;
}
int hipGetDevicePropertiesR0600(void* properties, int device) {
  ENTER(false);
  if (device < 0 || device >= TheMachine().devices()) return kInvalidDevice;
  // gcnArchName of hipDeviceProp_tR0600.
  std::strcpy(static_cast<char*>(properties) + 1160,
              (TheMachine().arch() + ":sramecc-:xnack-").c_str());
  return kSuccess;
}
int hipMalloc(void** address, size_t bytes) {
  ENTER(true);
  uint64_t number = 0;
  const int code = TheMachine().Allocate(&number, bytes);
  *address = reinterpret_cast<void*>(number);
  return code;
}
int hipFree(void* address) {
  ENTER(false);
  return TheMachine().Free(reinterpret_cast<uint64_t>(address));
}
int hipMemGetInfo(size_t* free, size_t* all) {
  ENTER(true);
  return TheMachine().MemoryInfo(free, all);
}
int hipHostMalloc(void** memory, size_t bytes, unsigned) {
  ENTER(true);
  return TheMachine().AllocatePinned(memory, bytes);
}
int hipHostFree(void* memory) {
  ENTER(false);
  return TheMachine().FreePinned(memory);
}
int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void*) {
  ENTER(true);
  if (kind != 1 && kind != 2) return kInvalidValue;
  return TheMachine().Copy(to, from, bytes, reinterpret_cast<uint64_t>(kind == 1 ? to : from));
}
int hipMemsetAsync(void* address, int value, size_t bytes, void*) {
  ENTER(true);
  return TheMachine().Fill(reinterpret_cast<uint64_t>(address), static_cast<unsigned char>(value),
                           bytes);
}
int hipModuleLoadData(void** module, const void* image) {
  ENTER(true);
  std::string log;
  return TheMachine().Load(module, image, log);
}
int hipModuleUnload(void* module) {
  ENTER(false);
  return TheMachine().Unload(module);
}
int hipModuleGetFunction(void** function, void* module, const char* name) {
  ENTER(true);
  return TheMachine().Find(function, module, name);
}
int hipModuleLaunchKernel(void* function, unsigned groups_x, unsigned groups_y, unsigned groups_z,
                          unsigned items_x, unsigned items_y, unsigned items_z, unsigned, void*,
                          void** parameters, void**) {
  ENTER(true);
  const Grid grid = {{groups_x, groups_y, groups_z}, {items_x, items_y, items_z}};
  return TheMachine().Launch(function, grid, parameters);
}
int hipEventCreate(void** event) {
  ENTER(true);
  return TheMachine().CreateEvent(event);
}
int hipEventDestroy(void* event) {
  ENTER(false);
  return TheMachine().DestroyEvent(event);
}
int hipEventRecord(void* event, void*) {
  ENTER(true);
  return TheMachine().Record(event);
}
int hipEventSynchronize(void* event) {
  ENTER(true);
  return TheMachine().CheckEvent(event);
}
int hipEventElapsedTime(float* milliseconds, void* begin, void* end) {
  ENTER(true);
  return TheMachine().Elapsed(milliseconds, begin, end);
}
int hipStreamSynchronize(void*) {
  ENTER(true);
  return kSuccess;
}

}  // extern "C"
