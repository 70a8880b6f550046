// Wrong requests of a session: each gets an error that says which node it is about and why, and
// nothing of the session, or of another client's, is other than before.
#include <signal.h>

#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "engine/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"
#include "tests/testing/executor_client.h"

namespace beamd {
namespace {

using ::beamd::testing::AddOne;
using ::beamd::testing::Daemon;
using ::beamd::testing::ExecutorClient;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::GraphOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
constexpr auto kNotNow = grpc::StatusCode::FAILED_PRECONDITION;

// What a wrong request is to be told. A node below 0: it is about none.
struct Told {
  grpc::StatusCode code = kInvalid;
  std::string reason;
  int64_t node = -1;
  std::string field = "";
};

class ExecutorRequests : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon_ = new Daemon("server/beamd", FreshDirectory() + "/store",
                         {"--session_mb=64", "--session_buffers=256", "--graph_nodes=2000"});
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(kill(daemon_->pid(), 0), 0);
    delete daemon_;
    daemon_ = nullptr;
  }

  ExecutorRequests() : client_(daemon_->address()), other_(daemon_->address()) {}

  void SetUp() override {
    ASSERT_TRUE(client_.Open() && other_.Open());
    x_ = client_.Upload({4}, {1, 2, 3, 4});
    const std::vector<int32_t> whole = {1, 2, 3, 4};
    whole_ = client_.Upload(v1::SCALAR_INT32, {4}, std::as_bytes(std::span(whole)));
    freed_ = client_.Upload({4}, {1, 2, 3, 4});
    ASSERT_TRUE(client_.Free({freed_}));
    for (int i = 0; i < 5; ++i) theirs_ = other_.Upload({4}, {5, 6, 7, 8});
    ASSERT_TRUE(client_.Run(AddOne(x_, 4))) << client_.status().error_message();
    before_ = *client_.KeepAlive();
  }
  void TearDown() override {
    EXPECT_TRUE(client_.Close());
    EXPECT_TRUE(other_.Close());
  }

  void Expect(const std::string& what, bool answered, const Told& told) {
    SCOPED_TRACE(what);
    ASSERT_FALSE(answered);
    const grpc::Status& status = client_.status();
    const v1::ErrorDetail detail = client_.detail();
    EXPECT_EQ(status.error_code(), told.code) << status.error_message();
    EXPECT_EQ(detail.reason(), told.reason) << status.error_message();
    EXPECT_EQ(detail.has_node() ? static_cast<int64_t>(detail.node()) : -1, told.node)
        << status.error_message();
    if (!told.field.empty()) {
      EXPECT_EQ(detail.field(), told.field) << status.error_message();
    }
    EXPECT_GT(status.error_message().size(), 8);
    // People read it without the details.
    if (told.node >= 0) {
      EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("node ", told.node)));
    }
    // As it was, and what ran is still planned.
    const std::optional<v1::Session> now = client_.KeepAlive();
    ASSERT_TRUE(now);
    EXPECT_EQ(now->buffers(), before_.buffers());
    EXPECT_EQ(now->bytes(), before_.bytes());
    EXPECT_THAT(client_.Floats(x_), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(other_.Floats(theirs_), ElementsAre(5, 6, 7, 8));
    const std::optional<v1::RunResponse> ran = client_.Run(AddOne(x_, 4));
    ASSERT_TRUE(ran) << client_.status().error_message();
    EXPECT_TRUE(ran->statistics().captured());
    EXPECT_TRUE(client_.Free({ran->outputs(0).buffer().handle()}));
  }
  void ExpectRun(const std::string& what, const v1::RunRequest& request, const Told& told) {
    Expect(what, client_.Run(request).has_value(), told);
  }
  void ExpectRun(const std::string& what, const std::string& graph, const Told& told) {
    Expect(what, client_.Run(graph).has_value(), told);
  }
  // x + 1 (AddOne), spoiled.
  void ExpectSpoiled(const std::string& what, const std::function<void(v1::Graph&)>& spoil,
                     const Told& told) {
    v1::RunRequest request;
    *request.mutable_graph() = GraphOf(AddOne(x_, 4));
    spoil(*request.mutable_graph());
    ExpectRun(what, request, told);
  }

  static Daemon* daemon_;
  ExecutorClient client_, other_;
  uint64_t x_ = 0, whole_ = 0, freed_ = 0, theirs_ = 0;
  v1::Session before_;
};
Daemon* ExecutorRequests::daemon_ = nullptr;

