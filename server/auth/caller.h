// For whom work is done, as everything behind the gate takes it.
#pragma once

#include <string>

namespace beamd {

struct Caller {
  // Principal::name: shares, quotas and lists of jobs are by it.
  std::string principal;
  // W3C trace id of the call.
  std::string trace;
};

}  // namespace beamd
