// Small kernels that tests share, in the text form.
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/uop/text.h"
#include "engine/uop/uop.h"

namespace beamd::testing {

// (64,64) = (64,96) times (96,64), float32.
constexpr absl::string_view kMatmul = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (64,64,1) strides (64,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (64,64,96) strides (96,0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (64,64,96) strides (0,1,64) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))";

// 12 x 5 elements, each twice itself, contiguous.
constexpr absl::string_view kElementwise = R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,5) strides (5,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = ADD float32 (%3, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))";

// 30 columns of 20 rows, each column reduced. `op`: ADD, MUL or MAX; `work`: one op on the element.
inline std::string ColumnReduce(absl::string_view op, absl::string_view work) {
  return absl::StrReplaceAll(R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1,30) strides (0,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (20,30) strides (30,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = WORK float32 (%4)
%6 = REDUCE_AXIS float32 (%5) OP axes (0)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))",
                             {{"WORK", work}, {"OP", op}});
}

inline UOp Parsed(absl::string_view text, UOpGraph& graph) {
  absl::StatusOr<UOp> sink = ParseText(text, graph);
  BEAMD_CHECK(sink.ok(), sink.status().message());
  return *sink;
}

inline const TargetCaps& Target(TargetKind kind) {
  static const TargetCaps cpu = CorpusTarget(TargetKind::kCpu);
  static const TargetCaps cuda = CorpusTarget(TargetKind::kCuda);
  static const TargetCaps hip = CorpusTarget(TargetKind::kHip);
  return kind == TargetKind::kCpu ? cpu : kind == TargetKind::kCuda ? cuda : hip;
}

inline Kernel Made(absl::string_view text, UOpGraph& graph, TargetKind kind = TargetKind::kCuda) {
  absl::StatusOr<Kernel> kernel = Kernel::Create(Parsed(text, graph), Target(kind));
  BEAMD_CHECK(kernel.ok(), kernel.status().message());
  return *std::move(kernel);
}

// "64 blue, 96 red"
inline std::string Axes(const Kernel& kernel) {
  std::string s;
  const std::vector<AxisColor> colors = kernel.colors();
  for (int i = 0; i < kernel.shape_len(); ++i) {
    absl::StrAppend(&s, i ? ", " : "", ToString(kernel.full_shape()[i]), " ", ToString(colors[i]));
  }
  return s;
}

// The axes after `opts`, or the refusal.
inline std::string After(Kernel kernel, const std::vector<Opt>& opts) {
  const absl::Status status = kernel.ApplyAll(opts);
  return status.ok() ? Axes(kernel) : std::string(status.message());
}

}  // namespace beamd::testing
