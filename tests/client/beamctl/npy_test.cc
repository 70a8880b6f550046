#include "client/beamctl/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/beamctl/run.h"

namespace beamd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A file of version 1 with this header and content.
std::string File(const std::string& header, const std::string& content, char major = 1) {
  std::string bytes("\x93NUMPY");
  bytes += major;
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  if (major > 1) bytes += std::string(2, '\0');
  return bytes + header + content;
}
std::string Header(const std::string& descr, const std::string& order, const std::string& shape) {
  return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape,
                      ", }                 \n");
}

TEST(Npy, ReadsWhatNumPyWrites) {
  // numpy.save of numpy.arange(6, dtype='<f4').reshape(2, 3), byte by byte.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.append(117 - header.size(), ' ');
  header += '\n';
  std::string content(24, '\0');
  for (int i = 0; i < 6; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(&content[4 * i], &value, 4);
  }
  const std::string file = File(header, content);
  EXPECT_EQ(file.size(), 128 + 24);
  const absl::StatusOr<Npy> array = ParseNpy(file);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->dtype, v1::SCALAR_FLOAT32);
  EXPECT_THAT(array->shape, ElementsAre(2, 3));
  EXPECT_EQ(array->content, content);
  EXPECT_EQ(NpyBytes(*array).value(), file);
}

TEST(Npy, GoesThereAndBackInEveryType) {
  for (int dtype = v1::SCALAR_BOOL; dtype <= v1::SCALAR_FLOAT64; ++dtype) {
    const auto scalar = static_cast<v1::Scalar>(dtype);
    if (scalar == v1::SCALAR_BFLOAT16) {
      EXPECT_TRUE(absl::IsUnimplemented(NpyBytes({scalar, {}, "ab"}).status()));
      continue;
    }
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {3}, {2, 1, 3}, {0, 4}}) {
      Npy array{scalar, shape, ""};
      size_t count = 1;
      for (const int64_t size : shape) count *= size;
      for (const size_t size : {1, 2, 4, 8}) {
        array.content = std::string(count * size, 'x');
        const absl::StatusOr<Npy> back = ParseNpy(NpyBytes(array).value());
        if (!back.ok()) continue;  // elements of another size
        EXPECT_EQ(back->dtype, scalar);
        EXPECT_EQ(back->shape, shape);
        EXPECT_EQ(back->content, array.content);
      }
      EXPECT_EQ(NpyBytes(array).value().size() % 64, array.content.size() % 64);
    }
  }
}

TEST(Npy, SaysWhatIsWrongAndHowNumPyMendsIt) {
  const auto why = [](const std::string& bytes) {
    return std::string(ParseNpy(bytes).status().message());
  };
  EXPECT_THAT(why("PK\x03\x04"), HasSubstr("it isn't a .npy file"));
  EXPECT_THAT(why(File(Header(">f4", "False", "(1,)"), "abcd")), HasSubstr("astype(\"<f4\")"));
  EXPECT_THAT(why(File(Header("<f4", "True", "(2, 2)"), std::string(16, 'x'))),
              HasSubstr("np.ascontiguousarray"));
  EXPECT_THAT(why(File(Header("|O", "False", "(1,)"), "abcd")), HasSubstr("Python objects"));
  EXPECT_THAT(why(File(Header("<c8", "False", "(1,)"), "abcdabcd")), HasSubstr("<c8"));
  EXPECT_THAT(why(File(Header("<f4", "False", "(2,)"), "abcd")),
              HasSubstr("it has 4 bytes behind its header, float32 (2) has 8"));
  EXPECT_THAT(why(File(Header("<f4", "False", "(99999999999, 99999999999)"), "")),
              HasSubstr("too large"));
  EXPECT_THAT(why(File("{'descr': [('x', '<f4')], }", "")), HasSubstr("records"));
  EXPECT_THAT(why(File("{'descr': '<f4', }", "abcd")), HasSubstr("isn't complete"));
  EXPECT_THAT(why(File(Header("<f4", "False", "(1,)"), "abcd", 9)), HasSubstr("version 9"));
  // One axis in Fortran's order is in C's too; versions 2 and 3 have longer headers.
  EXPECT_TRUE(ParseNpy(File(Header("<f4", "True", "(1,)"), "abcd")).ok());
  EXPECT_TRUE(ParseNpy(File(Header("<f4", "False", "()"), "abcd", 3)).ok());
}

TEST(Npy, SurvivesDamage) {
  const std::string file = File(Header("<f4", "False", "(2, 3)"), std::string(24, 'x'));
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = file.substr(0, file.size() - random() % 40);
    damaged[random() % damaged.size()] = static_cast<char>(random());
    const absl::StatusOr<Npy> array = ParseNpy(damaged);
    if (!array.ok()) {
      EXPECT_FALSE(array.status().message().empty());
    }
  }
}

TEST(RunArguments, NamesAreIdsOrWhatTheTextSays) {
  const absl::StatusOr<GraphNames> names =
      NamesOf("# buffer 0: images\n# a remark\n# buffer of old\n%0 = ...\n# output 1: logits\n");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(names->buffers, ElementsAre(Pair("images", 0)));
  EXPECT_THAT(names->outputs, ElementsAre(Pair("logits", 1)));
  EXPECT_FALSE(NamesOf("# buffer 0: x\n# buffer 1: x\n").ok());
  EXPECT_FALSE(NamesOf("# buffer 0: 7\n").ok());
  EXPECT_THAT(ParsePairs({"x=a.npy", "y=b=c.npy"}).value(),
              ElementsAre(Pair("x", "a.npy"), Pair("y", "b=c.npy")));
  for (const char* const wrong : {"x", "=a", "x=", ""}) EXPECT_FALSE(ParsePairs({wrong}).ok());
  EXPECT_FALSE(ParsePairs({"x=a", "x=b"}).ok());
}

TEST(RunArguments, TracesLayKernelsBehindOneAnother) {
  v1::RunResponse response;
  for (const char* const name : {"first", "second"}) {
    v1::KernelRun& kernel = *response.add_kernels();
    kernel.set_name(name);
    kernel.set_kernel_hash("12");
    kernel.set_seconds(2e-6);
    kernel.set_flops(100);
  }
  const std::string trace = TraceJson(response);
  EXPECT_THAT(trace, HasSubstr("\"traceEvents\""));
  EXPECT_THAT(trace, HasSubstr("\"name\":\"second\""));
}

}  // namespace
}  // namespace beamd
