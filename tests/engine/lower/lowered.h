// A small kernel lowered under some opts, and questions about the list that came out.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/lower/pipeline.h"
#include "engine/uop/text.h"
#include "tests/engine/lower/kernels.h"

namespace beamd::testing {

// A CPU with registers of 32 bytes, whatever this one has.
inline const TargetCaps& Avx2() {
  static const TargetCaps caps = [] {
    TargetCaps c = CorpusTarget(TargetKind::kCpu);
    c.vector_bytes = 32;
    return c;
  }();
  return caps;
}

inline absl::string_view TextOf(absl::string_view name) {
  for (const SmallKernel& k : kSmallKernels) {
    if (k.name == name) return k.text;
  }
  BEAMD_CHECK(false, "no such kernel");
  return "";
}

inline Kernel Applied(absl::string_view text, UOpGraph& graph, const std::vector<Opt>& opts) {
  const absl::StatusOr<UOp> sink = ParseText(text, graph);
  BEAMD_CHECK(sink.ok(), sink.status().message());
  absl::StatusOr<Kernel> kernel = Kernel::Create(*sink, Avx2());
  BEAMD_CHECK(kernel.ok(), kernel.status().message());
  const absl::Status applied = kernel->ApplyAll(opts);
  BEAMD_CHECK(applied.ok(), applied.message());
  return *std::move(kernel);
}

class Lowered {
 public:
  Lowered(absl::string_view text, const std::vector<Opt>& opts) {
    absl::StatusOr<LinearProgram> lowered = Lower(Applied(text, source_, opts), graph_, {});
    BEAMD_CHECK(lowered.ok(), lowered.status().message());
    program_ = *std::move(lowered);
    int depth = 0;
    for (const UOp u : program_.ops) {
      if (u.is(Op::kEndLoop)) --depth;
      depth_.push_back(depth);
      if (u.is(Op::kRange)) ++depth;
    }
  }

  const LinearProgram& program() const { return program_; }
  std::string Text() const { return ToText(program_); }

  std::vector<UOp> All(OpSet ops) const {
    std::vector<UOp> all;
    for (const UOp u : program_.ops) {
      if (u.is(ops)) all.push_back(u);
    }
    return all;
  }
  // The only one; dies of none or several.
  UOp The(Op op) const {
    const std::vector<UOp> all = All(op);
    BEAMD_CHECK(all.size() == 1, Text());
    return all[0];
  }
  // Of a buffer.
  std::vector<UOp> Accesses(Op op, uint64_t slot) const {
    std::vector<UOp> all = All(op);
    std::erase_if(all, [&](UOp u) { return u.src(0).src(0).data<BufferArg>().id != slot; });
    return all;
  }

  size_t Place(UOp u) const {
    return static_cast<size_t>(std::find(program_.ops.begin(), program_.ops.end(), u) -
                               program_.ops.begin());
  }
  // How many loops are around it.
  int Depth(UOp u) const { return depth_.at(Place(u)); }

 private:
  UOpGraph source_, graph_;
  LinearProgram program_;
  std::vector<int> depth_;
};

inline Opt Upcast(int32_t axis, int32_t amount) { return {OptOp::kUpcast, axis, amount}; }
inline Opt Unroll(int32_t axis, int32_t amount) { return {OptOp::kUnroll, axis, amount}; }

}  // namespace beamd::testing
