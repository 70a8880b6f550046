#include "tests/testing/corpus.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "engine/uop/wire.h"

namespace beamd::testing {
namespace {

TEST(Json, ReadsWhatTheLinesHold) {
  const std::string text =
      R"( {"a":[1,-2.5e1,"9007199254740993","18446744073709551615","NaN"],"b":{"c":true},"d":null,"e":"x\"\n"} )";
  const JsonValue v = JsonValue::Parse(text).value();
  EXPECT_EQ(v["a"][0].Int(), 1);
  EXPECT_EQ(v["a"][1].Double(), -25);
  EXPECT_EQ(v["a"][2].Int(), 9007199254740993);
  EXPECT_EQ(v["a"][3].Int(), -1);
  EXPECT_TRUE(std::isnan(v["a"][4].Double()));
  EXPECT_TRUE(v["b"]["c"].Bool());
  EXPECT_TRUE(v["d"].is_null());
  EXPECT_TRUE(v.Has("d"));
  EXPECT_FALSE(v.Has("f"));
  EXPECT_EQ(v["e"].String(), "x\"\n");
  EXPECT_EQ(v["b"].raw(), "{\"c\":true}");
  EXPECT_EQ(v["no"]["such"][7].Int(), 0);
}

TEST(Json, RefusesDamage) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1", "{\"a\"}", "\"x", "1 2", "tru", "{1:2}"}) {
    EXPECT_FALSE(JsonValue::Parse(text).ok()) << text;
  }
}

TEST(ForEachLine, ReadsLinesLongerThanItsBuffer) {
  const std::string dir = ::testing::TempDir();
  const std::string longest(300000, '7');
  gzFile out = gzopen((dir + "/lines.gz").c_str(), "wb");
  const std::string text =
      "{\"a\":\"" + longest + "\"}\n{\"a\":\"\"}";  // no end of line at the end
  ASSERT_EQ(gzwrite(out, text.data(), text.size()), static_cast<int>(text.size()));
  gzclose(out);
  std::vector<std::string> values;
  const absl::Status status = ForEachLine(dir, "lines.gz", [&](const JsonValue& line) {
    values.push_back(line["a"].String());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(values, (std::vector<std::string>{longest, ""}));
  EXPECT_TRUE(absl::IsNotFound(ForEachLine(dir, "absent.gz", nullptr)));
}

TEST(CorpusInput, FollowsTheFormula) {
  // Worked out by hand for slot 1, element 0: x = 2246822519 + 374761393, and so on.
  uint32_t x = 2246822519u + 374761393u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  const std::string bytes = CorpusInput(1, 1, Scalar::kFloat32);
  float value = 0;
  std::memcpy(&value, bytes.data(), 4);
  EXPECT_EQ(value, static_cast<float>((x >> 8) / 8388608.0 - 1));
  EXPECT_EQ(static_cast<int8_t>(CorpusInput(1, 1, Scalar::kInt8)[0]),
            static_cast<int8_t>(static_cast<int>(x % 201) - 100));
  EXPECT_EQ(CorpusInput(1, 3, Scalar::kUint64).size(), 24u);
}

TEST(Corpus, EveryGraphParses) {
  const std::optional<std::string> dir = CorpusDir();
  if (!dir) GTEST_SKIP() << "BEAMD_CORPUS is not set";
  const auto kernels = ReadCorpusKernels(*dir);
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  EXPECT_GT(kernels->size(), 1000u);
  for (const CorpusKernel& kernel : *kernels) {
    UOpGraph graph;
    const absl::StatusOr<UOp> root = FromProto(kernel.graph, graph);
    EXPECT_TRUE(root.ok()) << kernel.id << ": " << root.status();
  }
}

}  // namespace
}  // namespace beamd::testing
