#include "server/tuning/parse_kernel.h"

#include "engine/base/error_detail.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

TEST(ParseKernel, GivesOneKernelToGraphsThatDifferInNodeOrderOnly) {
  const v1::Graph graph = testing::AddKernel(64);
  v1::Graph other = graph;
  // The buffers that are read change places, and the users with them.
  other.mutable_nodes(2)->set_int_arg(2);
  other.mutable_nodes(4)->set_int_arg(1);
  other.mutable_nodes(6)->set_src(0, 5);
  other.mutable_nodes(6)->set_src(1, 3);
  const absl::StatusOr<ParsedKernel> a = ParseKernel(graph);
  const absl::StatusOr<ParsedKernel> b = ParseKernel(other);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(a->hash, b->hash);
  EXPECT_EQ(a->canonical.SerializeAsString(), b->canonical.SerializeAsString());
  EXPECT_NE(a->hash, ParseKernel(testing::AddKernel(65))->hash);
}

TEST(ParseKernel, TheCanonicalFormIsItsOwn) {
  const absl::StatusOr<ParsedKernel> once = ParseKernel(testing::MatmulKernel(16));
  ASSERT_TRUE(once.ok()) << once.status();
  const absl::StatusOr<ParsedKernel> twice = ParseKernel(once->canonical);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(once->hash, twice->hash);
  EXPECT_EQ(once->canonical.SerializeAsString(), twice->canonical.SerializeAsString());
}

TEST(ParseKernel, NamesTheNodeAsTheClientWroteIt) {
  v1::Graph graph = testing::AddKernel(64);
  graph.mutable_nodes(6)->mutable_dtype()->set_scalar(v1::SCALAR_INT32);
  EXPECT_EQ(GetErrorDetail(ParseKernel(graph).status())->node, 6);
}

TEST(ParseKernel, AKernelOfImagesIsAnotherKernel) {
  const v1::Graph plain = testing::AddKernel(64);
  v1::Graph images = plain;
  for (const int buffer : {0, 2, 4}) {
    v1::DType& dtype = *images.mutable_nodes(buffer)->mutable_dtype();
    for (int i = 0; i < 3; ++i) dtype.add_image_shape(4);
  }
  const absl::StatusOr<ParsedKernel> parsed = ParseKernel(images);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_NE(parsed->hash, ParseKernel(plain)->hash);
  v1::Graph other = images;
  other.mutable_nodes(2)->mutable_dtype()->set_image_shape(1, 8);
  other.mutable_nodes(2)->mutable_dtype()->set_image_shape(0, 2);
  EXPECT_NE(parsed->hash, ParseKernel(other)->hash);
}

TEST(ParseKernel, NamesAnImageThatIsTooSmall) {
  v1::Graph graph = testing::AddKernel(64);
  v1::DType& dtype = *graph.mutable_nodes(2)->mutable_dtype();
  for (const uint32_t side : {4, 3, 4}) dtype.add_image_shape(side);
  const absl::Status status = ParseKernel(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(GetErrorDetail(status)->reason, "INDEX_OUT_OF_BUFFER");
}

TEST(ParseKernel, BoundsTheBytesOfAllBuffers) {
  const v1::Graph graph = testing::AddKernel(64);  // three of 256
  EXPECT_TRUE(ParseKernel(graph, {.buffer_bytes = 768}).ok());
  const absl::Status refused = ParseKernel(graph, {.buffer_bytes = 767}).status();
  const std::optional<ErrorDetail> detail = GetErrorDetail(refused);
  ASSERT_TRUE(detail) << refused;
  EXPECT_EQ(detail->reason, "BUFFER_BYTES");
  EXPECT_EQ(detail->limit, 767);
  EXPECT_EQ(detail->value, 768);
}

}  // namespace
}  // namespace beamd
