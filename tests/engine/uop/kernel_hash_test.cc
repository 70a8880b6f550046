#include "engine/uop/kernel_hash.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/uop/text.h"
#include "engine/uop/wire.h"
#include "tests/testing/corpus.h"
#include "tests/testing/golden.h"

namespace beamd {
namespace {

constexpr absl::string_view kSum =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (4,3) strides (3,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = CONST float32 2.0
%6 = MUL float32 (%4, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8)
)";

constexpr absl::string_view kSymbolic =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = CONST int32 2
%3 = MUL int32 (%1, %2)
%4 = VIEW void (%1) view[shape ($0) strides (1) offset 0]
%5 = DEFINE_GLOBAL global float32* slot 1
%6 = VIEW void (%1, %3) view[shape ($0) strides (1) offset $1]
%7 = LOAD float32 (%5, %6)
%8 = STORE void (%0, %4, %7)
%9 = SINK void (%8)
)";

constexpr absl::string_view kEverything =
    R"(%0 = DEFINE_GLOBAL image(2,4,4) float16 slot 3
%1 = VIEW void view[shape (8,4) strides (4,1) offset 0 mask (1:8,0:4)]
%2 = LOAD float32 (%0, %1)
%3 = CONST float32 nan
%4 = CONST float32 -0.0
%5 = VALID bool (%1)
%6 = WHERE float32 (%5, %2, %3)
%7 = MAX float32 (%6, %4)
%8 = CAST int64 (%7)
%9 = CONST int64 -7
%10 = IDIV int64 (%8, %9)
%11 = DEFINE_GLOBAL global int64* slot 0
%12 = VIEW void view[shape (8,4) strides (4,1) offset 0]
%13 = ASSIGN int64 (%11, %10)
%14 = STORE void (%11, %12, %13)
%15 = SINK void (%14)
)";

Digest HashOf(absl::string_view text) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  EXPECT_TRUE(root.ok()) << root.status();
  return KernelHash(*root);
}
Digest SumWith(const std::vector<std::pair<absl::string_view, absl::string_view>>& changes) {
  const std::string text = absl::StrReplaceAll(kSum, changes);
  EXPECT_NE(text, kSum);
  return HashOf(text);
}

// The same graph in another order, with some nodes written twice.
v1::Graph Shuffled(const v1::Graph& message, std::mt19937& random) {
  const int count = message.nodes_size();
  std::vector<std::vector<uint32_t>> places(count);  // where each node has been written
  v1::Graph out;
  out.set_version(message.version());
  const auto place = [&](uint32_t node) { return places[node][random() % places[node].size()]; };
  const auto ready = [&](int i) {
    const v1::Node& n = message.nodes(i);
    for (const uint32_t s : n.src()) {
      if (places[s].empty()) return false;
    }
    for (const v1::View& v : n.view_arg().views()) {
      for (const v1::Symbolic& s : v.symbolic()) {
        if (places[s.node()].empty()) return false;
      }
    }
    return true;
  };
  const auto write = [&](int i) {
    v1::Node& n = *out.add_nodes();
    n = message.nodes(i);
    for (uint32_t& s : *n.mutable_src()) s = place(s);
    if (n.has_view_arg()) {
      for (v1::View& v : *n.mutable_view_arg()->mutable_views()) {
        for (v1::Symbolic& s : *v.mutable_symbolic()) s.set_node(place(s.node()));
      }
    }
    places[i].push_back(static_cast<uint32_t>(out.nodes_size() - 1));
  };
  for (int left = count - 1; left > 0;) {
    const int i = static_cast<int>(random() % (count - 1));
    if (!places[i].empty() || !ready(i)) continue;
    write(i);
    --left;
    // Some again, and read by someone: nodes nobody reads would be refused.
    const bool constant = message.nodes(i).src().empty() && !message.nodes(i).has_view_arg();
    if (constant && random() % 3 == 0) write(i);
  }
  write(count - 1);
  // Drop what is left unread, as a writer would.
  std::vector<bool> read(out.nodes_size());
  for (const v1::Node& n : out.nodes()) {
    for (const uint32_t s : n.src()) read[s] = true;
    for (const v1::View& v : n.view_arg().views()) {
      for (const v1::Symbolic& s : v.symbolic()) read[s.node()] = true;
    }
  }
  std::vector<uint32_t> moved(out.nodes_size());
  v1::Graph kept;
  kept.set_version(out.version());
  for (int i = 0; i < out.nodes_size(); ++i) {
    if (!read[i] && i + 1 < out.nodes_size()) continue;
    v1::Node& n = *kept.add_nodes();
    n = out.nodes(i);
    moved[i] = static_cast<uint32_t>(kept.nodes_size() - 1);
    for (uint32_t& s : *n.mutable_src()) s = moved[s];
    if (!n.has_view_arg()) continue;
    for (v1::View& v : *n.mutable_view_arg()->mutable_views()) {
      for (v1::Symbolic& s : *v.mutable_symbolic()) s.set_node(moved[s.node()]);
    }
  }
  return kept;
}

