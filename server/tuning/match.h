// Whether what the store knows of a kernel answers a request, and if not, why not.
#pragma once

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/kernel/opt.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/store.h"

namespace beamd {

struct MatchQuery {
  Digest key;
  Digest kernel;
  // As the store keeps it, to compare with: equal hashes are not taken for equal kernels.
  const v1::Graph* graph = nullptr;
  v1::SearchOptions search;  // KeyOptions
  v1::Environment environment;
  v1::MatchPolicy policy = v1::MATCH_POLICY_STRICT;
  // With MATCH_POLICY_SAME_ARCH, records that other search options found answer too, behind those
  // that share them; not where just one of the two takes no opts.
  bool other_options = false;
  // Whether an opt list is legal on this kernel here.
  std::function<bool(const std::vector<Opt>&)> applies;
};

// A hit, or why there is none; what the store can't read is none. Besides the record of the key
// itself, the newest records of the kernel are looked at, a hundred or so, and no others.
using MatchAnswer = std::variant<v1::Hit, v1::MissReason>;
MatchAnswer FindMatch(Store& store, const MatchQuery& query);

// How the record's place and options differ from the query's, the first difference in the order of
// MissReason; nullopt: not at all.
std::optional<v1::MissReason> FirstDifference(const v1::Record& record, const MatchQuery& query);

}  // namespace beamd