TEST_F(ExecutorRequests, GraphsThatAreNone) {
  ExpectSpoiled("a node of itself", [](v1::Graph& g) { g.mutable_nodes(4)->set_src(1, 4); },
                {.reason = "FORWARD_SRC", .node = 4, .field = "graph.nodes[4].src[1]"});
  ExpectSpoiled("two nodes of each other",
                [](v1::Graph& g) {
                  g.mutable_nodes(2)->set_src(0, 3);
                  g.mutable_nodes(3)->set_src(0, 2);
                },
                {.reason = "FORWARD_SRC", .node = 2, .field = "graph.nodes[2].src[0]"});
  ExpectSpoiled("a source that isn't there",
                [](v1::Graph& g) { g.mutable_nodes(4)->set_src(0, 77); },
                {.reason = "NO_SUCH_NODE", .node = 4, .field = "graph.nodes[4].src[0]"});
  ExpectSpoiled("one source too many", [](v1::Graph& g) { g.mutable_nodes(4)->add_src(0); },
                {.reason = "ARITY", .node = 4});
  ExpectSpoiled("one too few",
                [](v1::Graph& g) { g.mutable_nodes(4)->mutable_src()->RemoveLast(); },
                {.reason = "ARITY", .node = 4});
  ExpectSpoiled("no op", [](v1::Graph& g) { g.mutable_nodes(4)->set_op(v1::OP_UNSPECIFIED); },
                {.reason = "UNKNOWN_OP", .node = 4, .field = "graph.nodes[4].op"});
  ExpectSpoiled("a node that nobody reaches",
                [](v1::Graph& g) { g.mutable_nodes(4)->set_src(1, 0); },
                {.reason = "UNREACHABLE", .node = 3});
  ExpectSpoiled("no node", [](v1::Graph& g) { g.clear_nodes(); }, {.reason = "EMPTY_GRAPH"});
  ExpectSpoiled("a kernel's graph", [](v1::Graph& g) { g = testing::AddKernel(4); },
                {.reason = "OP", .node = 0});
  ExpectSpoiled(
      "dtypes that differ",
      [](v1::Graph& g) { g.mutable_nodes(4)->mutable_dtype()->set_scalar(v1::SCALAR_INT32); },
      {.reason = "DTYPE", .node = 4});
  ExpectSpoiled("an axis that grows from 4",
                [](v1::Graph& g) { g.mutable_nodes(3)->mutable_ints_arg()->set_values(0, 5); },
                {.reason = "SHAPE", .node = 4});
  ExpectRun("a reduction over an axis that isn't there",
            absl::Substitute("%0 = BUFFER float32 slot $0 shape (4)\n"
                             "%1 = REDUCE_AXIS float32 (%0) ADD axes (7)\n%2 = SINK void (%1)",
                             x_),
            {.reason = "AXES", .node = 1});
}

TEST_F(ExecutorRequests, HandlesThatAreNone) {
  ExpectRun(
      "of a freed buffer", AddOne(freed_, 4),
      {.code = kNotFound, .reason = "HANDLE", .node = 0, .field = "graph.nodes[0].buffer_arg.id"});
  ExpectRun(
      "of another's", AddOne(theirs_, 4),
      {.code = kNotFound, .reason = "HANDLE", .node = 0, .field = "graph.nodes[0].buffer_arg.id"});
  ExpectRun(
      "of nobody's", AddOne(std::numeric_limits<int64_t>::max(), 4),
      {.code = kNotFound, .reason = "HANDLE", .node = 0, .field = "graph.nodes[0].buffer_arg.id"});
  // What a run to come will make has no handle yet.
  Expect("before the run", client_.Download(x_ + 100).has_value(),
         {.code = kNotFound, .reason = "HANDLE", .field = "handle"});
  Expect("of another's", client_.Download(theirs_).has_value(),
         {.code = kNotFound, .reason = "HANDLE", .field = "handle"});
  Expect("freed twice", client_.Free({freed_}),
         {.code = kNotFound, .reason = "HANDLE", .field = "handles"});
  Expect("freed with one that isn't there", client_.Free({x_, theirs_}),
         {.code = kNotFound, .reason = "HANDLE", .field = "handles"});
  ExpectRun("of another shape", AddOne(x_, 5),
            {.reason = "BUFFER", .node = 0, .field = "graph.nodes[0].buffer_arg"});
  ExpectRun("of another dtype", AddOne(whole_, 4),
            {.reason = "BUFFER", .node = 0, .field = "graph.nodes[0].buffer_arg"});
  ExpectRun("twice, in two shapes",
            absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (4)
%1 = BUFFER float32 slot $0 shape (2)
%2 = REDUCE_AXIS float32 (%0) ADD axes (0)
%3 = REDUCE_AXIS float32 (%1) ADD axes (0)
%4 = SINK void (%2, %3))",
                             x_),
            {.reason = "BUFFER", .node = 2, .field = "graph.nodes[2].buffer_arg"});
}

