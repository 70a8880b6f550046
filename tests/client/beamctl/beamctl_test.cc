#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
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
  static std::string Read(const std::string& name) {
    std::ifstream in(Path(name));
    return {std::istreambuf_iterator<char>(in), {}};
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

TEST_F(BeamctlTest, AnAnswerThatCantBeWrittenIsAFailure) {
  for (const char* words : {"--version", "--help", "plan deploy/examples/mlp.uops"}) {
    const Ran ran = RunProcess(
        {"/bin/sh", "-c", absl::StrCat("client/beamctl/beamctl ", words, " >/dev/full")});
    EXPECT_EQ(ran.status, 1) << words;
    EXPECT_THAT(ran.err, HasSubstr("can't write standard output: ")) << words;
  }
}

TEST_F(BeamctlTest, LocksWhatAnswersAndTakesNothingElse) {
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1"}).status, 0);
  const Ran locked =
      Beamctl({"lock", Path("add.json"), "--width", "1", "--out", Path("beamd.lock")});
  ASSERT_EQ(locked.status, 0) << locked.err;
  const Ran frozen =
      Beamctl({"tune", Path("add.json"), "--width", "1", "--frozen", Path("beamd.lock"), "--json"});
  EXPECT_EQ(frozen.status, 0) << frozen.err;
  EXPECT_THAT(frozen.out, HasSubstr("\"match\":\"strict\""));
  // A later generation changes nothing for who locked the first.
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1", "--refresh"}).status, 0);
  const Ran still =
      Beamctl({"tune", Path("add.json"), "--width", "1", "--frozen", Path("beamd.lock"), "--json"});
  EXPECT_EQ(still.out, frozen.out);
  const Ran other =
      Beamctl({"tune", Path("add.json"), "--width", "3", "--frozen", Path("beamd.lock"), "--json"});
  EXPECT_EQ(other.status, 6);
  EXPECT_THAT(other.err, HasSubstr("the lock file has no"));
  const Ran missed = Beamctl({"lock", Path("add.json"), "--width", "9"});
  EXPECT_EQ(missed.status, 6);
  EXPECT_THAT(missed.err, HasSubstr("(options-changed): tune it first"));
}

TEST_F(BeamctlTest, NowAnswersBeforeItSearches) {
  const Ran now = Beamctl({"tune", Path("add.json"), "--seed", "5", "--now", "--json"});
  EXPECT_EQ(now.status, 0) << now.err;
  EXPECT_THAT(now.out, MatchesRegex(".*\"match\":\"(heuristic|same-arch)\".*\n"));
  const size_t at = now.out.find("\"job\":\"");
  ASSERT_NE(at, std::string::npos);
  const std::string job = now.out.substr(at + 7, now.out.find('"', at + 7) - at - 7);
  const Ran watched = Beamctl({"jobs", "watch", job, "--json"});
  EXPECT_EQ(watched.status, 0) << watched.err;
  EXPECT_THAT(watched.out, HasSubstr("\"match\":\"searched\""));
}

TEST_F(BeamctlTest, ListsAndCancelsJobs) {
  const Ran detached = Beamctl({"tune", Path("matmul.json"), "--width", "16", "--detach"});
  EXPECT_EQ(detached.status, 0) << detached.err;
  const Ran jobs = Beamctl({"jobs", "--limit", "1", "--json"});
  EXPECT_THAT(jobs.out, AllOf(StartsWith("{\"job\":\""), HasSubstr("\"principal\":\"127.0.0.1\"")));
  const std::string id = jobs.out.substr(8, jobs.out.find('"', 8) - 8);
  EXPECT_THAT(detached.out, HasSubstr(id));
  const Ran cancelled = Beamctl({"jobs", "cancel", id});
  EXPECT_EQ(cancelled.status, 0) << cancelled.err;
  // As `jobs` lists it, for people and for scripts.
  EXPECT_THAT(cancelled.out, AllOf(StartsWith(id + "  "), HasSubstr("  127.0.0.1")));
  const Ran another = Beamctl({"tune", Path("matmul.json"), "--width", "15", "--detach", "--json"});
  const std::string second = another.out.substr(another.out.find("\"job\":\"") + 7, id.size());
  EXPECT_THAT(Beamctl({"jobs", "cancel", second, "--json"}).out,
              StartsWith("{\"job\":\"" + second + "\",\"state\":"));
  Beamctl({"jobs", "watch", id});
  EXPECT_THAT(Beamctl({"jobs", "get", id}).out, HasSubstr("JOB_STATE_CANCELLED"));
  EXPECT_EQ(Beamctl({"jobs", "cancel", id}).status, 1);
  EXPECT_EQ(Beamctl({"jobs", "get", "none"}).status, 6);
  EXPECT_EQ(Beamctl({"jobs", "kill", id}).status, 2);
}

TEST_F(BeamctlTest, ExplainsAndReplays) {
  const Ran tuned = Beamctl({"tune", Path("add.json"), "--width", "1", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const std::string key = tuned.out.substr(8, 64);
  const Ran explained = Beamctl({"explain", key});
  EXPECT_EQ(explained.status, 0) << explained.err;
  EXPECT_THAT(explained.out, AllOf(HasSubstr("winner "), HasSubstr("the winner"),
                                   HasSubstr(" tried, "), HasSubstr("over the winner (95 %)")));
  const Ran replayed = Beamctl({"replay", key});
  EXPECT_EQ(replayed.status, 0) << replayed.err;
  EXPECT_THAT(replayed.out, HasSubstr("right, against unoptimised"));
  constexpr absl::string_view kMember = "\"found_by\":\"";
  const size_t job = tuned.out.find(std::string(kMember)) + kMember.size();
  const std::string first = tuned.out.substr(job, tuned.out.find('"', job) - job) + "/1";
  EXPECT_THAT(Beamctl({"replay", first}).out, HasSubstr("opts         "));
  EXPECT_EQ(Beamctl({"explain", std::string(64, '0')}).status, 6);
  EXPECT_EQ(Beamctl({"replay", "nonsense"}).status, 3);
}

TEST_F(BeamctlTest, CarriesRecordsToAnotherDaemon) {
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1"}).status, 0);
  const Ran exported = Beamctl({"export", Path("records.jsonl")});
  ASSERT_EQ(exported.status, 0) << exported.err;
  const std::string records = Read("records.jsonl");
  const auto count = std::count(records.begin(), records.end(), '\n');
  EXPECT_EQ(exported.err,
            absl::StrCat("beamctl: ", count, count == 1 ? " record, " : " records, ",
                         records.size(), " bytes, written to ", Path("records.jsonl"), "\n"));
  EXPECT_THAT(Beamctl({"export", "-"}).err, HasSubstr(" bytes, written to standard output\n"));
  const Daemon other("server/beamd", *directory_ + "/other");
  const auto there = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"client/beamctl/beamctl", "--server", other.address()});
    return RunProcess(args);
  };
  const Ran imported = there({"import", Path("records.jsonl")});
  EXPECT_EQ(imported.status, 0) << imported.out << imported.err;
  EXPECT_THAT(imported.out, HasSubstr(" 0 refused"));
  EXPECT_EQ(there({"lookup", Path("add.json"), "--width", "1"}).status, 6);
  EXPECT_EQ(there({"lookup", Path("add.json"), "--width", "1", "--match", "same-arch"}).status, 0);
  Write("bad.jsonl", "{\"record\":{\"key\":\"12\"},\"graph\":{\"nodes\":[]}}\n");
  const Ran bad = there({"import", Path("bad.jsonl")});
  EXPECT_EQ(bad.status, 3);
  EXPECT_THAT(bad.err, HasSubstr(Path("bad.jsonl") + ":1: "));
  // One that no request may hold costs those behind it nothing.
  Write("long.jsonl", "{\"record\":{\"label\":\"" + std::string(2000, 'x') + "\"}}\n" +
                          "{\"record\":{\"key\":\"12\"},\"graph\":{\"nodes\":[]}}\n");
  EXPECT_THAT(there({"import", Path("long.jsonl")}).err,
              AllOf(HasSubstr("long.jsonl:1: record.label: "), HasSubstr("long.jsonl:2: ")));
}

