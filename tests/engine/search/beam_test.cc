#include "engine/search/beam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/base/hash.h"
#include "tests/engine/kernel/graphs.h"
#include "tests/engine/search/scripted_pipeline.h"

namespace beamd {
namespace {

using ::beamd::testing::Ending;
using ::beamd::testing::kMatmul;
using ::beamd::testing::Made;
using ::beamd::testing::Scripted;
using ::beamd::testing::ScriptedPipeline;
using ::testing::HasSubstr;

using Opts = std::vector<Opt>;

// The kernel that all tests here tune, and what its search sees first.
class Beam : public ::testing::Test {
 protected:
  absl::StatusOr<BeamResult> Search(ScriptedPipeline& pipeline) {
    return BeamSearch(kernel_, options_, pipeline, [this](const BeamProgress& p) {
      progress_.push_back(p);
      if (p.candidate != nullptr) reports_.push_back(*p.candidate);
    });
  }

  // A time for every list, all different, better by about a half for each opt; the heuristics' is
  // bad.
  Scripted Graded(const Opts& opts) const {
    Scripted s;
    s.seconds = 1e-3 * (1 + Fraction(opts) / 10) / static_cast<double>(1 << opts.size());
    if (opts == hc_opts_) s.seconds = 5e-3;
    return s;
  }
  // In [0, 1).
  static double Fraction(const Opts& opts) {
    return static_cast<double>(HashBytes(ToString(opts)).Prefix() % 100'000) / 100'000;
  }
  ScriptedPipeline::Script Graded() {
    return [this](const Opts& opts) { return Graded(opts); };
  }
  // No opt helps: all that the search makes takes `seconds`.
  ScriptedPipeline::Script Flat(double seconds) {
    return [=](const Opts& opts) {
      Scripted s;
      s.seconds = opts.empty() ? 1e-3 : seconds;
      return s;
    };
  }

  static int64_t Counted(const BeamResult& result, Failure failure) {
    return result.failures[static_cast<int>(failure)];
  }

  UOpGraph graph_;
  const Kernel kernel_ = Made(kMatmul, graph_, TargetKind::kCpu);
  const Opts hc_opts_ = HandCodedOptimizations(kernel_).applied_opts();
  BeamOptions options_;
  std::vector<BeamProgress> progress_;
  std::vector<CandidateReport> reports_;
};

TEST_F(Beam, GoesOnFromTheBestFewOfARound) {
  options_.width = 2;
  ScriptedPipeline pipeline(Graded());
  ASSERT_TRUE(Search(pipeline).ok());
  std::vector<std::pair<double, Opts>> first;
  std::set<Opts> parents;
  for (const Opts& opts : pipeline.compiled) {
    if (opts == hc_opts_) continue;
    if (opts.size() == 1) first.emplace_back(Graded(opts).seconds, opts);
    if (opts.size() == 2) parents.insert({opts[0]});
  }
  std::sort(first.begin(), first.end());
  ASSERT_GT(first.size(), 4u);
  EXPECT_EQ(parents, (std::set<Opts>{first[0].second, first[1].second}));
}

TEST_F(Beam, FindsWhatTheBestRoundLedTo) {
  ScriptedPipeline pipeline(Graded());
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  double least = 1;
  for (const Opts& opts : pipeline.compiled) least = std::min(least, Graded(opts).seconds);
  EXPECT_EQ(result->best_s, least);
  EXPECT_EQ(result->best_s, Graded(result->opts).seconds);
  EXPECT_EQ(result->hc_s, 5e-3);
  EXPECT_EQ(result->unoptimised_s, Graded(Opts()).seconds);
  EXPECT_EQ(result->hc_opts, hc_opts_);
  EXPECT_EQ(result->verified, "evaluator");
  EXPECT_FALSE(result->partial);
  EXPECT_EQ(result->samples.size(), 10u);
}

TEST_F(Beam, FindsTheSizeOfGroupsThatNoLocalsLeavesOpenByTrying) {
  UOpGraph graph;
  const Kernel kernel = Made(kMatmul, graph, TargetKind::kCuda);
  options_.actions.no_locals = true;
  const Opt open{.op = OptOp::kNoLocals}, best{OptOp::kNoLocals, 0, 64};
  ScriptedPipeline pipeline([&](const Opts& opts) {
    Scripted s;
    s.seconds = opts == Opts{best} ? 1e-4 : opts == Opts{open} ? 2e-4 : 1e-3;
    return s;
  });
  const absl::StatusOr<BeamResult> result = BeamSearch(kernel, options_, pipeline, [](auto&) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->opts, Opts{best});
  EXPECT_EQ(result->best_s, 1e-4);
  EXPECT_EQ(std::ranges::count_if(pipeline.compiled,
                                  [](const Opts& opts) {
                                    return opts.size() == 1 && opts[0].op == OptOp::kNoLocals;
                                  }),
            12);
}

TEST_F(Beam, EndsWithTheRoundThatGainsLessThanMinProgress) {
  // 100 us better, then 5 ns.
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s;
    s.seconds = opts.empty() ? 1e-3 : opts.size() == 1 ? 9e-4 : 9e-4 - 5e-9;
    if (opts == hc_opts_) s.seconds = 5e-3;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->rounds, 2);
  for (const Opts& opts : pipeline.compiled) EXPECT_TRUE(opts.size() <= 2 || opts == hc_opts_);
  // What little it gained is kept.
  EXPECT_EQ(result->best_s, 9e-4 - 5e-9);
}

TEST_F(Beam, CompilesOneOfTheOrdersThatLeadToAGraph) {
  ScriptedPipeline pipeline(Graded());
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  std::set<uint64_t> graphs;
  // The first two are the seeds.
  for (size_t i = 2; i < pipeline.compiled.size(); ++i) {
    Kernel kernel = kernel_;
    ASSERT_TRUE(kernel.ApplyAll(pipeline.compiled[i]).ok());
    UOpGraph scratch;
    EXPECT_TRUE(graphs.insert(kernel.OptimizedAst(scratch).hash()).second)
        << ToString(pipeline.compiled[i]);
  }
  EXPECT_GT(Counted(*result, Failure::kDuplicate), 0);
}

TEST_F(Beam, TimesTheSameCodeOnce) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (opts.size() == 1 && opts != hc_opts_) s.code = opts[0].op == OptOp::kUpcast ? "A" : "B";
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  std::multiset<std::string> codes;
  for (const ScriptedPipeline::Timed& t : pipeline.timed) {
    if (t.task.max_global_size != 0) codes.insert(t.task.images[0]->code);
  }
  EXPECT_EQ(codes.count("A"), 1u);
  EXPECT_EQ(codes.count("B"), 1u);
  EXPECT_EQ(codes.size(), std::set<std::string>(codes.begin(), codes.end()).size());
  EXPECT_EQ(result->timed, static_cast<int64_t>(codes.size()));
}

TEST_F(Beam, HeuristicsThatChangeNothingHaveTheUnoptimisedTimeWhicheverEndsFirst) {
  for (const Ending ending : {Ending::kFirstIn, Ending::kLastIn}) {
    ScriptedPipeline pipeline(
        [this](const Opts& opts) {
          Scripted s = Graded(opts);
          if (opts.empty() || opts == hc_opts_) s.code = "plain", s.seconds = 2e-3;
          return s;
        },
        ending);
    const absl::StatusOr<BeamResult> result = Search(pipeline);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->unoptimised_s, 2e-3);
    EXPECT_EQ(result->hc_s, 2e-3);
  }
}

