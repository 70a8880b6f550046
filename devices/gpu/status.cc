#include "devices/gpu/status.h"

#include "absl/strings/str_cat.h"

namespace beamd {
namespace {

absl::StatusCode CodeOf(int code) {
  switch (code) {
    case 2:    // out of memory
    case 701:  // a launch needs more registers or threads than there are
    case 720:  // cooperative launch too large
      return absl::StatusCode::kResourceExhausted;
    case 1:    // invalid value
    case 9:    // invalid configuration
    case 98:   // invalid device function
    case 200:  // invalid image
    case 209:  // no binary for this GPU
    case 218:  // invalid PTX
    case 222:  // PTX of an unsupported version
    case 300:  // invalid source
    case 301:  // file not found
    case 302:  // a symbol of a shared object is not found
    case 303:  // a shared object fails to initialise
    case 500:  // a named symbol is not found
      return absl::StatusCode::kInvalidArgument;
    case 3:     // not initialised
    case 4:     // deinitialised
    case 34:    // stub library
    case 35:    // insufficient driver
    case 36:    // call requires a newer driver
    case 46:    // device unavailable
    case 100:   // no device
    case 101:   // invalid device
    case 214:   // uncorrectable ECC error
    case 220:   // uncorrectable NVLink error
    case 221:   // no JIT compiler
    case 226:   // contained error
    case 700:   // illegal address
    case 702:   // launch timed out
    case 709:   // context is destroyed
    case 710:   // assert
    case 714:   // hardware stack error
    case 715:   // illegal instruction
    case 716:   // misaligned address
    case 717:   // invalid address space
    case 718:   // invalid program counter
    case 719:   // launch failed: a trap among others
    case 721:   // tensor memory leak
    case 802:   // system not ready
    case 803:   // system and driver don't match
    case 804:   // the compatibility package doesn't support the device
    case 999:   // unknown
    case 1052:  // HSA runtime: memory
    case 1053:  // HSA runtime: other
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status GpuStatus(int code, absl::string_view entry, absl::string_view name,
                       absl::string_view text) {
  if (code == 0) return absl::OkStatus();
  std::string message = absl::StrCat(entry, ": ", code);
  if (!name.empty()) absl::StrAppend(&message, " ", name);
  if (!text.empty()) absl::StrAppend(&message, ": ", text);
  return absl::Status(CodeOf(code), message);
}

}  // namespace beamd
