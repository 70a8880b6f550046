#include "engine/kernel/opt.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace beamd {
namespace {

constexpr const char* kNames[] = {"UNSPECIFIED", "TC",    "UPCAST", "UPCASTMID",
                                  "UNROLL",      "LOCAL", "GROUP",  "GROUPTOP",
                                  "NOLOCALS",    "PADTO", "SWAP"};

}  // namespace

std::string ToString(const Opt& opt) {
  const int op = static_cast<int>(opt.op);
  std::string s = op < static_cast<int>(std::size(kNames)) ? kNames[op] : "UNKNOWN";
  if (!opt.axis && !opt.amount) return s;
  absl::StrAppend(&s, "(", opt.axis.value_or(0));
  if (opt.amount) absl::StrAppend(&s, ", ", *opt.amount);
  return s + ")";
}

std::string ToString(const std::vector<Opt>& opts) {
  if (opts.empty()) return "-";
  std::string s;
  for (const Opt& opt : opts) absl::StrAppend(&s, s.empty() ? "" : " ", ToString(opt));
  return s;
}

}  // namespace beamd