TEST(KernelHash, GoldenSamples) {
  std::string text;
  for (const auto& [name, kernel] :
       {std::pair("sum", kSum), std::pair("symbolic", kSymbolic), std::pair("all", kEverything)}) {
    absl::StrAppend(&text, name, " ", HashOf(kernel).Hex(), "\n");
  }
  testing::ExpectGolden("engine/uop/kernel_hash.txt", text);
}

TEST(KernelHash, OrderAndDuplicatesDoNotMatter) {
  std::mt19937 random(3);
  for (const absl::string_view text : {kSum, kSymbolic, kEverything}) {
    UOpGraph graph;
    const UOp root = ParseText(text, graph).value();
    for (int round = 0; round < 50; ++round) {
      UOpGraph other;
      const absl::StatusOr<UOp> shuffled = FromProto(Shuffled(ToProto(root), random), other);
      ASSERT_TRUE(shuffled.ok()) << shuffled.status();
      EXPECT_EQ(KernelHash(*shuffled), KernelHash(root));
    }
  }
}

TEST(KernelHash, ViewsAreCanonical) {
  const Digest sum = HashOf(kSum);
  EXPECT_EQ(SumWith({{"strides (1,0)", "strides (1,77)"}}), sum);
  EXPECT_EQ(SumWith({{"strides (3,1) offset 0", "strides (3,1) offset 0 mask (0:4,0:3)"}}), sum);
  EXPECT_NE(SumWith({{"strides (3,1) offset 0", "strides (3,1) offset 0 mask (0:4,0:2)"}}), sum);
  EXPECT_NE(SumWith({{"strides (3,1)", "strides (1,4)"}}), sum);
  EXPECT_NE(SumWith({{"strides (3,1) offset 0", "strides (3,1) offset 1"}}), sum);
}

TEST(KernelHash, OrderOfSizesAmongSourcesDoesNotMatter) {
  EXPECT_EQ(
      HashOf(absl::StrReplaceAll(kSymbolic, {{"(%1, %3) view[shape ($0) strides (1) offset $1]",
                                              "(%3, %1) view[shape ($1) strides (1) offset $0]"}})),
      HashOf(kSymbolic));
  // A source that no size names isn't part of the kernel.
  EXPECT_EQ(HashOf(absl::StrReplaceAll(kSymbolic, {{"(%1) view", "(%1, %2) view"}})),
            HashOf(kSymbolic));
}

TEST(KernelHash, AStatedSizeCountsWhereItDecidesWhatIsChecked) {
  const Digest sum = HashOf(kSum);
  EXPECT_EQ(SumWith({{"slot 1", "slot 1 size 12"}}), sum);
  EXPECT_EQ(SumWith({{"slot 1", "slot 1 size 1000"}}), sum);
  EXPECT_NE(SumWith({{"slot 1", "slot 1 size 11"}}), sum);
  EXPECT_NE(SumWith({{"slot 1", "slot 1 size 11"}}), SumWith({{"slot 1", "slot 1 size 10"}}));
}

