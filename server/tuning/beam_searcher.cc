#include "server/tuning/beam_searcher.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "engine/search/beam.h"
#include "server/tuning/failure_memory.h"
#include "server/tuning/job_memory.h"
#include "server/tuning/options.h"
#include "server/tuning/remembering_pipeline.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

// Progress that says nothing new about the best is told this often at most: telling costs the core
// that candidates are compiled on.
constexpr absl::Duration kTellEvery = absl::Milliseconds(100);
// Winners of the kernel's other records that a search begins with.
constexpr size_t kKnownMax = 8;
// Of so many of those, the newest.
constexpr size_t kKnownLooked = 64;

BeamOptions ToBeamOptions(const SearchJob& job) {
  const v1::SearchOptions& from = job.options;
  BeamOptions to;
  to.width = static_cast<int>(from.width());
  to.no_opt = from.noopt();
  to.actions.padto = from.padto();
  to.actions.no_locals = from.nolocals();
  to.actions.tc_opt = static_cast<int>(from.tc_opt());
  to.actions.upcast_max = from.upcast_max();
  to.actions.local_max = from.local_max();
  to.max_global_size = from.estimate() ? from.max_global_size() : 0;
  to.min_progress = absl::Microseconds(from.min_progress_us());
  to.strict = from.strict();
  to.clear_cache = from.clear_cache();
  return to;
}

v1::Phase ToPhase(BeamStage stage) {
  switch (stage) {
    case BeamStage::kSeeds:
      return v1::PHASE_STARTING;
    case BeamStage::kRounds:
      return v1::PHASE_SEARCHING;
    case BeamStage::kFinalists:
      return v1::PHASE_FINALISTS;
    case BeamStage::kVerifying:
      return v1::PHASE_VERIFYING;
  }
  return v1::PHASE_UNSPECIFIED;
}

template <typename Map>
void AddFailures(const std::array<int64_t, kFailureCount>& failures, Map& map) {
  for (int i = 1; i < kFailureCount; ++i) {
    if (failures[i] == 0) continue;
    map[std::string(Name(static_cast<Failure>(i)))] = static_cast<uint64_t>(failures[i]);
  }
}

// Turns the search's reports into progress, now and then.
class Teller {
 public:
  explicit Teller(const SearchJob& job) : job_(job), began_(SteadyNow()) {}

  void Tell(const BeamProgress& from) {
    const absl::Time now = SteadyNow();
    if (from.round != round_) round_began_ = now;
    const bool better = from.best_s > 0 && from.best_s != best_s_;
    const std::string debug = Debug(from, better, now);
    if (from.candidate != nullptr && !better && debug.empty() && from.round == round_ &&
        now - told_ < kTellEvery) {
      return;
    }
    told_ = now;
    round_ = from.round;
    best_s_ = from.best_s;
    v1::TuneProgress to;
    to.set_phase(ToPhase(from.stage));
    to.set_round(static_cast<uint32_t>(from.round));
    to.set_candidates_done(static_cast<uint32_t>(from.done));
    to.set_candidates_total(static_cast<uint32_t>(from.total));
    to.set_best_s(from.best_s);
    *to.mutable_best_opts() = ToWire(from.best_opts);
    AddFailures(from.failures, *to.mutable_failures());
    if (from.done > 0) {
      to.set_eta_s(absl::ToDoubleSeconds(now - round_began_) / static_cast<double>(from.done) *
                   static_cast<double>(from.total - from.done));
    }
    to.set_debug(debug);
    job_.progress(std::move(to));
  }

 private:
  // A line like the seeds' BEAM_DEBUG prints.
  std::string Debug(const BeamProgress& from, bool better, absl::Time now) const {
    const uint32_t level = job_.options.debug();
    if (from.candidate == nullptr || level == 0 || (level == 1 && !better)) return "";
    const CandidateReport& candidate = *from.candidate;
    std::string line =
        absl::StrFormat("%7.2fs: %5d uops %12.2f us compile/", absl::ToDoubleSeconds(now - began_),
                        candidate.uops, absl::ToDoubleMicroseconds(candidate.compile_time));
    if (candidate.failure == Failure::kNone) {
      absl::StrAppendFormat(&line, "%12.2f us run", candidate.seconds * 1e6);
    } else {
      absl::StrAppendFormat(&line, "%16s", Name(candidate.failure));
    }
    absl::StrAppendFormat(&line, " %4d/%4d  %s  %s", from.done, from.total, candidate.colored_name,
                          ToString(candidate.opts));
    return line;
  }

  const SearchJob& job_;
  const absl::Time began_;
  absl::Time told_ = absl::InfinitePast();
  absl::Time round_began_;
  int round_ = -1;
  double best_s_ = 0;
};

// The 95 % interval of the median by order statistics, which asks nothing of the distribution.
void AddInterval(std::vector<double> samples, v1::Record& record) {
  if (samples.empty()) return;
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  const auto rank = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - 0.98 * std::sqrt(n))));
  record.set_low_s(samples[rank]);
  record.set_high_s(samples[samples.size() - 1 - rank]);
}

