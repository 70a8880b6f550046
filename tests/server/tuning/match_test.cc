#include "server/tuning/match.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/store/tuning_key.h"
#include "server/tuning/options.h"

namespace beamd {
namespace {

class FindMatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string directory =
        absl::StrCat(testing::TempDir(), "match.",
                     testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory);
    store_ = *Store::Open(directory);
    graph_.add_nodes()->set_op(v1::OP_SINK);
    query_.kernel = HashBytes("kernel");
    query_.graph = &graph_;
    query_.search = KeyOptions(DefaultSearchOptions());
    query_.environment.set_kind("cpu");
    query_.environment.set_arch("znver4");
    query_.environment.set_features("+avx2");
    query_.environment.set_llvm("22");
    query_.environment.set_codegen_epoch(1);
    query_.applies = [](const std::vector<Opt>&) { return true; };
    Rekey(query_);
  }

  static void Rekey(MatchQuery& query) {
    query.key = HashTuningKey(query.kernel, query.search, query.environment);
  }

  // Stores what a search for this query would have found.
  void Put(const MatchQuery& query, double best_s = 1) {
    v1::Record record;
    record.set_key(query.key.Hex());
    record.set_kernel_hash(query.kernel.Hex());
    *record.mutable_search() = query.search;
    *record.mutable_environment() = query.environment;
    record.set_best_s(best_s);
    record.mutable_created()->set_seconds(++seconds_);
    ASSERT_TRUE(store_->PutRecord(record, graph_).ok());
  }
  void PutChanged(const std::function<void(MatchQuery&)>& change, double best_s = 1) {
    MatchQuery query = query_;
    change(query);
    Rekey(query);
    Put(query, best_s);
  }

  v1::MissReason Miss(v1::MatchPolicy policy = v1::MATCH_POLICY_STRICT) {
    query_.policy = policy;
    const MatchAnswer answer = FindMatch(*store_, query_);
    if (!std::holds_alternative<v1::MissReason>(answer)) {
      ADD_FAILURE() << "no miss";
      return v1::MISS_REASON_UNSPECIFIED;
    }
    return std::get<v1::MissReason>(answer);
  }
  v1::Hit Hit(v1::MatchPolicy policy = v1::MATCH_POLICY_STRICT) {
    query_.policy = policy;
    const MatchAnswer answer = FindMatch(*store_, query_);
    if (!std::holds_alternative<v1::Hit>(answer)) {
      ADD_FAILURE() << "no hit";
      return {};
    }
    return std::get<v1::Hit>(answer);
  }

  std::unique_ptr<Store> store_;
  v1::Graph graph_;
  MatchQuery query_;
  int64_t seconds_ = 0;
};

TEST_F(FindMatchTest, AStrictHitSharesEverything) {
  EXPECT_EQ(Miss(), v1::MISS_REASON_NO_RECORD);
  Put(query_);
  EXPECT_EQ(Hit().match(), v1::MATCH_STRICT);
}

TEST_F(FindMatchTest, AMissSaysWhatChanged) {
  const std::pair<v1::MissReason, std::function<void(MatchQuery&)>> changes[] = {
      {v1::MISS_REASON_DEVICE_CHANGED, [](MatchQuery& q) { q.environment.set_model("other"); }},
      {v1::MISS_REASON_OPTIONS_CHANGED, [](MatchQuery& q) { q.search.set_width(9); }},
      {v1::MISS_REASON_EPOCH_CHANGED, [](MatchQuery& q) { q.environment.set_codegen_epoch(2); }},
      {v1::MISS_REASON_MEASUREMENT_CHANGED,
       [](MatchQuery& q) { q.environment.set_measurement_version(2); }},
      {v1::MISS_REASON_COMPILER_CHANGED, [](MatchQuery& q) { q.environment.set_llvm("23"); }},
      {v1::MISS_REASON_DRIVER_CHANGED, [](MatchQuery& q) { q.environment.set_driver("1"); }},
      {v1::MISS_REASON_CLOCKS_CHANGED, [](MatchQuery& q) { q.environment.set_clock_limit_mhz(1); }},
  };
  // Of several records the one that differs last says why, and each here differs later.
  for (const auto& [reason, change] : changes) {
    PutChanged(change);
    EXPECT_EQ(Miss(), reason) << v1::MissReason_Name(reason);
  }
}