TEST_F(Beam, HeuristicsThatDoNotCompileHaveNoTime) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (opts == hc_opts_) s.compile = Failure::kLowering;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->hc_s, 0);
  EXPECT_EQ(Counted(*result, Failure::kLowering), 1);
}

TEST_F(Beam, CutsOffAtThreeTimesTheBestSoFarButTimesSeedsToTheEnd) {
  ScriptedPipeline pipeline(Graded());
  ASSERT_TRUE(Search(pipeline).ok());
  ASSERT_GT(pipeline.timed.size(), 10u);
  for (size_t i = 0; i < pipeline.timed.size(); ++i) {
    const auto& [task, least_told] = pipeline.timed[i];
    const bool whole = task.max_global_size == 0;
    const bool full = i < 2 || whole;
    EXPECT_EQ(task.cut_off, full ? absl::InfiniteDuration() : absl::Seconds(least_told * 3)) << i;
    EXPECT_EQ(whole, i + 1 == pipeline.timed.size()) << i;
  }
}

TEST_F(Beam, DoesNotTimeAThousandTimesTheArithmeticOfTheLeast) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (opts.empty()) return s;
    if (opts.back().op == OptOp::kUnroll) s.compute_ops = 1001;
    if (opts[0].op == OptOp::kUpcast && opts[0].axis == 1) s.compute_ops = 1000;
    if (opts == hc_opts_) s.compute_ops = 1;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  std::map<OptOp, std::set<Failure>> failures;
  for (const CandidateReport& r : reports_) {
    if (r.opts.size() == 1) failures[r.opts[0].op].insert(r.failure);
  }
  EXPECT_EQ(failures[OptOp::kUnroll], std::set<Failure>{Failure::kTooMuchCompute});
  EXPECT_EQ(failures[OptOp::kUpcast], std::set<Failure>{Failure::kNone});
  EXPECT_GT(Counted(*result, Failure::kTooMuchCompute), 0);
}

