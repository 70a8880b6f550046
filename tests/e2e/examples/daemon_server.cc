#include <memory>

#include "tests/e2e/examples/server.h"
#include "tests/testing/daemon.h"

namespace beamd::testing {
namespace {

std::unique_ptr<Daemon>& TheDaemon() {
  static std::unique_ptr<Daemon> daemon;
  return daemon;
}

// It ends before the program does, whose runfiles it lives in.
class DaemonEnvironment final : public ::testing::Environment {
 public:
  void TearDown() override { TheDaemon().reset(); }
};

}  // namespace

bool KeepsPlans() { return true; }

const std::string& ExampleServer() {
  static const bool is_started = [] {
    ::testing::AddGlobalTestEnvironment(new DaemonEnvironment());
    TheDaemon() = std::make_unique<Daemon>("server/beamd", FreshDirectory() + "/store");
    return true;
  }();
  static_cast<void>(is_started);
  return TheDaemon()->address();
}

}  // namespace beamd::testing