TEST(KernelHash, AnImageStatesItsSizeAlready) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16) strides (1) offset 0]
%2 = DEFINE_GLOBAL image(2,2,4) float16 slot 1
%3 = LOAD float32 (%2, %1)
%4 = STORE void (%0, %1, %3)
%5 = SINK void (%4)
)";
  const auto with = [&](absl::string_view instead) {
    return HashOf(absl::StrReplaceAll(kText, {{"image(2,2,4) float16 slot 1", instead}}));
  };
  EXPECT_EQ(with("image(2,2,4) float16 slot 1 size 16"), HashOf(kText));
  EXPECT_NE(with("image(1,4,4) float16 slot 1"), HashOf(kText));
  EXPECT_NE(with("image(2,2,4) float32 slot 1"), HashOf(kText));
  EXPECT_NE(with("global float32* slot 1"), HashOf(kText));
}

TEST(KernelHash, WhatIsComputedMatters) {
  std::map<std::string, std::string> seen = {{HashOf(kSum).Hex(), "the sum"}};
  const std::vector<std::pair<absl::string_view, absl::string_view>> changes[] = {
      {{"CONST float32 2.0", "CONST float32 -2.0"}},
      {{"CONST float32 2.0", "CONST float32 nan"}},
      {{"CONST float32 2.0", "CONST float32 0.0"}},
      {{"CONST float32 2.0", "CONST float32 -0.0"}},
      {{"MUL", "ADD"}},
      {{"MUL float32 (%4, %5)", "MUL float32 (%5, %4)"}},
      {{"(%6) ADD", "(%6) MAX"}},
      {{"slot 1", "slot 2"}},
      {{"float32", "float64"}},
      {{"axes (1)", "axes (0,1)"}, {"shape (4,1)", "shape (1,1)"}},
      {{"shape (4,", "shape (5,"}},
  };
  for (const auto& change : changes) {
    const std::string hash = SumWith(change).Hex();
    EXPECT_EQ(seen.count(hash), 0u) << change[0].second << " is " << seen[hash];
    seen[hash] = std::string(change[0].second);
  }
}

TEST(CanonicalKernel, IsItsOwnCanonicalForm) {
  for (const absl::string_view text : {kSum, kSymbolic, kEverything}) {
    UOpGraph graph, other;
    const UOp canonical = CanonicalKernel(ParseText(text, graph).value(), other);
    EXPECT_EQ(CanonicalKernel(canonical, other), canonical);
    EXPECT_EQ(KernelHash(canonical), HashOf(text));
  }
}

TEST(KernelHash, HoldsOnTheCorpus) {
  const std::optional<std::string> dir = testing::CorpusDir();
  if (!dir) GTEST_SKIP() << "BEAMD_CORPUS is not set";
  const auto kernels = testing::ReadCorpusKernels(*dir);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  std::mt19937 random(5);
  std::map<std::string, std::string> text_of;
  for (size_t i = 0; i < kernels->size(); i += 3) {  // a third: seconds, not a minute
    const testing::CorpusKernel& kernel = (*kernels)[i];
    if (kernel.graph.nodes_size() > 200) continue;
    UOpGraph graph, other;
    const UOp root = FromProto(kernel.graph, graph).value();
    const Digest hash = KernelHash(root);
    const absl::StatusOr<UOp> shuffled = FromProto(Shuffled(kernel.graph, random), other);
    ASSERT_TRUE(shuffled.ok()) << kernel.id << ": " << shuffled.status();
    EXPECT_EQ(KernelHash(*shuffled), hash) << kernel.id;
    const std::string canonical = ToText(CanonicalKernel(root, other));
    const auto [it, fresh] = text_of.emplace(hash.Hex(), canonical);
    EXPECT_EQ(it->second, canonical) << kernel.id;
  }
  EXPECT_GT(text_of.size(), kernels->size() / 4);
}

}  // namespace
}  // namespace beamd
