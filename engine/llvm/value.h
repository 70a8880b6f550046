// Values of our dtypes as LLVM values, and what SEMANTICS.md says of one operation on them. Works a
// lane at a time on vectors. Everything here is straight-line code at the builder's insertion
// point.
//
// In registers a bool is i1; float16 and bfloat16 are what AluTarget says. In memory a bool is a
// byte.
#pragma once

#include "absl/status/statusor.h"
#include "engine/dtype/dtype.h"
#include "engine/uop/op.h"
#include "llvm/IR/IRBuilder.h"

namespace beamd {

using Builder = llvm::IRBuilder<>;

// What the code may use of its target beyond LLVM's own choices.
struct AluTarget {
  bool fma = false;
  // A SIN is a call of a function that the module's sines share.
  bool call_sin = false;
  // float16 and bfloat16 are LLVM's own, where the target computes with them and rounds once. Else
  // they are `float`s that hold a value of their type, so that a node computes in float32 and
  // rounds once, and bfloat16 is an i16 in memory.
  bool half = false;
  bool bfloat = false;
  // A GPU: MAX is one instruction, casts saturate by themselves, EXP2 of float32 is within 2 ulp,
  // and vectors are taken apart, so SIN goes lane by lane.
  bool gpu = false;
  unsigned table_space = 0;  // address space of constant tables
};

llvm::Type* RegisterType(llvm::LLVMContext& context, const AluTarget& target, DType dtype);
llvm::Type* MemoryType(llvm::LLVMContext& context, const AluTarget& target, DType dtype);
llvm::Value* FromMemory(Builder& b, const AluTarget& target, llvm::Value* v, Scalar s);
llvm::Value* ToMemory(Builder& b, const AluTarget& target, llvm::Value* v, Scalar s);

// `v`, a float32 or vector of it, as the nearest value of float16 or bfloat16, ties to even; other
// scalars: `v` itself.
llvm::Value* RoundTo(Builder& b, const AluTarget& target, llvm::Value* v, Scalar s);

// The constant of a scalar kind, as a register value without lanes.
llvm::Constant* IntConstant(llvm::LLVMContext& context, Scalar s, int64_t value);
llvm::Constant* FloatConstant(llvm::LLVMContext& context, const AluTarget& target, Scalar s,
                              double value);

llvm::Value* EmitCast(Builder& b, const AluTarget& target, llvm::Value* v, Scalar from, Scalar to);

// An ALU op over register values. `s`: scalar of the operands (of the arms, for WHERE).
// InvalidArgument where the op has no meaning on it.
absl::StatusOr<llvm::Value*> EmitAlu(Builder& b, const AluTarget& target, Op op, Scalar s,
                                     llvm::ArrayRef<llvm::Value*> src);

}  // namespace beamd
