// How a store fares.
#pragma once

#include <cstdint>
#include <string>

namespace beamd {

struct StoreHealth {
  bool writable = true;
  std::string why;            // it isn't
  int64_t failed_writes = 0;  // since it was opened
  int64_t unreadable = 0;     // values met that can't be read
  int64_t repairs = 0;
  bool mending = false;  // it is opened again or repaired just now, which may take long
};

}  // namespace beamd
