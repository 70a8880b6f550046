#include "tests/client/thin/fake_executor.h"
#include "tests/e2e/examples/server.h"

namespace beamd::testing {

bool KeepsPlans() { return false; }

const std::string& ExampleServer() {
  static FakeExecutor server;
  static const std::string address = server.address();
  return address;
}

}  // namespace beamd::testing
