// Index expressions as the shape layer makes them: simplification, simplification under a
// condition, bounds; and what a rule table costs on a node that no rule fits.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/rewrite/pattern.h"
#include "engine/rewrite/rule_table.h"
#include "engine/symbolic/symbolic.h"
#include "engine/uop/uop.h"
#include "tests/testing/infix.h"

namespace beamd {
namespace {

const std::map<std::string, InfixRange> kRanges = {
    {"i", {0, 31}}, {"j", {0, 15}}, {"k", {0, 7}}, {"p", {0, 2}}, {"q", {0, 2}}};

// 20 nodes: an index through a reshape.
constexpr char kReshape[] = "(i*128 + j*8 + k) // 64 % 8 * 64 + (i*128 + j*8 + k) % 64";
// An index and the condition of a padded window: 45 nodes, and 15.
constexpr char kWindow[] =
    "(i*16 + j + p*16 + q - 17) // 16 % 32 * 256 + (i*16 + j + p*16 + q - 17) % 16 * 8 + k";
constexpr char kValid[] = "i + p >= 1 & i + p < 33 & j + q >= 1 & j + q < 17";

// A fresh graph each time: no answer is remembered from the time before. Graphs are made in
// batches, outside of the timing.
template <typename F>
void OnFreshGraphs(benchmark::State& state, const std::vector<absl::string_view>& texts, F run) {
  struct Job {
    std::unique_ptr<UOpGraph> graph;
    std::vector<UOp> roots;
  };
  std::vector<Job> jobs(256);
  size_t next = jobs.size();
  for ([[maybe_unused]] auto _ : state) {
    if (next == jobs.size()) {
      state.PauseTiming();
      for (Job& job : jobs) {
        job = {std::make_unique<UOpGraph>(), {}};
        for (const absl::string_view text : texts) {
          job.roots.push_back(ParseInfix(*job.graph, text, kRanges));
        }
        // The first answer sets the graph's memory up, as any other expression would.
        Simplify(job.graph->Variable("other", 0, 9) + 0);
      }
      next = 0;
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(run(jobs[next++].roots));
  }
}

void SimplifyReshape(benchmark::State& state) {
  OnFreshGraphs(state, {kReshape}, [](const std::vector<UOp>& u) { return Simplify(u[0]); });
}
BENCHMARK(SimplifyReshape);

void SimplifyWindow(benchmark::State& state) {
  OnFreshGraphs(state, {kWindow}, [](const std::vector<UOp>& u) { return Simplify(u[0]); });
}
BENCHMARK(SimplifyWindow);

void SimplifyWindowGivenValid(benchmark::State& state) {
  OnFreshGraphs(state, {kWindow, kValid},
                [](const std::vector<UOp>& u) { return SimplifyGiven(u[0], u[1]); });
}
BENCHMARK(SimplifyWindowGivenValid);

void BoundsOfReshape(benchmark::State& state) {
  OnFreshGraphs(state, {kReshape}, [](const std::vector<UOp>& u) { return BoundsOf(u[0]); });
}
BENCHMARK(BoundsOfReshape);

void SimplifyAgain(benchmark::State& state) {
  UOpGraph graph;
  const UOp u = ParseInfix(graph, kReshape, kRanges);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(Simplify(u));
}
BENCHMARK(SimplifyAgain);

void MissEveryRule(benchmark::State& state) {
  using namespace pattern;  // NOLINT: rules speak this language
  constexpr Var<"x"> x;
  constexpr Var<"y"> y;
  constexpr CVar<"c0"> c0;
  constexpr CVar<"c1"> c1;
  const RuleTable rules("bench", Rule(x + 0, x), Rule(x % c0 + (x / c0) * c0, x),
                        Rule((x + y) + x * c0, (x + x * c0) + y),
                        Rule(x * c0 + x * c1, x * (c0 + c1)), Rule(x + x * c0, x * (c0 + 1)),
                        Rule(x + x, x * 2), Rule((x + c0) + c1, x + (c0 + c1)),
                        Rule((x + c0) + y, (x + y) + c0));
  UOpGraph graph;
  UOp u = ParseInfix(graph, "a*7 + b");
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(u);
    benchmark::DoNotOptimize(rules.Rewrite(u));
  }
}
BENCHMARK(MissEveryRule);

}  // namespace
}  // namespace beamd
