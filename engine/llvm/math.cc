#include "engine/llvm/math.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Module.h"

namespace beamd {
namespace {

using llvm::BasicBlock;
using llvm::Function;
using llvm::PHINode;
using llvm::Type;
using llvm::Value;

// Minimax polynomials (Remez exchange, leading coefficients rounded first and the rest fitted to
// them), lowest power first. In brackets the relative error.
// (2^r - 1) / r on [-1/2, 1/2] [2^-27.5, 2^-59.5]
constexpr std::array kExp2F = {0x1.62e432p-1, 0x1.ebfbe6p-3,  0x1.c6adc2p-5,
                               0x1.3b2228p-7, 0x1.5fa7a4p-10, 0x1.4b0486p-13};
constexpr std::array kExp2D = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58ep-3,  0x1.c6b08d704a1c3p-5,
                               0x1.3b2ab6fba526bp-7,  0x1.5d87fe7879e6ep-10, 0x1.430912f6d6d3bp-13,
                               0x1.ffcbfd253a851p-17, 0x1.62c02a3c638e4p-20, 0x1.b5238b9ad1135p-24,
                               0x1.e4acb82575d0fp-28, 0x1.ebda0aa4249bep-32, 0x1.f9839ea55a619p-36};
// log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1] [2^-26]
constexpr std::array kLog2F = {0x1.715476p+0, -0x1.71546ep-1, 0x1.ec7244p-2, -0x1.715d3ep-2,
                               0x1.272752p-2, -0x1.e9b1c2p-3, 0x1.ae6064p-3, -0x1.9ab604p-3,
                               0x1.411c4ap-3, -0x1.b0a0bep-5};
// (2 atanh(s) / s - 2) / s^2 in s^2 up to ((sqrt(2) - 1) / (sqrt(2) + 1))^2 [2^-58.5 of the first
// term]
constexpr std::array kAtanhD = {0x1.5555555555593p-1, 0x1.999999997f9f8p-2, 0x1.249249422a433p-2,
                                0x1.c71c51d7d6c86p-3, 0x1.746649ac2010cp-3, 0x1.39a0962518e4fp-3,
                                0x1.2f11761068be1p-3};
// (sin(r) - r) / r^3 in r^2, |r| up to pi/2 and a little [of sin: 2^-27, 2^-61.5]
constexpr std::array kSinF = {-0x1.55554ap-3, 0x1.110e86p-7, -0x1.9f6138p-13, 0x1.5ce6ep-19};
constexpr std::array kSinD = {
    -0x1.5555555555555p-3,  0x1.11111111110cep-7,   -0x1.a01a01a01578cp-13,
    0x1.71de3a5309fa2p-19,  -0x1.ae64551aa6268p-26, 0x1.6123e759b7ccep-33,
    -0x1.ae4ec053c02c6p-41, 0x1.8abf0cf2f337ap-49,  -0x1.e8ba1986e9f0dp-60};

// 1280 bits of 1/pi, the most significant first, behind a word of zeroes.
constexpr std::array<uint64_t, 21> kInversePi = {0,
                                                 0x517CC1B727220A94,
                                                 0xFE13ABE8FA9A6EE0,
                                                 0x6DB14ACC9E21C820,
                                                 0xFF28B1D5EF5DE2B0,
                                                 0xDB92371D2126E970,
                                                 0x0324977504E8C90E,
                                                 0x7F0EF58E5894D39F,
                                                 0x74411AFA975DA242,
                                                 0x74CE38135A2FBF20,
                                                 0x9CC8EB1CC1A99CFA,
                                                 0x4E422FC5DEFC941D,
                                                 0x8FFC4BFFEF02CC07,
                                                 0xF79788C5AD05368F,
                                                 0xB69B3F6793E584DB,
                                                 0xA7A31FB34F2FF516,
                                                 0xBA93DD63F5F2F8BD,
                                                 0x9E839CFBC5294975,
                                                 0x35FDAFD88FC6AE84,
                                                 0x2B0198237E3DB5D5,
                                                 0xF867DE104D7A1B0E};

// Arguments above go through the large reduction.
constexpr float kSinBoundF = 0x1p16F;
constexpr double kSinBoundD = 0x1p19;
constexpr int kFirstLargeExponentF = 127 + 16;  // biased exponent of kSinBoundF

// Code for one call at the builder's place, over float or double and vectors of them.
class Maths {
 public:
  Maths(Builder& b, const AluTarget& target, Type* type)
      : b_(b), target_(target), type_(type), is_double_(type->getScalarType()->isDoubleTy()) {}

