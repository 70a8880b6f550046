// What a client can get wrong, byte by byte: every answer is a status with a reason, and the daemon
// lives on.
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::testing::HasSubstr;
using ::testing::Not;

struct Answer {
  grpc::Status status;
  v1::ErrorDetail detail;
  std::string bytes;
  std::string traceparent;
};

class WireTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon_ = new Daemon("server/beamd", FreshDirectory() + "/store");
    channel_ = new std::shared_ptr<grpc::Channel>(
        grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials()));
  }
  static void TearDownTestSuite() {
    delete channel_;
    delete daemon_;
  }
  void TearDown() override {
    // Alive, and well enough to answer.
    EXPECT_EQ(Call("/grpc.health.v1.Health/Check", "").bytes, "\x08\x01");
  }

  // One message there, and the first that comes back.
  static Answer Call(const std::string& method, const std::string& request,
                     const std::string& traceparent = "") {
    grpc::GenericStub stub(*channel_);
    grpc::ClientContext context;
    if (!traceparent.empty()) context.AddMetadata("traceparent", traceparent);
    grpc::CompletionQueue queue;
    const auto stream = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool ok = false;
    const auto wait = [&] { return queue.Next(&tag, &ok) && ok; };
    stream->StartCall(nullptr);
    wait();
    const grpc::Slice slice(request);
    stream->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    wait();
    Answer answer;
    grpc::ByteBuffer bytes;
    stream->Read(&bytes, nullptr);
    if (wait()) {
      grpc::Slice whole;
      if (bytes.DumpToSingleSlice(&whole).ok()) {
        answer.bytes.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
      }
      context.TryCancel();
    }
    stream->Finish(&answer.status, nullptr);
    wait();
    const auto& metadata = context.GetServerInitialMetadata();
    if (const auto it = metadata.find("traceparent"); it != metadata.end()) {
      answer.traceparent.assign(it->second.data(), it->second.size());
    }
    v1::StatusDetails details;
    if (details.ParseFromString(answer.status.error_details()) && details.details_size() == 1) {
      details.details(0).UnpackTo(&answer.detail);
    }
    return answer;
  }

  static Answer Tune(const v1::TuneRequest& request) {
    return Call("/beamd.v1.Tuner/Tune", request.SerializeAsString());
  }

  // Tuning the element-wise kernel, changed like this, is refused. `node`: which one is named; -1:
  // the graph as a whole, or one of several.
  static void ExpectRefused(const std::string& what, int node,
                            const std::function<void(v1::Graph&)>& change) {
    v1::TuneRequest request;
    *request.mutable_graph() = AddKernel(64);
    change(*request.mutable_graph());
    const Answer answer = Tune(request);
    const std::string message = answer.status.error_message();
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << what << ": " << message;
    EXPECT_FALSE(answer.detail.reason().empty()) << what;
    if (node < 0) return;
    EXPECT_TRUE(answer.detail.has_node()) << what << ": " << message;
    EXPECT_EQ(answer.detail.node(), node) << what << ": " << message;
    EXPECT_EQ(answer.detail.field().rfind(absl::StrCat("graph.nodes[", node, "]"), 0), 0u)
        << what << ": " << answer.detail.field();
    EXPECT_THAT(message, HasSubstr(absl::StrCat("node ", node))) << what;
  }

  static Daemon* daemon_;
  static std::shared_ptr<grpc::Channel>* channel_;
};

Daemon* WireTest::daemon_ = nullptr;
std::shared_ptr<grpc::Channel>* WireTest::channel_ = nullptr;

TEST_F(WireTest, BytesThatAreNoRequestAreInvalid) {
  for (const char* method :
       {"/beamd.v1.Tuner/Tune", "/beamd.v1.Tuner/Lookup", "/beamd.v1.Records/List",
        "/beamd.v1.Records/Get", "/beamd.v1.Inspector/Show", "/beamd.v1.Devices/List"}) {
    const Answer answer = Call(method, "\xff\xff\xff\xff");
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(answer.detail.reason(), "MALFORMED") << method;
  }
}

