// A shared library opened while the process runs, never closed: drivers don't survive that.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace beamd {

class SharedLibrary {
 public:
  // The first of these names that the loader finds. Unavailable, with the loader's words, if none.
  static absl::StatusOr<SharedLibrary> Open(std::span<const char* const> names);

  const std::string& name() const { return name_; }
  // Null where the library lacks it.
  void* Find(const char* symbol) const;
  // Unavailable, naming the symbol, where the library lacks it: another version than was expected.
  template <typename Function>
  absl::Status Bind(const char* symbol, Function*& to) const {
    to = reinterpret_cast<Function*>(Find(symbol));
    return to != nullptr ? absl::OkStatus() : Lacks(symbol);
  }

 private:
  SharedLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  absl::Status Lacks(const char* symbol) const;

  void* handle_;
  std::string name_;
};

}  // namespace beamd
