#include "devices/emu/runtime.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "devices/emu/float_bits.h"
#include "devices/emu/group_run.h"
#include "devices/emu/kernel.h"

namespace beamd::emu {
namespace {

// No destructor runs in these: an item that faults never returns from them.

void Fault(WorkItem* item, uint32_t access, uint64_t address) {
  item->run->Fault(*item, item->run->kernel().accesses[access], address);
  item->run->Abandon();
}

void TouchGlobal(WorkItem* item, uint32_t access, uint64_t offset) {
  if (!item->run->TouchGlobal(*item, item->run->kernel().accesses[access], offset)) {
    item->run->Abandon();
  }
}

void TouchShared(WorkItem* item, uint32_t access, uint64_t address) {
  if (!item->run->TouchShared(*item, item->run->kernel().accesses[access], address)) {
    item->run->Abandon();
  }
}

void TouchUnknown(WorkItem* item, uint32_t access, uint64_t address) {
  if (!item->run->TouchUnknown(*item, item->run->kernel().accesses[access], address)) {
    item->run->Abandon();
  }
}

void Barrier(WorkItem* item, uint32_t barrier) { item->run->Barrier(*item, barrier); }

void Act(WorkItem* item, uint32_t collective, const std::byte* operands, std::byte* result) {
  if (!item->run->Act(*item, collective, operands, result)) item->run->Abandon();
}

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// An absolute error of at most 2^-bits, as large as the documents allow it, so that code which
// relies on more is seen.
float Coarse(double x, int bits) {
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(x, bits)), -bits));
}

float Ex2Ftz(float x) { return Flush(std::exp2(Flush(x))); }

// PTX ISA 8.7, 9.7.3.19 "lg2": an absolute error of 2^-22 between 0.5 and 2, a relative one
// elsewhere.
float Lg2(float x) {
  const double exact = std::log2(static_cast<double>(x));
  return x > 0.5f && x < 2.0f ? Coarse(exact, 22) : static_cast<float>(exact);
}
float Lg2Ftz(float x) { return Lg2(Flush(x)); }

// PTX ISA 8.7, 9.7.3.17 "sin" and 9.7.3.18 "cos": an absolute error of 2^-20.5 within one turn,
// none promised far from it.
float SinApprox(float x) { return Coarse(std::sin(static_cast<double>(x)), 20); }
float CosApprox(float x) { return Coarse(std::cos(static_cast<double>(x)), 20); }
float SinApproxFtz(float x) { return SinApprox(Flush(x)); }
float CosApproxFtz(float x) { return CosApprox(Flush(x)); }
float RcpFtz(float x) { return Flush(1.0f / Flush(x)); }
float RsqrtApprox(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }

// PTX ISA 8.7, 9.7.9.21 "cvt.rna.tf32.f32": to nearest, ties away from zero.
uint32_t Tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::isfinite(x) ? (bits + 0x1000) & ~uint32_t{0x1fff} : bits;
}

// AMD RDNA3 ISA, V_LOG_F32, V_SIN_F32, V_COS_F32: base 2; of turns.
float LogFtz(float x) { return static_cast<float>(std::log2(static_cast<double>(Flush(x)))); }
constexpr double kTurn = 6.283185307179586476925;
float SinTurns(float x) { return Coarse(std::sin(std::fmod(x, 1.0) * kTurn), 20); }
float CosTurns(float x) { return Coarse(std::cos(std::fmod(x, 1.0) * kTurn), 20); }

// Results of 16 bits come back in the low half of the register that _Float16 does.
_Float16 Bits(uint16_t bits) { return std::bit_cast<_Float16>(bits); }
_Float16 TruncateFloat(float x) { return Bits(FloatToHalf(x)); }
_Float16 TruncateDouble(double x) { return static_cast<_Float16>(x); }
_Float16 TruncateFloatToBfloat16(float x) { return Bits(FloatToBfloat16(x)); }
_Float16 TruncateDoubleToBfloat16(double x) { return Bits(DoubleToBfloat16(x)); }
float ExtendHalf(_Float16 x) { return static_cast<float>(x); }

template <typename Function>
constexpr RuntimeFunction Named(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

using F1 = float(float);
using F2 = float(float, float);
using D1 = double(double);
using D2 = double(double, double);

}  // namespace

std::span<const RuntimeFunction> RuntimeFunctions() {
  static const RuntimeFunction functions[] = {
      Named("beamd_emu_fault", &Fault),
      Named("beamd_emu_global", &TouchGlobal),
      Named("beamd_emu_shared", &TouchShared),
      Named("beamd_emu_unknown", &TouchUnknown),
      Named("beamd_emu_barrier", &Barrier),
      Named("beamd_emu_act", &Act),
      Named("beamd_emu_ex2_ftz", &Ex2Ftz),
      Named("beamd_emu_lg2", &Lg2),
      Named("beamd_emu_lg2_ftz", &Lg2Ftz),
      Named("beamd_emu_sin", &SinApprox),
      Named("beamd_emu_sin_ftz", &SinApproxFtz),
      Named("beamd_emu_cos", &CosApprox),
      Named("beamd_emu_cos_ftz", &CosApproxFtz),
      Named("beamd_emu_rcp_ftz", &RcpFtz),
      Named("beamd_emu_rsqrt", &RsqrtApprox),
      Named("beamd_emu_tf32", &Tf32),
      Named("beamd_emu_log_ftz", &LogFtz),
      Named("beamd_emu_sin_turns", &SinTurns),
      Named("beamd_emu_cos_turns", &CosTurns),
      Named("__truncsfhf2", &TruncateFloat),
      Named("__truncdfhf2", &TruncateDouble),
      Named("__truncsfbf2", &TruncateFloatToBfloat16),
      Named("__truncdfbf2", &TruncateDoubleToBfloat16),
      Named("__extendhfsf2", &ExtendHalf),
      Named("exp2f", static_cast<F1*>(&std::exp2)),
      Named("exp2", static_cast<D1*>(&std::exp2)),
      Named("log2f", static_cast<F1*>(&std::log2)),
      Named("log2", static_cast<D1*>(&std::log2)),
      Named("expf", static_cast<F1*>(&std::exp)),
      Named("exp", static_cast<D1*>(&std::exp)),
      Named("logf", static_cast<F1*>(&std::log)),
      Named("log", static_cast<D1*>(&std::log)),
      Named("sinf", static_cast<F1*>(&std::sin)),
      Named("sin", static_cast<D1*>(&std::sin)),
      Named("cosf", static_cast<F1*>(&std::cos)),
      Named("cos", static_cast<D1*>(&std::cos)),
      Named("tanhf", static_cast<F1*>(&std::tanh)),
      Named("powf", static_cast<F2*>(&std::pow)),
      Named("pow", static_cast<D2*>(&std::pow)),
      Named("fmodf", static_cast<F2*>(&std::fmod)),
      Named("fmod", static_cast<D2*>(&std::fmod)),
      Named("ldexpf", static_cast<float (*)(float, int)>(&std::ldexp)),
      Named("ldexp", static_cast<double (*)(double, int)>(&std::ldexp)),
      Named("roundf", static_cast<F1*>(&std::round)),
      Named("round", static_cast<D1*>(&std::round)),
      Named("fmaf", static_cast<float (*)(float, float, float)>(&std::fma)),
      Named("fma", static_cast<double (*)(double, double, double)>(&std::fma)),
      Named("memcpy", &std::memcpy),
      Named("memmove", &std::memmove),
      Named("memset", &std::memset),
  };
  return functions;
}

}  // namespace beamd::emu
