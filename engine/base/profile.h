// Where the time of a program goes: stretches of time with names, as a table and as a trace that
// Chrome's about:tracing and Perfetto open.
//
//   Profile profile;
//   {
//     ProfileScope scope(&profile, "forward");
//     ...
//   }
//   std::cout << profile.Table();
//
// Answers to tinygrad 0.10.0 helpers.py, Timing and Profiling. Differs: what is looked at are
// kernels and scopes that the program names, not functions of an interpreter.
// Spec: "Trace Event Format" (Google, 2016), complete events.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace beamd {

// Nanoseconds of a clock that never steps.
int64_t MonotonicNanoseconds();

struct ProfileEvent {
  std::string name;
  std::string category;  // "kernel", "copy", "compile", "scope"
  int64_t start_ns = 0;  // of MonotonicNanoseconds
  int64_t duration_ns = 0;
  double ops = 0, bytes = 0;  // 0: nothing to say
};

// Keeps every event until destroyed. Thread-safe.
class Profile {
 public:
  void Add(ProfileEvent event);
  std::vector<ProfileEvent> events() const;
  // A line a name, the most time first, apart by category: scopes contain kernels.
  std::string Table() const;
  // {"traceEvents": [...]}, a track a thread.
  std::string TraceJson() const;
  // Unavailable where the file can't be written.
  absl::Status WriteTrace(const std::string& path) const;

 private:
  struct Recorded {
    ProfileEvent event;
    int thread = 0;  // numbered from 1 in the order in which they come
  };

  mutable Mutex mutex_;
  std::vector<Recorded> recorded_ BEAMD_GUARDED_BY(mutex_);
};

// An event from here to the end of the block. Without a profile it costs nothing.
class ProfileScope {
 public:
  ProfileScope(Profile* profile, absl::string_view name, absl::string_view category = "scope");
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* const profile_;
  ProfileEvent event_;
};

// Says how long its block took: "<what> 12.34 ms".
class Timing {
 public:
  Timing(absl::string_view what, std::ostream& out);
  ~Timing();
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
  absl::Duration elapsed() const;

 private:
  const std::string what_;
  std::ostream& out_;
  const int64_t start_ns_;
};

}  // namespace beamd
