#include "engine/search/beam.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"

namespace beamd {
namespace {

// Timing tasks handed over ahead, so that the runner never waits for this thread.
constexpr int kTimesInFlight = 2;
// Of the budget, what is kept for the final runs and the check: as long as they seem to take, but
// between these shares.
constexpr double kLeastFinalShare = 0.06, kMostFinalShare = 0.3;
// What a check takes besides running the two kernels.
constexpr absl::Duration kCheck = absl::Milliseconds(150);

// What was slower in the search by more than this has no chance in the final runs; the seeds, than
// which the winner is never slower, are given more. The heuristics' kernel and the incumbent are
// always there: what was slow once may have met a busy moment. Where a run of the heuristics'
// takes longer than kLongRun, one more test launch says so first.
constexpr double kFinalistRatio = 1.25;
constexpr double kRivalRatio = 2;
constexpr double kLongRun = 0.25;

// An incumbent's duel: runs in turns, in parts, until an interval of this confidence is clear of 1.
// Of two that are the same, less than one in a hundred duels ends otherwise; 3 % are found nearly
// always where a run varies by 2 % (paired_test.cc).
constexpr int kDuelRounds[] = {20, 40};
constexpr double kDuelConfidence = 0.995;
// Long runs vary little; a part of a duel takes this long at most, however few runs that is.
constexpr absl::Duration kDuelBound = absl::Seconds(2);

constexpr double kReportedConfidence = 0.95;

constexpr double kNever = std::numeric_limits<double>::infinity();

// Zero, negative, denormal and not finite are no times.
bool IsTime(double seconds) { return std::isnormal(seconds) && seconds > 0; }

struct State {
  Kernel kernel;
  // Null where it was never compiled, or its time was recalled; then `code` tells them apart.
  std::shared_ptr<const KernelImage> image;
  std::optional<Digest> code;
  double seconds = kNever;
  // Its place among all candidates: of equal times the earlier wins, whichever ended first.
  uint64_t rank = 0;
};

bool SameCode(const State& a, const State& b) { return a.code && a.code == b.code; }

bool Faster(const State& a, const State& b) {
  return std::tie(a.seconds, a.rank) < std::tie(b.seconds, b.rank);
}

// What strict mode is about: a pipeline may know as well that a candidate won't run, and say so where
// it would be compiled.
bool IsOfCompiling(Failure failure) {
  switch (failure) {
    case Failure::kIllegalOpt:
    case Failure::kLowering:
    case Failure::kCompileError:
    case Failure::kCompileTimeout:
    case Failure::kCompileCrash:
    case Failure::kCompileMemory:
      return true;
    default:
      return false;
  }
}

// The optimised graph, whatever order of opts led to it.
uint64_t GraphHash(const Kernel& kernel) {
  UOpGraph scratch;
  return kernel.OptimizedAst(scratch).hash();
}

class Search {
 public:
  Search(const Kernel& kernel, const BeamOptions& options, CandidatePipeline& pipeline,
         const std::function<void(const BeamProgress&)>& on_progress)
      : kernel_(kernel), options_(options), pipeline_(pipeline), on_progress_(on_progress) {
    budget_ = options.deadline - SteadyNow();
  }

  absl::StatusOr<BeamResult> Run() {
    BEAMD_RETURN_IF_ERROR(TimeSeeds());
    std::vector<State> beam;
    if (unoptimised_) beam.push_back(*unoptimised_);
    bool seeded = false;
    progress_.stage = BeamStage::kRounds;
    const bool searches = options_.width > 0 && !options_.no_opt;
    for (int round = 1; searches && !beam.empty() && !Stopped(); ++round) {
      progress_.round = round;
      std::vector<Kernel> children = Children(beam);
      if (children.empty() && seeded) break;
      BEAMD_ASSIGN_OR_RETURN(std::vector<State> timed, TimeAll(std::move(children)));
      // Once: from here on the heuristics' kernel and known winners are states like any others.
      for (const State& seed : seeds_) {
        if (!seeded && !seed.kernel.applied_opts().empty()) timed.push_back(seed);
      }
      seeded = true;
      std::sort(timed.begin(), timed.end(), Faster);
      const double min_progress = absl::ToDoubleSeconds(options_.min_progress);
      const bool exiting = timed.empty() || timed[0].seconds < min_progress ||
                           beam[0].seconds - timed[0].seconds < min_progress;
      if (exiting) break;
      const size_t width = std::min<size_t>(timed.size(), options_.width);
      beam.assign(timed.begin(), timed.begin() + static_cast<ptrdiff_t>(width));
    }
    BEAMD_RETURN_IF_ERROR(TryGroupSizes());
    return Finish();
  }