TEST_F(WireTest, UnknownFieldsAndEnumeratorsAreInvalid) {
  v1::TuneRequest request;
  *request.mutable_graph() = AddKernel(64);
  // Field 99, a varint.
  Answer answer = Call("/beamd.v1.Tuner/Tune", request.SerializeAsString() + "\x98\x06\x01");
  EXPECT_EQ(answer.detail.reason(), "UNKNOWN_FIELD");
  request.set_mode(static_cast<v1::TuneMode>(77));
  answer = Tune(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(answer.detail.reason(), "UNKNOWN_ENUMERATOR");
  EXPECT_EQ(answer.detail.field(), "mode");
  EXPECT_EQ(answer.detail.value(), 77);
  ExpectRefused("an unknown op", 6,
                [](v1::Graph& g) { g.mutable_nodes(6)->set_op(static_cast<v1::Op>(200)); });
  ExpectRefused("an unknown scalar", 3, [](v1::Graph& g) {
    g.mutable_nodes(3)->mutable_dtype()->set_scalar(static_cast<v1::Scalar>(99));
  });
  ExpectRefused("an unknown field of a node", 6, [](v1::Graph& g) {
    v1::Node& node = *g.mutable_nodes(6);
    node.GetReflection()->MutableUnknownFields(&node)->AddVarint(99, 1);
  });
  ExpectRefused("an unknown version", -1, [](v1::Graph& g) { g.set_version(1000); });
}

TEST_F(WireTest, GraphsThatAreNoneNameTheNode) {
  ExpectRefused("nothing", -1, [](v1::Graph& g) { g.clear_nodes(); });
  ExpectRefused("a source that is the node itself", 6,
                [](v1::Graph& g) { g.mutable_nodes(6)->set_src(0, 6); });
  ExpectRefused("a source further on", 3, [](v1::Graph& g) { g.mutable_nodes(3)->set_src(0, 7); });
  ExpectRefused("a source beyond the end", 6,
                [](v1::Graph& g) { g.mutable_nodes(6)->set_src(1, 4000000000U); });
  ExpectRefused("an unreachable node", 0, [](v1::Graph& g) {
    v1::Graph with;
    v1::Node& constant = *with.add_nodes();
    constant.set_op(v1::OP_CONST);
    constant.mutable_dtype()->set_scalar(v1::SCALAR_INT32);
    constant.set_int_arg(1);
    for (v1::Node node : g.nodes()) {
      for (int i = 0; i < node.src_size(); ++i) node.set_src(i, node.src(i) + 1);
      *with.add_nodes() = node;
    }
    g = with;
  });
  ExpectRefused("too few sources", 6, [](v1::Graph& g) { g.mutable_nodes(6)->clear_src(); });
}

TEST_F(WireTest, TypesAndShapesThatDoNotFitNameTheNode) {
  ExpectRefused("dtypes that differ", 6, [](v1::Graph& g) {
    g.mutable_nodes(6)->mutable_dtype()->set_scalar(v1::SCALAR_INT32);
  });
  ExpectRefused("ranks that differ", 1, [](v1::Graph& g) {
    g.mutable_nodes(1)->mutable_view_arg()->mutable_views(0)->add_strides(1);
  });
  ExpectRefused("a negative size", 1, [](v1::Graph& g) {
    g.mutable_nodes(1)->mutable_view_arg()->mutable_views(0)->set_shape(0, -64);
  });
  ExpectRefused("a size that overflows", 1, [](v1::Graph& g) {
    v1::View& view = *g.mutable_nodes(1)->mutable_view_arg()->mutable_views(0);
    view.set_shape(0, int64_t{1} << 62);
    view.add_shape(int64_t{1} << 62);
    view.add_strides(0);
  });
  ExpectRefused("an index before its buffer", -1, [](v1::Graph& g) {
    g.mutable_nodes(1)->mutable_view_arg()->mutable_views(0)->set_offset(-1);
  });
  ExpectRefused("an index behind its buffer", -1, [](v1::Graph& g) {
    v1::Buffer& buffer = *g.mutable_nodes(2)->mutable_buffer_arg();
    buffer.set_id(1);
    buffer.set_size_elements(63);
  });
}

TEST_F(WireTest, TooManyNodesAreRefusedWithTheLimit) {
  v1::TuneRequest request;
  for (int i = 0; i < 100000; ++i) request.mutable_graph()->add_nodes()->set_op(v1::OP_CONST);
  const Answer answer = Tune(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(answer.detail.has_limit());
  EXPECT_EQ(answer.detail.value(), 100000);
}

TEST_F(WireTest, OptionsOutOfRangeNameTheField) {
  v1::TuneRequest request;
  *request.mutable_graph() = AddKernel(64);
  request.mutable_search()->set_width(1000000);
  EXPECT_EQ(Tune(request).detail.field(), "search.width");
  request.clear_search();
  request.mutable_device()->set_kind("cuda");
  EXPECT_EQ(Tune(request).detail.reason(), "NO_SUCH_DEVICE");
}

TEST_F(WireTest, ALookupAnswersTheOtherQueries) {
  v1::LookupRequest request;
  request.add_queries();
  *request.add_queries()->mutable_graph() = AddKernel(64);
  const Answer answer = Call("/beamd.v1.Tuner/Lookup", request.SerializeAsString());
  v1::LookupResponse response;
  ASSERT_TRUE(response.ParseFromString(answer.bytes));
  ASSERT_EQ(response.answers_size(), 2) << answer.status.error_message();
  EXPECT_FALSE(response.answers(0).error().reason().empty());
  EXPECT_EQ(response.answers(1).miss().reason(), v1::MISS_REASON_NO_RECORD);
}

TEST_F(WireTest, MissingAndBadKeysAreToldApart) {
  v1::GetRecordRequest request;
  request.set_key("short");
  EXPECT_EQ(Call("/beamd.v1.Records/Get", request.SerializeAsString()).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_key(std::string(64, '0'));
  EXPECT_EQ(Call("/beamd.v1.Records/Get", request.SerializeAsString()).status.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(WireTest, TheTraceOfTheCallerIsKept) {
  const std::string id = "0af7651916cd43dd8448eb211c80319c";
  const Answer answer =
      Call("/beamd.v1.Devices/List", "", absl::StrCat("00-", id, "-b7ad6b7169203331-01"));
  EXPECT_THAT(answer.traceparent, HasSubstr(absl::StrCat("00-", id, "-")));
  EXPECT_THAT(answer.traceparent, Not(HasSubstr("b7ad6b7169203331")));
  EXPECT_EQ(Call("/beamd.v1.Devices/List", "").traceparent.size(), 55);
}

TEST_F(WireTest, ReflectionNamesTheServices) {
  // ServerReflectionRequest.list_services, field 7, an empty text.
  const std::string list("\x3a\0", 2);
  const Answer answer =
      Call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list);
  for (const char* service : {"beamd.v1.Tuner", "beamd.v1.Records", "beamd.v1.Devices",
                              "beamd.v1.Inspector", "grpc.health.v1.Health"}) {
    EXPECT_THAT(answer.bytes, HasSubstr(service));
  }
}

}  // namespace
}  // namespace beamd
