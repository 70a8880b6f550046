// What a search asks of the processes around it: compiling and timing candidates, asynchronously.
// The daemon implements it over workers and runners, tests with scripted times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/kernel/opt.h"
#include "engine/llvm/kernel_image.h"

namespace beamd {

// Why a candidate is out. Names are stored in records: append only.
enum class Failure : uint8_t {
  kNone = 0,
  kIllegalOpt,      // an opt does not apply
  kLowering,        // the engine refused or failed to lower it
  kTooManyUops,     // over BEAM_UOPS_MAX
  kCompileError,    // LLVM refused
  kCompileTimeout,  // the worker overran its limit and was killed
  kCompileCrash,    // the worker died
  kCompileMemory,   // the worker passed its memory limit
  kTooMuchCompute,  // 1000 times the arithmetic of the least
  kDuplicate,       // the same code as an earlier candidate
  kRunTimeout,      // the runner overran its limit and was killed
  kRunCrash,        // the runner died
  kInvalidTime,     // zero, negative or not finite
  kWrongAnswer,     // lost verification
  kCancelled,
  kRunMemory,    // the runner passed its memory limit, or the device has no room for the buffers
  kUnavailable,  // no worker or runner was to be had: nothing is known of the candidate
};
inline constexpr int kFailureCount = 17;
absl::string_view Name(Failure failure);
// Which reason a compiler's error counts under.
Failure CompileFailure(const absl::Status& status);

struct CompileTask {
  uint64_t id = 0;
  std::vector<Opt> opts;
};
struct CompileDone {
  uint64_t id = 0;
  Failure failure = Failure::kNone;
  std::string detail;
  std::shared_ptr<const KernelImage> image;  // where failure is kNone
  absl::Duration compile_time;
};

// Times images on the device, alone on it. With several images the runs are interleaved: one of
// each a round.
struct TimeTask {
  uint64_t id = 0;
  std::vector<std::shared_ptr<const KernelImage>> images;
  int warmups = 1;
  int rounds = 3;
  // A run is cut off once it is certain to take longer than this; infinite: never.
  absl::Duration cut_off = absl::InfiniteDuration();
  // Slices of the outermost loop that are run and scaled up, chosen so that a launch has about this
  // many points of global axes; 0: the whole kernel (seeds: max_global_size).
  int64_t max_global_size = 0;
  bool clear_cache = false;  // flush the last-level cache between runs
  // After three rounds, sampling ends once it took this long; after any, four times as long.
  absl::Duration bound = absl::Milliseconds(100);
};
struct TimeDone {
  uint64_t id = 0;
  Failure failure = Failure::kNone;
  std::string detail;
  int failed_image = -1;                     // which image failed, where one did
  std::vector<std::vector<double>> seconds;  // an image, a round; scaled to the whole kernel
  bool cut_off = false;                      // stopped early: times are lower bounds
  int64_t spoiled = 0;  // runs that were repeated since something else used the device
};

// Compares an image's outputs with the oracle's on seeded inputs, by SEMANTICS "Equal".
struct VerifyTask {
  uint64_t id = 0;
  std::shared_ptr<const KernelImage> image;
  std::shared_ptr<const KernelImage>
      oracle;  // the unoptimised kernel; null: the reference evaluator alone
};
struct VerifyDone {
  uint64_t id = 0;
  Failure failure = Failure::kNone;
  std::string detail;
  // "unoptimised", "evaluator", "sampled" or "" where nothing could serve as oracle.
  std::string method;
  int64_t checked = 0, undecided = 0;  // elements
};

using Completion = std::variant<CompileDone, TimeDone, VerifyDone>;

// Not thread-safe: one search owns it.
class CandidatePipeline {
 public:
  virtual ~CandidatePipeline() = default;
  virtual void Submit(CompileTask task) = 0;
  virtual void Submit(TimeTask task) = 0;
  virtual void Submit(VerifyTask task) = 0;
  // How many compiles are worth having in flight.
  virtual int compile_parallelism() const = 0;
  // The next thing that ended; nullopt once `deadline` passes or the job is cancelled.
  virtual std::optional<Completion> Next(absl::Time deadline) = 0;
  virtual bool cancelled() const = 0;
};

}  // namespace beamd
