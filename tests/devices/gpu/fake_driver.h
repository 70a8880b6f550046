// The test's side of a fake driver library (devices/fake/control.h).
#pragma once

#include <string>

#include "devices/fake/control.h"

namespace beamd {

class FakeDriver {
 public:
  // "libcuda.so.1": the one that the driver opens too. Aborts where it isn't there.
  explicit FakeDriver(const std::string& library);

  // Call number `call` of the entry point, counted from now (0: every call), answers `code`.
  void Fail(const std::string& entry, int call, int code) { fail_(entry.c_str(), call, code); }
  // Mends everything; what is alive stays.
  void Reset() { reset_(); }
  // Handles made and not given back.
  int64_t alive() { return alive_(); }
  int64_t calls(const std::string& entry) { return calls_(entry.c_str()); }
  void Define(const std::string& name, fake::HostKernel kernel) { define_(name.c_str(), kernel); }

 private:
  fake::FailFunction* fail_;
  fake::ResetFunction* reset_;
  fake::AliveFunction* alive_;
  fake::CallsFunction* calls_;
  fake::DefineFunction* define_;
};

}  // namespace beamd
