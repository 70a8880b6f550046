#include "server/services/lasting_answer.h"

#include <algorithm>

namespace beamd {

bool IsLasting(const v1::LookupResponse& response) {
  return std::all_of(
      response.answers().begin(), response.answers().end(), [](const v1::LookupAnswer& answer) {
        return !answer.has_error() && answer.miss().reason() != v1::MISS_REASON_UNREADABLE;
      });
}

}  // namespace beamd