TEST_F(ExecutorRequests, UploadsThatAreOthers) {
  v1::BeginUploadRequest request;
  request.set_session(client_.session());
  request.set_dtype(v1::SCALAR_FLOAT32);
  request.add_shape(8);
  request.set_sha256(std::string(32, 'x'));
  request.set_handle(client_.Begin(request)->handle());
  before_ = *client_.KeepAlive();
  const auto goes_on = [&](const std::function<void(v1::BeginUploadRequest&)>& change) {
    v1::BeginUploadRequest changed = request;
    change(changed);
    return client_.Begin(changed).has_value();
  };
  EXPECT_TRUE(goes_on([](v1::BeginUploadRequest&) {}));
  Expect("of another shape", goes_on([](v1::BeginUploadRequest& r) { r.set_shape(0, 4); }),
         {.reason = "BUFFER", .field = "shape"});
  Expect("of no shape", goes_on([](v1::BeginUploadRequest& r) { r.clear_shape(); }),
         {.reason = "BUFFER", .field = "shape"});
  Expect("of another dtype",
         goes_on([](v1::BeginUploadRequest& r) { r.set_dtype(v1::SCALAR_INT32); }),
         {.reason = "BUFFER", .field = "dtype"});
  Expect("of another content",
         goes_on([](v1::BeginUploadRequest& r) { r.set_sha256(std::string(32, 'y')); }),
         {.reason = "SHA256", .field = "sha256"});

  // Where the content goes on, four bytes of it.
  const auto next_chunk = [&] {
    v1::UploadChunk chunk;
    chunk.set_session(client_.session());
    chunk.set_handle(request.handle());
    chunk.set_data(std::string(4, 'x'));
    chunk.set_crc32c(Crc32c(0, std::as_bytes(std::span(chunk.data()))));
    chunk.set_offset(client_.Begin(request)->offset());
    return chunk;
  };
  // A stream that goes on with another buffer than it began with.
  const auto stream = [&](const std::string& session, uint64_t handle) {
    grpc::ClientContext context;
    v1::UploadResponse response;
    const auto writer = client_.stub().Upload(&context, &response);
    v1::UploadChunk chunk = next_chunk();
    writer->Write(chunk);
    chunk.set_session(session);
    chunk.set_handle(handle);
    chunk.set_offset(chunk.offset() + 4);
    writer->Write(chunk);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_EQ(status.error_code(), kInvalid) << status.error_message();
    return testing::DetailOf(status).reason();
  };
  // Nor does a stream that goes on elsewhere end the one that is right.
  {
    grpc::ClientContext context;
    v1::UploadResponse response;
    const auto writer = client_.stub().Upload(&context, &response);
    v1::UploadChunk chunk = next_chunk();
    ASSERT_TRUE(writer->Write(chunk));
    while (client_.Begin(request)->offset() == 0) {
    }
    const std::vector<std::byte> bytes(32, std::byte{'x'});
    EXPECT_FALSE(client_.SendChunks(request.handle(), bytes, 0, 4));
    EXPECT_EQ(client_.detail().reason(), "OFFSET");
    chunk.set_offset(4);
    EXPECT_TRUE(writer->Write(chunk));
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_EQ(testing::DetailOf(status).reason(), "NOT_UPLOADED") << status.error_message();
    EXPECT_EQ(testing::DetailOf(status).value(), 8);
  }
  EXPECT_EQ(stream("", whole_), "OTHER_BUFFER");
  EXPECT_EQ(stream(other_.session(), 0), "OTHER_BUFFER");
  EXPECT_TRUE(client_.Free({request.handle()}));
}

TEST_F(ExecutorRequests, GradientsThatAreNone) {
  const auto gradient = [&](const std::string& graph, std::vector<uint64_t> of) {
    v1::RunRequest request;
    *request.mutable_graph() = GraphOf(graph);
    request.mutable_gradients()->Add(of.begin(), of.end());
    return request;
  };
  ExpectRun("of a vector", gradient(AddOne(x_, 4), {x_}), {.reason = "OUTPUT_SHAPE", .node = 4});
  ExpectRun("of an integer",
            gradient(absl::Substitute(R"(%0 = BUFFER int32 slot $0 shape (4)
%1 = REDUCE_AXIS int32 (%0) ADD axes (0)
%2 = SINK void (%1))",
                                      whole_),
                     {whole_}),
            {.reason = "BUFFER_DTYPE", .node = 0});
  ExpectRun("of an integer made of floats",
            gradient(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (4)
%1 = CAST int32 (%0)
%2 = REDUCE_AXIS int32 (%1) ADD axes (0)
%3 = SINK void (%2))",
                                      x_),
                     {x_}),
            {.reason = "OUTPUT_DTYPE", .node = 2});
  const std::string sum = absl::Substitute(R"(%0 = BUFFER int32 slot $0 shape (4)
%1 = CAST float32 (%0)
%2 = BUFFER float32 slot $1 shape (4)
%3 = MUL float32 (%1, %2)
%4 = REDUCE_AXIS float32 (%3) ADD axes (0)
%5 = SINK void (%4))",
                                           whole_, x_);
  ExpectRun("with respect to integers", gradient(sum, {whole_}),
            {.reason = "BUFFER_DTYPE", .node = 0});
  ExpectRun("with respect to what isn't in the graph", gradient(sum, {x_, theirs_}),
            {.reason = "GRADIENT", .field = "gradients[1]"});
  ExpectRun("with respect to the same twice", gradient(sum, {x_, x_}),
            {.reason = "DUPLICATE", .field = "gradients[1]"});
}

