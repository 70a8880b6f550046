// When a fake management library says that others compute on its GPU.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace beamd::fake {

// Whether this call is among those that BEAMD_FAKE_BUSY names: "3-4", counted from 1 and from when
// the variable was set.
inline bool AskedAndBusy() {
  static std::string seen;
  static int asked = 0;
  const char* const text = std::getenv("BEAMD_FAKE_BUSY");
  if (text == nullptr) {
    seen.clear();
    return false;
  }
  if (seen != text) asked = 0;
  seen = text;
  ++asked;
  int first = 0, last = 0;
  return std::sscanf(text, "%d-%d", &first, &last) == 2 && asked >= first && asked <= last;
}

}  // namespace beamd::fake