TEST_F(Beam, StrictModeFailsNamingTheCandidate) {
  ScriptedPipeline::Script script = [this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (ToString(opts) == "UNROLL(0, 4)") s.compile = Failure::kCompileError;
    if (ToString(opts) == "UPCAST(0, 4)") s.compile = Failure::kTooManyUops;
    // As an earlier search found.
    if (ToString(opts) == "UPCAST(0, 2)") s.compile = Failure::kRunTimeout;
    return s;
  };
  ScriptedPipeline lenient(script);
  const absl::StatusOr<BeamResult> result = Search(lenient);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Counted(*result, Failure::kCompileError), 1);
  EXPECT_EQ(Counted(*result, Failure::kTooManyUops), 1);
  EXPECT_EQ(Counted(*result, Failure::kRunTimeout), 1);

  options_.strict = true;
  ScriptedPipeline strict(script);
  const absl::Status status = Search(strict).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("UNROLL(0, 4)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(Name(Failure::kCompileError))));
}

TEST_F(Beam, AWrongAnswerLosesToTheNextFinalist) {
  options_.width = 1;
  ScriptedPipeline right(Graded());
  const Opts best = Search(right).value().opts;
  ScriptedPipeline wrong([&](const Opts& opts) {
    Scripted s = Graded(opts);
    if (opts == best) s.answer = Failure::kWrongAnswer;
    return s;
  });
  reports_.clear();
  const absl::StatusOr<BeamResult> result = Search(wrong);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Counted(*result, Failure::kWrongAnswer), 1);
  EXPECT_EQ(reports_.back().opts, best);
  std::vector<double> times;
  for (const Opts& opts : wrong.compiled) times.push_back(Graded(opts).seconds);
  std::sort(times.begin(), times.end());
  EXPECT_EQ(result->best_s, times[1]);
  EXPECT_EQ(wrong.verified.size(), 2u);
}

TEST_F(Beam, WhereEveryFinalistIsWrongTheUnoptimisedKernelStands) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (!opts.empty()) s.answer = Failure::kWrongAnswer;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->opts.empty());
  EXPECT_EQ(result->best_s, Graded(Opts()).seconds);

  ScriptedPipeline hopeless([this](const Opts& opts) {
    Scripted s = Graded(opts);
    s.answer = Failure::kWrongAnswer;
    return s;
  });
  const absl::Status status = Search(hopeless).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(Name(Failure::kWrongAnswer))));
}

