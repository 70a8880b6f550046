#include "devices/gpu/library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace beamd {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(std::span<const char* const> names) {
  std::string why = "no library is named";
  for (const char* const name : names) {
    // Local: a driver brings libraries of its own, whose symbols are not for this process.
    if (void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      return SharedLibrary(handle, name);
    }
    if (name == names.front()) why = dlerror();
  }
  return absl::UnavailableError(why);
}

void* SharedLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

absl::Status SharedLibrary::Lacks(const char* symbol) const {
  return absl::UnavailableError(absl::StrCat("the driver is too old: ", name_, " has no ", symbol));
}

}  // namespace beamd
