// Linear programs by hand, and running them on this machine's CPU.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/target_caps.h"
#include "engine/lower/program.h"
#include "engine/uop/uop.h"

namespace beamd {

class ProgramBuilder {
 public:
  // Appends the node, constants included, unless it stands in the list already.
  UOp Add(Op op, DType dtype, std::initializer_list<UOp> src, Arg arg = {}) {
    return Append(graph_.Make(op, dtype, src, arg));
  }
  UOp Append(UOp u);
  UOp Int(int64_t value, DType dtype = Scalar::kInt32) {
    return Append(graph_.Const(dtype, value));
  }
  UOp Float(double value, DType dtype = Scalar::kFloat32) {
    return Append(graph_.ConstFloat(dtype, value));
  }
  // Slots count up from 0.
  UOp Buffer(Scalar scalar, int64_t size_elements, bool read, bool written);
  UOp Variable(std::string name, int64_t min, int64_t max);
  // "g0".."l2"; sizes of the launch follow from constant extents.
  UOp Special(std::string name, UOp extent);
  UOp Special(std::string name, int64_t extent) { return Special(std::move(name), Int(extent)); }
  UOp Shared(Scalar scalar, int64_t size_elements);
  void Barrier();
  UOp Range(UOp extent);
  UOp Range(int64_t extent) { return Range(Int(extent)); }
  void End(UOp range) { Add(Op::kEndLoop, Scalar::kVoid, {range}); }
  UOp Acc(UOp initial, std::initializer_list<UOp> ranges);
  UOp Assign(UOp acc, UOp value) { return Add(Op::kAssign, acc.dtype(), {acc, value}); }
  UOp Load(UOp buffer, UOp index, int lanes = 1, UOp valid = nullptr, int alignment = 1);
  void Store(UOp buffer, UOp index, UOp value, UOp valid = nullptr, int alignment = 1);
  UOp Alu(Op op, UOp a) { return Add(op, a.dtype(), {a}); }
  UOp Alu(Op op, UOp a, UOp b);
  UOp Where(UOp c, UOp a, UOp b) { return Add(Op::kWhere, a.dtype(), {c, a, b}); }
  UOp Splat(UOp u, int lanes);
  UOp Gep(UOp u, std::vector<int64_t> lanes);

  UOpGraph& graph() { return graph_; }
  // `slice`: the outermost range, cut into its extent's (at most `slices`) parts.
  LinearProgram Finish(UOp slice = nullptr, int64_t slices = 1);

 private:
  UOpGraph graph_;
  LinearProgram program_;
  std::vector<bool> listed_;
  int64_t ranges_ = 0;
  int64_t accs_ = 0;
  int64_t shared_ = 0;
  int64_t barriers_ = 0;
};

// What RunProgram compiles for: this CPU, until a test takes features away.
TargetCaps& TestTarget();

// Compiles for TestTarget and runs slices [begin, end) over copies of `buffers`; what they hold
// then.
absl::StatusOr<std::vector<std::string>> RunProgram(const LinearProgram& program,
                                                    std::vector<std::string> buffers,
                                                    std::vector<int64_t> variables = {},
                                                    int64_t begin = 0, int64_t end = -1);

// out[i] = op(inputs[0][i], inputs[1][i], ...) for all i, `lanes` at a time. Inputs and result are
// raw elements; their count must be a multiple of `lanes`.
absl::StatusOr<std::string> MapElements(Op op, Scalar result, std::vector<Scalar> scalars,
                                        std::vector<std::string> inputs, int lanes);

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <typename T>
std::vector<T> FromBytes(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace beamd
