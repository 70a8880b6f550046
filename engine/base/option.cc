#include "engine/base/option.h"

#include <cerrno>
#include <cstdlib>

namespace beamd {
namespace {

thread_local const ScopedOption* innermost = nullptr;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text, &end, 10);
  return *end == '\0' && errno == 0 ? value : otherwise;
}

}  // namespace

Option::Option(const char* name, int64_t otherwise)
    : name_(name), process_value_(FromEnvironment(name, otherwise)) {}

int64_t Option::value() const {
  for (const ScopedOption* scope = innermost; scope != nullptr; scope = scope->outer_) {
    if (scope->option_ == this) return scope->value_;
  }
  return process_value_;
}

ScopedOption::ScopedOption(const Option& option, int64_t value)
    : option_(&option), value_(value), outer_(innermost) {
  innermost = this;
}

ScopedOption::~ScopedOption() { innermost = outer_; }

namespace options {
const Option kDebug("DEBUG", 0);
const Option kBeam("BEAM", 0);
const Option kNoOpt("NOOPT", 0);
const Option kImage("IMAGE", 0);
const Option kFloat16("FLOAT16", 0);
const Option kWino("WINO", 0);
const Option kJit("JIT", 1);
const Option kLazyCache("LAZYCACHE", 1);
const Option kSplitReduceOp("SPLIT_REDUCEOP", 1);
const Option kReduceOpSplitThreshold("REDUCEOP_SPLIT_THRESHOLD", 32768);
const Option kReduceOpSplitSize("REDUCEOP_SPLIT_SIZE", 22);
const Option kCastBeforeView("CAST_BEFORE_VIEW", 1);
const Option kMultiOutput("MULTIOUTPUT", 1);
const Option kNoMemoryPlanner("NO_MEMORY_PLANNER", 0);
}  // namespace options

}  // namespace beamd
