// `beamctl run` as a script uses it, against a daemon.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/beamctl/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::Ran;
using ::beamd::testing::RunProcess;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// loss = sum(x @ w), and x @ w.
constexpr char kGraph[] = R"(# buffer 0: x
# buffer 1: w
# output 0: loss
# output 1: product
%0 = BUFFER float32 slot 0 shape (2,3)
%1 = RESHAPE float32 (%0) ints (2,1,3)
%2 = EXPAND float32 (%1) ints (2,2,3)
%3 = BUFFER float32 slot 1 shape (3,2)
%4 = PERMUTE float32 (%3) ints (1,0)
%5 = RESHAPE float32 (%4) ints (1,2,3)
%6 = EXPAND float32 (%5) ints (2,2,3)
%7 = MUL float32 (%2, %6)
%8 = REDUCE_AXIS float32 (%7) ADD axes (2)
%9 = RESHAPE float32 (%8) ints (2,2)
%10 = REDUCE_AXIS float32 (%9) ADD axes (0,1)
%11 = SINK void (%10, %9)
)";

Npy Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  Npy array{v1::SCALAR_FLOAT32, std::move(shape), std::string(values.size() * 4, '\0')};
  std::memcpy(array.content.data(), values.data(), array.content.size());
  return array;
}
std::vector<float> Values(const std::string& path) {
  const absl::StatusOr<Npy> array = ReadNpyFile(path);
  EXPECT_TRUE(array.ok()) << array.status();
  if (!array.ok()) return {};
  std::vector<float> values(array->content.size() / 4);
  std::memcpy(values.data(), array->content.data(), array->content.size());
  return values;
}

class RunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new std::string(FreshDirectory());
    daemon_ = new Daemon("server/beamd", *directory_ + "/store");
    std::ofstream(Path("graph.uops")) << kGraph;
    ASSERT_TRUE(WriteNpyFile(Path("x.npy"), Floats({2, 3}, {1, 2, 3, 4, 5, 6})).ok());
    ASSERT_TRUE(WriteNpyFile(Path("w.npy"), Floats({3, 2}, {1, 0, 0, 1, 1, 1})).ok());
  }
  static void TearDownTestSuite() {
    delete daemon_;
    delete directory_;
  }
  static std::string Path(const std::string& name) { return *directory_ + "/" + name; }
  static Ran Run(std::vector<std::string> flags, const std::string& file = Path("graph.uops")) {
    flags.insert(flags.begin(),
                 {"client/beamctl/beamctl", "--server", daemon_->address(), "run", file});
    return RunProcess(flags);
  }

  static Daemon* daemon_;
  static std::string* directory_;
};
Daemon* RunTest::daemon_ = nullptr;
std::string* RunTest::directory_ = nullptr;

TEST_F(RunTest, ComputesArraysAndGradients) {
  const Ran ran =
      Run({"--in", "x=" + Path("x.npy"), "--in", "1=" + Path("w.npy"), "--grad", "w", "--out",
           "1=" + Path("y.npy") + ",grad.w=" + Path("dw.npy"), "--profile", Path("trace.json")});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("loss: float32 (1, 1)  30\n"),
                             HasSubstr("product: float32 (2, 2)  in "), HasSubstr(" kernels, ")));
  EXPECT_THAT(Values(Path("y.npy")), ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(Values(Path("dw.npy")), ElementsAre(5, 5, 7, 7, 9, 9));
  std::ifstream trace(Path("trace.json"));
  const std::string text{std::istreambuf_iterator<char>(trace), {}};
  EXPECT_THAT(text, AllOf(HasSubstr("\"traceEvents\""), HasSubstr("\"cat\":\"kernel\"")));
}

TEST_F(RunTest, AnswersInJson) {
  const Ran ran = Run({"--random", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out,
              StartsWith(R"({"output":"loss","dtype":"float32","shape":"1,1","file":""})"));
  EXPECT_EQ(Run({"--random"}).out.substr(0, 20), Run({"--random"}).out.substr(0, 20));
}

TEST_F(RunTest, RunsTheExamples) {
  for (const char* const file : {"deploy/examples/mlp.uops", "deploy/examples/attention.uops"}) {
    const Ran ran = Run({"--random"}, file);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr(" kernels, "));
  }
}

TEST_F(RunTest, SaysWhatToDo) {
  const std::string x = "x=" + Path("x.npy"), w = "w=" + Path("w.npy");
  const auto why = [&](const std::vector<std::string>& flags, int status = 3) {
    const Ran ran = Run(flags);
    EXPECT_EQ(ran.status, status) << ran.out << ran.err;
    return ran.err;
  };
  EXPECT_THAT(why({"--in", x}), HasSubstr("buffer w, float32 (3, 2), has no content: --in "
                                          "w=FILE.npy, or --random"));
  EXPECT_THAT(why({"--in", x, "--in", "w=" + Path("x.npy")}),
              HasSubstr("holds float32 (2, 3), buffer w is float32 (3, 2): save it with "
                        ".reshape(3, 2)"));
  EXPECT_THAT(why({"--in", x, "--in", "y=" + Path("x.npy")}),
              HasSubstr("--in y: the graph has no such BUFFER; it has 0 (x), 1 (w)"));
  EXPECT_THAT(why({"--random", "--out", "3=z.npy"}),
              HasSubstr("--out 3: there is no such output; there are loss, product"));
  EXPECT_THAT(why({"--random", "--grad", "7"}),
              HasSubstr("--grad 7: the graph has no such BUFFER"));
  EXPECT_THAT(why({"--in", x, "--in", "w=" + Path("none.npy")}, 6),
              HasSubstr("none.npy: No such file or directory"));
  EXPECT_THAT(why({"--in", "x"}), HasSubstr("\"x\" isn't name=file"));
  EXPECT_THAT(why({"--random", "--var", "n=many"}), HasSubstr("isn't a number"));
  EXPECT_THAT(why({"--random", "--width", "2"}, 2), HasSubstr("run has no use for --width"));
  std::ofstream(Path("text.npy")) << "1 2 3";
  EXPECT_THAT(why({"--in", x, "--in", "w=" + Path("text.npy")}), HasSubstr("it isn't a .npy file"));
}

// No daemon is at fault, and none is asked for.
TEST_F(RunTest, FilesThatCantBeWrittenAreNamed) {
  const std::string none = Path("none/file");
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--random", "--out", "loss=" + none},
        std::vector<std::string>{"--random", "--profile", none}}) {
    const Ran ran = Run(flags);
    EXPECT_EQ(ran.status, 6) << ran.err;
    EXPECT_THAT(ran.err, AllOf(HasSubstr("can't write " + none + ": No such file or directory"),
                               Not(HasSubstr("daemon")), Not(HasSubstr("UNAVAILABLE"))));
  }
  const Ran full = Run({"--random", "--out", "loss=/dev/full"});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, AllOf(HasSubstr("can't write /dev/full: No space left on device"),
                              Not(HasSubstr("daemon"))));
}

}  // namespace
}  // namespace beamd
