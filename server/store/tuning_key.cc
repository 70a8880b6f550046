#include "server/store/tuning_key.h"

#include <bit>
#include <cstdint>

namespace beamd {
namespace {

uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

void Add(Hasher& hasher, const v1::Environment& e) {
  hasher.Add(e.kind()).Add(e.vendor()).Add(e.model()).Add(e.arch()).Add(e.features());
  hasher.Add(uint64_t{e.units()}).Add(e.memory_bytes());
  hasher.Add(uint64_t{e.clock_limit_mhz()}).Add(uint64_t{e.memory_clock_limit_mhz()});
  hasher.Add(e.driver()).Add(e.llvm());
  hasher.Add(uint64_t{e.codegen_epoch()}).Add(uint64_t{e.measurement_version()});
}

// Options that came later: absent from a key at their defaults, so that records stay found.
void AddLater(Hasher& hasher, const v1::SearchOptions& s) {
  if (s.allow_tf32()) hasher.Add("allow_tf32");
}

}  // namespace

Digest HashTuningKey(const Digest& kernel, const v1::SearchOptions& s, const v1::Environment& e) {
  Hasher hasher;
  hasher.Add("beamd tuning key 1").Add(kernel);
  hasher.Add(uint64_t{s.width()});
  hasher.Add(static_cast<uint64_t>(s.compile_timeout().seconds()));
  hasher.Add(static_cast<uint64_t>(s.compile_timeout().nanos()));
  hasher.Add(uint64_t{s.uops_max()}).Add(uint64_t{s.upcast_max()}).Add(uint64_t{s.local_max()});
  hasher.Add(Bits(s.min_progress_us())).Add(uint64_t{s.padto()});
  hasher.Add(uint64_t{s.max_global_size()}).Add(uint64_t{s.tc()}).Add(uint64_t{s.tc_opt()});
  hasher.Add(uint64_t{s.nolocals()}).Add(uint64_t{s.estimate()}).Add(uint64_t{s.clear_cache()});
  hasher.Add(uint64_t{s.noopt()}).Add(s.seed());
  AddLater(hasher, s);
  Add(hasher, e);
  return hasher.Finish();
}

Digest HashTimingKey(const Digest& kernel, const v1::SearchOptions& search,
                     const v1::Environment& environment, const std::vector<Opt>& opts) {
  Hasher hasher;
  hasher.Add("beamd timing key 1").Add(kernel);
  if (search.tc() == 2) hasher.Add("tensor cores' shapes");
  AddLater(hasher, search);
  Add(hasher, environment);
  hasher.Add(static_cast<uint64_t>(opts.size()));
  for (const Opt& opt : opts) {
    hasher.Add(static_cast<uint64_t>(opt.op));
    for (const std::optional<int32_t>& number : {opt.axis, opt.amount}) {
      hasher.Add(static_cast<uint64_t>(number.has_value()));
      hasher.Add(static_cast<uint64_t>(int64_t{number.value_or(0)}));
    }
  }
  return hasher.Finish();
}

}  // namespace beamd