TEST_F(ExecutorRequests, VariablesThatAreNone) {
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (4)
%1 = DEFINE_VAR int32 var "n" 1..4
%2 = SHRINK float32 (%0, %1) ints (0,$$1)
%3 = REDUCE_AXIS float32 (%2) ADD axes (0)
%4 = SINK void (%3))",
                                                      x_));
  for (const int64_t value :
       {int64_t{0}, int64_t{5}, int64_t{-1}, int64_t{1} << 32 | 1,
        std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    (*request.mutable_variables())["n"] = value;
    ExpectRun(absl::StrCat("n = ", value), request,
              {.reason = "VARIABLE_BOUNDS", .field = "variables[n]"});
  }
  (*request.mutable_variables())["n"] = 2;
  (*request.mutable_variables())["m"] = 2;
  ExpectRun("another's", request, {.reason = "VARIABLE", .field = "variables[m]"});
  request.clear_variables();
  ExpectRun("no value", request, {.code = kNotNow, .reason = "NO_VALUE", .field = "variables"});
  *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (4)
%1 = DEFINE_VAR int32 var "n" 1..4
%2 = SHRINK float32 (%0, %1) ints (0,$$1)
%3 = REDUCE_AXIS float32 (%2) ADD axes (0)
%4 = DEFINE_VAR int32 var "n" 1..2
%5 = SHRINK float32 (%0, %4) ints (0,$$1)
%6 = REDUCE_AXIS float32 (%5) ADD axes (0)
%7 = SINK void (%3, %6))",
                                                      x_));
  (*request.mutable_variables())["n"] = 2;
  ExpectRun("two of a name", request, {.reason = "VARIABLE", .node = 4});
  *request.mutable_graph() = GraphOf(absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (4)
%1 = DEFINE_VAR int32 var "n" 1..8
%2 = SHRINK float32 (%0, %1) ints (0,$$1)
%3 = REDUCE_AXIS float32 (%2) ADD axes (0)
%4 = SINK void (%3))",
                                                      x_));
  ExpectRun("past the buffer", request, {.reason = "AXES", .node = 2});
}

TEST_F(ExecutorRequests, PastTheLimits) {
  std::string chain = absl::Substitute("%0 = BUFFER float32 slot $0 shape (4)\n", x_);
  for (int i = 1; i < 2000; ++i) {
    absl::StrAppend(&chain, "%", i, " = ADD float32 (%", i - 1, ", %0)\n");
  }
  ExpectRun("nodes", chain + "%2000 = SINK void (%1999)",
            {.code = kExhausted, .reason = "NODES", .field = "graph.nodes"});
  const auto grown = [&](const std::string& shape, const std::string& sizes) {
    return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (4)
%1 = RESHAPE float32 (%0) ints ($1)
%2 = EXPAND float32 (%1) ints ($2)
%3 = CONTIGUOUS float32 (%2)
%4 = SINK void (%3))",
                            x_, shape, sizes);
  };
  ExpectRun("bytes", grown("4,1", "4,10000000"), {.code = kExhausted, .reason = "SESSION_BYTES"});
  ExpectRun("ten tebibytes", grown("4,1", "4,687194767360"),
            {.reason = "TOO_MANY_ELEMENTS", .node = 2});
  ExpectRun("elements", grown("4,1,1", "4,4611686018427387904,4"),
            {.reason = "TOO_MANY_ELEMENTS", .node = 2});
  std::string ones;
  for (int i = 0; i < 40; ++i) ones += ",1";
  ExpectRun("axes", grown("4" + ones, "4" + ones), {.reason = "RANK", .node = 1});
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(AddOne(x_, 4));
  for (int i = 0; i < 4000; ++i) request.mutable_graph()->mutable_nodes(5)->add_src(4);
  EXPECT_FALSE(client_.Run(request)) << "4001 outputs of a session of 256 buffers";
  ExpectRun("outputs", request, {.code = kExhausted, .reason = "SESSION_BUFFERS"});
}

}  // namespace
}  // namespace beamd
