#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/uop/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::MatmulKernel;
using ::beamd::testing::Ran;
using ::beamd::testing::RunProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class BeamctlTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new std::string(FreshDirectory());
    daemon_ = new Daemon("server/beamd", *directory_ + "/store");
    Write("add.json", GraphToJson(AddKernel(4096)));
    Write("matmul.json", GraphToJson(MatmulKernel(512)));
    Write("bad.json", R"({"nodes":[{"op":"OP_SINK","src":[7]}]})");
    Write("corpus.jsonl", "{\"id\":\"k1\",\"graph\":" + GraphToJson(AddKernel(64)) + "}\n");
  }
  static void TearDownTestSuite() {
    delete daemon_;
    delete directory_;
  }

  static void Write(const std::string& name, const std::string& text) {
    std::ofstream(*directory_ + "/" + name) << text;
  }
  static std::string Path(const std::string& name) { return *directory_ + "/" + name; }

  static Ran Beamctl(std::vector<std::string> args) {
    args.insert(args.begin(), {"client/beamctl/beamctl", "--server", daemon_->address()});
    return RunProcess(args);
  }

  static Daemon* daemon_;
  static std::string* directory_;
};

Daemon* BeamctlTest::daemon_ = nullptr;
std::string* BeamctlTest::directory_ = nullptr;

TEST_F(BeamctlTest, TuneAnswersForPeople) {
  const Ran ran = Beamctl({"tune", Path("add.json"), "--width", "1"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("opts "), HasSubstr("best "), HasSubstr("heuristics "),
                             HasSubstr("verified     yes")));
  // Plain lines of progress, since it is no terminal.
  EXPECT_THAT(ran.err, HasSubstr(": job "));
  EXPECT_THAT(ran.err, Not(HasSubstr("\r")));
}

TEST_F(BeamctlTest, TuneAnswersScriptsInALine) {
  const Ran ran = Beamctl({"tune", "--corpus", Path("corpus.jsonl"), "--name", "k1", "--json"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out,
              MatchesRegex("\\{\"key\":\"[0-9a-f]*\",\"opts\":\\[.*\\],\"best_s\":[0-9.e-]*,"
                           "\"hc_s\":[0-9.e-]*,\"unoptimised_s\":[0-9.e-]*,"
                           "\"verified\":true,\"match\":\"searched\",\"persisted\":true,"
                           "\"job\":\"[0-9a-f]*\",.*\\}\n"));
  EXPECT_THAT(ran.err, IsEmpty());
  const Ran again = Beamctl({"tune", "--corpus", Path("corpus.jsonl"), "--name", "k1", "--json"});
  EXPECT_THAT(again.out, AllOf(HasSubstr("\"match\":\"strict\""), HasSubstr("\"job\":\"\"")));
  const Ran lookup =
      Beamctl({"lookup", "--corpus", Path("corpus.jsonl"), "--name", "k1", "--json"});
  EXPECT_EQ(lookup.status, 0);
  EXPECT_THAT(lookup.out, HasSubstr("\"match\":\"strict\""));
}

TEST_F(BeamctlTest, LookupAnswersALineAKernel) {
  const Ran ran = Beamctl({"lookup", Path("matmul.json"), Path("matmul.json"), "--json"});
  EXPECT_EQ(ran.status, 6);
  EXPECT_THAT(ran.out, MatchesRegex("(\\{[^\n]*\"miss\":\"no-record\"[^\n]*\\}\n){2}"));
}

TEST_F(BeamctlTest, RecordsListsAndGets) {
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1"}).status, 0);
  const Ran list = Beamctl({"records", "--json"});
  EXPECT_EQ(list.status, 0) << list.err;
  ASSERT_THAT(list.out, StartsWith("{\"key\":\""));
  const std::string key = list.out.substr(8, 64);
  const Ran one = Beamctl({"records", key});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, AllOf(HasSubstr(key), HasSubstr("\"graph\"")));
  EXPECT_EQ(Beamctl({"records", std::string(64, '0')}).status, 6);
  EXPECT_EQ(Beamctl({"records", "short"}).status, 3);
}

TEST_F(BeamctlTest, DevicesAndShow) {
  EXPECT_THAT(Beamctl({"devices"}).out, AllOf(StartsWith("cpu:0"), HasSubstr("LLVM")));
  EXPECT_THAT(Beamctl({"devices", "--json"}).out, HasSubstr("\"id\":\"cpu:0\""));
  const Ran ast = Beamctl({"show", Path("add.json"), "--opts", "UPCAST(0, 4)"});
  EXPECT_EQ(ast.status, 0) << ast.err;
  EXPECT_THAT(ast.out, HasSubstr("(1024,4)"));
  EXPECT_THAT(Beamctl({"show", Path("add.json"), "--pass", "ir"}).out, HasSubstr("target triple"));
}

TEST_F(BeamctlTest, TakesTheTextThatShowPrints) {
  const Ran shown = Beamctl({"show", Path("matmul.json")});
  ASSERT_EQ(shown.status, 0) << shown.err;
  Write("matmul.txt", shown.out);
  const auto key = [](const std::string& file) {
    const std::string line = Beamctl({"lookup", Path(file), "--json"}).out;
    return line.substr(0, line.find(','));
  };
  EXPECT_THAT(key("matmul.txt"), StartsWith("{\"key\":"));
  EXPECT_EQ(key("matmul.txt"), key("matmul.json"));
}

constexpr char kMlp[] = "deploy/examples/mlp.uops";

