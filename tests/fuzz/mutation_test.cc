// Ten thousand graphs that are wrong somewhere, through a daemon that lives: every answer is one, or
// an error that says what it is about.
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/executor.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "tests/fuzz/mutate.h"
#include "tests/testing/daemon.h"
#include "tests/testing/executor_client.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::ExecutorClient;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::GraphOf;
using ::beamd::testing::MatmulKernel;
using ::beamd::testing::MutateBytes;
using ::beamd::testing::MutateFields;

// Graphs of two buffers of eight floats, by their handles: a sum of products and the largest of a
// part, whose size a variable gives; one that changes a buffer; movements and other dtypes.
constexpr std::array<absl::string_view, 3> kRuns = {
    R"(%0 = BUFFER float32 slot $0 shape (8)
%1 = BUFFER float32 slot $1 shape (8)
%2 = MUL float32 (%0, %1)
%3 = REDUCE_AXIS float32 (%2) ADD axes (0)
%4 = DEFINE_VAR int32 var "n" 1..8
%5 = SHRINK float32 (%0, %4) ints (0,$$1)
%6 = REDUCE_AXIS float32 (%5) MAX axes (0)
%7 = SINK void (%3, %6))",
    R"(%0 = BUFFER float32 slot $0 shape (8)
%1 = BUFFER float32 slot $1 shape (8)
%2 = ADD float32 (%0, %1)
%3 = ASSIGN float32 (%0, %2)
%4 = SINK void (%3))",
    R"(%0 = BUFFER float32 slot $0 shape (8)
%1 = RESHAPE float32 (%0) ints (4,2,1)
%2 = EXPAND float32 (%1) ints (4,2,4)
%3 = BUFFER float32 slot $1 shape (8)
%4 = RESHAPE float32 (%3) ints (1,2,4)
%5 = EXPAND float32 (%4) ints (4,2,4)
%6 = MUL float32 (%2, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = PERMUTE float32 (%7) ints (2,1,0)
%9 = CONTIGUOUS float32 (%8)
%10 = PAD float32 (%9) ints (0,1,0,0,1,0)
%11 = FLIP float32 (%10) ints (0)
%12 = CAST float16 (%11)
%13 = EXP2 float16 (%12)
%14 = CAST float32 (%13)
%15 = REDUCE_AXIS float32 (%14) MAX axes (0,1,2)
%16 = CAST int8 (%11)
%17 = SHRINK int8 (%16) ints (1,3,0,1,0,5)
%18 = SINK void (%15, %17))"};

// As many times the seeds as BEAMD_MUTATIONS says: by hand, for an hour.
int Times() {
  const char* const times = std::getenv("BEAMD_MUTATIONS");
  return times == nullptr ? 1 : std::max(std::atoi(times), 1);
}

class MutationTest : public ::testing::Test {
 protected:
  MutationTest()
      : daemon_("server/beamd", FreshDirectory() + "/store",
                {"--log_level=warn", "--session_mb=64", "--session_run_timeout=2s"}),
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
      // Of runs: a variable without a value, a buffer that a run before lost; one that takes long.
      case grpc::StatusCode::FAILED_PRECONDITION:
      case grpc::StatusCode::DEADLINE_EXCEEDED:
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
  for (int seed = 0; seed < 10000 * Times() && !HasFailure(); ++seed) {
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

// Two sessions: what one of them does wrong never shows in the other.
TEST_F(MutationTest, WrongRunsAndUploadsGetTypedErrors) {
  ExecutorClient wrong(daemon_.address()), right(daemon_.address());
  ASSERT_TRUE(wrong.Open() && right.Open());
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const uint64_t theirs = right.Upload({8}, values);
  std::vector<uint64_t> kept = {wrong.Upload({8}, values), wrong.Upload({8}, values)};
  int answered = 0, begun = 0;
  for (int seed = 0; seed < 2000 * Times() && !HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const std::string what = "seed " + std::to_string(seed);
    const bool fields = seed % 2 == 0;
    const int changes = 1 + static_cast<int>(random() % 3);
    const auto spoil = [&](google::protobuf::Message& message) {
      for (int i = 0; fields && i < changes; ++i) MutateFields(message, random);
      std::string bytes = message.SerializeAsString();
      for (int i = 0; !fields && i < changes; ++i) MutateBytes(bytes, random);
      return bytes;
    };
    v1::RunRequest run;
    run.set_session(wrong.session());
    // Of each, changed as fields and as bytes.
    const int which = seed / 2 % 3;
    *run.mutable_graph() = GraphOf(absl::Substitute(kRuns[which], kept[0], kept[1]));
    if (which == 0) {
      (*run.mutable_variables())["n"] = 5;
    }
    if (which != 1) run.add_gradients(kept[1]);
    if (Answered("/beamd.v1.Executor/Run", spoil(run), what)) ++answered;
    v1::BeginUploadRequest begin;
    begin.set_session(wrong.session());
    begin.set_dtype(v1::SCALAR_FLOAT32);
    begin.add_shape(8);
    begin.set_sha256(std::string(32, 'x'));
    if (Answered("/beamd.v1.Executor/BeginUpload", spoil(begin), what)) ++begun;
    if (seed % 100 == 99) {
      // What a run lost, and outputs and uploads that nobody has use for.
      EXPECT_TRUE(wrong.Close() && wrong.Open());
      kept = {wrong.Upload({8}, values), wrong.Upload({8}, values)};
      EXPECT_EQ(right.Floats(theirs), values);
    }
  }
  EXPECT_GT(answered, 100);
  EXPECT_GT(begun, 100);
  EXPECT_EQ(kill(daemon_.pid(), 0), 0);
}

}  // namespace
}  // namespace beamd
