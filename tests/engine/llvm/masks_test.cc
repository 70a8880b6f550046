// Vectors of which single lanes are off, of every width and dtype, beside memory that faults.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "devices/cpu/executable.h"
#include "engine/base/status.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/host.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/llvm/program_builder.h"

namespace beamd {
namespace {

using ::testing::IsEmpty;

constexpr Scalar kScalars[] = {Scalar::kFloat64,  Scalar::kInt64, Scalar::kFloat32,
                               Scalar::kInt32,    Scalar::kInt16, Scalar::kFloat16,
                               Scalar::kBFloat16, Scalar::kInt8,  Scalar::kBool};
constexpr char kUntouched = 0x55;

// Whole pages between two that can't be touched.
class Fenced {
 public:
  explicit Fenced(size_t least_bytes)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        bytes_((least_bytes + page_ - 1) / page_ * page_) {
    void* all = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BEAMD_CHECK(all != MAP_FAILED, "no memory");
    data_ = static_cast<char*>(all) + page_;
    BEAMD_CHECK(mprotect(data_, bytes_, PROT_READ | PROT_WRITE) == 0, "no memory");
    std::memset(data_, kUntouched, bytes_);
  }
  ~Fenced() { munmap(data_ - page_, bytes_ + 2 * page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  char* data() { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const size_t page_;
  const size_t bytes_;
  char* data_ = nullptr;
};

// Which lanes of a vector are on, and where lane 0 lies: what is off lies behind the last element
// or before the first.
struct Pattern {
  std::vector<int64_t> on;
  int64_t index;
};

std::vector<Pattern> Patterns(int lanes, int64_t elements) {
  std::vector<Pattern> patterns;
  for (const int count :
       std::set<int>{1, lanes / 2, static_cast<int>(std::bit_floor(lanes - 1U)), lanes - 1}) {
    std::vector<int64_t> first(lanes, 0), last(lanes, 0), gap(lanes, 0);
    for (int i = 0; i < lanes; ++i) {
      first[i] = i < count;
      last[i] = i >= lanes - count;
      gap[i] = i < count && i != count / 2;
    }
    patterns.push_back({first, elements - count});
    patterns.push_back({last, count - lanes});
    patterns.push_back({gap, elements - count});
  }
  return patterns;
}

constexpr int kCopies = 3;

// Of every pattern: loads and stores the lanes, and stores the lanes alone; once with a condition
// that holds, once with one that doesn't, once with none.
LinearProgram Program(ProgramBuilder& p, Scalar s, int lanes, int64_t elements,
                      const std::vector<Pattern>& patterns) {
  const auto size = static_cast<int64_t>(patterns.size()) * kCopies * lanes;
  const UOp whole = p.Buffer(s, size, false, true);
  const UOp masked = p.Buffer(s, size, false, true);
  const UOp edge = p.Buffer(s, elements, false, true);
  const UOp in = p.Buffer(s, elements, true, false);
  const UOp n = p.Variable("n", 0, 2);
  const UOp turn = p.Range(2);
  const UOp holds = p.Splat(p.Alu(Op::kCmpLt, turn, n), lanes);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const UOp lane_on = p.Append(p.graph().Make(Op::kVConst, DType(Scalar::kBool, lanes), {},
                                                p.graph().Intern(LanesArg{patterns[i].on})));
    const UOp valid = p.Alu(Op::kAnd, holds, lane_on);
    const UOp value = p.Load(in, p.Int(patterns[i].index), lanes, valid);
    const UOp place = p.Alu(Op::kAdd, p.Alu(Op::kMul, turn, p.Int(lanes)),
                            p.Int(static_cast<int64_t>(i) * kCopies * lanes));
    p.Store(whole, place, value);
    p.Store(masked, place, value, valid);
    p.Store(edge, p.Int(patterns[i].index), value, valid);
    const UOp last = p.Int((static_cast<int64_t>(i) * kCopies + kCopies - 1) * lanes);
    const UOp always = p.Load(in, p.Int(patterns[i].index), lanes, lane_on);
    p.Store(whole, last, always);
    p.Store(masked, last, always, lane_on);
  }
  p.End(turn);
  return p.Finish();
}

TEST(Masks, LanesThatAreOffReadAsZeroAndAreNotTouched) {
  const auto generator = CodeGenerator::Create(HostCaps());
  ASSERT_TRUE(generator.ok()) << generator.status();
  const auto loader = CpuLoader::Create();
  ASSERT_TRUE(loader.ok()) << loader.status();
  for (const Scalar s : kScalars) {
    const int bytes = SizeBytes(s);
    for (const int lanes : {2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17}) {
      Fenced in(1);
      const auto elements = static_cast<int64_t>(in.bytes()) / bytes;
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t value = s == Scalar::kBool ? 1 : i % 100 + 1;
        std::memcpy(in.data() + i * bytes, &value, bytes);
      }
      const std::vector<Pattern> patterns = Patterns(lanes, elements);
      ProgramBuilder p;
      const auto image = (*generator)->Generate(Program(p, s, lanes, elements, patterns));
      ASSERT_TRUE(image.ok()) << image.status();
      const auto loaded = (*loader)->Load(*image);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const size_t size = patterns.size() * kCopies * lanes * bytes;
      Fenced whole(size), masked(size), edge(1);
      void* const buffers[] = {whole.data(), masked.data(), edge.data(), in.data()};
      const int64_t variables[] = {1};
      (*loaded)->entry()(buffers, variables, 0, 1);

      std::string want_whole(size, 0), want_masked(size, kUntouched);
      for (size_t i = 0; i < patterns.size(); ++i) {
        for (int lane = 0; lane < lanes; ++lane) {
          if (patterns[i].on[lane] == 0) continue;
          const char* from = in.data() + (patterns[i].index + lane) * bytes;
          for (const size_t copy : {size_t{0}, size_t{kCopies - 1}}) {
            const size_t to = ((i * kCopies + copy) * lanes + lane) * bytes;
            std::memcpy(&want_whole[to], from, bytes);
            std::memcpy(&want_masked[to], from, bytes);
          }
        }
      }
      EXPECT_TRUE(std::string(whole.data(), size) == want_whole)
          << Name(s) << " x " << lanes << " loaded";
      EXPECT_TRUE(std::string(masked.data(), size) == want_masked)
          << Name(s) << " x " << lanes << " stored";
    }
  }
}

// The host may be any: what AVX-512 gets is looked at.
TEST(Masks, WidthsThatLlvmMasksArePowersOfTwo) {
  TargetCaps avx512;
  avx512.arch = "skylake-avx512";
  avx512.features = "+avx,+avx2,+fma,+f16c,+avx512f,+avx512vl,+avx512bw,+avx512dq";
  avx512.vector_bytes = 32;
  const auto generator = CodeGenerator::Create(avx512);
  ASSERT_TRUE(generator.ok()) << generator.status();
  for (const Scalar s : kScalars) {
    for (const int lanes : {3, 7, 12}) {
      ProgramBuilder p;
      std::string text;
      const auto image =
          (*generator)->Generate(Program(p, s, lanes, 64, Patterns(lanes, 64)), "opt", &text);
      ASSERT_TRUE(image.ok()) << image.status();
      const std::regex call("llvm\\.masked\\.(load|store)\\.v([0-9]+)");
      std::vector<std::string> odd;
      int calls = 0;
      for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it) {
        ++calls;
        if (!std::has_single_bit(std::stoul((*it)[2]))) odd.push_back(it->str());
      }
      EXPECT_GT(calls, 0);
      EXPECT_THAT(odd, IsEmpty());
    }
  }
}

}  // namespace
}  // namespace beamd
