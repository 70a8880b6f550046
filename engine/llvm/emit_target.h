// What a target does in its own way when a program becomes IR: its entry, where addresses and
// indices come from, what work-items share. emit_body.h does the rest, alike for all targets.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/llvm/value.h"
#include "engine/lower/program.h"
#include "llvm/IR/Module.h"

namespace beamd {

// LLVM's address spaces of a GPU's memory: the same numbers for NVPTX and AMDGPU.
inline constexpr unsigned kGlobalSpace = 1;
inline constexpr unsigned kSharedSpace = 3;

// How a vector is accessed of which single lanes may be off.
enum class Masking {
  kLanes,   // a lane at a time
  kAvx,     // x86's VMASKMOV, register by register: elements of four bytes and more
  kAvx512,  // LLVM's masked accesses, of widths that are powers of two
};

struct TargetTraits {
  AluTarget alu;
  unsigned buffer_space = 0;  // address space of buffers
  Masking masking = Masking::kLanes;
  // Indices are carried in 32 bits where they fit, and a constant in an index is added to the
  // address: a GPU's integer units have 32 bits, and its accesses take an offset.
  bool narrow_indices = false;
};

// One object an emission. Not thread-safe.
class EmitTarget {
 public:
  EmitTarget(const LinearProgram& program, const TargetCaps& caps, llvm::Module& module);
  virtual ~EmitTarget() = default;

  const TargetTraits& traits() const { return traits_; }

  // Makes the entry. `b` stands where the program's ops go; buffers() and variables() are values.
  virtual void Begin(Builder& b) = 0;
  // Behind the last op: returns.
  void End(Builder& b);

  // Addresses, in the order of the image's buffers; i64, in the order of the image's variables.
  const std::vector<llvm::Value*>& buffers() const { return buffers_; }
  const std::vector<llvm::Value*>& variables() const { return variables_; }

  // Where the loop over `range` starts and ends, `extent` being what it is written with.
  struct LoopBounds {
    llvm::Value* begin;
    llvm::Value* end;
    bool cut;  // to a part of the range, maybe to nothing
  };
  virtual LoopBounds BoundsOf(Builder& b, UOp range, llvm::Value* extent);

  // Of the op's work-item or work-group, an i32 in 0..count-1. The others likewise: Unimplemented
  // where the target has nothing of the kind.
  virtual absl::StatusOr<llvm::Value*> LaunchIndex(Builder& b, UOp special, int64_t count);
  // Everything after it is skipped by a work-group for which `goes_on` is false.
  void LeaveUnless(Builder& b, llvm::Value* goes_on);
  virtual absl::StatusOr<llvm::Value*> SharedMemory(UOp define, llvm::Type* element);
  virtual absl::Status Barrier(Builder& b, UOp barrier);
  virtual absl::StatusOr<llvm::Value*> MatrixProduct(Builder& b, UOp wmma, llvm::Value* x,
                                                     llvm::Value* y, llvm::Value* z);

 protected:
  const LinearProgram& program_;
  const TargetCaps& caps_;
  llvm::Module& module_;
  TargetTraits traits_;
  std::vector<llvm::Value*> buffers_;
  std::vector<llvm::Value*> variables_;

 private:
  llvm::BasicBlock* done_ = nullptr;  // where work-groups go that left
};

std::unique_ptr<EmitTarget> NewCpuTarget(const LinearProgram& program, const TargetCaps& caps,
                                         llvm::Module& module);
std::unique_ptr<EmitTarget> NewNvptxTarget(const LinearProgram& program, const TargetCaps& caps,
                                           llvm::Module& module);
std::unique_ptr<EmitTarget> NewAmdgpuTarget(const LinearProgram& program, const TargetCaps& caps,
                                            llvm::Module& module);

}  // namespace beamd
