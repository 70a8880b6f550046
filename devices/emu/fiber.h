// Stacks that take turns on one thread: a fiber runs until it yields or ends, then whoever resumed
// it goes on. Each stack has a guard page below it: an overflow ends the process, as a fault does.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace beamd {

// Not thread-safe; used by one thread at a time, which must not change while a fiber is under way.
class Fibers {
 public:
  using Body = void (*)(void* argument);

  // ResourceExhausted where the system has no room for so many stacks.
  static absl::StatusOr<std::unique_ptr<Fibers>> Create(int count);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  int count() const { return static_cast<int>(fibers_.size()); }
  // The next Resume of fiber `index` calls body(argument). What it was doing is dropped without
  // running destructors.
  void Start(int index, Body body, void* argument);
  // Runs fiber `index`, which was started and hasn't ended, until it yields or its body returns.
  void Resume(int index);
  // From inside a fiber: goes back to Resume's caller.
  void Yield();

 private:
  struct Fiber {
    void* stack_pointer = nullptr;
    std::byte* bottom = nullptr;
    Body body = nullptr;
    void* argument = nullptr;
    void* sanitizer = nullptr;  // what the sanitizer keeps of it
  };

  Fibers() = default;
  static void Main();
  void Leave(bool ends);

  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::vector<Fiber> fibers_;
  Fiber* current_ = nullptr;
  void* caller_ = nullptr;  // the stack pointer of Resume's caller
  // The caller's, for sanitizers.
  void* caller_sanitizer_ = nullptr;
  const void* caller_bottom_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace beamd