TEST_F(BeamctlTest, PlansAndDrawsWithoutADaemon) {
  const auto alone = [](std::vector<std::string> args) {
    args.insert(args.begin(), "client/beamctl/beamctl");
    return RunProcess(args);
  };
  const Ran plan = alone({"plan", kMlp});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(StartsWith("#  kernel"), HasSubstr("(64,256)  25.7 M"),
                              HasSubstr("UPCAST("), HasSubstr(" kernels, ")));
  const Ran json = alone({"plan", kMlp, "--json", "--device", "cuda"});
  EXPECT_THAT(json.out,
              MatchesRegex("(\\{\"index\":[0-9]+,\"name\":\"[^\n]*\"shapes\":\\[\\[64,[^\n]*\\}\n)+"
                           "\\{\"kernels\":[^\n]*\"peak_bytes\":[0-9]+\\}\n"));
  EXPECT_THAT(json.out, HasSubstr("LOCAL("));
  EXPECT_THAT(alone({"graph", kMlp}).out, StartsWith("digraph \"tensors\""));
  EXPECT_THAT(alone({"graph", kMlp, "--kernel"}).out, StartsWith("digraph \"kernels\""));
  EXPECT_THAT(alone({"graph", kMlp, "--schedule"}).out, StartsWith("digraph \"schedule\""));
  EXPECT_THAT(alone({"graph", Path("add.json")}).out, StartsWith("digraph \"kernel\""));
  EXPECT_THAT(alone({"show", kMlp}).out, HasSubstr("%0 = BUFFER float32 slot 0 shape (64,784)\n"));
  EXPECT_THAT(alone({"--version"}).out, MatchesRegex("beamctl [0-9.]+\n"));
  const Ran kernel = alone({"plan", Path("add.json"), "--json"});
  EXPECT_EQ(kernel.status, 3);
  EXPECT_THAT(kernel.out, HasSubstr("\"reason\":\"KERNEL\""));
  EXPECT_EQ(alone({"show", kMlp, "--pass", "asm"}).status, 3);
  const Ran tune = alone({"tune", kMlp});
  EXPECT_EQ(tune.status, 3);
  EXPECT_THAT(tune.err, HasSubstr("tune-model"));
  EXPECT_EQ(alone({"graph", Path("add.json"), "--schedule"}).status, 3);
}

TEST_F(BeamctlTest, RefusesFlagsThatACommandHasNoUseFor) {
  EXPECT_THAT(Beamctl({"devices", "--width", "4"}).err,
              HasSubstr("devices has no use for --width"));
  EXPECT_EQ(Beamctl({"tune", Path("add.json"), "--opts", "-"}).status, 2);
  EXPECT_EQ(Beamctl({"records", "--heuristic"}).status, 2);
  EXPECT_EQ(Beamctl({"lookup", Path("add.json"), "--budget", "1s"}).status, 2);
  EXPECT_EQ(RunProcess({"client/beamctl/beamctl", "plan", kMlp, "--timeout", "1s"}).status, 2);
  EXPECT_EQ(RunProcess({"client/beamctl/beamctl", "plan", kMlp, "--device", "tpu"}).status, 2);
  EXPECT_EQ(RunProcess({"client/beamctl/beamctl", "graph", kMlp, kMlp}).status, 2);
  EXPECT_EQ(RunProcess({"client/beamctl/beamctl", "graph", kMlp, "--kernel", "--schedule"}).status,
            2);
}

TEST_F(BeamctlTest, ExitStatusSaysWhatWentWrong) {
  EXPECT_EQ(Beamctl({}).status, 2);
  EXPECT_EQ(Beamctl({"tnue", Path("add.json")}).status, 2);
  EXPECT_EQ(Beamctl({"tune"}).status, 2);
  EXPECT_EQ(Beamctl({"tune", Path("add.json"), "--widht", "4"}).status, 2);
  EXPECT_EQ(Beamctl({"tune", "--corpus", Path("corpus.jsonl")}).status, 2);
  EXPECT_EQ(Beamctl({"show", Path("add.json"), "--opts", "UPCSAT(0, 4)"}).status, 2);
  EXPECT_EQ(Beamctl({"lookup", Path("add.json"), "--width", "4294967298"}).status, 2);
  EXPECT_EQ(Beamctl({"tune", Path("add.json"), "--budget", "-1s"}).status, 2);
  EXPECT_EQ(Beamctl({"tune", Path("add.json"), "--refresh", "--lookup_only"}).status, 2);
  const Ran bad = Beamctl({"tune", Path("bad.json"), "--json"});
  EXPECT_EQ(bad.status, 3);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("\"error\":\"INVALID_ARGUMENT\""), HasSubstr("\"node\":0")));
  EXPECT_EQ(Beamctl({"tune", Path("corpus.jsonl")}).status, 3);
  EXPECT_EQ(Beamctl({"tune", Path("add.json"), "--device", "cuda"}).status, 3);
  EXPECT_EQ(RunProcess({"client/beamctl/beamctl", "--server", "127.0.0.1:1", "devices"}).status, 4);
  EXPECT_EQ(Beamctl({"tune", Path("matmul.json"), "--width", "16", "--timeout", "300ms"}).status,
            5);
  EXPECT_EQ(Beamctl({"tune", Path("matmul.json"), "--width", "17", "--budget", "1ms"}).status, 5);
  EXPECT_EQ(Beamctl({"lookup", Path("matmul.json")}).status, 6);
  EXPECT_EQ(Beamctl({"tune", Path("matmul.json"), "--lookup_only"}).status, 6);
  EXPECT_EQ(Beamctl({"tune", Path("none.json")}).status, 6);
  EXPECT_EQ(Beamctl({"tune", "--corpus", Path("corpus.jsonl"), "--name", "k2"}).status, 6);
  EXPECT_EQ(Beamctl({"--help"}).status, 0);
}

}  // namespace
}  // namespace beamd