TEST_F(Beam, AFinalistThatCrashesIsLeftOutOfTheFinalRuns) {
  options_.width = 1;
  ScriptedPipeline sound(Graded());
  const Opts best = Search(sound).value().opts;
  ScriptedPipeline pipeline([&](const Opts& opts) {
    Scripted s = Graded(opts);
    if (opts == best) s.final_run = Failure::kRunCrash;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NE(result->opts, best);
  EXPECT_EQ(Counted(*result, Failure::kRunCrash), 1);
  EXPECT_FALSE(result->partial);
  EXPECT_EQ(result->samples.size(), 10u);
}

TEST_F(Beam, WhereNothingSurvivesTheReasonsAreTold) {
  ScriptedPipeline pipeline([](const Opts& opts) {
    Scripted s;
    if (opts.empty()) {
      s.run = Failure::kRunTimeout;
    } else {
      s.compile = Failure::kCompileCrash;
    }
    return s;
  });
  const absl::Status status = Search(pipeline).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(Name(Failure::kCompileCrash))));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(Name(Failure::kRunTimeout))));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the last: scripted"));
}

// Whatever it was to do next: nothing is known of that candidate, nor of those that come behind it.
TEST_F(Beam, WhereTheDeviceGoesAwayNoCandidateIsLostToIt) {
  using Place = Failure Scripted::*;
  for (const Place place :
       {&Scripted::compile, &Scripted::run, &Scripted::final_run, &Scripted::answer}) {
    for (const size_t opts_at : {size_t{0}, size_t{1}}) {
      reports_.clear();
      ScriptedPipeline pipeline([&](const Opts& opts) {
        Scripted s = Graded(opts);
        const bool last = place == &Scripted::final_run || place == &Scripted::answer;
        if (last || opts.size() == opts_at) s.*place = Failure::kUnavailable;
        return s;
      });
      const absl::StatusOr<BeamResult> result = Search(pipeline);
      EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
      for (const CandidateReport& report : reports_) {
        EXPECT_EQ(report.failure == Failure::kNone || report.failure == Failure::kDuplicate, true)
            << Name(report.failure);
      }
    }
  }
}

TEST_F(Beam, WhereNothingFitsIntoMemoryThatIsTheError) {
  ScriptedPipeline pipeline([](const Opts&) {
    Scripted s;
    s.run = Failure::kRunMemory;
    return s;
  });
  const absl::Status status = Search(pipeline).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("run_memory"));
}

TEST_F(Beam, SearchesOnWhereTheUnoptimisedKernelIsTooSlowToRun) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (opts.empty()) s.run = Failure::kRunTimeout;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->rounds, 1);
  EXPECT_EQ(result->unoptimised_s, 0);
}

TEST_F(Beam, TimesThatCannotBeAreNone) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s = Graded(opts);
    if (!opts.empty() && opts.back().op == OptOp::kUnroll && opts != hc_opts_) s.seconds = 0;
    if (!opts.empty() && opts.back().op == OptOp::kPadTo) s.seconds = -1;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->best_s, 0);
  EXPECT_GT(Counted(*result, Failure::kInvalidTime), 0);
}

TEST_F(Beam, TheDeadlineEndsItWithTheBestSoFar) {
  options_.deadline = absl::Now() + absl::Seconds(2);
  ScriptedPipeline pipeline(Graded());
  pipeline.stall_after = 40;
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->partial);
  EXPECT_EQ(result->verified, "evaluator");
  // The stall left time for the final runs: they are the last that was asked for.
  EXPECT_EQ(pipeline.timed.back().task.max_global_size, 0);
  EXPECT_EQ(result->best_s, pipeline.timed.back().least_told);
}

