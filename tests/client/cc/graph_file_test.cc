#include "client/cc/graph_file.h"

#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "engine/uop/text.h"
#include "engine/uop/uop.h"
#include "engine/uop/wire.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

std::string Write(const std::string& name, const std::string& bytes, bool zipped = false) {
  std::string path = testing::FreshDirectory() + "/" + name;
  if (zipped) {
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  } else {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  return path;
}

std::string Text(const v1::Graph& graph) {
  UOpGraph nodes;
  return ToText(*FromProto(graph, nodes));
}

TEST(ParseGraph, TakesEveryForm) {
  const v1::Graph graph = testing::AddKernel(64);
  std::string text_format;
  google::protobuf::TextFormat::PrintToString(graph, &text_format);
  for (const std::string& bytes :
       {GraphToJson(graph), "\n " + GraphToJson(graph), text_format, graph.SerializeAsString(),
        Text(graph), "# element-wise\n" + Text(graph)}) {
    const absl::StatusOr<v1::Graph> parsed = ParseGraph(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << " of " << bytes.substr(0, 40);
    EXPECT_EQ(Text(*parsed), Text(graph));
  }
}

TEST(ParseGraph, RefusesWhatIsNone) {
  for (const std::string& bytes :
       {std::string("{"), std::string(R"({"nodes":[{"opp":"OP_SINK"}]})"), std::string("%0 = WHAT"),
        std::string("nodes { what }"), std::string("\x01\x02\x03"), std::string("hello")}) {
    EXPECT_EQ(ParseGraph(bytes).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(ReadGraphFile, UnpacksAndSaysWhatIsMissing) {
  const v1::Graph graph = testing::AddKernel(64);
  const std::string path = Write("graph.json.gz", GraphToJson(graph), /*zipped=*/true);
  const absl::StatusOr<v1::Graph> read = ReadGraphFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Text(*read), Text(graph));
  EXPECT_EQ(ReadGraphFile(path + ".not").status().code(), absl::StatusCode::kNotFound);
}

TEST(ReadCorpusGraphs, FindsTheLinesByTheirIds) {
  const std::string add = GraphToJson(testing::AddKernel(64));
  const std::string matmul = GraphToJson(testing::MatmulKernel(16));
  // Members in any order, ids inside of other texts, braces inside of texts.
  const std::string lines =
      "{\"id\":\"a\",\"graph\":" + add + "}\n" + "{\"note\":\"\\\"b\\\" } {\",\"graph\": " + add +
      ", \"id\": \"ab\"}\n" + "{\"hc\":[1,{\"id\":\"c\"}],\"id\":\"b\",\"graph\":" + matmul +
      "}\n" + "{\"id\":\"none\"}\n{\"x\":\"torn\", ";
  for (const bool zipped : {false, true}) {
    const std::string path = Write("lines", lines, zipped);
    const absl::StatusOr<std::vector<v1::Graph>> read =
        ReadCorpusGraphs(path, {"b", "a", "ab", "b"});
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), 4);
    EXPECT_EQ(Text((*read)[0]), Text(testing::MatmulKernel(16)));
    EXPECT_EQ(Text((*read)[1]), Text(testing::AddKernel(64)));
    EXPECT_EQ(Text((*read)[2]), Text(testing::AddKernel(64)));
    EXPECT_EQ(Text((*read)[3]), Text(testing::MatmulKernel(16)));
    EXPECT_EQ(ReadCorpusGraphs(path, {"a", "c"}).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ReadCorpusGraphs(path, {"torn"}).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(ReadCorpusGraphs(path, {"none"}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace beamd
