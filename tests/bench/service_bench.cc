// What a daemon's other clients cost a search, and what requests leave behind in its memory. A JSON
// line a figure.
//
//   service_bench [--beamd PATH] [--searches 8] [--lookups 1000] [--requests 10000] [--kernels 1000]
//
// "search": the same search alone and while look-ups are served at a steady pace, in turn; `ratio`
// is of the medians. "memory": resident memory of the serving process after as many requests as
// there are kernels, each a search of the heuristics' opts, and after all requests.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "client/cc/client.h"
#include "tests/bench/server_process.h"
#include "tests/testing/daemon.h"

ABSL_FLAG(std::string, beamd, "", "the daemon's binary; empty: the one built beside this program");
ABSL_FLAG(int, searches, 8, "alone, and as many beside look-ups");
ABSL_FLAG(int, lookups, 1000, "a second");
ABSL_FLAG(int, requests, 10000, "to tune");
ABSL_FLAG(int, kernels, 1000, "distinct ones among the requests");

namespace beamd {
namespace {

using Clock = std::chrono::steady_clock;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Tune(Client& client, const v1::TuneRequest& request) {
  const absl::StatusOr<v1::TuneResult> result =
      client.Tune(request, [](const v1::TuneEvent&) { return true; });
  if (!result.ok()) Die(result.status().ToString());
}

// Asks for one kernel at a steady pace until it goes.
class Asker {
 public:
  Asker(const std::string& address, const v1::LookupRequest& request, int a_second) {
    for (int t = 0; t < kThreads; ++t) {
      threads_.emplace_back([this, address, request, a_second] {
        const std::unique_ptr<Client> client = Client::Create(address);
        const auto pause = std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(static_cast<double>(kThreads) / a_second));
        for (Clock::time_point next = Clock::now(); !stop_; next += pause) {
          std::this_thread::sleep_until(next);
          if (!client->Lookup(request).ok()) Die("a look-up failed");
          ++asked_;
        }
      });
    }
  }
  ~Asker() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  int64_t asked() const { return asked_; }

 private:
  static constexpr int kThreads = 4;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> asked_ = 0;
  std::vector<std::thread> threads_;
};

void MeasureSearch(const std::string& address) {
  const std::unique_ptr<Client> client = Client::Create(address);
  v1::TuneRequest request;
  *request.mutable_graph() = testing::MatmulKernel(256);
  request.mutable_search()->set_width(4);
  Tune(*client, request);
  v1::LookupRequest lookup;
  v1::LookupQuery& query = *lookup.add_queries();
  *query.mutable_graph() = request.graph();
  *query.mutable_search() = request.search();
  // What the first search remembers of candidates that fail would favour the second.
  request.set_mode(v1::TUNE_MODE_REFRESH);
  std::vector<double> alone, beside;
  double asked = 0, while_s = 0;
  const auto timed = [&] {
    const Clock::time_point start = Clock::now();
    Tune(*client, request);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (int i = 0; i < absl::GetFlag(FLAGS_searches); ++i) {
    alone.push_back(timed());
    const Asker asker(address, lookup, absl::GetFlag(FLAGS_lookups));
    beside.push_back(timed());
    asked += static_cast<double>(asker.asked());
    while_s += beside.back();
  }
  std::printf(
      "{\"what\":\"search\",\"alone_s\":%.3f,\"beside_s\":%.3f,\"ratio\":%.3f,"
      "\"lookups_per_s\":%.0f}\n",
      Median(alone), Median(beside), Median(beside) / Median(alone), asked / while_s);
  std::fflush(stdout);
}

void MeasureMemory(const ServerProcess& daemon) {
  const std::unique_ptr<Client> client = Client::Create(daemon.address());
  const int kernels = absl::GetFlag(FLAGS_kernels);
  double first = 0;
  for (int i = 0; i < absl::GetFlag(FLAGS_requests); ++i) {
    v1::TuneRequest request;
    *request.mutable_graph() = testing::AddKernel(16 * (i % kernels + 1));
    request.mutable_search()->set_width(0);
    Tune(*client, request);
    if (i + 1 == kernels) first = daemon.resident_bytes();
  }
  const double last = daemon.resident_bytes();
  std::printf(
      "{\"what\":\"memory\",\"requests\":%d,\"kernels\":%d,\"first_mb\":%.1f,\"last_mb\":%.1f,"
      "\"ratio\":%.3f}\n",
      absl::GetFlag(FLAGS_requests), kernels, first / 1e6, last / 1e6, last / first);
}

void Run(const std::string& beamd) {
  for (const bool memory : {false, true}) {
    const std::string directory = FastDirectory();
    {
      const ServerProcess daemon({beamd, "serve", "--listen", "127.0.0.1:0", "--store", directory,
                                  "--calls_per_second=0", "--log_level=warn"});
      if (memory) {
        MeasureMemory(daemon);
      } else {
        MeasureSearch(daemon.address());
      }
    }
    std::filesystem::remove_all(directory);
  }
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const std::string binary = absl::GetFlag(FLAGS_beamd);
  beamd::Run(binary.empty() ? beamd::BuiltDaemon() : binary);
  return 0;
}