  Value* Exp2(Value* x);
  Value* Log2(Value* x);
  Value* Sin(Value* x);
  // The same by a call.
  Value* CallSin(Value* x);

 private:
  Value* Log2F(Value* x);
  Value* Log2D(Value* x);
  Value* SinF(Value* x);
  Value* SinD(Value* x);
  // sin(hi + lo), |hi| <= pi/2; for float `lo` is ignored.
  Value* SinKernel(Value* hi, Value* lo);
  // `fast`, or where |x| > bound what `large` gives for x.
  Value* ReplaceLarge(Value* x, Value* fast, double bound, Function* large);
  Function* LargeSin();
  Function* LargeSinOfLanes(Function* scalar);
  void BodyOfLargeSinF(Function* f);
  void BodyOfLargeSinD(Function* f);
  Function* NewFunction(const std::string& name, llvm::FunctionType* type);
  llvm::GlobalVariable* Table(const char* name, std::span<const uint64_t> words);

  Type* WithLanes(Type* scalar) const {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type_);
    return vector != nullptr ? llvm::FixedVectorType::get(scalar, vector->getNumElements())
                             : scalar;
  }
  Type* Ints() const { return WithLanes(is_double_ ? b_.getInt64Ty() : b_.getInt32Ty()); }
  Value* F(double v) { return llvm::ConstantFP::get(type_, v); }
  static Value* I(Type* type, uint64_t v) {
    return llvm::ConstantInt::getSigned(type, static_cast<int64_t>(v));
  }
  Value* Bits(Value* v) { return b_.CreateBitCast(v, Ints()); }
  Value* Number(Value* bits) { return b_.CreateBitCast(bits, type_); }
  Value* Abs(Value* v) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v); }

  // a * b + c, the product rounded first where the target can't fuse.
  Value* Mad(Value* a, Value* b, Value* c) {
    if (!target_.fma) return b_.CreateFAdd(b_.CreateFMul(a, b), c);
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
  }
  Value* Polynomial(Value* x, std::span<const double> coefficients) {
    Value* sum = F(coefficients.back());
    for (size_t i = coefficients.size() - 1; i-- > 0;) sum = Mad(sum, x, F(coefficients[i]));
    return sum;
  }
  // a * b = first + second exactly. Dekker (1971) where the target can't fuse.
  std::pair<Value*, Value*> Product(Value* x, Value* y);
  std::pair<Value*, Value*> Split(Value* x);

  Builder& b_;
  const AluTarget& target_;
  Type* const type_;
  const bool is_double_;
};

std::pair<Value*, Value*> Maths::Split(Value* x) {
  Value* c = b_.CreateFMul(x, F(0x1p27 + 1));
  Value* hi = b_.CreateFSub(c, b_.CreateFSub(c, x));
  return {hi, b_.CreateFSub(x, hi)};
}

std::pair<Value*, Value*> Maths::Product(Value* x, Value* y) {
  Value* p = b_.CreateFMul(x, y);
  if (target_.fma) return {p, Mad(x, y, b_.CreateFNeg(p))};
  const auto [xh, xl] = Split(x);
  const auto [yh, yl] = Split(y);
  Value* e = b_.CreateFSub(b_.CreateFMul(xh, yh), p);
  e = b_.CreateFAdd(b_.CreateFAdd(e, b_.CreateFMul(xh, yl)), b_.CreateFMul(xl, yh));
  return {p, b_.CreateFAdd(e, b_.CreateFMul(xl, yl))};
}

