#include "engine/uop/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "absl/strings/match.h"
#include "engine/base/error_detail.h"
#include "engine/uop/text.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;

constexpr absl::string_view kKernel =
    R"(%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1 size 64
%3 = DEFINE_VAR int32 var "n" 1..8
%4 = VIEW void (%3) view[shape (8,$0) strides (1,8) offset -2 mask (2:8,0:$0)] view[shape (4,3) strides (3,1) offset 0]
%5 = LOAD float32 (%2, %4)
%6 = CONST float32 0.5
%7 = MUL float32 (%5, %6)
%8 = REDUCE_AXIS float32 (%7) ADD axes (1)
%9 = STORE void (%0, %1, %8)
%10 = SINK void (%9)
)";

v1::Graph Message(absl::string_view text) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = ParseText(text, graph);
  EXPECT_TRUE(root.ok()) << root.status();
  return ToProto(*root);
}

absl::Status StatusOf(const v1::Graph& message, const GraphLimits& limits = {}) {
  UOpGraph graph;
  return FromProto(message, graph, limits).status();
}

TEST(Wire, KernelComesBack) {
  UOpGraph graph;
  const absl::StatusOr<UOp> root = FromProto(Message(kKernel), graph);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(ToText(*root), kKernel);
}

TEST(Wire, TensorGraphComesBack) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_VAR int32 var "n" 1..8
%1 = BUFFER float32 (%0) slot 18446744073709551615 size 64 shape (8,$0) device "cpu"
%2 = RESHAPE float32 (%1, %0) ints (1,8,$1)
%3 = EXPAND float32 (%2, %0) ints (3,8,$1)
%4 = PERMUTE float32 (%3) ints (1,0,2)
%5 = PAD float32 (%4) ints (0,1,0,0,2,0)
%6 = SHRINK float32 (%5) ints (0,8,0,3,0,1)
%7 = FLIP float32 (%6) ints (1)
%8 = CONTIGUOUS float32 (%7)
%9 = COPY float32 (%8) "cuda:1"
)";
  UOpGraph graph;
  const absl::StatusOr<UOp> root = FromProto(Message(kText), graph);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(ToText(*root), kText);
}

TEST(Wire, OptimisedKernelComesBack) {
  constexpr absl::string_view kText =
      R"(%0 = DEFINE_GLOBAL image(2,8,4) float16 slot 0
%1 = VIEW void view[shape (4) strides (1) offset 0]
%2 = DEFINE_LOCAL local float32* "temp"
%3 = LOAD float32 (%2, %1)
%4 = ASSIGN float32 (%0, %3) view[shape (4) strides (1) offset 0]
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5) kernel local_dims 1 upcasted 2 dont_use_locals true
)";
  UOpGraph graph;
  const absl::StatusOr<UOp> root = FromProto(Message(kText), graph);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(ToText(*root), kText);
}

TEST(Wire, NodesWrittenTwiceBecomeOne) {
  v1::Graph message = Message("%0 = CONST int32 1\n%1 = ADD int32 (%0, %0)");
  *message.add_nodes() = message.nodes(1);
  *message.mutable_nodes(1) = message.nodes(0);
  message.mutable_nodes(2)->set_src(1, 1);
  UOpGraph graph;
  std::vector<UOp> nodes;
  const absl::StatusOr<UOp> root = FromProto(message, graph, {}, &nodes);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->src(0), root->src(1));
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0], nodes[1]);
  EXPECT_EQ(nodes[2], *root);
}

TEST(Wire, OrderOfExpressionsDoesNotMatter) {
  v1::Graph message = Message(
      "%0 = DEFINE_VAR int32 var \"n\" 1..8\n"
      "%1 = DEFINE_VAR int32 var \"m\" 1..8\n"
      "%2 = VIEW void (%0, %1) view[shape ($0,$1) strides ($1,1) offset 0]");
  UOpGraph graph;
  const UOp root = FromProto(message, graph).value();
  auto& symbolic =
      *message.mutable_nodes(2)->mutable_view_arg()->mutable_views(0)->mutable_symbolic();
  ASSERT_EQ(symbolic.size(), 3);
  symbolic.SwapElements(0, 2);
  EXPECT_EQ(FromProto(message, graph).value(), root);
}

