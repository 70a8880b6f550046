// Ten thousand graphs that are wrong somewhere, through a daemon that lives: every answer is one, or
// an error that says what it is about.
#include <signal.h>

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "tests/fuzz/mutate.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::MatmulKernel;
using ::beamd::testing::MutateBytes;
using ::beamd::testing::MutateFields;

class MutationTest : public ::testing::Test {
 protected:
  MutationTest()
      : daemon_("server/beamd", FreshDirectory() + "/store", {"--log_level=warn"}),
        channel_(grpc::CreateChannel(daemon_.address(), grpc::InsecureChannelCredentials())) {}

  // Whether the call was answered; fails the test where the error isn't one of a client's.
  bool Answered(const char* method, const std::string& bytes, const std::string& what) {
    const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC, channel_);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall(channel_.get(), rpc, &context, request, &response);
    if (status.ok()) return true;
    switch (status.error_code()) {
      case grpc::StatusCode::INVALID_ARGUMENT:
      case grpc::StatusCode::NOT_FOUND:
      case grpc::StatusCode::OUT_OF_RANGE:
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
      case grpc::StatusCode::UNIMPLEMENTED:
        break;
      default:
        ADD_FAILURE() << what << ": " << status.error_code() << " " << status.error_message();
    }
    v1::StatusDetails details;
    v1::ErrorDetail detail;
    EXPECT_TRUE(details.ParseFromString(status.error_details()) && details.details_size() == 1 &&
                details.details(0).UnpackTo(&detail))
        << what;
    EXPECT_FALSE(detail.reason().empty()) << what;
    return false;
  }

  Daemon daemon_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(MutationTest, TenThousandWrongGraphsGetTypedErrors) {
  const std::array<v1::Graph, 2> valid = {AddKernel(64), MatmulKernel(32)};
  int answered = 0;
  int shown = 0;
  for (int seed = 0; seed < 10000 && !HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    v1::LookupRequest lookup;
    v1::LookupQuery& query = *lookup.add_queries();
    *query.mutable_graph() = valid[random() % valid.size()];
    const bool fields = seed % 2 == 0;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; fields && i < changes; ++i) MutateFields(query, random);
    std::string bytes = lookup.SerializeAsString();
    for (int i = 0; !fields && i < changes; ++i) MutateBytes(bytes, random);
    const std::string what = "seed " + std::to_string(seed);
    if (Answered("/beamd.v1.Tuner/Lookup", bytes, what)) ++answered;
    // Compiled in a worker: what passes the checks must not harm that either.
    if (!fields || seed % 40 != 0) continue;
    v1::ShowRequest show;
    *show.mutable_graph() = query.graph();
    show.set_pass("asm");
    show.set_heuristic(true);
    if (Answered("/beamd.v1.Inspector/Show", show.SerializeAsString(), what)) ++shown;
  }
  // Look-ups answer with an error for a query: most of those whose bytes are a request.
  EXPECT_GT(answered, 3000);
  EXPECT_GT(shown, 10);
  EXPECT_EQ(kill(daemon_.pid(), 0), 0);
}

}  // namespace
}  // namespace beamd
