#include "tests/devices/gpu/fake_driver.h"

#include <dlfcn.h>

#include "engine/base/status.h"

namespace beamd {
namespace {

template <typename Function>
Function* Bind(void* library, const char* name) {
  auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
  BEAMD_CHECK(function != nullptr, name);
  return function;
}

}  // namespace

FakeDriver::FakeDriver(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  BEAMD_CHECK(opened != nullptr, "LD_LIBRARY_PATH leads to the fake drivers");
  fail_ = Bind<fake::FailFunction>(opened, "beamd_fake_Fail");
  reset_ = Bind<fake::ResetFunction>(opened, "beamd_fake_Reset");
  alive_ = Bind<fake::AliveFunction>(opened, "beamd_fake_Alive");
  calls_ = Bind<fake::CallsFunction>(opened, "beamd_fake_Calls");
  define_ = Bind<fake::DefineFunction>(opened, "beamd_fake_Define");
}

}  // namespace beamd