TEST(Wire, ConstantsConvertToTheirType) {
  UOpGraph graph;
  const auto constant = [&](v1::Scalar scalar, const std::function<void(v1::Node&)>& set) {
    v1::Graph message;
    v1::Node& n = *message.add_nodes();
    n.set_op(v1::OP_CONST);
    n.mutable_dtype()->set_scalar(scalar);
    set(n);
    return FromProto(message, graph).value();
  };
  const auto integer = [](int64_t v) { return [v](v1::Node& n) { n.set_int_arg(v); }; };
  EXPECT_EQ(constant(v1::SCALAR_UINT32, integer(-1)).int_value(), 4294967295);
  EXPECT_EQ(constant(v1::SCALAR_UINT64, integer(-1)).int_value(), -1);
  EXPECT_EQ(constant(v1::SCALAR_INT32, integer(std::numeric_limits<int32_t>::min())).int_value(),
            std::numeric_limits<int32_t>::min());
  const auto real = [](double v) { return [v](v1::Node& n) { n.set_float_arg(v); }; };
  EXPECT_EQ(constant(v1::SCALAR_FLOAT32, real(0.1)).float_value(), static_cast<double>(0.1f));
  EXPECT_EQ(constant(v1::SCALAR_FLOAT16, real(1e6)).float_value(),
            std::numeric_limits<double>::infinity());
  EXPECT_NE(constant(v1::SCALAR_FLOAT32, real(-0.0)), constant(v1::SCALAR_FLOAT32, real(0.0)));
  EXPECT_EQ(constant(v1::SCALAR_FLOAT64, real(std::nan("1"))),
            constant(v1::SCALAR_FLOAT64, real(std::nan("2"))));
}

TEST(Wire, JsonAndBytesComeBack) {
  const v1::Graph message = Message(kKernel);
  EXPECT_EQ(GraphFromJson(GraphToJson(message))->SerializeAsString(), message.SerializeAsString());
  EXPECT_EQ(GraphFromBytes(message.SerializeAsString())->SerializeAsString(),
            message.SerializeAsString());
}

TEST(Wire, ForeignTextAndBytesAreRefused) {
  for (const absl::string_view json :
       {"", "{", "[]", R"({"nodes":[{"op":"OP_NONSENSE"}]})", R"({"nodes":[{"ops":"OP_ADD"}]})",
        R"({"nodes":[{"op":"OP_CONST","intArg":"99999999999999999999"}]})"}) {
    EXPECT_EQ(GraphFromJson(json).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
  EXPECT_FALSE(GraphFromBytes("\xff\xff\xff").ok());
  EXPECT_EQ(GetErrorDetail(GraphFromBytes("\xff\xff\xff").status())->reason, "MALFORMED");
}

TEST(Wire, JsonThatIsWrongInANodeNamesIt) {
  struct Case {
    absl::string_view json;
    int64_t node;
    absl::string_view field, said;
  };
  for (const Case& c :
       {Case{R"({"nodes":[{"op":"OP_SINK"},{"op":"OP_NONSENSE"}]})", 1, "op", "node 1: op"},
        Case{R"({"nodes":[{"op":"OP_SINK"},{"op":"OP_SINK"},{"ops":"OP_ADD"}]})", 2, "",
             "node 2: ops"},
        Case{R"({"nodes":[{"op":"OP_CONST","dtype":{"scale":1}}]})", 0, "dtype",
             "node 0: dtype.scale"},
        Case{R"({"nodes":[{"op":"OP_CONST","intArg":"99999999999999999999"}]})", 0, "int_arg",
             "node 0: int_arg"}}) {
    const absl::Status status = GraphFromJson(c.json).status();
    const ErrorDetail detail = GetErrorDetail(status).value_or(ErrorDetail());
    EXPECT_EQ(detail.node, c.node) << status;
    EXPECT_EQ(detail.field, c.field) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.said)) << status;
  }
  EXPECT_FALSE(GetErrorDetail(GraphFromJson(R"({"nods":[]})").status())->node);
}

