#include "server/metrics/metrics.h"

#include <tuple>
#include <utility>

#include "engine/base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace beamd {
namespace {

using Labels = std::map<std::string, std::string>;

// Seconds. Calls: from a look-up to a search. Candidates: from a cached compile to a time limit.
// Store: from memory to a slow disk.
const prometheus::Histogram::BucketBoundaries kCallBuckets = {
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 2.5, 10, 60, 600};
const prometheus::Histogram::BucketBoundaries kCandidateBuckets = {
    1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};
const prometheus::Histogram::BucketBoundaries kStoreBuckets = {1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4,
                                                               1e-3, 5e-3, 1e-2, 0.1,  1};

// A family whose series are found without building a map of labels each time.
template <typename Metric>
class Table {
 public:
  using Make = std::function<Metric&(const std::string&, const std::string&)>;
  explicit Table(Make make) : make_(std::move(make)) {}

  Metric& At(absl::string_view a, absl::string_view b = "") {
    MutexLock lock(mutex_);
    const auto it = series_.find(std::tuple(a, b));
    if (it != series_.end()) return *it->second;
    Metric& made = make_(std::string(a), std::string(b));
    series_.emplace(std::pair(std::string(a), std::string(b)), &made);
    return made;
  }

 private:
  struct Less {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      const absl::string_view a0 = std::get<0>(a);
      const absl::string_view b0 = std::get<0>(b);
      if (a0 != b0) return a0 < b0;
      return absl::string_view(std::get<1>(a)) < absl::string_view(std::get<1>(b));
    }
  };
  const Make make_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Metric*, Less> series_ BEAMD_GUARDED_BY(mutex_);
};

prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry,
                                                       const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Histogram>& HistogramFamily(prometheus::Registry& registry,
                                                           const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

class Metrics::Impl {
 public:
  Impl()
      : calls_([family = &CounterFamily(registry_, "beamd_requests_total",
                                        "Calls answered, by method and gRPC code.")](
                   const std::string& method, const std::string& code) -> prometheus::Counter& {
          return family->Add({{"method", method}, {"code", code}});
        }),
        call_seconds_(
            [family = &HistogramFamily(registry_, "beamd_request_duration_seconds",
                                       "From a call's arrival to its answer.")](
                const std::string& method, const std::string& code) -> prometheus::Histogram& {
              return family->Add({{"method", method}, {"code", code}}, kCallBuckets);
            }),
        cache_([family = &CounterFamily(registry_, "beamd_cache_answers_total",
                                        "Answers from the store, by what matched.")](
                   const std::string& match, const std::string&) -> prometheus::Counter& {
          return family->Add({{"match", match}});
        }),
        candidates_(
            [family = &CounterFamily(registry_, "beamd_candidates_total",
                                     "Candidates, by outcome and reason of failure.")](
                const std::string& outcome, const std::string& reason) -> prometheus::Counter& {
              return family->Add({{"outcome", outcome}, {"reason", reason}});
            }),
        device_([family = &CounterFamily(registry_, "beamd_device_busy_seconds_total",
                                         "Time in which a device timed or checked kernels; its "
                                         "rate is the share that it was busy.")](
                    const std::string& device, const std::string&) -> prometheus::Counter& {
          return family->Add({{"device", device}});
        }),
        run_([family = &HistogramFamily(registry_, "beamd_run_duration_seconds",
                                        "Timing batches and checks of candidates.")](
                 const std::string& device, const std::string&) -> prometheus::Histogram& {
          return family->Add({{"device", device}}, kCandidateBuckets);
        }),
        store_([family = &HistogramFamily(registry_, "beamd_store_operation_duration_seconds",
                                          "Reads and synced writes of the store.")](
                   const std::string& operation, const std::string&) -> prometheus::Histogram& {
          return family->Add({{"operation", operation}}, kStoreBuckets);
        }),
        compile_(
            HistogramFamily(registry_, "beamd_compile_duration_seconds", "Compiles of candidates.")
                .Add({}, kCandidateBuckets)) {}

  void AddSource(std::function<void(std::vector<Sample>&)> source) {
    MutexLock lock(mutex_);
    sources_.push_back(std::move(source));
  }

  std::string Scrape() const {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
    std::vector<Sample> samples;
    {
      MutexLock lock(mutex_);
      for (const auto& source : sources_) source(samples);
    }
    std::map<std::string, prometheus::MetricFamily> sampled;
    for (const Sample& sample : samples) {
      prometheus::MetricFamily& family = sampled[sample.name];
      family.name = sample.name;
      family.help = sample.help;
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      for (const auto& [label, value] : sample.labels) metric.label.push_back({label, value});
      if (sample.kind == Sample::kCounter) {
        family.type = prometheus::MetricType::Counter;
        metric.counter.value = sample.value;
      } else {
        family.type = prometheus::MetricType::Gauge;
        metric.gauge.value = sample.value;
      }
    }
    for (auto& [name, family] : sampled) families.push_back(std::move(family));
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  prometheus::Registry registry_;

 public:
  Table<prometheus::Counter> calls_;
  Table<prometheus::Histogram> call_seconds_;
  Table<prometheus::Counter> cache_;
  Table<prometheus::Counter> candidates_;
  Table<prometheus::Counter> device_;
  Table<prometheus::Histogram> run_;
  Table<prometheus::Histogram> store_;
  prometheus::Histogram& compile_;

 private:
  mutable Mutex mutex_;
  std::vector<std::function<void(std::vector<Sample>&)>> sources_ BEAMD_GUARDED_BY(mutex_);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::CallEnded(absl::string_view method, absl::string_view code, absl::Duration took) {
  impl_->calls_.At(method, code).Increment();
  impl_->call_seconds_.At(method, code).Observe(absl::ToDoubleSeconds(took));
}

void Metrics::CacheAnswered(absl::string_view match) { impl_->cache_.At(match).Increment(); }

void Metrics::CandidateEnded(absl::string_view outcome, absl::string_view reason) {
  impl_->candidates_.At(outcome, reason).Increment();
}

void Metrics::Compiled(absl::Duration took) {
  impl_->compile_.Observe(absl::ToDoubleSeconds(took));
}

void Metrics::Ran(absl::string_view device, absl::Duration took) {
  impl_->device_.At(device).Increment(absl::ToDoubleSeconds(took));
  impl_->run_.At(device).Observe(absl::ToDoubleSeconds(took));
}

void Metrics::StoreUsed(absl::string_view operation, absl::Duration took) {
  impl_->store_.At(operation).Observe(absl::ToDoubleSeconds(took));
}

void Metrics::AddSource(std::function<void(std::vector<Sample>&)> source) {
  impl_->AddSource(std::move(source));
}

std::string Metrics::Scrape() const { return impl_->Scrape(); }

}  // namespace beamd
