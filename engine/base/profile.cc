#include "engine/base/profile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/json_string.h"

namespace beamd {
namespace {

int ThisThread() {
  static std::atomic<int> count{0};
  thread_local const int number = ++count;
  return number;
}

struct Row {
  std::string name;
  int64_t count = 0, total_ns = 0;
  double ops = 0, bytes = 0;
};

// Per second, in billions; nothing to say about nothing.
std::string Rate(double amount, int64_t ns) {
  return amount > 0 && ns > 0 ? absl::StrFormat("%.2f", amount / static_cast<double>(ns)) : "";
}

}  // namespace

int64_t MonotonicNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Profile::Add(ProfileEvent event) {
  const int thread = ThisThread();
  MutexLock lock(mutex_);
  recorded_.push_back({std::move(event), thread});
}

std::vector<ProfileEvent> Profile::events() const {
  MutexLock lock(mutex_);
  std::vector<ProfileEvent> events;
  events.reserve(recorded_.size());
  for (const Recorded& r : recorded_) events.push_back(r.event);
  return events;
}

std::string Profile::Table() const {
  std::map<std::string, std::map<std::string, Row>> categories;
  for (const ProfileEvent& e : events()) {
    Row& row = categories[e.category][e.name];
    row.name = e.name;
    ++row.count;
    row.total_ns += e.duration_ns;
    row.ops += e.ops;
    row.bytes += e.bytes;
  }
  std::string out;
  for (const auto& [category, by_name] : categories) {
    std::vector<Row> rows;
    int64_t total_ns = 0;
    for (const auto& [name, row] : by_name) {
      rows.push_back(row);
      total_ns += row.total_ns;
    }
    std::ranges::stable_sort(rows, std::greater<>(), &Row::total_ns);
    absl::StrAppendFormat(&out, "%10s %6s %8s %10s %9s %9s  %s\n", "total ms", "%", "count",
                          "mean us", "GFLOPS", "GB/s", category);
    for (const Row& row : rows) {
      const auto ns = static_cast<double>(row.total_ns);
      absl::StrAppendFormat(&out, "%10.3f %6.1f %8d %10.2f %9s %9s  %s\n", ns * 1e-6,
                            total_ns > 0 ? 100 * ns / static_cast<double>(total_ns) : 0, row.count,
                            ns * 1e-3 / static_cast<double>(row.count), Rate(row.ops, row.total_ns),
                            Rate(row.bytes, row.total_ns), row.name);
    }
  }
  return out;
}

std::string Profile::TraceJson() const {
  MutexLock lock(mutex_);
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  absl::string_view comma = "";
  for (const Recorded& r : recorded_) {
    const ProfileEvent& e = r.event;
    // Times are microseconds.
    absl::StrAppendFormat(&out,
                          "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
                          "\"cat\":%s,\"name\":%s,\"args\":{\"ops\":%.17g,\"bytes\":%.17g}}",
                          comma, r.thread, static_cast<double>(e.start_ns) * 1e-3,
                          static_cast<double>(e.duration_ns) * 1e-3, JsonString(e.category),
                          JsonString(e.name), e.ops, e.bytes);
    comma = ",";
  }
  absl::StrAppend(&out, "\n]}\n");
  return out;
}

absl::Status Profile::WriteTrace(const std::string& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << TraceJson();
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("can't write ", path));
  return absl::OkStatus();
}

ProfileScope::ProfileScope(Profile* profile, absl::string_view name, absl::string_view category)
    : profile_(profile) {
  if (profile_ == nullptr) return;
  event_.name = std::string(name);
  event_.category = std::string(category);
  event_.start_ns = MonotonicNanoseconds();
}

ProfileScope::~ProfileScope() {
  if (profile_ == nullptr) return;
  event_.duration_ns = MonotonicNanoseconds() - event_.start_ns;
  profile_->Add(std::move(event_));
}

Timing::Timing(absl::string_view what, std::ostream& out)
    : what_(what), out_(out), start_ns_(MonotonicNanoseconds()) {}

Timing::~Timing() {
  out_ << absl::StrFormat("%s %.2f ms\n", what_, absl::ToDoubleMilliseconds(elapsed()));
}

absl::Duration Timing::elapsed() const {
  return absl::Nanoseconds(MonotonicNanoseconds() - start_ns_);
}

}  // namespace beamd
