#include "engine/autograd/function.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace beamd {

absl::StatusOr<std::vector<LazyBuffer>> Function::Backward(const LazyBuffer&) const {
  return absl::UnimplementedError(absl::StrCat(name(), " has no gradient"));
}

}  // namespace beamd
