// Named integer settings with a scoped override: a default, replaced by the environment variable of
// the same name, replaced on one thread for the life of a ScopedOption.
//
//   if (options::kWino) ...
//   ScopedOption scope(options::kNoOpt, 1);
//
// Answers to tinygrad 0.10.0 helpers.py, ContextVar and Context. Differs: an override belongs to
// its thread, since a daemon runs many requests at once.
#pragma once

#include <cstdint>

namespace beamd {

// Thread-safe. Lives for the whole program.
class Option {
 public:
  // The environment is read once, here. A variable that is no integer counts as absent.
  Option(const char* name, int64_t otherwise);
  Option(const Option&) = delete;
  Option& operator=(const Option&) = delete;

  const char* name() const { return name_; }
  // This thread's innermost override; else the process' value.
  int64_t value() const;
  operator int64_t() const { return value(); }

 private:
  const char* name_;
  int64_t process_value_;
};

// Overrides an option on the thread that makes it, until destroyed there. Scopes nest.
class ScopedOption {
 public:
  ScopedOption(const Option& option, int64_t value);
  ~ScopedOption();
  ScopedOption(const ScopedOption&) = delete;
  ScopedOption& operator=(const ScopedOption&) = delete;

 private:
  friend class Option;
  const Option* option_;
  int64_t value_;
  const ScopedOption* outer_;
};

namespace options {
// Names and defaults as in 0.10.0.
extern const Option kDebug;      // DEBUG 0: what realising prints
extern const Option kBeam;       // BEAM 0: width of the search that a realised kernel gets
extern const Option kNoOpt;      // NOOPT 0: kernels are compiled without opts
extern const Option kImage;      // IMAGE 0: 1: products and 2-d convolutions over groups of four
                                 // channels; 2: these stored as images too
extern const Option kFloat16;    // FLOAT16 0: the images of IMAGE 2 hold half floats
extern const Option kWino;       // WINO 0: Winograd for 3x3 convolutions
extern const Option kJit;        // JIT 1: captured plans replay; 0 runs them anew each time
extern const Option kLazyCache;  // LAZYCACHE 1: equal lazy nodes are one
extern const Option kSplitReduceOp;           // SPLIT_REDUCEOP 1
extern const Option kReduceOpSplitThreshold;  // REDUCEOP_SPLIT_THRESHOLD 32768
extern const Option kReduceOpSplitSize;       // REDUCEOP_SPLIT_SIZE 22
extern const Option kCastBeforeView;          // CAST_BEFORE_VIEW 1
extern const Option kMultiOutput;             // MULTIOUTPUT 1: one kernel may store several results
extern const Option kNoMemoryPlanner;         // NO_MEMORY_PLANNER 0
}  // namespace options

}  // namespace beamd