 private:
  bool Stopped() {
    if (away_ || pipeline_.cancelled() || SteadyNow() >= Until()) partial_ = true;
    return partial_;
  }

  // Without a time there is nothing that the rest of the budget could be kept for.
  absl::Time Until() const {
    if (best_.empty() || options_.deadline == absl::InfiniteFuture()) return options_.deadline;
    // Ten rounds of about five, and two whole runs of the slowest for the check.
    const double slow =
        unoptimised_ && IsTime(unoptimised_->seconds) ? unoptimised_->seconds : best_[0].seconds;
    // The heuristics' is run twice where it is far behind.
    const double behind =
        heuristic_ && IsTime(heuristic_->seconds) ? std::min(heuristic_->seconds, kLongRun) : 0;
    const absl::Duration finals =
        kCheck +
        absl::Seconds(5 * (options_.final_rounds + 2) * best_[0].seconds + 2 * slow + 2 * behind);
    return options_.deadline -
           std::clamp(finals, budget_ * kLeastFinalShare, budget_ * kMostFinalShare);
  }

  // ---- candidates ----

  absl::Status TimeSeeds() {
    Kernel required = RequiredOptimizations(kernel_);
    std::vector<Kernel> seeds = {required};
    if (!options_.no_opt) seeds.push_back(HandCodedOptimizations(kernel_));
    for (const std::vector<Opt>& opts : options_.known) {
      Kernel known = kernel_;
      if (!options_.no_opt && known.ApplyAll(opts).ok()) seeds.push_back(std::move(known));
    }
    const std::vector<Opt> hc_opts = seeds[options_.no_opt ? 0 : 1].applied_opts();
    result_.hc_opts = hc_opts;
    // Their times are wanted however slow they are.
    cut_off_ = false;
    BEAMD_ASSIGN_OR_RETURN(seeds_, TimeAll(std::move(seeds)));
    cut_off_ = true;
    unoptimised_ = SeedWith(required.applied_opts());
    heuristic_ = SeedWith(hc_opts);
    if (options_.incumbent) incumbent_ = SeedWith(*options_.incumbent);
    if (!unoptimised_ && !Stopped()) {
      // Its search can still start there; it is only too slow or too large to be run itself.
      unoptimised_ = State{std::move(required), nullptr, std::nullopt, kNever, 0};
    }
    return absl::OkStatus();
  }

  // The seed that these opts make: timed under them, or as the code that another seed shares.
  std::optional<State> SeedWith(const std::vector<Opt>& opts) const {
    for (const State& s : seeds_) {
      if (s.kernel.applied_opts() == opts) return s;
    }
    for (const State& d : duplicates_) {
      if (d.kernel.applied_opts() != opts) continue;
      for (const State& s : seeds_) {
        if (SameCode(s, d)) return State{d.kernel, s.image, s.code, s.seconds, s.rank};
      }
    }
    return std::nullopt;
  }

  std::vector<Kernel> Children(const std::vector<State>& beam) {
    std::vector<Kernel> children;
    for (const State& s : beam) {
      for (auto& [unused, child] : LegalActions(s.kernel, options_.actions)) {
        if (seen_graphs_.insert(GraphHash(child)).second) {
          children.push_back(std::move(child));
        } else {
          Count(Failure::kDuplicate);
        }
      }
    }
    return children;
  }

