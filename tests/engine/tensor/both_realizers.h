// Tests that run twice: on the evaluator, which says what is meant, and on the runtime that
// programs have.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/execution/runtime.h"
#include "tests/engine/tensor/tensor_testing.h"

namespace beamd::testing {

class BothRealizersTest : public TensorTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "runtime") return;
    absl::StatusOr<std::unique_ptr<Runtime>> created = Runtime::Create();
    ASSERT_TRUE(created.ok()) << created.status();
    runtime_ = *std::move(created);
    context_.set_realizer(runtime_.get());
  }

 private:
  std::unique_ptr<Runtime> runtime_;
};

inline auto Realizers() { return ::testing::Values("evaluator", "runtime"); }
inline std::string RealizerName(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace beamd::testing