TEST_F(BeamctlTest, ImportsTheGoodLinesOfAFileAndNamesTheBad) {
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1"}).status, 0);
  ASSERT_EQ(Beamctl({"export", Path("good.jsonl")}).status, 0);
  const std::string all = Read("good.jsonl");
  const std::string good = all.substr(0, all.find('\n') + 1);
  const std::string refused = "{\"record\":{\"key\":\"12\"},\"graph\":{\"nodes\":[]}}\n";
  Write("mixed.jsonl", "no JSON\n\n" + refused + good + "{\"recrod\":{}}\n" + good + "[1");
  const Daemon other("server/beamd", *directory_ + "/mixed");
  const auto import = [&](const std::string& file, const std::vector<std::string>& flags) {
    std::vector<std::string> args = {"client/beamctl/beamctl", "--server", other.address(),
                                     "import", Path(file)};
    args.insert(args.end(), flags.begin(), flags.end());
    return RunProcess(args);
  };
  const Ran ran = import("mixed.jsonl", {});
  EXPECT_EQ(ran.status, 3);
  EXPECT_EQ(ran.out, "1 imported, 1 already there, 4 refused\n");
  EXPECT_THAT(ran.err, AllOf(HasSubstr("mixed.jsonl:1: no record: "), HasSubstr("mixed.jsonl:3: "),
                             HasSubstr("mixed.jsonl:5: no record: "), HasSubstr("recrod"),
                             HasSubstr("mixed.jsonl:7: no record: "),
                             HasSubstr("4 lines were refused"), Not(HasSubstr("\n\n"))));
  for (const char* line : {":2: ", ":4: ", ":6: "}) EXPECT_THAT(ran.err, Not(HasSubstr(line)));
  const Ran json = import("mixed.jsonl", {"--json"});
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"line\":1}\n"), HasSubstr("\"line\":3}\n"),
                              HasSubstr("{\"imported\":0,\"kept\":2,\"refused\":4}\n")));
  // Each is named, however many there are.
  std::string many;
  for (int i = 0; i < 50; ++i) many += refused;
  Write("many.jsonl", many);
  const Ran fifty = import("many.jsonl", {});
  EXPECT_EQ(fifty.out, "0 imported, 0 already there, 50 refused\n");
  EXPECT_THAT(fifty.err, HasSubstr("many.jsonl:50: "));
}