// 2^x = 2^n 2^r with n the nearest integer: adding 1.5 times a power of two leaves it in the low
// bits.
Value* Maths::Exp2(Value* x) {
  const double magic = is_double_ ? 0x1.8p52 : 0x1.8p23;
  const uint64_t magic_bits = is_double_ ? std::bit_cast<uint64_t>(magic)
                                         : std::bit_cast<uint32_t>(static_cast<float>(magic));
  const int bias = is_double_ ? 1023 : 127;
  const int mantissa = is_double_ ? 52 : 23;
  // Past these it is 0 and infinity; a NaN passes both.
  Value* lo = F(is_double_ ? -1080 : -154);
  Value* hi = F(is_double_ ? 1026 : 130);
  x = b_.CreateSelect(b_.CreateFCmpOGT(lo, x), lo, x);
  x = b_.CreateSelect(b_.CreateFCmpOLT(hi, x), hi, x);
  Value* t = b_.CreateFAdd(x, F(magic));
  Value* r = b_.CreateFSub(x, b_.CreateFSub(t, F(magic)));
  Value* p = is_double_ ? Polynomial(r, kExp2D) : Polynomial(r, kExp2F);
  p = Mad(p, r, F(1));
  // Two factors: one alone doesn't reach sub-normals. n + 4 bias is even with n and not negative.
  Value* n = b_.CreateSub(Bits(t), I(Ints(), magic_bits - 4 * bias));
  Value* half = b_.CreateLShr(n, 1);
  const auto power = [&](Value* e) { return Number(b_.CreateShl(e, mantissa)); };
  Value* first = power(b_.CreateSub(half, I(Ints(), bias)));
  Value* second = power(b_.CreateSub(b_.CreateSub(n, half), I(Ints(), bias)));
  return b_.CreateFMul(b_.CreateFMul(p, first), second);
}

Value* Maths::Log2(Value* x) {
  Value* y = is_double_ ? Log2D(x) : Log2F(x);
  Value* infinity = F(std::numeric_limits<double>::infinity());
  Value* negative =
      b_.CreateSelect(b_.CreateFCmpOEQ(x, F(0)), F(-std::numeric_limits<double>::infinity()),
                      F(std::numeric_limits<double>::quiet_NaN()));
  y = b_.CreateSelect(b_.CreateFCmpOLT(x, infinity), y, infinity);
  return b_.CreateSelect(b_.CreateFCmpOGT(x, F(0)), y, negative);
}

// x = 2^e (1 + f), 1 + f between sqrt(1/2) and sqrt(2): near 1 nothing cancels.
Value* Maths::Log2F(Value* x) {
  Value* tiny = b_.CreateFCmpOLT(x, F(0x1p-126));
  Value* bits = Bits(b_.CreateSelect(tiny, b_.CreateFMul(x, F(0x1p25)), x));
  Value* e = b_.CreateAShr(b_.CreateSub(bits, I(Ints(), 0x3F3504F3)), 23);
  Value* f = b_.CreateFSub(Number(b_.CreateSub(bits, b_.CreateShl(e, 23))), F(1));
  Value* exponent = b_.CreateFAdd(b_.CreateSIToFP(e, type_), b_.CreateSelect(tiny, F(-25), F(0)));
  return Mad(f, Polynomial(f, kLog2F), exponent);
}

