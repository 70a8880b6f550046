// The evaluator against what a C compiler made of the corpus' kernels.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/uop/buffer_use.h"
#include "engine/uop/evaluator.h"
#include "engine/uop/wire.h"
#include "tests/testing/corpus.h"

namespace beamd {
namespace {

// The corpus' README: SEMANTICS.md decides otherwise than C there.
const std::set<std::string> kReferenceIsWrong = {
    "k00216", "k00221", "k09663", "k09664", "k10764", "k10772",  // MAX with NaN
    "k08548",                                                    // int8 overflow
    "k00409",                                                    // sums equal terms in sequence
    "k09805",  // carries f16 values in f32, where exp2 of 16 and more is finite
};

struct Outcome {
  int equal = 0, different = 0, undecided = 0;
  std::string first;  // the first difference
};

absl::StatusOr<Outcome> Compare(UOp root, const testing::CorpusNumeric& want) {
  EvalInputs inputs;
  std::vector<std::string> contents;
  contents.reserve(want.buffers.size());
  for (const auto& buffer : want.buffers) {
    contents.push_back(
        testing::CorpusInput(static_cast<int64_t>(buffer.slot), buffer.elements, buffer.scalar));
    inputs.buffers[buffer.slot] = {contents.back().data(), buffer.elements, buffer.scalar};
  }
  for (const auto& [name, value] : want.variables) inputs.variables[name] = value;

  const absl::StatusOr<std::vector<BufferUse>> uses = BufferUses(root, inputs.variables);
  if (!uses.ok()) return uses.status();
  for (const BufferUse& use : *uses) {
    // The corpus has bounds there, not always reached.
    EXPECT_LE(use.elements, inputs.buffers.at(use.slot).elements)
        << want.id << ", slot " << use.slot;
  }

  absl::StatusOr<Evaluator> evaluator = Evaluator::Create(root, std::move(inputs));
  if (!evaluator.ok()) return evaluator.status();
  Outcome outcome;
  for (const auto& output : want.outputs) {
    std::vector<int64_t> elements;
    for (const auto& sample : output.samples) elements.push_back(sample.element);
    const auto values = evaluator->Evaluate(output.slot, elements);
    if (!values.ok()) return values.status();
    for (size_t i = 0; i < elements.size(); ++i) {
      const EvalValue& value = (*values)[i];
      const auto& sample = output.samples[i];
      const Comparison comparison = IsFloat(value.scalar) ? CompareFloat(sample.real, value)
                                                          : CompareInt(sample.integer, value);
      ++(comparison == Comparison::kEqual       ? outcome.equal
         : comparison == Comparison::kUndecided ? outcome.undecided
                                                : outcome.different);
      if (comparison == Comparison::kDifferent && outcome.first.empty()) {
        outcome.first =
            absl::StrCat("slot ", output.slot, ", element ", sample.element, ": the corpus has ",
                         IsFloat(value.scalar) ? sample.real : static_cast<double>(sample.integer),
                         ", the evaluator ",
                         IsFloat(value.scalar) ? value.real : static_cast<double>(value.integer),
                         " +- ", 2 * value.error);
      }
    }
  }
  return outcome;
}

// BEAMD_CORPUS_STEP=1 looks at every kernel; each 20th by default.
TEST(EvaluatorCorpus, AgreesWithTheRecordedValues) {
  const std::optional<std::string> dir = testing::CorpusDir();
  if (!dir) GTEST_SKIP() << "BEAMD_CORPUS is not set";
  const auto cases = testing::ReadCorpusNumeric(*dir);
  ASSERT_TRUE(cases.ok()) << cases.status();
  const auto kernels = testing::ReadCorpusKernels(*dir);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  absl::flat_hash_map<std::string, const v1::Graph*> graphs;
  for (const testing::CorpusKernel& kernel : *kernels) graphs[kernel.id] = &kernel.graph;

  const char* step_text = std::getenv("BEAMD_CORPUS_STEP");
  const size_t step = step_text == nullptr ? 20 : std::max(1, std::atoi(step_text));
  int looked = 0, whole = 0, but_undecided = 0, excepted = 0;
  for (size_t i = 0; i < cases->size(); i += step) {
    const testing::CorpusNumeric& want = (*cases)[i];
    const auto graph_at = graphs.find(want.id);
    if (graph_at == graphs.end()) continue;
    UOpGraph graph;
    const absl::StatusOr<UOp> root = FromProto(*graph_at->second, graph);
    ASSERT_TRUE(root.ok()) << want.id << ": " << root.status();
    const auto start = std::chrono::steady_clock::now();
    const absl::StatusOr<Outcome> outcome = Compare(*root, want);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_TRUE(outcome.ok()) << want.id << ": " << outcome.status();
    if (seconds > 5) std::printf("%s took %.1f s\n", want.id.c_str(), seconds);
    ++looked;
    if (outcome->different > 0 && kReferenceIsWrong.contains(want.id)) {
      ++excepted;
      continue;
    }
    EXPECT_EQ(outcome->different, 0) << want.id << ": " << outcome->first;
    if (outcome->different > 0) continue;
    ++(outcome->undecided == 0 ? whole : but_undecided);
  }
  EXPECT_GT(looked, 0);
  std::printf("%d kernels: %d equal, %d but for undecided elements, %d excepted\n", looked, whole,
              but_undecided, excepted);
}

}  // namespace
}  // namespace beamd
