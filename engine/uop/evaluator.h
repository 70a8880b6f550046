// What a kernel means, computed the plain way: an oracle for everything that makes kernels fast.
//
// Implements SEMANTICS "Values", "Memory" and "Equal": each node's value is rounded to its dtype,
// and a first-order error goes with each float, so that results of another order of summing can be
// told from wrong ones. It shares no code with lowering and none with engine/shape.
//
// In: a kernel that VerifyKernel accepts. About 20 ns a node and point.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/uop/uop.h"
#include "engine/uop/view_index.h"

namespace beamd {

// One element of an output.
struct EvalValue {
  Scalar scalar = Scalar::kVoid;
  double real = 0;      // floats
  int64_t integer = 0;  // integers and bool, as WrapInt leaves them
  double error = 0;     // floats: the e of "Equal"
  // Nothing can be said: e isn't finite, or a comparison of operands within their errors decides.
  bool undecided = false;
};

// What a buffer holds before the kernel runs, for an output too. Borrowed.
struct EvalBuffer {
  const void* data = nullptr;
  int64_t elements = 0;
  Scalar scalar = Scalar::kVoid;
  bool uniform = false;  // data is one element, which all of them equal
};

struct EvalInputs {
  absl::flat_hash_map<uint64_t, EvalBuffer> buffers;  // by slot
  VariableValues variables;
  // The factors of float32 products that an ADD reduction sums may be rounded to 10 bits, as tensor
  // cores do with .tf32.
  bool allow_tf32 = false;
};

// Not thread-safe; borrows what the inputs point to.
class Evaluator {
 public:
  // InvalidArgument for a graph that is no kernel, a variable without value, a buffer that is
  // absent or of another dtype; ResourceExhausted for one too tangled to plan.
  static absl::StatusOr<Evaluator> Create(UOp sink, EvalInputs inputs);
  Evaluator(Evaluator&&) noexcept;
  Evaluator& operator=(Evaluator&&) noexcept;
  ~Evaluator();

  // The elements that slot `slot` has at `elements` after the kernel; one that it doesn't write
  // keeps its content. OutOfRange where the kernel or `elements` leave a buffer.
  absl::StatusOr<std::vector<EvalValue>> Evaluate(uint64_t slot, std::span<const int64_t> elements);
  absl::StatusOr<std::vector<EvalValue>> EvaluateAll(uint64_t slot);

  // Nodes times points that one written element of `slot` costs; 0 if nothing stores it. Callers
  // with a time limit choose how many elements to look at by it.
  double WorkPerElement(uint64_t slot) const;

 private:
  struct Plan;
  explicit Evaluator(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

enum class Comparison { kEqual, kDifferent, kUndecided };

// SEMANTICS "Equal". `got` points to an element of want.scalar.
Comparison CompareElement(const void* got, const EvalValue& want);
Comparison CompareFloat(double got, const EvalValue& want);
Comparison CompareInt(int64_t got, const EvalValue& want);

}  // namespace beamd