TEST_F(BeamctlTest, BacksUpAndRestores) {
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1"}).status, 0);
  const Ran backup = Beamctl({"backup", Path("backup")});
  ASSERT_EQ(backup.status, 0) << backup.err;
  EXPECT_THAT(backup.err, MatchesRegex("beamctl: [0-9]+ files, [0-9]+ bytes, written to " +
                                       Path("backup") + "\n"));
  EXPECT_EQ(Beamctl({"backup", Path("backup")}).status, 3) << "it is there already";
  const Ran restored = RunProcess(
      {"client/beamctl/beamctl", "restore", Path("backup"), "--store", Path("restored")});
  ASSERT_EQ(restored.status, 0) << restored.err;
  const Daemon other("server/beamd", Path("restored"));
  const Ran found = RunProcess({"client/beamctl/beamctl", "--server", other.address(), "lookup",
                                Path("add.json"), "--width", "1"});
  EXPECT_EQ(found.status, 0) << found.err;
  // A byte that isn't what it was.
  Write("backup/CURRENT", "damaged");
  const Ran damaged =
      RunProcess({"client/beamctl/beamctl", "restore", Path("backup"), "--store", Path("damaged")});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("is not what was backed up"));
}

TEST_F(BeamctlTest, ABackupsListThatWasCutShortIsFound) {
  ASSERT_EQ(Beamctl({"backup", Path("listed")}).status, 0);
  const auto restore = [&](const std::string& to) {
    return RunProcess({"client/beamctl/beamctl", "restore", Path("listed"), "--store", Path(to)});
  };
  const std::string whole = Read("listed/DIGESTS");
  std::vector<std::string> lines = absl::StrSplit(whole, '\n');
  ASSERT_GT(lines.size(), 4u);
  lines.pop_back();
  // By a line, by all but one, in the middle of one, down to nothing; and a line that is another.
  std::vector<std::string> faulty = {whole.substr(0, whole.size() - lines.back().size() - 1),
                                     lines[0] + "\n", whole.substr(0, whole.size() - 10),
                                     whole.substr(0, whole.size() / 2), ""};
  std::string other = whole;
  other.erase(lines[0].size() + 1, lines[1].size() + 1);
  faulty.push_back(other);
  for (const std::string& text : faulty) {
    Write("listed/DIGESTS", text);
    const Ran ran = restore("none");
    EXPECT_EQ(ran.status, 1) << text;
    EXPECT_THAT(ran.err, HasSubstr("DIGESTS was cut short")) << text;
    EXPECT_NE(access(Path("none").c_str(), F_OK), 0);
  }
  // As an older beamctl wrote it.
  const std::vector<std::string> old(lines.begin() + 1, lines.end() - 1);
  Write("listed/DIGESTS", absl::StrJoin(old, "\n") + "\n");
  const Ran warned = restore("old");
  EXPECT_EQ(warned.status, 0) << warned.err;
  EXPECT_THAT(warned.err, AllOf(HasSubstr("warning"), HasSubstr("older beamctl")));
  Write("listed/DIGESTS", old[0] + "\n");
  EXPECT_THAT(restore("none").err, HasSubstr("isn't listed"));
  // As a newer one would write it, and as none does.
  std::string newer = whole;
  newer.replace(newer.find(" 2"), 2, " 3");
  Write("listed/DIGESTS", newer);
  const Ran refused = restore("newer");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("newer beamctl: its format is 3, and this one knows 2"),
                                 Not(HasSubstr("older")), Not(HasSubstr("warning"))));
  EXPECT_NE(access(Path("newer").c_str(), F_OK), 0);
  newer.replace(newer.find(" 3"), 2, " x");
  Write("listed/DIGESTS", newer);
  EXPECT_THAT(restore("newer").err, HasSubstr("there is no format \"x\""));
  Write("listed/DIGESTS", whole);
  const Ran right = restore("new");
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_EQ(right.err, "");
}