  void Count(Failure failure) { ++progress_.failures[static_cast<int>(failure)]; }

  void Report(const CandidateReport& report) {
    if (!report.detail.empty()) last_detail_ = report.detail;
    progress_.candidate = &report;
    on_progress_(progress_);
    progress_.candidate = nullptr;
  }

  // Compiles and times all; those that have a time come back. Gives up early when the search is
  // stopped.
  absl::StatusOr<std::vector<State>> TimeAll(std::vector<Kernel> kernels) {
    progress_.done = 0;
    progress_.total = static_cast<int64_t>(kernels.size());
    duplicates_.clear();
    std::vector<State> timed;
    std::map<uint64_t, State> compiling;
    std::map<uint64_t, std::pair<State, CandidateReport>> timing;
    std::deque<std::pair<State, CandidateReport>> to_time;
    double least_compute = kNever;
    size_t next = 0;
    while (!Stopped()) {
      while (next < kernels.size() &&
             static_cast<int>(compiling.size()) < pipeline_.compile_parallelism()) {
        State state{std::move(kernels[next++]), nullptr, std::nullopt, kNever, next_rank_++};
        if (Recall(state, timed, least_compute)) continue;
        const uint64_t id = next_id_++;
        pipeline_.Submit(CompileTask{id, state.kernel.applied_opts()});
        compiling.emplace(id, std::move(state));
      }
      while (!to_time.empty() && static_cast<int>(timing.size()) < kTimesInFlight) {
        const uint64_t id = next_id_++;
        pipeline_.Submit(TimingOf(id, to_time.front().first));
        timing.emplace(id, std::move(to_time.front()));
        to_time.pop_front();
      }
      if (compiling.empty() && timing.empty()) break;
      std::optional<Completion> completion = Next(Until());
      if (!completion) continue;
      if (auto* compiled = std::get_if<CompileDone>(&*completion)) {
        const auto it = compiling.find(compiled->id);
        if (it == compiling.end()) continue;
        State state = std::move(it->second);
        state.image = compiled->image;
        compiling.erase(it);
        CandidateReport report;
        report.opts = state.kernel.applied_opts();
        report.failure = compiled->failure;
        report.detail = compiled->detail;
        report.compile_time = compiled->compile_time;
        report.colored_name = state.kernel.name();
        if (report.failure == Failure::kNone) {
          state.code = state.image->Hash();
          report.code = state.code;
          report.uops = state.image->uop_count;
          report.compute_ops = state.image->compute_ops;
          least_compute = std::min(least_compute, state.image->compute_ops);
          if (state.image->compute_ops > least_compute * options_.max_compute_ratio) {
            report.failure = Failure::kTooMuchCompute;
          } else if (!seen_images_.insert(*state.code).second) {
            report.failure = Failure::kDuplicate;
            duplicates_.push_back(state);
          }
        } else if (options_.strict && IsOfCompiling(report.failure)) {
          return absl::FailedPreconditionError(absl::StrCat("strict mode: ", ToString(report.opts),
                                                            ": ", Name(report.failure), ": ",
                                                            report.detail));
        }
        if (report.failure == Failure::kNone) {
          to_time.emplace_back(std::move(state), std::move(report));
        } else {
          ++progress_.done;
          Count(report.failure);
          Report(report);
        }
      } else if (auto* done = std::get_if<TimeDone>(&*completion)) {
        const auto it = timing.find(done->id);
        if (it == timing.end()) continue;
        auto [state, report] = std::move(it->second);
        timing.erase(it);
        ++progress_.done;
        report.failure = done->failure;
        report.detail = done->detail;
        result_.spoiled += done->spoiled;
        if (report.failure == Failure::kNone) {
          if (!done->seconds.empty()) state.seconds = Least(done->seconds[0]);
          if (!IsTime(state.seconds)) report.failure = Failure::kInvalidTime;
        }
        if (report.failure == Failure::kNone) {
          ++result_.timed;
          report.seconds = state.seconds;
          Consider(state);
          timed.push_back(std::move(state));
        } else {
          Count(report.failure);
        }
        Report(report);
      }
    }
    return timed;
  }