TEST(Wire, EmptyGraphIsRefused) {
  EXPECT_EQ(GetErrorDetail(StatusOf(v1::Graph()))->reason, "EMPTY_GRAPH");
}

TEST(Wire, NodesOverTheLimitAreRefused) {
  const absl::Status status = StatusOf(Message(kKernel), {.max_nodes = 10});
  EXPECT_EQ(status.message(), "11 nodes, the limit is 10");
  EXPECT_EQ(GetErrorDetail(status)->limit, 10);
  EXPECT_EQ(GetErrorDetail(status)->value, 11);
  EXPECT_TRUE(StatusOf(Message(kKernel), {.max_nodes = 11}).ok());
}

TEST(Wire, OtherLimitsNameTheNode) {
  const v1::Graph message = Message(kKernel);
  EXPECT_THAT(StatusOf(message, {.max_rank = 1}).message(), HasSubstr("node 1 (VIEW): rank 2"));
  EXPECT_THAT(StatusOf(message, {.max_views = 1}).message(), HasSubstr("node 4 (VIEW): 2 views"));
  EXPECT_THAT(StatusOf(message, {.max_elements = 11}).message(),
              HasSubstr("node 2 (DEFINE_GLOBAL): a buffer of 64 elements"));
  EXPECT_THAT(StatusOf(message, {.max_buffers = 1}).message(),
              HasSubstr("node 2 (DEFINE_GLOBAL): slot 1"));
  EXPECT_THAT(StatusOf(message, {.max_name_bytes = 0}).message(),
              HasSubstr("node 3 (DEFINE_VAR): a name of 1 bytes"));
}

