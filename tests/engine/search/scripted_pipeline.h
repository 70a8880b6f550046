// A CandidatePipeline that makes up what compiling, timing and checking say: no compiler, no clock,
// no process.
#pragma once

#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/kernel/opt.h"
#include "engine/search/pipeline.h"

namespace beamd::testing {

// What is made up of one candidate.
struct Scripted {
  double seconds = 1e-3;          // of a test launch
  std::optional<double> whole_s;  // of a run at full size, where it differs
  double compute_ops = 1;
  std::string code;  // empty: code that no other opts lead to
  // Of a run: the relative spread of its time, besides what slows a whole round and the odd run
  // that something got in the way of. 0: every run takes as long.
  double noise = 0;
  Failure compile = Failure::kNone, run = Failure::kNone, final_run = Failure::kNone,
          answer = Failure::kNone;
};

// In which order things end that are under way at once.
enum class Ending { kFirstIn, kLastIn, kAny };

class ScriptedPipeline final : public CandidatePipeline {
 public:
  using Script = std::function<Scripted(const std::vector<Opt>&)>;
  explicit ScriptedPipeline(Script script, Ending ending = Ending::kFirstIn, uint32_t seed = 0)
      : script_(std::move(script)), ending_(ending), random_(seed) {}

  void Submit(CompileTask task) override {
    compiled.push_back(task.opts);
    Scripted s = script_(task.opts);
    CompileDone done;
    done.id = task.id;
    done.failure = s.compile;
    if (done.failure != Failure::kNone) {
      done.detail = "scripted";
    } else {
      auto image = std::make_shared<KernelImage>();
      image->code = s.code.empty() ? ToString(task.opts) : s.code;
      image->compute_ops = s.compute_ops;
      image->uop_count = 10;
      scripts_.emplace(image->code, std::move(s));
      done.image = std::move(image);
    }
    under_way_.emplace_back(std::move(done));
  }

  void Submit(TimeTask task) override {
    TimeDone done;
    done.id = task.id;
    std::vector<double> drift(static_cast<size_t>(task.rounds));
    for (double& d : drift) d = std::exp(normal_(random_) * 0.03);
    for (size_t i = 0; i < task.images.size(); ++i) {
      Scripted s = scripts_.at(task.images[i]->code);
      if (before_time) before_time(task, s);
      const bool whole = task.max_global_size == 0;
      const Failure failure = whole ? s.final_run : s.run;
      if (failure != Failure::kNone && done.failure == Failure::kNone) {
        done.failure = failure;
        done.failed_image = static_cast<int>(i);
      }
      const double seconds = whole ? s.whole_s.value_or(s.seconds) : s.seconds;
      // The least of the rounds counts, wherever it stands.
      std::vector<double> rounds(static_cast<size_t>(task.rounds), seconds * 1.5);
      rounds[rounds.size() / 2] = seconds;
      for (size_t r = 0; s.noise > 0 && r < rounds.size(); ++r) {
        const bool hit = random_() % 20 == 0;
        rounds[r] = seconds * drift[r] * std::exp(normal_(random_) * s.noise) *
                    (hit ? 1 + static_cast<double>(random_() % 100) / 200 : 1);
      }
      done.seconds.push_back(std::move(rounds));
    }
    timed.push_back({task, least_told_});
    under_way_.emplace_back(std::move(done));
  }

  void Submit(VerifyTask task) override {
    verified.push_back(task.image->code);
    VerifyDone done;
    done.id = task.id;
    done.failure = scripts_.at(task.image->code).answer;
    done.method = "evaluator";
    done.checked = 64;
    under_way_.emplace_back(std::move(done));
  }

  int compile_parallelism() const override { return 4; }

  std::optional<Completion> Next(absl::Time deadline) override {
    if (cancelled_) return std::nullopt;
    if (told_ == cancel_after) {
      cancelled_ = true;
      return std::nullopt;
    }
    if (told_ == stall_after) {
      ++told_;
      BEAMD_CHECK(deadline != absl::InfiniteFuture(), "would wait for ever");
      absl::SleepFor(deadline - absl::Now());
      return std::nullopt;
    }
    BEAMD_CHECK(!under_way_.empty(), "nothing is under way");
    const size_t at = ending_ == Ending::kFirstIn  ? 0
                      : ending_ == Ending::kLastIn ? under_way_.size() - 1
                                                   : random_() % under_way_.size();
    Completion next = std::move(under_way_[at]);
    under_way_.erase(under_way_.begin() + static_cast<ptrdiff_t>(at));
    ++told_;
    if (const auto* done = std::get_if<TimeDone>(&next);
        done != nullptr && done->failure == Failure::kNone) {
      for (const double s : done->seconds[0]) least_told_ = std::min(least_told_, s);
    }
    return next;
  }

  bool cancelled() const override { return cancelled_; }

  // After this many things have ended: the job is cancelled; nothing ends until the deadline. -1:
  // never.
  int64_t cancel_after = -1, stall_after = -1;
  // May change what is scripted of an image for this task.
  std::function<void(const TimeTask&, Scripted&)> before_time;

  // What was asked for, in order.
  struct Timed {
    TimeTask task;
    double least_told;  // of all times told before
  };
  std::vector<std::vector<Opt>> compiled;
  std::vector<Timed> timed;
  std::vector<std::string> verified;  // codes

 private:
  const Script script_;
  const Ending ending_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::map<std::string, Scripted> scripts_;  // by code
  std::deque<Completion> under_way_;
  int64_t told_ = 0;
  double least_told_ = std::numeric_limits<double>::infinity();
  bool cancelled_ = false;
};

}  // namespace beamd::testing