void AddFinalist(const Finalist& from, v1::Finalist& to) {
  *to.mutable_opts() = ToWire(from.opts);
  to.set_best_s(from.best_s);
  to.set_ratio(from.over_winner.ratio);
  to.set_ratio_low(from.over_winner.low);
  to.set_ratio_high(from.over_winner.high);
}

v1::Record ToRecord(const BeamResult& from) {
  v1::Record to;
  *to.mutable_opts() = ToWire(from.opts);
  to.set_best_s(from.best_s);
  to.set_hc_s(from.hc_s);
  to.set_unoptimised_s(from.unoptimised_s);
  *to.mutable_hc_opts() = ToWire(from.hc_opts);
  to.mutable_samples()->Add(from.samples.begin(), from.samples.end());
  AddInterval(from.samples, to);
  to.mutable_verification()->set_verified(!from.verified.empty());
  to.mutable_verification()->set_method(from.verified);
  to.mutable_verification()->set_checked(static_cast<uint64_t>(from.verified_elements));
  to.mutable_verification()->set_undecided(static_cast<uint64_t>(from.undecided_elements));
  to.set_end(from.partial ? v1::SEARCH_END_BUDGET : v1::SEARCH_END_CONVERGED);
  to.set_rounds(static_cast<uint32_t>(from.rounds));
  to.set_timed(static_cast<uint64_t>(from.timed));
  to.set_spoiled(static_cast<uint64_t>(from.spoiled));
  for (const Finalist& finalist : from.finalists) AddFinalist(finalist, *to.add_finalists());
  if (from.challenger) AddFinalist(*from.challenger, *to.mutable_challenger());
  to.set_recalled(static_cast<uint64_t>(from.recalled));
  AddFailures(from.failures, *to.mutable_failures());
  return to;
}

}  // namespace

absl::StatusOr<v1::Record> BeamSearcher::Search(const SearchJob& job,
                                                CandidatePipeline& pipeline) const {
  const Digest& hash = job.kernel.hash;
  const v1::Environment& environment = job.device.environment;
  const TargetCaps caps = SearchedCaps(job.device.caps, job.options);
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(job.kernel.sink, caps));
  BeamOptions options = ToBeamOptions(job);
  // What the store can't tell costs the search a head start, no more.
  const std::vector<v1::Record> records =
      store_.RecordsOf(hash, kKnownLooked).value_or(std::vector<v1::Record>());
  for (const v1::Record& record : records) {
    std::vector<Opt> opts = FromWire(record.opts());
    const bool known =
        std::find(options.known.begin(), options.known.end(), opts) != options.known.end();
    if (!known && options.known.size() < kKnownMax) options.known.push_back(std::move(opts));
  }

  // What the key is answered with until now.
  BEAMD_ASSIGN_OR_RETURN(const Digest key, Digest::FromHex(job.key));
  const absl::StatusOr<std::optional<v1::Record>> newest = store_.FindRecord(key);
  if (newest.ok() && *newest && !(*newest)->imported()) {
    options.incumbent = FromWire((*newest)->opts());
    std::erase(options.known, *options.incumbent);
    options.known.insert(options.known.begin(), *options.incumbent);
  }

  const absl::Duration compile_limit = absl::Seconds(job.options.compile_timeout().seconds()) +
                                       absl::Nanoseconds(job.options.compile_timeout().nanos());
  JobMemory memory(store_, job.id);
  memory.Load().IgnoreError();
  const absl::Time began = SteadyNow() - memory.spent();
  options.deadline = began + job.budget;
  if (memory.size() > 0) {
    options.recall = [&](const std::vector<Opt>& opts) { return memory.Find(opts); };
  }
  std::vector<std::vector<Opt>> seeds = options.known;
  seeds.push_back(RequiredOptimizations(kernel).applied_opts());
  seeds.push_back(HandCodedOptimizations(kernel).applied_opts());
  // A request that asks for a fresh search gets one: what failed may have been the machine's fault.
  FailureMemory failures(store_, {.kernel = hash,
                                  .search = job.options,
                                  .environment = environment,
                                  .compile_limit = compile_limit,
                                  .refresh = job.refresh,
                                  .seeds = std::move(seeds)});
  RememberingPipeline remembering(
      pipeline, [&](const std::vector<Opt>& opts) { return failures.Recall(opts); });
  if (capture_ != nullptr) capture_->Kernel(hash.Hex(), job.kernel.canonical);
  uint64_t compiled = 0;
  Teller teller(job);
  const absl::StatusOr<BeamResult> result =
      BeamSearch(kernel, options, remembering, [&](const BeamProgress& progress) {
        teller.Tell(progress);
        if (progress.candidate == nullptr) return;
        const CandidateReport& candidate = *progress.candidate;
        if (candidate.uops > 0) ++compiled;
        if (candidate.recalled) return;
        if (capture_ != nullptr) capture_->Candidate(hash.Hex(), candidate);
        memory.Add(candidate, progress.round, SteadyNow() - began);
        failures.Tell(candidate);
      });
  BEAMD_RETURN_IF_ERROR(result.status());
  v1::Record record = ToRecord(*result);
  record.set_compiled(compiled);
  return record;
}

}  // namespace beamd