// log(1 + f) = f - (f^2/2 - s (f^2/2 + R)), s = f/(2 + f), R = 2 atanh(s)/s - 2: kept as a sum of
// two, times 1/ln 2 as a sum of two.
Value* Maths::Log2D(Value* x) {
  constexpr double kInverseLn2Hi = 0x1.71547652b82fep+0;
  constexpr double kInverseLn2Lo = 0x1.777d0ffda0d24p-56;
  Value* tiny = b_.CreateFCmpOLT(x, F(0x1p-1022));
  Value* bits = Bits(b_.CreateSelect(tiny, b_.CreateFMul(x, F(0x1p54)), x));
  // e + 1024, never negative: AVX2 has no arithmetic shift of 64 bits, nor a conversion from them.
  const uint64_t root = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  Value* e = b_.CreateLShr(b_.CreateSub(bits, I(Ints(), root - (uint64_t{1024} << 52))), 52);
  Value* exponent =
      b_.CreateFSub(Number(b_.CreateOr(e, I(Ints(), std::bit_cast<uint64_t>(0x1p52)))),
                    b_.CreateSelect(tiny, F(0x1p52 + 1024 + 54), F(0x1p52 + 1024)));
  Value* scaled = b_.CreateSub(bits, b_.CreateShl(b_.CreateSub(e, I(Ints(), 1024)), 52));
  Value* f = b_.CreateFSub(Number(scaled), F(1));
  Value* s = b_.CreateFDiv(f, b_.CreateFAdd(f, F(2)));
  Value* z = b_.CreateFMul(s, s);
  Value* r = b_.CreateFMul(z, Polynomial(z, kAtanhD));
  Value* half = b_.CreateFMul(b_.CreateFMul(f, f), F(0.5));
  Value* hi = b_.CreateFSub(f, half);
  Value* lo = b_.CreateFAdd(b_.CreateFSub(b_.CreateFSub(f, hi), half),
                            b_.CreateFMul(s, b_.CreateFAdd(half, r)));
  const auto [product, rest] = Product(hi, F(kInverseLn2Hi));
  Value* low = Mad(lo, F(kInverseLn2Hi), Mad(hi, F(kInverseLn2Lo), rest));
  Value* high = b_.CreateFAdd(exponent, product);
  low = b_.CreateFAdd(low, b_.CreateFAdd(b_.CreateFSub(exponent, high), product));
  return b_.CreateFAdd(high, low);
}

Value* Maths::SinKernel(Value* hi, Value* lo) {
  Value* z = b_.CreateFMul(hi, hi);
  if (!is_double_) {
    // Where the sine is 1 an error of two steps below is one step above, and a sine above 1 is
    // worse than its error: clamped, all of [0, pi/2] is within 1.7 ulp (tried on every value).
    Value* s = Mad(b_.CreateFMul(z, hi), Polynomial(z, kSinF), hi);
    s = b_.CreateSelect(b_.CreateFCmpOGT(s, F(1)), F(1), s);
    return b_.CreateSelect(b_.CreateFCmpOLT(s, F(-1)), F(-1), s);
  }
  // sin(hi + lo) = sin(hi) + lo cos(hi); lo is so small that a few terms of cos do.
  Value* cosine = Mad(z, Mad(z, F(1.0 / 24), F(-0.5)), F(1));
  Value* rest = Mad(b_.CreateFMul(z, hi), Polynomial(z, kSinD), b_.CreateFMul(lo, cosine));
  return b_.CreateFAdd(hi, rest);
}

Value* Maths::Sin(Value* x) { return is_double_ ? SinD(x) : SinF(x); }

Value* Maths::CallSin(Value* x) {
  std::string name = is_double_ ? "sin.f64" : "sin.f32";
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type_)) {
    name += ".v" + std::to_string(vector->getNumElements());
  }
  Function* f = b_.GetInsertBlock()->getModule()->getFunction(name);
  if (f == nullptr) {
    f = NewFunction(name, llvm::FunctionType::get(type_, {type_}, false));
    const llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(BasicBlock::Create(b_.getContext(), "", f));
    b_.CreateRet(Sin(f->getArg(0)));
  }
  return b_.CreateCall(f, {x});
}

