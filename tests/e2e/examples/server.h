// The executor that examples run on: each test binary links one.
#pragma once

#include <memory>
#include <string>

#include "client/thin/session.h"
#include "gtest/gtest.h"

namespace beamd::testing {

// Of a server that the test binary started, a beamd or an executor in its own process; one for all
// tests of it.
const std::string& ExampleServer();

// Whether it keeps the plans of graphs for the next run of one structure.
bool KeepsPlans();

// Fails the test where there is none.
inline std::unique_ptr<thin::Session> ExampleSession() {
  absl::StatusOr<std::unique_ptr<thin::Session>> session = thin::Session::Open(ExampleServer());
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

}  // namespace beamd::testing
