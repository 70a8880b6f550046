#include "devices/emu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// Saves the registers that a call preserves (System V ABI, x86-64, 3.2.1) on this stack, leaves its
// pointer in *save and goes on where the stack `to` was left. The floating-point control words are
// those of the thread on every stack.
extern "C" void beamd_switch_stack(void** save, void* to);
asm(R"(
.text
.globl beamd_switch_stack
.hidden beamd_switch_stack
.type beamd_switch_stack, @function
beamd_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size beamd_switch_stack, .-beamd_switch_stack
)");

namespace beamd {
namespace {

constexpr size_t kPage = 4096;
// A kernel spills at most what its registers held on a GPU, some kilobytes; a sanitizer's checks
// of what it calls want more.
constexpr size_t kStackBytes = size_t{256} << 10;
// Stacks begin at different lines of the cache, which would else all fall into the same sets.
constexpr size_t kColours = 48;
constexpr size_t kColourBytes = 320;
constexpr int kSavedRegisters = 6;

thread_local Fibers* running = nullptr;

// Before the thread goes from one stack to another, and first thing on the new one. `save`: where
// what is left is kept, null where it ends.
void BeforeSwitch([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom,
                  [[maybe_unused]] size_t bytes, [[maybe_unused]] void* to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, bottom, bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to, 0);
#endif
}

void AfterSwitch([[maybe_unused]] void* kept, [[maybe_unused]] const void** from_bottom,
                 [[maybe_unused]] size_t* from_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(kept, from_bottom, from_bytes);
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fibers>> Fibers::Create(int count) {
  std::unique_ptr<Fibers> fibers(new Fibers);
  const size_t bytes = static_cast<size_t>(count) * kStackBytes;
  // Pages that no stack reaches are never backed by memory.
  void* const mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", count, " stacks"));
  }
  fibers->mapping_ = static_cast<std::byte*>(mapping);
  fibers->mapping_bytes_ = bytes;
  fibers->fibers_.resize(count);
  for (int i = 0; i < count; ++i) {
    Fiber& fiber = fibers->fibers_[i];
    fiber.bottom = fibers->mapping_ + static_cast<size_t>(i) * kStackBytes;
    if (mprotect(fiber.bottom, kPage, PROT_NONE) != 0) {
      return absl::ResourceExhaustedError(absl::StrCat("no room for ", count, " guard pages"));
    }
#if defined(__SANITIZE_THREAD__)
    fiber.sanitizer = __tsan_create_fiber(0);
#endif
  }
  return fibers;
}

Fibers::~Fibers() {
#if defined(__SANITIZE_THREAD__)
  for (const Fiber& fiber : fibers_) {
    if (fiber.sanitizer != nullptr) __tsan_destroy_fiber(fiber.sanitizer);
  }
#endif
#if defined(__SANITIZE_ADDRESS__)
  if (mapping_ != nullptr) __asan_unpoison_memory_region(mapping_, mapping_bytes_);
#endif
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

void Fibers::Start(int index, Body body, void* argument) {
  Fiber& fiber = fibers_[index];
  fiber.body = body;
  fiber.argument = argument;
#if defined(__SANITIZE_ADDRESS__)
  fiber.sanitizer = nullptr;
  // Frames that never returned left their marks.
  __asan_unpoison_memory_region(fiber.bottom + kPage, kStackBytes - kPage);
#endif
  const size_t colour = static_cast<size_t>(index) % kColours * kColourBytes;
  auto* const top = reinterpret_cast<void**>(fiber.bottom + kStackBytes - colour / 16 * 16);
  // As after a call of Main from nowhere: below an aligned address the place to return to.
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(&Fibers::Main);
  void** const saved = top - 2 - kSavedRegisters;
  std::memset(saved, 0, kSavedRegisters * sizeof(void*));
  fiber.stack_pointer = saved;
}

void Fibers::Resume(int index) {
  Fibers* const outer = running;
  running = this;
  current_ = &fibers_[index];
#if defined(__SANITIZE_THREAD__)
  caller_sanitizer_ = __tsan_get_current_fiber();
#endif
  BeforeSwitch(&caller_sanitizer_, current_->bottom, kStackBytes, current_->sanitizer);
  beamd_switch_stack(&caller_, current_->stack_pointer);
  AfterSwitch(caller_sanitizer_, nullptr, nullptr);
  running = outer;
}

void Fibers::Yield() { Leave(false); }

void Fibers::Leave(bool ends) {
  Fiber& fiber = *current_;
  BeforeSwitch(ends ? nullptr : &fiber.sanitizer, caller_bottom_, caller_bytes_, caller_sanitizer_);
  beamd_switch_stack(&fiber.stack_pointer, caller_);
  AfterSwitch(fiber.sanitizer, &caller_bottom_, &caller_bytes_);
}

void Fibers::Main() {
  Fibers& self = *running;
  AfterSwitch(nullptr, &self.caller_bottom_, &self.caller_bytes_);
  self.current_->body(self.current_->argument);
  self.Leave(true);
  BEAMD_CHECK(false, "a fiber that ended isn't resumed");
}

}  // namespace beamd