TEST_F(Beam, ADeadlineBeforeAnyTimeIsAnError) {
  options_.deadline = absl::Now() - absl::Seconds(1);
  ScriptedPipeline pipeline(Graded());
  EXPECT_EQ(Search(pipeline).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(pipeline.compiled.empty());
}

TEST_F(Beam, WithoutATimeItWaitsForOneToTheEndOfItsBudget) {
  options_.deadline = absl::Now() + absl::Milliseconds(300);
  ScriptedPipeline pipeline(Graded());
  pipeline.stall_after = 0;
  EXPECT_EQ(Search(pipeline).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(absl::Now(), options_.deadline);
}

TEST_F(Beam, ACancelEndsItWithTheBestSoFarUnverified) {
  ScriptedPipeline pipeline(Graded());
  pipeline.cancel_after = 40;
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->partial);
  EXPECT_EQ(result->verified, "");
  EXPECT_EQ(result->best_s, pipeline.timed.back().least_told);

  ScriptedPipeline at_once(Graded());
  at_once.cancel_after = 1;
  EXPECT_EQ(Search(at_once).status().code(), absl::StatusCode::kCancelled);
}

// How many of 200 searches replace the incumbent by the other of two kernels that alone are any
// good, where it takes `gain` times as long.
class Incumbent : public Beam {
 protected:
  int Replaced(double gain) {
    const Opts incumbent = {Opt{OptOp::kUpcast, 0, 4}};
    const Opts challenger = {Opt{OptOp::kUpcast, 1, 4}};
    options_.width = 0;
    options_.known = {incumbent, challenger};
    options_.incumbent = incumbent;
    int replaced = 0;
    for (uint32_t seed = 1; seed <= 200; ++seed) {
      ScriptedPipeline pipeline(
          [&](const Opts& opts) {
            Scripted s;
            s.noise = 0.02;
            s.seconds = opts == incumbent ? 1e-4 * gain : opts == challenger ? 1e-4 : 1e-3;
            return s;
          },
          Ending::kFirstIn, seed);
      const absl::StatusOr<BeamResult> result = Search(pipeline);
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->opts == incumbent || result->opts == challenger);
      replaced += result->opts == challenger ? 1 : 0;
    }
    return replaced;
  }
};

TEST_F(Incumbent, StaysWhereTheOtherIsItsTwin) { EXPECT_LT(Replaced(1), 4); }

TEST_F(Incumbent, GoesWhereTheOtherIsThreePercentFaster) { EXPECT_GT(Replaced(1.03), 190); }

TEST_F(Beam, GoesOnWhereItWasInterruptedWithWhatItHad) {
  options_.width = 2;
  ScriptedPipeline whole(Graded());
  const absl::StatusOr<BeamResult> wanted = Search(whole);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const size_t all = whole.compiled.size();

  reports_.clear();
  ScriptedPipeline before(Graded());
  before.cancel_after = static_cast<int64_t>(all);  // of two ends each
  ASSERT_TRUE(Search(before).ok());
  std::map<Opts, Recalled> had;
  for (const CandidateReport& r : reports_) {
    had[r.opts] = {r.failure, r.seconds, r.code, r.uops, r.compute_ops};
  }
  ASSERT_GT(had.size(), all / 4);
  ASSERT_LT(had.size(), all);

  options_.recall = [&](const Opts& opts) -> std::optional<Recalled> {
    const auto it = had.find(opts);
    if (it == had.end()) return std::nullopt;
    return it->second;
  };
  ScriptedPipeline after(Graded());
  const absl::StatusOr<BeamResult> resumed = Search(after);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->opts, wanted->opts);
  EXPECT_EQ(resumed->best_s, wanted->best_s);
  EXPECT_EQ(resumed->rounds, wanted->rounds);
  EXPECT_EQ(resumed->timed, wanted->timed);
  EXPECT_EQ(resumed->failures, wanted->failures);
  EXPECT_EQ(resumed->recalled, static_cast<int64_t>(had.size()));
  EXPECT_FALSE(resumed->partial);
  // Only for the final runs and the check may something be compiled again, and nothing is timed.
  for (const ScriptedPipeline::Timed& t : after.timed) {
    if (t.task.max_global_size == 0) continue;
    for (const auto& [opts, recalled] : had) EXPECT_NE(t.task.images[0]->code, ToString(opts));
  }
}

