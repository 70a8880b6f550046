// Texts of clients, no longer than others may be made to keep or send.
#pragma once

#include <cstddef>
#include <string>

namespace beamd {

// At most so many bytes of UTF-8 text, no character of it cut; what is longer ends in "..." beyond
// them.
inline std::string Shortened(std::string text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

}  // namespace beamd
