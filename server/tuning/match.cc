#include "server/tuning/match.h"

#include <algorithm>
#include <tuple>

#include "engine/base/status.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

// Records of one kernel that a look-up compares with, the newest: so many cost about a millisecond.
constexpr size_t kMostCompared = 128;

using ::google::protobuf::util::MessageDifferencer;

bool SameArch(const v1::Environment& a, const v1::Environment& b) {
  return a.kind() == b.kind() && a.arch() == b.arch() && a.features() == b.features();
}

bool SameOptions(const v1::Record& record, const MatchQuery& query) {
  return MessageDifferencer::Equals(record.search(), query.search);
}

// The level at which a record answers; MATCH_UNSPECIFIED: it doesn't.
v1::Match LevelOf(const v1::Record& record, const MatchQuery& query) {
  const bool exact = record.key() == query.key.Hex();
  // What was measured elsewhere is as good as what was measured on another of its kind.
  if (exact) return record.imported() ? v1::MATCH_SAME_ARCH : v1::MATCH_STRICT;
  const v1::Environment& there = record.environment();
  const bool options = SameOptions(record, query) ||
                       (query.other_options && record.search().noopt() == query.search.noopt());
  if (SameArch(there, query.environment) && options) return v1::MATCH_SAME_ARCH;
  return there.kind() == query.environment.kind() ? v1::MATCH_ANY : v1::MATCH_UNSPECIFIED;
}

v1::Match LowestServed(v1::MatchPolicy policy) {
  switch (policy) {
    case v1::MATCH_POLICY_SAME_ARCH:
      return v1::MATCH_SAME_ARCH;
    case v1::MATCH_POLICY_ANY:
      return v1::MATCH_ANY;
    default:
      return v1::MATCH_STRICT;
  }
}

}  // namespace

std::optional<v1::MissReason> FirstDifference(const v1::Record& record, const MatchQuery& query) {
  const v1::Environment& a = record.environment();
  const v1::Environment& b = query.environment;
  if (!SameArch(a, b) || a.vendor() != b.vendor() || a.model() != b.model() ||
      a.units() != b.units() || a.memory_bytes() != b.memory_bytes()) {
    return v1::MISS_REASON_DEVICE_CHANGED;
  }
  if (!SameOptions(record, query)) return v1::MISS_REASON_OPTIONS_CHANGED;
  if (a.codegen_epoch() != b.codegen_epoch()) return v1::MISS_REASON_EPOCH_CHANGED;
  if (a.measurement_version() != b.measurement_version()) {
    return v1::MISS_REASON_MEASUREMENT_CHANGED;
  }
  if (a.llvm() != b.llvm()) return v1::MISS_REASON_COMPILER_CHANGED;
  if (a.driver() != b.driver()) return v1::MISS_REASON_DRIVER_CHANGED;
  if (a.clock_limit_mhz() != b.clock_limit_mhz() ||
      a.memory_clock_limit_mhz() != b.memory_clock_limit_mhz()) {
    return v1::MISS_REASON_CLOCKS_CHANGED;
  }
  return std::nullopt;
}

MatchAnswer FindMatch(Store& store, const MatchQuery& query) {
  // What asks for its own key, as most do, looks at no other.
  absl::StatusOr<std::optional<v1::Record>> exact = store.FindRecord(query.key);
  if (!exact.ok() && !absl::IsDataLoss(exact.status())) return v1::MISS_REASON_UNREADABLE;
  std::vector<v1::Record> records;
  if (exact.ok() && *exact) records.push_back(**std::move(exact));
  const bool answers = !records.empty() && LevelOf(records[0], query) == v1::MATCH_STRICT &&
                       query.applies(FromWire(records[0].opts()));
  if (!answers) {
    absl::StatusOr<std::vector<v1::Record>> found = store.RecordsOf(query.kernel, kMostCompared);
    if (!found.ok()) return v1::MISS_REASON_UNREADABLE;
    for (v1::Record& record : *found) {
      if (record.key() != query.key.Hex()) records.push_back(std::move(record));
    }
  }
  if (records.empty()) return v1::MISS_REASON_NO_RECORD;
  const absl::StatusOr<std::optional<v1::Graph>> graph = store.FindGraph(query.kernel);
  if (!graph.ok()) return v1::MISS_REASON_UNREADABLE;
  if (!*graph || !MessageDifferencer::Equals(**graph, *query.graph)) {
    return v1::MISS_REASON_GRAPH_MISMATCH;
  }
  // The closest first, of equals the newest.
  std::sort(records.begin(), records.end(), [&](const v1::Record& a, const v1::Record& b) {
    // By what was written last: clocks are set back.
    return std::make_tuple(LevelOf(a, query), SameOptions(b, query), b.sequence(),
                           b.created().seconds()) <
           std::make_tuple(LevelOf(b, query), SameOptions(a, query), a.sequence(),
                           a.created().seconds());
  });
  v1::MissReason why = v1::MISS_REASON_NO_RECORD;
  for (const v1::Record& record : records) {
    const v1::Match level = LevelOf(record, query);
    if (level == v1::MATCH_UNSPECIFIED || level > LowestServed(query.policy)) {
      // The record that differs last tells best what to change.
      why = std::max(why, FirstDifference(record, query).value_or(v1::MISS_REASON_IMPORTED));
    } else if (!query.applies(FromWire(record.opts()))) {
      // What other options allowed needn't be allowed here.
      if (SameOptions(record, query)) return v1::MISS_REASON_NOT_APPLICABLE;
      why = std::max(why, v1::MISS_REASON_NOT_APPLICABLE);
    } else {
      v1::Hit hit;
      *hit.mutable_record() = record;
      hit.set_match(level);
      return hit;
    }
  }
  return why;
}

}  // namespace beamd