// What is part of the key and changes nothing lets one client give a kernel any number of keys.
TEST_F(FindMatchTest, AKernelOfManyKeysCostsLittle) {
  Put(query_, 5);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    PutChanged([&](MatchQuery& q) { q.search.set_seed(seed); });
  }
  int reads = 0;
  store_->SetObserver(
      [&](absl::string_view operation, absl::Duration) { reads += operation == "read" ? 1 : 0; });
  EXPECT_EQ(Hit().record().best_s(), 5);
  EXPECT_LE(reads, 2);
  // Another's key: the newest say why not.
  query_.environment.set_model("other");
  query_.search.set_seed(300);
  Rekey(query_);
  reads = 0;
  EXPECT_EQ(Miss(), v1::MISS_REASON_DEVICE_CHANGED);
  EXPECT_LE(reads, 150);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_SAME_ARCH).record().search().seed(), 300);
  store_->SetObserver(nullptr);
}

TEST_F(FindMatchTest, SameArchSharesArchAndOptions) {
  PutChanged([](MatchQuery& q) { q.environment.set_model("other"); });
  EXPECT_EQ(Miss(), v1::MISS_REASON_DEVICE_CHANGED);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_SAME_ARCH).match(), v1::MATCH_SAME_ARCH);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_ANY).match(), v1::MATCH_SAME_ARCH);
}

TEST_F(FindMatchTest, OtherOptionsAnswerWhereThatIsAskedFor) {
  PutChanged([](MatchQuery& q) { q.search.set_noopt(true); });
  PutChanged([](MatchQuery& q) { q.search.set_width(9); }, 3);
  EXPECT_EQ(Miss(v1::MATCH_POLICY_SAME_ARCH), v1::MISS_REASON_OPTIONS_CHANGED);
  query_.other_options = true;
  EXPECT_EQ(Miss(), v1::MISS_REASON_OPTIONS_CHANGED);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_SAME_ARCH).match(), v1::MATCH_SAME_ARCH);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_SAME_ARCH).record().best_s(), 3);
  // Whoever shares them goes first, however old.
  PutChanged([](MatchQuery& q) { q.environment.set_model("other"); }, 2);
  PutChanged([](MatchQuery& q) { q.search.set_width(10); }, 4);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_SAME_ARCH).record().best_s(), 2);
  query_.search.set_noopt(true);
  query_.search.set_width(11);
  Rekey(query_);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_SAME_ARCH).record().best_s(), 1);
}

TEST_F(FindMatchTest, AnySharesTheKind) {
  PutChanged([](MatchQuery& q) { q.environment.set_arch("sapphirerapids"); });
  EXPECT_EQ(Miss(v1::MATCH_POLICY_SAME_ARCH), v1::MISS_REASON_DEVICE_CHANGED);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_ANY).match(), v1::MATCH_ANY);
  query_.environment.set_kind("cuda");
  EXPECT_EQ(Miss(v1::MATCH_POLICY_ANY), v1::MISS_REASON_DEVICE_CHANGED);
}

TEST_F(FindMatchTest, ServesTheClosestAndOfEqualsTheNewest) {
  PutChanged([](MatchQuery& q) { q.environment.set_model("a"); }, 1);
  PutChanged([](MatchQuery& q) { q.environment.set_model("b"); }, 2);
  PutChanged([](MatchQuery& q) { q.environment.set_arch("other"); }, 3);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_ANY).record().best_s(), 2);
  Put(query_, 4);
  EXPECT_EQ(Hit(v1::MATCH_POLICY_ANY).record().best_s(), 4);
}

TEST_F(FindMatchTest, ARecordWhoseOptsAreIllegalHereIsKeptButNotServed) {
  Put(query_);
  query_.applies = [](const std::vector<Opt>&) { return false; };
  EXPECT_EQ(Miss(), v1::MISS_REASON_NOT_APPLICABLE);
  EXPECT_TRUE(*store_->FindRecord(query_.key));
}

TEST_F(FindMatchTest, EqualHashesOfUnequalGraphsAreNoMatch) {
  Put(query_);
  v1::Graph other = graph_;
  other.add_nodes()->set_op(v1::OP_CONST);
  query_.graph = &other;
  EXPECT_EQ(Miss(), v1::MISS_REASON_GRAPH_MISMATCH);
}

}  // namespace
}  // namespace beamd