  // Settles the candidate by what is known of it. False where nothing is.
  bool Recall(State& state, std::vector<State>& timed, double& least_compute) {
    if (options_.recall == nullptr) return false;
    const std::optional<Recalled> known = options_.recall(state.kernel.applied_opts());
    if (!known) return false;
    CandidateReport report;
    report.opts = state.kernel.applied_opts();
    report.failure = known->failure;
    report.uops = known->uops;
    report.compute_ops = known->compute_ops;
    report.code = known->code;
    report.colored_name = state.kernel.name();
    report.recalled = true;
    state.code = known->code;
    ++progress_.done;
    ++result_.recalled;
    if (known->code) {
      least_compute = std::min(least_compute, known->compute_ops);
      if (known->failure != Failure::kTooMuchCompute) seen_images_.insert(*known->code);
    }
    if (known->failure == Failure::kDuplicate) duplicates_.push_back(state);
    if (known->failure == Failure::kNone) {
      state.seconds = known->seconds;
      report.seconds = known->seconds;
      ++result_.timed;
      Consider(state);
      timed.push_back(std::move(state));
    } else {
      Count(known->failure);
    }
    Report(report);
    return true;
  }

  // Compiles a candidate whose time was recalled. False where it is lost; without an image still
  // where it never had one, or the time is up.
  bool Compiled(State& state) {
    if (state.image != nullptr || !state.code) return true;
    CompileTask task{next_id_++, state.kernel.applied_opts()};
    const uint64_t id = task.id;
    pipeline_.Submit(std::move(task));
    const std::optional<CompileDone> done = Await<CompileDone>(id);
    if (!done) return true;
    if (done->failure != Failure::kNone) Lose(state, done->failure, done->detail);
    state.image = done->image;
    return state.image != nullptr;
  }

  static double Least(const std::vector<double>& seconds) {
    return seconds.empty() ? kNever : *std::min_element(seconds.begin(), seconds.end());
  }

  TimeTask TimingOf(uint64_t id, const State& state) const {
    TimeTask task;
    task.id = id;
    task.images = {state.image};
    task.max_global_size = options_.max_global_size;
    task.clear_cache = options_.clear_cache;
    if (cut_off_ && !best_.empty()) {
      task.cut_off = absl::Seconds(best_[0].seconds * options_.early_stop_factor);
    }
    return task;
  }

  // Keeps the best few of everything that was ever timed.
  void Consider(const State& state) {
    best_.push_back(state);
    std::sort(best_.begin(), best_.end(), Faster);
    if (static_cast<int>(best_.size()) > std::max(options_.finalists, 1) * 2) best_.pop_back();
    progress_.best_s = best_[0].seconds;
    progress_.best_opts = best_[0].kernel.applied_opts();
  }

  void Enter(BeamStage stage) {
    progress_.stage = stage;
    on_progress_(progress_);
  }

  // Times the best kernels that leave the size of their work-groups open with sizes to choose from.
  absl::Status TryGroupSizes() {
    std::vector<Kernel> kernels;
    for (const State& s : best_) {
      if (s.seconds > best_[0].seconds * kRivalRatio) break;
      for (Kernel& sized : GroupSizes(kernel_, s.kernel.applied_opts())) {
        kernels.push_back(std::move(sized));
      }
    }
    if (kernels.empty()) return absl::OkStatus();
    return TimeAll(std::move(kernels)).status();
  }

  // ---- the end ----