TEST_F(Beam, OneThatRecallsAllAndIsCancelledStillTellsTheBest) {
  ScriptedPipeline whole(Graded());
  const absl::StatusOr<BeamResult> wanted = Search(whole);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  std::map<Opts, Recalled> had;
  for (const CandidateReport& r : reports_) {
    had[r.opts] = {r.failure, r.seconds, r.code, r.uops, r.compute_ops};
  }
  options_.recall = [&](const Opts& opts) -> std::optional<Recalled> { return had.at(opts); };
  ScriptedPipeline after(Graded());
  after.cancel_after = 0;
  const absl::StatusOr<BeamResult> result = Search(after);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->partial);
  EXPECT_EQ(result->verified, "");
  EXPECT_EQ(result->best_s, wanted->best_s);
}

TEST_F(Beam, KnownWinnersTakePartWhereTheyApply) {
  Kernel walked = kernel_;
  while (walked.applied_opts().size() < 3) {
    walked = LegalActions(walked, {}).front().second;
  }
  const Opts known = walked.applied_opts();
  ASSERT_NE(known, hc_opts_);
  options_.known = {{Opt{OptOp::kUpcast, 17, 4}}, known};
  ScriptedPipeline pipeline([&](const Opts& opts) {
    Scripted s = Flat(2e-3)(opts);
    if (opts == known) s.seconds = 1e-5;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->opts, known);
  EXPECT_EQ(std::count(pipeline.compiled.begin(), pipeline.compiled.end(), options_.known[0]), 0);
}

TEST_F(Beam, IsNeverSlowerThanItsSeedsAtFullSize) {
  // Test launches flatter what the search makes.
  for (const Opts& seed : {hc_opts_, Opts()}) {
    ScriptedPipeline pipeline([&](const Opts& opts) {
      Scripted s;
      s.seconds = opts.empty() ? 1e-3 : opts == hc_opts_ ? 9e-4 : 5e-4;
      s.whole_s = opts == seed ? 1e-3 : 4e-3;
      return s;
    });
    const absl::StatusOr<BeamResult> result = Search(pipeline);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->opts, seed);
    EXPECT_EQ(result->best_s, 1e-3);
  }
}

// It was timed at a bad moment.
TEST_F(Beam, TheHeuristicsAreAFinalistHoweverSlowTheirTestLaunchWas) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s;
    s.seconds = opts.empty() ? 1e-3 : 5e-4;
    if (opts == hc_opts_) s.seconds = 1e-2, s.whole_s = 4e-4;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->opts, hc_opts_);
  EXPECT_EQ(result->best_s, 4e-4);
  EXPECT_EQ(result->hc_s, 4e-4);
}

// Final runs of it would take seconds; a test launch doesn't.
TEST_F(Beam, OneMoreTestLaunchSaysWhetherLongHeuristicsAreFarBehind) {
  for (const bool busy_moment : {false, true}) {
    int asked = 0;
    ScriptedPipeline pipeline([&](const Opts& opts) {
      Scripted s;
      s.seconds = opts.empty() ? 1.0 : 0.5;
      if (opts == hc_opts_) s.seconds = 2, s.whole_s = 0.4;
      return s;
    });
    pipeline.before_time = [&](const TimeTask& task, Scripted& s) {
      if (task.images[0]->code != ToString(hc_opts_) || task.max_global_size == 0) return;
      if (++asked == 2 && busy_moment) s.seconds = 0.6;
    };
    const absl::StatusOr<BeamResult> result = Search(pipeline);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(result->opts == hc_opts_, busy_moment);
  }
}

TEST_F(Beam, AnIncumbentWhoseCodeIsTheHeuristicsIsDefended) {
  options_.width = 0;
  const Opts twin = {Opt{OptOp::kUpcast, 0, 4}}, other = {Opt{OptOp::kUpcast, 1, 4}};
  options_.known = {twin, other};
  options_.incumbent = twin;
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    ScriptedPipeline pipeline(
        [&](const Opts& opts) {
          Scripted s;
          s.noise = 0.02;
          s.seconds = opts.empty() ? 1e-3 : 1e-4;
          if (opts == hc_opts_ || opts == twin) s.code = "same";
          return s;
        },
        Ending::kFirstIn, seed);
    const absl::StatusOr<BeamResult> result = Search(pipeline);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NE(result->opts, other) << seed;
  }
}

