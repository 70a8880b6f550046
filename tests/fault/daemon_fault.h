// A daemon that tests do things to, and what they ask of it meanwhile.
#pragma once

#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cc/client.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd::testing {

// What happens to the daemon itself.
class DaemonFault : public ::testing::Test {
 protected:
  void StartDaemon(std::vector<std::string> flags = {}) {
    daemon_.reset();
    flags.insert(flags.end(), {"--capture", capture_});
    daemon_ = std::make_unique<Daemon>("server/beamd", directory_ + "/store", flags);
    client_ = Client::Create(daemon_->address());
  }
  // On the address that it had.
  void Restart(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--listen", daemon_->address()});
    daemon_->Signal(SIGKILL);
    daemon_->Wait();
    killed_ = absl::Now();
    StartDaemon(std::move(flags));
  }

  static v1::TuneRequest Request(const v1::Graph& graph, uint32_t width) {
    v1::TuneRequest request;
    *request.mutable_graph() = graph;
    request.mutable_search()->set_width(width);
    return request;
  }

  // Starts a job that nobody waits for.
  std::string Detach(v1::TuneRequest request) {
    request.set_detach(true);
    std::string job;
    client_
        ->Tune(request,
               [&](const v1::TuneEvent& event) {
                 job = event.accepted().job();
                 return false;
               })
        .IgnoreError();
    EXPECT_FALSE(job.empty());
    return job;
  }

  // The opts of candidates that were timed, in order.
  std::vector<std::string> Timed() const {
    std::vector<std::string> timed;
    std::ifstream capture(capture_);
    std::string line;
    while (std::getline(capture, line)) {
      const size_t begin = line.find("\"opts\":");
      const size_t end = line.find(",\"failure\":\"none\"");
      if (begin < end && end != std::string::npos) timed.push_back(line.substr(begin, end - begin));
    }
    return timed;
  }
  void AwaitTimed(size_t count) const {
    const absl::Time limit = absl::Now() + absl::Seconds(120);
    while (Timed().size() < count) {
      ASSERT_LT(absl::Now(), limit) << Timed().size() << " of " << count;
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  const std::string directory_ = FreshDirectory();
  const std::string capture_ = directory_ + "/capture";
  absl::Time killed_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

}  // namespace beamd::testing
