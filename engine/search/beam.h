// Beam search over opt lists: compiles and times what the legal actions lead to, keeps the best
// few, goes on while they get better.
//
// Rules and defaults are the seeds' (tinygrad 0.10.0 engine/search.py, beam_search). Beyond them:
// the heuristics' kernel and known winners join the beam after the first round; states that
// different orders lead to are compiled once; compiling and timing overlap; the finalists are timed
// again at full size, interleaved, and the winner's answer is checked. So the result is never slower
// than the heuristics' or the unoptimised kernel, and never wrong where an oracle could tell; an
// incumbent is replaced only by what is shown to be faster.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/hash.h"
#include "engine/kernel/kernel.h"
#include "engine/search/actions.h"
#include "engine/search/paired.h"
#include "engine/search/pipeline.h"

namespace beamd {

// What is known of a candidate from the same search, before it was interrupted.
struct Recalled {
  Failure failure = Failure::kNone;
  double seconds = 0;          // where failure is kNone
  std::optional<Digest> code;  // KernelImage::Hash; none where it has no image
  int64_t uops = 0;
  double compute_ops = 0;
};

struct BeamOptions {
  int width = 4;        // 0: no rounds; the better of the unoptimised and the heuristics' kernel
  bool no_opt = false;  // NOOPT: the unoptimised kernel, timed and checked
  ActionOptions actions;
  int64_t max_global_size = 65536;                      // points of a test launch; 0: full size
  absl::Duration min_progress = absl::Nanoseconds(10);  // BEAM_MIN_PROGRESS
  double early_stop_factor = 3;                         // times the best so far
  double max_compute_ratio = 1000;                      // times the least arithmetic of a round
  bool strict = false;       // BEAM_STRICT_MODE: a candidate that fails to compile fails the search
  bool clear_cache = false;  // flush the last-level cache between timed runs
  int finalists = 3;
  int final_rounds = 10;
  absl::Time deadline =
      absl::InfiniteFuture();  // of the whole search; best so far is returned then
  // Winners that others found. Those that apply are seeds: timed first, and again with the
  // finalists unless they are far behind.
  std::vector<std::vector<Opt>> known;
  // The answer until now, one of `known`. It stays unless another is shown to be faster.
  std::optional<std::vector<Opt>> incumbent;
  // Candidates that this search has had before, and nobody compiles or times again; nullopt: none.
  // A search that is given all it had goes on where it was: at the same round, with the same beam.
  std::function<std::optional<Recalled>(const std::vector<Opt>&)> recall;
};

struct CandidateReport {
  std::vector<Opt> opts;
  Failure failure = Failure::kNone;
  std::string detail;
  int64_t uops = 0;
  double compute_ops = 0;
  std::optional<Digest> code;  // of its image, where it has one
  absl::Duration compile_time;
  double seconds = 0;  // best of its runs, scaled to full size; 0 where it has none
  std::string colored_name;
  bool recalled = false;  // BeamOptions::recall gave it
};

enum class BeamStage : uint8_t { kSeeds, kRounds, kFinalists, kVerifying };

struct BeamProgress {
  BeamStage stage = BeamStage::kSeeds;
  int round = 0;                // from 1; 0 while the seeds are timed
  int64_t done = 0, total = 0;  // candidates of this round
  double best_s = 0;            // 0: none yet
  std::vector<Opt> best_opts;
  std::array<int64_t, kFailureCount> failures{};
  // The candidate that this is about; null between rounds.
  const CandidateReport* candidate = nullptr;
};

// One that took part in the final runs.
struct Finalist {
  std::vector<Opt> opts;
  double best_s = 0;
  // Its time over the winner's in the same runs, and the 95 % interval of that.
  RatioInterval over_winner;
};

struct BeamResult {
  std::vector<Opt> opts;
  double best_s = 0;         // least of the final runs, full size
  double hc_s = 0;           // the heuristics' kernel in the same runs, where a final was held
  double unoptimised_s = 0;  // scaled from a test launch where a full one is slow
  std::vector<Opt> hc_opts;
  std::vector<double> samples;  // the winner's final runs, seconds
  std::vector<Finalist> finalists;
  // Where BeamOptions::incumbent is the answer still, though another was faster in the final runs:
  // that other, and its time over the incumbent's in the runs that decided.
  std::optional<Finalist> challenger;
  int64_t spoiled = 0;  // batches that were repeated since something else used the device
  // How the answer was checked: VerifyDone::method; empty: nothing could.
  std::string verified;
  int64_t verified_elements = 0, undecided_elements = 0;
  int rounds = 0;
  int64_t timed = 0;
  int64_t recalled = 0;  // candidates that BeamOptions::recall gave
  std::array<int64_t, kFailureCount> failures{};
  bool partial = false;  // the deadline or a cancel ended it early
};

// Searches with `pipeline`, which belongs to the search until it returns; `on_progress` is called
// on this thread. DeadlineExceeded or Cancelled if that came before any candidate had a time;
// FailedPrecondition naming what happened if nothing survived; Unavailable as soon as a task ends as
// Failure::kUnavailable: candidates are not lost for want of a device. `kernel` is fresh: no opt is
// applied to it.
absl::StatusOr<BeamResult> BeamSearch(const Kernel& kernel, const BeamOptions& options,
                                      CandidatePipeline& pipeline,
                                      const std::function<void(const BeamProgress&)>& on_progress);

}  // namespace beamd