// x = n pi + r; sin(x) = (-1)^n sin(r). pi is a sum of parts whose products with n are exact
// enough; all of them positive, so that -0 stays -0.
Value* Maths::SinF(Value* x) {
  Value* r = nullptr;
  Value* parity = nullptr;
  if (target_.fma) {
    Value* t = Mad(x, F(0x1.45f306p-2), F(0x1.8p23));
    Value* n = b_.CreateFSub(t, F(0x1.8p23));
    r = x;
    for (const double part : {0x1.921fb4p+1, 0x1.4442dp-23, 0x1.846988p-47}) {
      r = Mad(n, F(-part), r);
    }
    parity = Bits(t);
  } else {
    Type* doubles = WithLanes(b_.getDoubleTy());
    const auto d = [&](double v) { return llvm::ConstantFP::get(doubles, v); };
    Value* wide = b_.CreateFPExt(x, doubles);
    Value* t = b_.CreateFAdd(b_.CreateFMul(wide, d(0x1.45f306dc9c883p-2)), d(0x1.8p52));
    Value* n = b_.CreateFSub(t, d(0x1.8p52));
    wide = b_.CreateFSub(wide, b_.CreateFMul(n, d(0x1.921fb544p+1)));
    wide = b_.CreateFSub(wide, b_.CreateFMul(n, d(0x1.0b4611a626331p-33)));
    r = b_.CreateFPTrunc(wide, type_);
    parity = b_.CreateTrunc(b_.CreateBitCast(t, WithLanes(b_.getInt64Ty())), Ints());
  }
  Value* s = SinKernel(r, nullptr);
  s = Number(b_.CreateXor(Bits(s), b_.CreateShl(parity, 31)));
  return ReplaceLarge(x, s, kSinBoundF, LargeSin());
}

// As SinF, with r a sum of two: relative accuracy near every multiple of pi.
Value* Maths::SinD(Value* x) {
  constexpr double kPi1 = 0x1.921fb54442d18p+1, kPi2 = 0x1.1a62633145c06p-53,
                   kPi3 = 0x1.c1cd129024e08p-106;
  Value* t = Mad(x, F(0x1.45f306dc9c883p-2), F(0x1.8p52));
  Value* n = b_.CreateFSub(t, F(0x1.8p52));
  Value* r = nullptr;  // x - n pi1, exactly
  if (target_.fma) {
    r = Mad(n, F(-kPi1), x);
  } else {
    const auto [product, rest] = Product(n, F(kPi1));
    r = b_.CreateFSub(b_.CreateFSub(x, product), rest);
  }
  const auto [p, rest] = Product(n, F(kPi2));
  // r - p as a sum of two (Knuth), less what is left of n pi.
  Value* sum = b_.CreateFSub(r, p);
  Value* back = b_.CreateFSub(sum, r);
  Value* lo = b_.CreateFSub(b_.CreateFSub(r, b_.CreateFSub(sum, back)), b_.CreateFAdd(p, back));
  lo = b_.CreateFSub(lo, Mad(n, F(kPi3), rest));
  Value* hi = b_.CreateFAdd(sum, lo);
  lo = b_.CreateFAdd(b_.CreateFSub(sum, hi), lo);
  Value* s = SinKernel(hi, lo);
  s = Number(b_.CreateXor(Bits(s), b_.CreateShl(Bits(t), 63)));
  s = b_.CreateSelect(b_.CreateFCmpOEQ(x, F(0)), x, s);  // -0
  return ReplaceLarge(x, s, kSinBoundD, LargeSin());
}

