#include "engine/llvm/capability.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/kernel/tensor_core.h"

namespace beamd {
namespace {

// PTX ISA, "Kernel Function Parameters": 4352 bytes until 8.1. A HIP kernel may have more.
constexpr size_t kMostParameters = 4352 / 8;

// The LLVM that we link writes 32 to 90, with holes (NVPTX.td).
bool IsPtxVersion(int version) {
  return (version >= 60 && version <= 65) || (version >= 70 && version <= 78) ||
         (version >= 80 && version <= 88) || version == 90;
}

// Of "+ptx84" 84, 0 where the target names none.
int PtxVersion(const TargetCaps& caps) {
  absl::string_view text = caps.features;
  int version = 0;
  return absl::ConsumePrefix(&text, "+ptx") && absl::SimpleAtoi(text, &version) ? version : 0;
}

absl::Status CheckCuda(const TargetCaps& caps) {
  const int oldest = OldestPtx(caps.arch);
  if (oldest == 0) {
    return absl::UnimplementedError(absl::StrCat("no code is generated for \"", caps.arch, "\""));
  }
  if (caps.features.empty()) return absl::OkStatus();
  const int version = PtxVersion(caps);
  if (!IsPtxVersion(version)) {
    return absl::FailedPreconditionError(
        absl::StrCat("features of a CUDA target name a PTX version, not \"", caps.features, "\""));
  }
  if (version < oldest) {
    return absl::FailedPreconditionError(absl::StrCat("PTX ", version / 10, ".", version % 10,
                                                      " has no ", caps.arch, ", it takes ",
                                                      oldest / 10, ".", oldest % 10));
  }
  return absl::OkStatus();
}

absl::Status CheckHip(const TargetCaps& caps) {
  // LLVM, "User Guide for AMDGPU Backend", processors: GFX9's dedicated GPUs, RDNA 1 to 4.
  static constexpr absl::string_view kKnown[] = {
      "gfx900",  "gfx906",  "gfx908",  "gfx90a",  "gfx942",  "gfx950",  "gfx1010",
      "gfx1011", "gfx1012", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034",
      "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150",
      "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201"};
  if (std::ranges::find(kKnown, caps.arch) == std::end(kKnown)) {
    return absl::UnimplementedError(absl::StrCat("no code is generated for \"", caps.arch, "\""));
  }
  if (!caps.features.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a HIP target has no features, not \"", caps.features, "\""));
  }
  const bool always_64 = absl::StartsWith(caps.arch, "gfx9");
  if (caps.wave_size != 64 && (always_64 || caps.wave_size != 32)) {
    return absl::FailedPreconditionError(
        absl::StrCat(caps.arch, " has no waves of ", caps.wave_size));
  }
  if (caps.code_object_version < 4 || caps.code_object_version > 6) {
    return absl::FailedPreconditionError(
        absl::StrCat("no code objects of version ", caps.code_object_version));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTarget(const TargetCaps& caps) {
  switch (caps.kind) {
    case TargetKind::kCuda:
      return CheckCuda(caps);
    case TargetKind::kHip:
      return CheckHip(caps);
    case TargetKind::kCpu:
      break;
  }
  return absl::OkStatus();
}

absl::Status CheckProgram(const LinearProgram& program, const TargetCaps& caps) {
  if (caps.kind == TargetKind::kCpu) return absl::OkStatus();
  const KernelImage& image = program.image;
  int64_t items = 1;
  for (size_t axis = 0; axis < image.local_size.size(); ++axis) {
    const int64_t size = image.local_size[axis];
    const int64_t most = caps.local_max ? (*caps.local_max)[axis] : 1024;
    if (size < 1 || size > most) {
      return absl::FailedPreconditionError(
          absl::StrCat("a work-group of ", size, " along axis ", axis, ", the limit is ", most));
    }
    items *= size;
  }
  if (items > 1024) {
    return absl::FailedPreconditionError(
        absl::StrCat("a work-group of ", items, " work-items, the limit is 1024"));
  }
  if (image.shared_bytes > caps.shared_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        image.shared_bytes, " bytes of shared memory, the limit is ", caps.shared_bytes));
  }
  const size_t parameters = image.buffers.size() + image.variables.size();
  if (caps.kind == TargetKind::kCuda && parameters > kMostParameters) {
    return absl::FailedPreconditionError(
        absl::StrCat(parameters, " parameters, the limit is ", kMostParameters));
  }
  // PTX ISA, "mma": .m16n8k8 since 6.5, all others with the GPUs that have them.
  const bool has_mma =
      caps.kind != TargetKind::kCuda || std::max(OldestPtx(caps.arch), PtxVersion(caps)) >= 65;
  const auto cores = static_cast<int64_t>(TensorCoresOf(caps).size());
  for (const UOp u : program.ops) {
    if (!u.is(Op::kWmma)) continue;
    const int64_t which = u.arg().as_int();
    if (!has_mma || which < 0 || which >= cores) {
      return absl::UnimplementedError(absl::StrCat(caps.arch, " has no tensor core ", which));
    }
  }
  return absl::OkStatus();
}

}  // namespace beamd