TEST_F(BeamctlTest, AnImportOfNothingIsAnError) {
  const Ran ran = Beamctl({"import", "/dev/null", "--json"});
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.out, HasSubstr("/dev/null holds no record"));
  EXPECT_THAT(ran.out, HasSubstr("\"reason\":\"EMPTY\""));
}

TEST_F(BeamctlTest, FilesOfThisMachineArentTheDaemonsFault) {
  const std::string none = Path("none/file");
  const auto local = [&](const std::vector<std::string>& args, int status, const std::string& why) {
    const Ran ran = Beamctl(args);
    EXPECT_EQ(ran.status, status) << args[0] << ran.err;
    EXPECT_THAT(ran.err, AllOf(HasSubstr(why), Not(HasSubstr("Is a daemon there")))) << args[0];
  };
  ASSERT_EQ(Beamctl({"tune", Path("add.json"), "--width", "1"}).status, 0);
  local({"export", none}, 6, "can't write " + none + ": No such file or directory");
  local({"export", "/dev/full"}, 1, "can't write /dev/full: No space left on device");
  local({"import", none}, 6, "can't read " + none + ": No such file or directory");
  local({"import", *directory_}, 1, "can't read " + *directory_ + ": Is a directory");
  local({"tune", *directory_}, 1, "can't read " + *directory_ + ": Is a directory");
  local({"tune", Path("add.json"), "--frozen", none}, 6, "can't read " + none);
  local({"lock", Path("add.json"), "--width", "1", "--out", none}, 6, "can't write " + none);
  local({"backup", "/dev/null/backup"}, 6, "can't make /dev/null/backup: Not a directory");
}

TEST_F(BeamctlTest, ADeviceThatServesNeedsNoRelease) {
  const Ran ran = Beamctl({"devices", "release", "cpu:0", "--json"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.out, HasSubstr("NOT_QUARANTINED"));
  EXPECT_EQ(Beamctl({"devices", "release", "cpu:9"}).status, 6);
}

}  // namespace
}  // namespace beamd