Value* Maths::ReplaceLarge(Value* x, Value* fast, double bound, Function* large) {
  Value* is_large = b_.CreateFCmpOGT(Abs(x), F(bound));
  if (type_->isVectorTy()) is_large = b_.CreateOrReduce(is_large);
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* slow = BasicBlock::Create(b_.getContext(), "", before->getParent());
  BasicBlock* after = BasicBlock::Create(b_.getContext(), "", before->getParent());
  b_.CreateCondBr(is_large, slow, after,
                  llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(slow);
  Value* exact = type_->isVectorTy() ? b_.CreateCall(LargeSinOfLanes(large), {x, fast})
                                     : b_.CreateCall(large, {x});
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  PHINode* result = b_.CreatePHI(type_, 2);
  result->addIncoming(fast, before);
  result->addIncoming(exact, slow);
  return result;
}

Function* Maths::NewFunction(const std::string& name, llvm::FunctionType* type) {
  const Function* caller = b_.GetInsertBlock()->getParent();
  Function* f = Function::Create(type, llvm::GlobalValue::InternalLinkage, name,
                                 b_.GetInsertBlock()->getModule());
  // The same target.
  f->addFnAttrs(llvm::AttrBuilder(b_.getContext(), caller->getAttributes().getFnAttrs()));
  f->addFnAttr(llvm::Attribute::NoInline);
  f->addFnAttr(llvm::Attribute::WillReturn);
  f->setDoesNotAccessMemory();
  return f;
}

llvm::GlobalVariable* Maths::Table(const char* name, std::span<const uint64_t> words) {
  llvm::Module& module = *b_.GetInsertBlock()->getModule();
  auto* data = llvm::ConstantDataArray::get(b_.getContext(),
                                            llvm::ArrayRef<uint64_t>(words.data(), words.size()));
  return new llvm::GlobalVariable(module, data->getType(), /*isConstant=*/true,
                                  llvm::GlobalValue::PrivateLinkage, data, name, nullptr,
                                  llvm::GlobalValue::NotThreadLocal, target_.table_space);
}

// The module's sin of one large argument.
Function* Maths::LargeSin() {
  const std::string name = is_double_ ? "sin.large.f64" : "sin.large.f32";
  if (Function* f = b_.GetInsertBlock()->getModule()->getFunction(name)) return f;
  Type* scalar = type_->getScalarType();
  Function* f = NewFunction(name, llvm::FunctionType::get(scalar, {scalar}, false));
  f->addFnAttr(llvm::Attribute::Cold);
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(BasicBlock::Create(b_.getContext(), "", f));
  Maths one(b_, target_, scalar);
  if (is_double_) {
    one.BodyOfLargeSinD(f);
  } else {
    one.BodyOfLargeSinF(f);
  }
  return f;
}

// x = m 2^e, m an integer of 24 bits. Of 1/pi only the bits from weight 2^-e on matter modulo 2; 64
// of them leave x/pi modulo 2 with 39 bits behind the point, in units of 2^-63.
void Maths::BodyOfLargeSinF(Function* f) {
  constexpr int kCount = 255 - kFirstLargeExponentF;
  std::array<uint64_t, kCount> windows{};
  for (int i = 0; i < kCount; ++i) {
    const int first = i + kFirstLargeExponentF - 150 + 63;  // of e, behind the word of zeroes
    const uint64_t word = kInversePi[first / 64], next = kInversePi[first / 64 + 1];
    const int shift = first % 64;
    windows[i] = shift == 0 ? word : word << shift | next >> (64 - shift);
  }
  llvm::GlobalVariable* table = Table("inverse.pi.f32", windows);
  Value* x = f->getArg(0);
  Type* i64 = b_.getInt64Ty();
  Value* bits = b_.CreateZExt(Bits(Abs(x)), i64);
  Value* exponent = b_.CreateLShr(bits, 23);
  // Infinity takes the last window and becomes NaN below.
  Value* place = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin,
                                          b_.CreateSub(exponent, I(i64, kFirstLargeExponentF)),
                                          I(i64, kCount - 1));
  Value* window = b_.CreateLoad(i64, b_.CreateInBoundsGEP(i64, table, place));
  Value* m = b_.CreateOr(b_.CreateAnd(bits, 0x7FFFFF), I(i64, 0x800000));
  Value* turn = b_.CreateMul(m, window);
  // Past a quarter turn: sin(pi t) = sin(pi (1 - t)).
  Value* past = b_.CreateICmpSLT(b_.CreateXor(turn, b_.CreateShl(turn, 1)), I(i64, 0));
  turn = b_.CreateSelect(past, b_.CreateSub(I(i64, uint64_t{1} << 63), turn), turn);
  Value* angle = b_.CreateFMul(b_.CreateSIToFP(turn, b_.getDoubleTy()),
                               llvm::ConstantFP::get(b_.getDoubleTy(), 0x1.921fb54442d18p-62));
  Value* s = SinKernel(b_.CreateFPTrunc(angle, type_), nullptr);
  s = b_.CreateSelect(b_.CreateFCmpOLT(x, F(0)), b_.CreateFNeg(s), s);
  Value* finite = b_.CreateFCmpOLT(Abs(x), F(std::numeric_limits<double>::infinity()));
  b_.CreateRet(b_.CreateSelect(finite, s, F(std::numeric_limits<double>::quiet_NaN())));
}

