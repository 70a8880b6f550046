// What the daemon counts, in Prometheus' words. Names: beamd_<what>_<unit>, counters end in
// `_total`, times are seconds (https://prometheus.io/docs/practices/naming/).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace beamd {

// A value that somebody else keeps, read when it is asked for.
struct Sample {
  enum Kind : uint8_t { kGauge, kCounter };

  std::string name;
  std::string help;
  Kind kind = kGauge;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// Thread-safe. What names methods, codes, reasons and devices comes from the daemon, never from a
// client: the number of series is bounded.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  void CallEnded(absl::string_view method, absl::string_view code, absl::Duration took);
  // A Lookup's or a Tune's answer from the store, by what matched; "miss" where nothing did.
  void CacheAnswered(absl::string_view match);
  // `outcome`: "compiled", "timed", "verified" or "failed"; `reason`: of a failure.
  void CandidateEnded(absl::string_view outcome, absl::string_view reason);
  void Compiled(absl::Duration took);
  void Ran(absl::string_view device, absl::Duration took);
  // `operation`: "read" or "write".
  void StoreUsed(absl::string_view operation, absl::Duration took);

  // Asked at each scrape, on the scraper's thread; must be callable as long as this lives.
  void AddSource(std::function<void(std::vector<Sample>&)> source);

  // Everything, in the text format 0.0.4.
  std::string Scrape() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace beamd
