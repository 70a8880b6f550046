// While it lives, on its thread: an expression over a context's buffers is computed anew, even where
// somebody still holds its value from before. For whoever records what a program computes: what was
// computed earlier would be missing.
#pragma once

#include <cstdint>

#include "engine/lazy/lazy_context.h"

namespace beamd {

// Scopes don't nest.
class FreshValuesScope {
 public:
  explicit FreshValuesScope(const LazyContext& context);
  ~FreshValuesScope();
  FreshValuesScope(const FreshValuesScope&) = delete;
  FreshValuesScope& operator=(const FreshValuesScope&) = delete;
};

}  // namespace beamd