  absl::StatusOr<BeamResult> Finish() {
    result_.rounds = progress_.round;
    if (away_) return Away();
    if (best_.empty()) {
      result_.failures = progress_.failures;
      if (pipeline_.cancelled())
        return absl::CancelledError("cancelled before any candidate had a time");
      if (partial_)
        return absl::DeadlineExceededError("the budget ended before any candidate had a time");
      if (progress_.failures[static_cast<int>(Failure::kRunMemory)] > 0)
        return absl::ResourceExhaustedError(
            absl::StrCat("no candidate fits into memory: ", FailureSummary()));
      return absl::FailedPreconditionError(
          absl::StrCat("no candidate survived: ", FailureSummary()));
    }
    std::vector<State> finalists;
    for (const State& s : best_) {
      if (static_cast<int>(finalists.size()) == std::max(options_.finalists, 1)) break;
      if (s.seconds <= best_[0].seconds * kFinalistRatio) finalists.push_back(s);
    }
    const auto is_there = [&](const State& s) {
      return std::any_of(finalists.begin(), finalists.end(),
                         [&](const State& f) { return SameCode(f, s); });
    };
    for (const State& seed : seeds_) {
      if (!is_there(seed) && TakesPart(seed)) finalists.push_back(seed);
    }
    std::erase_if(finalists, [&](State& f) { return !Compiled(f); });
    if (unoptimised_) Compiled(*unoptimised_);
    const bool all_run = std::all_of(finalists.begin(), finalists.end(),
                                     [](const State& f) { return f.image != nullptr; });
    if (unoptimised_)
      result_.unoptimised_s = unoptimised_->seconds < kNever ? unoptimised_->seconds : 0;
    if (heuristic_) result_.hc_s = heuristic_->seconds < kNever ? heuristic_->seconds : 0;

    Enter(BeamStage::kFinalists);
    std::vector<std::vector<double>> samples;
    if (all_run) samples = TimeFinalists(finalists);
    if (samples.size() != finalists.size()) {
      // No final runs to be had: the search's own times decide.
      partial_ = true;
      samples.clear();
      for (const State& f : finalists) samples.push_back({f.seconds});
    }
    for (size_t i = 0; i < finalists.size(); ++i) {
      const State& f = finalists[i];
      if (heuristic_ && SameCode(f, *heuristic_)) result_.hc_s = Least(samples[i]);
      if (unoptimised_ && SameCode(f, *unoptimised_)) result_.unoptimised_s = Least(samples[i]);
    }
    std::vector<size_t> order(finalists.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto key = [&](size_t i) { return std::make_pair(Least(samples[i]), finalists[i].rank); };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    DefendIncumbent(finalists, samples, order);
    if (!order.empty()) TellFinalists(finalists, samples, order[0]);
    // If they are all wrong: what they were made from.
    if (unoptimised_ && unoptimised_->image != nullptr && !is_there(*unoptimised_)) {
      order.push_back(finalists.size());
      finalists.push_back(*unoptimised_);
      samples.push_back({unoptimised_->seconds});
    }
    Enter(BeamStage::kVerifying);
    for (const size_t i : order) {
      const bool verified = Verified(finalists[i]);
      if (away_) return Away();
      if (!verified) continue;
      result_.opts = finalists[i].kernel.applied_opts();
      result_.best_s = Least(samples[i]);
      result_.samples = samples[i];
      result_.failures = progress_.failures;
      result_.partial = partial_;
      return result_;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("every finalist failed or gave a wrong answer: ", FailureSummary()));
  }

  // The best so far can't be checked either; who kept the times (BeamOptions::recall) loses nothing.
  absl::Status Away() const {
    return absl::UnavailableError(absl::StrCat("no candidate can be tried any more, after ",
                                               result_.timed, result_.timed == 1 ? " was" : " were",
                                               " timed: ", *away_));
  }

  // By its opts, or as the code that another seed shares.
  bool IsIncumbent(const State& state) const {
    return options_.incumbent && (state.kernel.applied_opts() == *options_.incumbent ||
                                  (incumbent_ && SameCode(state, *incumbent_)));
  }

  // Whether a seed has final runs.
  bool TakesPart(const State& seed) {
    const double most = best_[0].seconds * kRivalRatio;
    if (seed.seconds <= most || IsIncumbent(seed)) return true;
    if (!heuristic_ || !SameCode(seed, *heuristic_)) return false;
    if (seed.seconds <= kLongRun) return true;
    State again = seed;
    if (!Compiled(again) || again.image == nullptr) return false;
    const uint64_t id = next_id_++;
    TimeTask task = TimingOf(id, again);
    task.cut_off = absl::InfiniteDuration();
    pipeline_.Submit(std::move(task));
    const std::optional<TimeDone> done = Await<TimeDone>(id);
    return done && done->failure == Failure::kNone && !done->seconds.empty() &&
           Least(done->seconds[0]) <= most;
  }

  // Puts the incumbent first unless the best of the others is shown to be faster. Which of the two
  // had the least time is chance where they are close, so only one that the final runs show to be
  // slower is not given a duel.
  void DefendIncumbent(const std::vector<State>& finalists,
                       const std::vector<std::vector<double>>& samples,
                       std::vector<size_t>& order) {
    const auto incumbent = std::find_if(order.begin(), order.end(),
                                        [&](size_t i) { return IsIncumbent(finalists[i]); });
    if (incumbent == order.end() || order.size() == 1) return;
    std::rotate(order.begin(), incumbent, incumbent + 1);
    const RatioInterval gain =
        PairedRatio(samples[order[0]], samples[order[1]], kReportedConfidence);
    if (gain.high < 1) return;
    if (Beats(finalists[order[1]], finalists[order[0]])) std::swap(order[0], order[1]);
  }

  // By runs of their own: those that chose the challenger flatter it.
  bool Beats(const State& challenger, const State& incumbent) {
    if (challenger.image == nullptr || incumbent.image == nullptr) return false;
    std::vector<double> ours, theirs;
    RatioInterval gain;
    for (const int rounds : kDuelRounds) {
      TimeTask task;
      task.id = next_id_++;
      task.images = {incumbent.image, challenger.image};
      task.rounds = rounds;
      task.bound = kDuelBound;
      task.clear_cache = options_.clear_cache;
      const uint64_t id = task.id;
      pipeline_.Submit(std::move(task));
      const std::optional<TimeDone> done = Await<TimeDone>(id);
      if (!done || done->failure != Failure::kNone || done->seconds.size() != 2) break;
      result_.spoiled += done->spoiled;
      ours.insert(ours.end(), done->seconds[0].begin(), done->seconds[0].end());
      theirs.insert(theirs.end(), done->seconds[1].begin(), done->seconds[1].end());
      gain = PairedRatio(ours, theirs, kDuelConfidence);
      if (gain.low > 1) return true;
      if (gain.high <= 1) break;
    }
    result_.challenger = {.opts = challenger.kernel.applied_opts(),
                          .best_s = theirs.empty() ? challenger.seconds : Least(theirs),
                          .over_winner = PairedRatio(theirs, ours, kReportedConfidence)};
    return false;
  }

  void TellFinalists(const std::vector<State>& finalists,
                     const std::vector<std::vector<double>>& samples, size_t winner) {
    for (size_t i = 0; i < finalists.size(); ++i) {
      result_.finalists.push_back(
          {.opts = finalists[i].kernel.applied_opts(),
           .best_s = Least(samples[i]),
           .over_winner = PairedRatio(samples[i], samples[winner], kReportedConfidence)});
    }
  }

  // Interleaved runs of all, at full size. One that fails is left out; empty if there are no times
  // to be had.
  std::vector<std::vector<double>> TimeFinalists(std::vector<State>& finalists) {
    while (!finalists.empty()) {
      TimeTask task;
      task.id = next_id_++;
      for (const State& f : finalists) task.images.push_back(f.image);
      task.rounds = options_.final_rounds;
      task.clear_cache = options_.clear_cache;
      const uint64_t id = task.id;
      pipeline_.Submit(std::move(task));
      const std::optional<TimeDone> done = Await<TimeDone>(id);
      if (!done) break;
      result_.spoiled += done->spoiled;
      if (done->failure == Failure::kNone) return done->seconds;
      if (done->failed_image < 0 || done->failed_image >= static_cast<int>(finalists.size())) {
        Count(done->failure);
        break;
      }
      Lose(finalists[done->failed_image], done->failure, done->detail);
      finalists.erase(finalists.begin() + done->failed_image);
    }
    return {};
  }

  // What ended next; nullopt where the time is up, or there is nothing left to try candidates with:
  // that says nothing of them, so none is lost, and the search ends.
  std::optional<Completion> Next(absl::Time until) {
    if (away_) return std::nullopt;
    std::optional<Completion> completion = pipeline_.Next(until);
    if (!completion) return std::nullopt;
    std::visit(
        [&](const auto& done) {
          if (done.failure == Failure::kUnavailable) away_ = done.detail;
        },
        *completion);
    return away_ ? std::nullopt : std::move(completion);
  }

  // What ends as `id`; nullopt where the time is up. All else is of candidates that were left.
  template <typename Done>
  std::optional<Done> Await(uint64_t id) {
    while (std::optional<Completion> c = Next(options_.deadline)) {
      if (auto* done = std::get_if<Done>(&*c); done != nullptr && done->id == id) return *done;
    }
    return std::nullopt;
  }

  // A finalist that is out.
  void Lose(const State& state, Failure failure, const std::string& detail) {
    CandidateReport report;
    report.opts = state.kernel.applied_opts();
    report.failure = failure;
    report.detail = detail;
    report.colored_name = state.kernel.name();
    Count(failure);
    Report(report);
  }

  bool Verified(const State& state) {
    std::optional<VerifyDone> done;
    if (state.image != nullptr) {
      VerifyTask task;
      task.id = next_id_++;
      task.image = state.image;
      if (unoptimised_) task.oracle = unoptimised_->image;
      const uint64_t id = task.id;
      pipeline_.Submit(std::move(task));
      done = Await<VerifyDone>(id);
    }
    if (!done) {
      // Out of time: the answer stands unverified, and says so.
      partial_ = true;
      result_.verified.clear();
      return true;
    }
    if (done->failure != Failure::kNone) {
      Lose(state, done->failure, done->detail);
      return false;
    }
    result_.verified = done->method;
    result_.verified_elements = done->checked;
    result_.undecided_elements = done->undecided;
    return true;
  }

  std::string FailureSummary() const {
    std::string s;
    for (int i = 1; i < kFailureCount; ++i) {
      if (progress_.failures[i] == 0) continue;
      absl::StrAppend(&s, s.empty() ? "" : ", ", Name(static_cast<Failure>(i)), " ",
                      progress_.failures[i]);
    }
    if (s.empty()) return "nothing could be tried";
    return last_detail_.empty() ? s : absl::StrCat(s, "; the last: ", last_detail_);
  }

  const Kernel& kernel_;
  const BeamOptions& options_;
  CandidatePipeline& pipeline_;
  const std::function<void(const BeamProgress&)>& on_progress_;
  absl::Duration budget_;
  uint64_t next_id_ = 1, next_rank_ = 0;
  bool partial_ = false, cut_off_ = true;
  std::optional<State> unoptimised_, heuristic_, incumbent_;
  std::vector<State> seeds_;       // those that have a time
  std::vector<State> duplicates_;  // of the last TimeAll: compiled to another's code
  std::vector<State> best_;
  std::unordered_set<uint64_t> seen_graphs_;
  std::set<Digest> seen_images_;
  std::string last_detail_;          // of a candidate that was lost
  std::optional<std::string> away_;  // why there are no workers, or no device, any more
  BeamProgress progress_;
  BeamResult result_;
};

}  // namespace

absl::StatusOr<BeamResult> BeamSearch(const Kernel& kernel, const BeamOptions& options,
                                      CandidatePipeline& pipeline,
                                      const std::function<void(const BeamProgress&)>& on_progress) {
  return Search(kernel, options, pipeline, on_progress).Run();
}

}  // namespace beamd