struct Damage {
  const char* name;
  std::function<void(v1::Graph&)> apply;  // to kKernel
  const char* message;                    // what the error contains
  const char* reason;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class WireDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(WireDamage, IsNamed) {
  v1::Graph message = Message(kKernel);
  GetParam().apply(message);
  const absl::Status status = StatusOf(message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
  ASSERT_TRUE(GetErrorDetail(status).has_value());
  EXPECT_EQ(GetErrorDetail(status)->reason, GetParam().reason);
}

v1::Node& N(v1::Graph& g, int i) { return *g.mutable_nodes(i); }
v1::View& View0(v1::Graph& g, int i) { return *N(g, i).mutable_view_arg()->mutable_views(0); }

const Damage kDamages[] = {
    {"version", [](v1::Graph& g) { g.set_version(2); }, "version 2 is not known", "VERSION"},
    {"unknown_field_of_graph",
     [](v1::Graph& g) { g.GetReflection()->MutableUnknownFields(&g)->AddVarint(99, 1); },
     "the graph has a field", "UNKNOWN_FIELD"},
    {"unknown_field_of_node",
     [](v1::Graph& g) { g.GetReflection()->MutableUnknownFields(&N(g, 3))->AddVarint(99, 1); },
     "node 3 (DEFINE_VAR): has a field", "UNKNOWN_FIELD"},
    {"unknown_field_of_view",
     [](v1::Graph& g) { g.GetReflection()->MutableUnknownFields(&View0(g, 1))->AddVarint(99, 1); },
     "node 1 (VIEW): has a field", "UNKNOWN_FIELD"},
    {"op", [](v1::Graph& g) { N(g, 7).set_op(static_cast<v1::Op>(1000)); }, "node 7: no op 1000",
     "UNKNOWN_OP"},
    {"op_unspecified", [](v1::Graph& g) { N(g, 7).clear_op(); }, "node 7: no op 0", "UNKNOWN_OP"},
    {"op_negative", [](v1::Graph& g) { N(g, 7).set_op(static_cast<v1::Op>(-5)); },
     "node 7: no op -5", "UNKNOWN_OP"},
    {"scalar",
     [](v1::Graph& g) { N(g, 7).mutable_dtype()->set_scalar(static_cast<v1::Scalar>(77)); },
     "node 7 (MUL): no scalar 77", "UNKNOWN_DTYPE"},
    {"space",
     [](v1::Graph& g) { N(g, 0).mutable_dtype()->set_pointer(static_cast<v1::AddressSpace>(9)); },
     "node 0 (DEFINE_GLOBAL): no address space 9", "UNKNOWN_DTYPE"},
    {"lanes", [](v1::Graph& g) { N(g, 7).mutable_dtype()->set_lanes(70000); },
     "node 7 (MUL): 70000 lanes", "LANES"},
    {"image", [](v1::Graph& g) { N(g, 0).mutable_dtype()->add_image_shape(4); },
     "node 0 (DEFINE_GLOBAL): an image is", "IMAGE"},
    {"forward", [](v1::Graph& g) { N(g, 7).set_src(0, 9); }, "node 7 (MUL): node 9 doesn't stand",
     "FORWARD_SRC"},
    {"itself", [](v1::Graph& g) { N(g, 7).set_src(0, 7); }, "node 7 (MUL): node 7 doesn't stand",
     "FORWARD_SRC"},
    {"no_such_source", [](v1::Graph& g) { N(g, 7).set_src(0, 1u << 31); },
     "node 7 (MUL): there is no node 2147483648", "NO_SUCH_NODE"},
    {"unreachable", [](v1::Graph& g) { N(g, 7).set_src(1, 5); },
     "node 6 (CONST): the last node doesn't reach it", "UNREACHABLE"},
    {"too_few_sources", [](v1::Graph& g) { N(g, 9).mutable_src()->RemoveLast(); },
     "node 9 (STORE): has 2 sources, needs 3", "ARITY"},
    {"too_many_sources", [](v1::Graph& g) { N(g, 8).add_src(7); },
     "node 8 (REDUCE_AXIS): has 2 sources, takes 1", "ARITY"},
    {"source_of_view", [](v1::Graph& g) { N(g, 4).add_src(3); },
     "node 4 (VIEW): has 1 sources, needs 0", "ARITY"},
    {"argument_missing", [](v1::Graph& g) { N(g, 8).clear_reduce_arg(); },
     "node 8 (REDUCE_AXIS): needs reduce_arg", "WRONG_ARG"},
    {"argument_of_another_op", [](v1::Graph& g) { N(g, 8).set_int_arg(1); },
     "node 8 (REDUCE_AXIS): needs reduce_arg", "WRONG_ARG"},
    {"argument_too_many", [](v1::Graph& g) { N(g, 7).set_int_arg(1); },
     "node 7 (MUL): takes no argument", "WRONG_ARG"},
    {"view_on_alu", [](v1::Graph& g) { *N(g, 7).mutable_view_arg() = N(g, 1).view_arg(); },
     "node 7 (MUL): takes no sizes", "WRONG_ARG"},
    {"constant_without_value", [](v1::Graph& g) { N(g, 6).clear_float_arg(); },
     "node 6 (CONST): a float constant needs float_arg", "WRONG_ARG"},
    {"constant_of_another_type", [](v1::Graph& g) { N(g, 6).set_int_arg(1); },
     "node 6 (CONST): a float constant needs float_arg", "WRONG_ARG"},
    {"types_differ", [](v1::Graph& g) { N(g, 7).mutable_dtype()->set_scalar(v1::SCALAR_INT32); },
     "node 7 (MUL): is int32, not float32", "DTYPE"},
    {"load_type", [](v1::Graph& g) { N(g, 5).mutable_dtype()->set_scalar(v1::SCALAR_FLOAT64); },
     "node 5 (LOAD): is float64, not float32", "DTYPE"},
    {"load_of_a_value", [](v1::Graph& g) { N(g, 5).set_src(0, 3); },
     "node 5 (LOAD): source 0 is no buffer: DEFINE_VAR", "BUFFER"},
    {"load_without_view", [](v1::Graph& g) { N(g, 5).set_src(1, 3); },
     "node 5 (LOAD): source 1 is no VIEW: DEFINE_VAR", "VIEW"},
    {"void_operand", [](v1::Graph& g) { N(g, 7).set_src(0, 4); },
     "node 7 (MUL): source 0 is no value: VIEW", "DTYPE"},
    {"buffer_no_pointer", [](v1::Graph& g) { N(g, 0).mutable_dtype()->clear_pointer(); },
     "node 0 (DEFINE_GLOBAL): is float32, not a global pointer", "DTYPE"},
    {"strides_missing", [](v1::Graph& g) { View0(g, 1).clear_strides(); },
     "node 1 (VIEW): 0 strides for 2 axes", "RANK"},
    {"mask_odd", [](v1::Graph& g) { View0(g, 1).add_mask(0); },
     "node 1 (VIEW): a mask of 1 entries for 2 axes", "RANK"},
    {"mask_outside", [](v1::Graph& g) { View0(g, 4).set_mask(1, 9); },
     "node 4 (VIEW): the mask of axis 0", "MASK"},
    {"size_negative", [](v1::Graph& g) { View0(g, 1).set_shape(0, -4); },
     "node 1 (VIEW): axis 0 has size -4", "NEGATIVE_SIZE"},
    {"size_overflows",
     [](v1::Graph& g) {
       View0(g, 1).set_shape(0, int64_t{1} << 40);
       View0(g, 1).set_shape(1, int64_t{1} << 40);
     },
     "node 1 (VIEW): a shape of", "TOO_MANY_ELEMENTS"},
    {"index_overflows",
     [](v1::Graph& g) { View0(g, 1).set_strides(0, std::numeric_limits<int64_t>::max()); },
     "node 1 (VIEW): an index doesn't fit", "SIZE_OVERFLOW"},
    {"offset_overflows",
     [](v1::Graph& g) { View0(g, 1).set_offset(std::numeric_limits<int64_t>::min()); },
     "node 1 (VIEW): an index doesn't fit", "SIZE_OVERFLOW"},
    {"no_views", [](v1::Graph& g) { N(g, 1).mutable_view_arg()->clear_views(); },
     "node 1 (VIEW): needs at least one view", "WRONG_ARG"},
    {"symbolic_forward", [](v1::Graph& g) { View0(g, 4).mutable_symbolic(0)->set_node(8); },
     "node 4 (VIEW): node 8 doesn't stand", "FORWARD_SRC"},
    {"symbolic_outside", [](v1::Graph& g) { View0(g, 4).mutable_symbolic(0)->set_index(2); },
     "node 4 (VIEW): an expression for an entry", "SYMBOLIC"},
    {"symbolic_field",
     [](v1::Graph& g) {
       View0(g, 4).mutable_symbolic(0)->set_field(static_cast<v1::Symbolic::Field>(7));
     },
     "node 4 (VIEW): an expression for an entry", "SYMBOLIC"},
    {"symbolic_twice", [](v1::Graph& g) { *View0(g, 4).add_symbolic() = View0(g, 4).symbolic(0); },
     "node 4 (VIEW): an entry that is an expression", "SYMBOLIC"},
    {"symbolic_of_no_integer", [](v1::Graph& g) { View0(g, 4).mutable_symbolic(0)->set_node(2); },
     "node 4 (VIEW): a size is global float32*, not an integer", "DTYPE"},
    {"permutes_by_an_expression",
     [](v1::Graph& g) {
       N(g, 6).set_op(v1::OP_PERMUTE);
       v1::IntList& order = *N(g, 6).mutable_ints_arg();
       order.add_values(0);
       order.add_symbolic()->set_node(3);
     },
     "node 6 (PERMUTE): takes numbers only", "SYMBOLIC"},
    {"axes_outside", [](v1::Graph& g) { N(g, 8).mutable_reduce_arg()->set_axes(0, 1u << 30); },
     "node 8 (REDUCE_AXIS): there is no axis 1073741824", "AXES"},
    {"axes_negative",
     [](v1::Graph& g) {
       N(g, 8).mutable_reduce_arg()->set_axes(0, std::numeric_limits<uint32_t>::max());
     },
     "node 8 (REDUCE_AXIS): there is no axis -1", "AXES"},
    {"axes_twice", [](v1::Graph& g) { N(g, 8).mutable_reduce_arg()->add_axes(1); },
     "node 8 (REDUCE_AXIS): the axes aren't distinct", "AXES"},
    {"axes_none", [](v1::Graph& g) { N(g, 8).mutable_reduce_arg()->clear_axes(); },
     "node 8 (REDUCE_AXIS): reduces no axis", "AXES"},
    {"reduce_by_xor", [](v1::Graph& g) { N(g, 8).mutable_reduce_arg()->set_op(v1::OP_XOR); },
     "node 8 (REDUCE_AXIS): can't reduce by XOR", "WRONG_ARG"},
    {"reduce_by_nothing",
     [](v1::Graph& g) { N(g, 8).mutable_reduce_arg()->set_op(static_cast<v1::Op>(999)); },
     "node 8 (REDUCE_AXIS): no op 999", "UNKNOWN_OP"},
    {"bounds_crossed", [](v1::Graph& g) { N(g, 3).mutable_var_arg()->set_min(9); },
     "node 3 (DEFINE_VAR): min 9 is above max 8", "BOUNDS"},
    {"bounds_too_wide", [](v1::Graph& g) { N(g, 3).mutable_var_arg()->set_max(1L << 40); },
     "node 3 (DEFINE_VAR): the bounds don't fit into int32", "BOUNDS"},
    {"bounds_not_integers",
     [](v1::Graph& g) { N(g, 3).set_float_arg(std::numeric_limits<double>::quiet_NaN()); },
     "node 3 (DEFINE_VAR): needs var_arg", "WRONG_ARG"},
    {"variable_float",
     [](v1::Graph& g) { N(g, 3).mutable_dtype()->set_scalar(v1::SCALAR_FLOAT32); },
     "node 3 (DEFINE_VAR): is float32, not a scalar integer", "DTYPE"},
    {"variable_nameless", [](v1::Graph& g) { N(g, 3).mutable_var_arg()->clear_name(); },
     "node 3 (DEFINE_VAR): has no name", "WRONG_ARG"},
    {"slot_negative", [](v1::Graph& g) { N(g, 0).set_int_arg(-1); },
     "node 0 (DEFINE_GLOBAL): slot -1", "SLOT"},
    {"slot_huge", [](v1::Graph& g) { N(g, 0).set_int_arg(int64_t{1} << 60); },
     "node 0 (DEFINE_GLOBAL): slot", "TOO_MANY_BUFFERS"},
    {"buffer_shape",
     [](v1::Graph& g) { N(g, 2).mutable_buffer_arg()->mutable_shape()->add_values(1); },
     "node 2 (DEFINE_GLOBAL): a kernel's buffer has no shape", "WRONG_ARG"},
    {"buffer_size",
     [](v1::Graph& g) { N(g, 2).mutable_buffer_arg()->set_size_elements(~uint64_t{0}); },
     "node 2 (DEFINE_GLOBAL): a buffer of", "TOO_MANY_ELEMENTS"},
};

INSTANTIATE_TEST_SUITE_P(All, WireDamage, ::testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Wire, RandomDamageNeverCrashes) {
  const std::string bytes = Message(kKernel).SerializeAsString();
  uint32_t random = 1;
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes;
    const int hits = 1 + i % 3;
    for (int k = 0; k < hits; ++k) {
      random = random * 1664525u + 1013904223u;
      damaged[(random >> 8) % damaged.size()] = static_cast<char>(random >> 24);
    }
    const absl::StatusOr<v1::Graph> message = GraphFromBytes(damaged);
    if (!message.ok()) continue;
    ++parsed;
    const absl::Status status = StatusOf(*message);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace beamd