TEST_F(Beam, WhatIsFarBehindHasNoFinalRuns) {
  ScriptedPipeline pipeline([this](const Opts& opts) {
    Scripted s;
    s.seconds = opts.empty() ? 1e-3 : opts.size() == 1 ? 1e-4 : 1.3e-4;
    if (opts == hc_opts_) s.seconds = 1e-3;
    if (ToString(opts) == "UPCAST(0, 4)") s.seconds = 7e-5;
    return s;
  });
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  // The winner's, and the heuristics', which is always there.
  ASSERT_EQ(pipeline.timed.back().task.images.size(), 2u);
  EXPECT_EQ(pipeline.timed.back().task.images[1]->code, ToString(hc_opts_));
  EXPECT_EQ(result->hc_s, 1e-3);
  EXPECT_EQ(result->unoptimised_s, 1e-3);
}

TEST_F(Beam, TheOrderOfEndsChangesNothing) {
  // Few times, so that many are equal.
  const ScriptedPipeline::Script script = [this](const Opts& opts) {
    Scripted s;
    s.seconds = 1e-3 * (1 + std::floor(Fraction(opts) * 4)) / static_cast<double>(1 << opts.size());
    if (opts == hc_opts_) s.seconds = 5e-3;
    return s;
  };
  ScriptedPipeline first_in(script);
  const absl::StatusOr<BeamResult> want = Search(first_in);
  ASSERT_TRUE(want.ok()) << want.status();
  const std::set<Opts> tried(first_in.compiled.begin(), first_in.compiled.end());
  for (uint32_t seed = 0; seed < 6; ++seed) {
    ScriptedPipeline pipeline(script, seed == 0 ? Ending::kLastIn : Ending::kAny, seed);
    const absl::StatusOr<BeamResult> got = Search(pipeline);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->opts, want->opts) << seed;
    EXPECT_EQ(got->best_s, want->best_s) << seed;
    EXPECT_EQ(got->rounds, want->rounds) << seed;
    EXPECT_EQ(std::set<Opts>(pipeline.compiled.begin(), pipeline.compiled.end()), tried) << seed;
  }
}

TEST_F(Beam, WidthZeroIsTheBetterSeed) {
  options_.width = 0;
  ScriptedPipeline pipeline(Graded());
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(pipeline.compiled, (std::vector<Opts>{Opts(), hc_opts_}));
  EXPECT_TRUE(result->opts.empty());
  EXPECT_EQ(result->rounds, 0);
}

TEST_F(Beam, NoOptIsTheUnoptimisedKernelAlone) {
  options_.no_opt = true;
  options_.known = {hc_opts_};
  ScriptedPipeline pipeline(Graded());
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(pipeline.compiled, std::vector<Opts>{Opts()});
  EXPECT_EQ(result->verified, "evaluator");
}

TEST_F(Beam, ProgressCountsEveryCandidateOfARound) {
  ScriptedPipeline pipeline(Graded());
  const absl::StatusOr<BeamResult> result = Search(pipeline);
  ASSERT_TRUE(result.ok()) << result.status();
  int64_t reports = 0;
  double best = 0;
  for (const BeamProgress& p : progress_) {
    EXPECT_LE(p.done, p.total);
    if (p.candidate == nullptr) continue;
    ++reports;
    // It only gets better.
    EXPECT_TRUE(best == 0 || p.best_s <= best);
    best = p.best_s;
  }
  EXPECT_EQ(reports, static_cast<int64_t>(pipeline.compiled.size()));
  EXPECT_EQ(progress_.back().stage, BeamStage::kVerifying);
}

}  // namespace
}  // namespace beamd