// As for float32, with 192 bits of 1/pi: a float64 comes within 2^-62 of a multiple of pi, and that
// much of x/pi may be zeroes.
void Maths::BodyOfLargeSinD(Function* f) {
  llvm::GlobalVariable* table = Table("inverse.pi", kInversePi);
  Value* x = f->getArg(0);
  Type* i64 = b_.getInt64Ty();
  Type* i128 = b_.getInt128Ty();
  Value* bits = Bits(Abs(x));
  Value* exponent =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateLShr(bits, 52), I(i64, 2046));
  Value* first = b_.CreateSub(exponent, I(i64, 1075 - 63));
  Value* word = b_.CreateLShr(first, 6);
  Value* shift = b_.CreateAnd(first, 63);
  Value* words[4];
  for (int i = 0; i < 4; ++i) {
    words[i] = b_.CreateLoad(i64, b_.CreateInBoundsGEP(i64, table, b_.CreateAdd(word, I(i64, i))));
  }
  Value* window[3];
  for (int i = 0; i < 3; ++i) {
    window[i] = b_.CreateZExt(
        b_.CreateIntrinsic(llvm::Intrinsic::fshl, {i64}, {words[i], words[i + 1], shift}), i128);
  }
  Value* m = b_.CreateOr(b_.CreateAnd(bits, (uint64_t{1} << 52) - 1), I(i64, uint64_t{1} << 52));
  m = b_.CreateZExt(m, i128);
  // The upper 128 of the product's 192 bits: x/pi modulo 2 in units of 2^-127.
  Value* low = b_.CreateLShr(b_.CreateMul(m, window[2]), 64);
  Value* turn = b_.CreateAdd(b_.CreateMul(m, window[1]), low);
  turn = b_.CreateAdd(b_.CreateShl(b_.CreateMul(m, window[0]), 64), turn);
  Value* zero = llvm::ConstantInt::get(i128, 0);
  Value* past = b_.CreateICmpSLT(b_.CreateXor(turn, b_.CreateShl(turn, 1)), zero);
  Value* one = llvm::ConstantInt::get(i128, llvm::APInt::getSignedMinValue(128));
  turn = b_.CreateSelect(past, b_.CreateSub(one, turn), turn);
  Value* negative = b_.CreateICmpSLT(turn, zero);
  turn = b_.CreateSelect(negative, b_.CreateNeg(turn), turn);
  // As a sum of two doubles, scaled to lie in [1, 2).
  Value* zeroes = b_.CreateIntrinsic(llvm::Intrinsic::ctlz, {i128}, {turn, b_.getFalse()});
  turn = b_.CreateShl(turn, zeroes);
  const auto part = [&](int from, uint64_t mask, double unit) {
    Value* v = b_.CreateAnd(b_.CreateTrunc(b_.CreateLShr(turn, from), i64), I(i64, mask));
    return b_.CreateFMul(b_.CreateUIToFP(v, type_), F(unit));
  };
  Value* hi = part(75, (uint64_t{1} << 53) - 1, 0x1p-52);
  Value* lo = part(11, ~uint64_t{0}, 0x1p-116);
  constexpr double kPi1 = 0x1.921fb54442d18p+1, kPi2 = 0x1.1a62633145c06p-53;
  const auto [product, rest] = Product(hi, F(kPi1));
  lo = b_.CreateFAdd(rest, Mad(lo, F(kPi1), b_.CreateFMul(hi, F(kPi2))));
  hi = b_.CreateFAdd(product, lo);
  lo = b_.CreateFAdd(b_.CreateFSub(product, hi), lo);
  Value* power = b_.CreateSub(I(i64, 1023), b_.CreateTrunc(zeroes, i64));
  Value* scale = Number(b_.CreateShl(power, 52));
  Value* s = SinKernel(b_.CreateFMul(hi, scale), b_.CreateFMul(lo, scale));
  Value* flip = b_.CreateXor(negative, b_.CreateFCmpOLT(x, F(0)));
  s = b_.CreateSelect(flip, b_.CreateFNeg(s), s);
  Value* finite = b_.CreateFCmpOLT(Abs(x), F(std::numeric_limits<double>::infinity()));
  b_.CreateRet(b_.CreateSelect(finite, s, F(std::numeric_limits<double>::quiet_NaN())));
}

