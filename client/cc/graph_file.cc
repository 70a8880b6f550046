#include "client/cc/graph_file.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cc/local_file.h"
#include "engine/base/status.h"
#include "engine/uop/text.h"
#include "engine/uop/uop.h"
#include "engine/uop/wire.h"
#include "google/protobuf/text_format.h"

namespace beamd {
namespace {

struct CloseGz {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

// zlib reads what isn't gzipped as it is.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<gzFile_s, CloseGz> in(path == "-" ? gzdopen(dup(STDIN_FILENO), "rb")
                                                          : gzopen(path.c_str(), "rb"));
  if (in == nullptr) return LocalError("read", path, errno);
  std::string bytes;
  char chunk[1 << 16];
  int n = 0;
  while ((n = gzread(in.get(), chunk, sizeof(chunk))) > 0) {
    bytes.append(chunk, static_cast<size_t>(n));
  }
  if (n >= 0) return bytes;
  const int why = errno;
  int error = Z_OK;
  const char* const damage = gzerror(in.get(), &error);
  if (error == Z_ERRNO) return LocalError("read", path, why);
  return absl::InvalidArgumentError(absl::StrCat(path, " can't be unpacked: ", damage));
}

// The end of the JSON value that begins at `i`: behind its last character.
size_t EndOfValue(absl::string_view json, size_t i) {
  int depth = 0;
  bool in_string = false;
  for (; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      --depth;
    } else if (c == ',' && depth == 0) {
      return i;
    }
  }
  return i;
}

// The text of a member of a JSON object, which is not looked into; nullopt where there is none.
std::optional<absl::string_view> Member(absl::string_view object, absl::string_view name) {
  size_t i = object.find('{');
  if (i == absl::string_view::npos) return std::nullopt;
  ++i;
  while (i < object.size()) {
    const size_t quote = object.find('"', i);
    if (quote == absl::string_view::npos) return std::nullopt;
    const size_t colon = object.find(':', object.find('"', quote + 1));
    if (colon == absl::string_view::npos) return std::nullopt;
    const size_t end = EndOfValue(object, colon + 1);
    const absl::string_view key = absl::StripAsciiWhitespace(object.substr(i, colon - i));
    if (key == absl::StrCat("\"", name, "\"")) {
      return absl::StripAsciiWhitespace(object.substr(colon + 1, end - colon - 1));
    }
    i = end + 1;
  }
  return std::nullopt;
}

absl::StatusOr<v1::Graph> ParseTextForm(absl::string_view text) {
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const UOp root, ParseText(text, graph));
  return ToProto(root);
}

}  // namespace

absl::StatusOr<v1::Graph> ParseGraph(absl::string_view bytes) {
  // The tag of a node's op is a control character, which no text holds; and what text begins with
  // may be the length of a binary graph's first node.
  const bool binary = std::any_of(bytes.begin(), bytes.end(), [](unsigned char c) {
    return absl::ascii_iscntrl(c) && !absl::ascii_isspace(c);
  });
  if (binary) return GraphFromBytes(bytes);
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(bytes);
  if (absl::StartsWith(text, "{")) return GraphFromJson(text);
  if (absl::StartsWith(text, "%") || absl::StartsWith(text, "#")) return ParseTextForm(text);
  if (absl::StartsWith(text, "nodes") || absl::StartsWith(text, "version")) {
    v1::Graph graph;
    if (google::protobuf::TextFormat::ParseFromString(std::string(text), &graph)) return graph;
    return absl::InvalidArgumentError("not a graph in protobuf's text format");
  }
  return GraphFromBytes(bytes);
}

absl::StatusOr<v1::Graph> ReadGraphFile(const std::string& path) {
  BEAMD_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return ParseGraph(bytes);
}

absl::StatusOr<std::vector<v1::Graph>> ReadCorpusGraphs(const std::string& path,
                                                        const std::vector<std::string>& ids) {
  BEAMD_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  // As the lines write them.
  absl::flat_hash_map<std::string, std::optional<v1::Graph>> wanted;
  for (const std::string& id : ids) wanted.try_emplace(absl::StrCat("\"", id, "\""));
  size_t missing = wanted.size();
  absl::string_view left = bytes;
  while (!left.empty() && missing > 0) {
    const size_t end = std::min(left.find('\n'), left.size());
    const absl::string_view line = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    const auto it = wanted.find(Member(line, "id").value_or(""));
    if (it == wanted.end() || it->second) continue;
    const std::optional<absl::string_view> graph = Member(line, "graph");
    if (!graph) return absl::InvalidArgumentError(absl::StrCat(it->first, " has no graph"));
    BEAMD_ASSIGN_OR_RETURN(it->second, GraphFromJson(*graph));
    --missing;
  }
  std::vector<v1::Graph> graphs;
  for (const std::string& id : ids) {
    const std::optional<v1::Graph>& graph = wanted.at(absl::StrCat("\"", id, "\""));
    if (!graph) return absl::NotFoundError(absl::StrCat("no ", id, " in ", path));
    graphs.push_back(*graph);
  }
  return graphs;
}

}  // namespace beamd