// fast, with the lanes of large x done one after the other.
Function* Maths::LargeSinOfLanes(Function* scalar) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(type_)->getNumElements();
  const std::string name = scalar->getName().str() + ".v" + std::to_string(lanes);
  if (Function* f = b_.GetInsertBlock()->getModule()->getFunction(name)) return f;
  Function* f = NewFunction(name, llvm::FunctionType::get(type_, {type_, type_}, false));
  f->addFnAttr(llvm::Attribute::Cold);
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  const auto block = [&] { return BasicBlock::Create(b_.getContext(), "", f); };
  BasicBlock* entry = block();
  BasicBlock* loop = block();
  BasicBlock* large = block();
  BasicBlock* next = block();
  BasicBlock* done = block();
  Type* i64 = b_.getInt64Ty();
  b_.SetInsertPoint(entry);
  b_.CreateBr(loop);
  b_.SetInsertPoint(loop);
  PHINode* i = b_.CreatePHI(i64, 2);
  PHINode* all = b_.CreatePHI(type_, 2);
  Value* x = b_.CreateExtractElement(f->getArg(0), i);
  Value* bound = llvm::ConstantFP::get(x->getType(), is_double_ ? kSinBoundD : kSinBoundF);
  b_.CreateCondBr(b_.CreateFCmpOGT(Abs(x), bound), large, next);
  b_.SetInsertPoint(large);
  Value* replaced = b_.CreateInsertElement(all, b_.CreateCall(scalar, {x}), i);
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
  PHINode* kept = b_.CreatePHI(type_, 2);
  kept->addIncoming(all, loop);
  kept->addIncoming(replaced, large);
  Value* following = b_.CreateAdd(i, I(i64, 1));
  b_.CreateCondBr(b_.CreateICmpULT(following, I(i64, lanes)), loop, done);
  i->addIncoming(I(i64, 0), entry);
  i->addIncoming(following, next);
  all->addIncoming(f->getArg(1), entry);
  all->addIncoming(kept, next);
  b_.SetInsertPoint(done);
  b_.CreateRet(kept);
  return f;
}

}  // namespace

llvm::Value* EmitExp2(Builder& b, const AluTarget& target, llvm::Value* x) {
  // PTX ISA, "ex2": at most 2 ulp over the full range. AMD RDNA3 ISA, V_EXP_F32: 1 ulp.
  if (target.gpu && x->getType()->getScalarType()->isFloatTy()) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::exp2, x);
  }
  return Maths(b, target, x->getType()).Exp2(x);
}

llvm::Value* EmitLog2(Builder& b, const AluTarget& target, llvm::Value* x) {
  return Maths(b, target, x->getType()).Log2(x);
}

llvm::Value* EmitSin(Builder& b, const AluTarget& target, llvm::Value* x) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (target.gpu && vector != nullptr) {
    Value* all = llvm::PoisonValue::get(x->getType());
    for (unsigned i = 0; i < vector->getNumElements(); ++i) {
      all = b.CreateInsertElement(all, EmitSin(b, target, b.CreateExtractElement(x, i)), i);
    }
    return all;
  }
  Maths maths(b, target, x->getType());
  return target.call_sin ? maths.CallSin(x) : maths.Sin(x);
}

}  // namespace beamd
