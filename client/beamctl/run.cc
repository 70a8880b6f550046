#include "client/beamctl/run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/beamctl/format.h"
#include "client/cc/local_file.h"
#include "client/thin/dtype.h"
#include "engine/base/profile.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

using Pairs = std::map<std::string, std::string>;

constexpr absl::string_view kGradient = "grad.";

// The graph's BUFFERs by id.
std::map<uint64_t, const v1::Node*> BuffersOf(const v1::Graph& graph) {
  std::map<uint64_t, const v1::Node*> buffers;
  for (const v1::Node& node : graph.nodes()) {
    if (node.op() == v1::OP_BUFFER) buffers.emplace(node.buffer_arg().id(), &node);
  }
  return buffers;
}

int OutputsOf(const v1::Graph& graph) {
  if (graph.nodes().empty()) return 0;
  const v1::Node& root = graph.nodes(graph.nodes_size() - 1);
  return root.op() == v1::OP_SINK ? root.src_size() : 1;
}

template <typename Key>
std::string NameOf(const std::map<std::string, Key>& names, Key key) {
  for (const auto& [name, at] : names) {
    if (at == key) return name;
  }
  return absl::StrCat(key);
}

template <typename T>
T Load(const Npy& array, int64_t i) {
  T value;
  std::memcpy(&value, &array.content[i * sizeof(T)], sizeof(T));
  return value;
}

// IEEE 754 binary16.
double FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1F) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::string Element(const Npy& array, int64_t i) {
  switch (array.dtype) {
    case v1::SCALAR_BOOL:
      return array.content[i] != 0 ? "true" : "false";
    case v1::SCALAR_INT8:
      return absl::StrCat(static_cast<int>(Load<int8_t>(array, i)));
    case v1::SCALAR_UINT8:
      return absl::StrCat(static_cast<int>(Load<uint8_t>(array, i)));
    case v1::SCALAR_INT16:
      return absl::StrCat(Load<int16_t>(array, i));
    case v1::SCALAR_UINT16:
      return absl::StrCat(Load<uint16_t>(array, i));
    case v1::SCALAR_INT32:
      return absl::StrCat(Load<int32_t>(array, i));
    case v1::SCALAR_UINT32:
      return absl::StrCat(Load<uint32_t>(array, i));
    case v1::SCALAR_INT64:
      return absl::StrCat(Load<int64_t>(array, i));
    case v1::SCALAR_UINT64:
      return absl::StrCat(Load<uint64_t>(array, i));
    case v1::SCALAR_FLOAT16:
      return absl::StrCat(FromHalf(Load<uint16_t>(array, i)));
    case v1::SCALAR_BFLOAT16: {
      const uint32_t bits = uint32_t{Load<uint16_t>(array, i)} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      return absl::StrCat(value);
    }
    case v1::SCALAR_FLOAT32:
      return absl::StrCat(Load<float>(array, i));
    default:
      return absl::StrCat(Load<double>(array, i));
  }
}

// "0, 1 (images), 2".
std::string Listed(const GraphNames& names, const std::map<uint64_t, const v1::Node*>& buffers) {
  std::vector<std::string> known;
  for (const auto& [id, node] : buffers) {
    const std::string name = NameOf(names.buffers, id);
    known.push_back(name == absl::StrCat(id) ? name : absl::StrCat(id, " (", name, ")"));
  }
  return absl::StrJoin(known, ", ");
}

class GraphRun {
 public:
  GraphRun(thin::Session& session, const v1::Graph& graph, const GraphNames& names,
           const RunArguments& arguments)
      : session_(session),
        graph_(graph),
        names_(names),
        arguments_(arguments),
        buffers_(BuffersOf(graph)) {}

  absl::StatusOr<RunResult> Run() {
    BEAMD_RETURN_IF_ERROR(CheckOutputs());
    BEAMD_RETURN_IF_ERROR(ReadInputs());
    v1::RunRequest request;
    *request.mutable_graph() = graph_;
    std::map<uint64_t, uint64_t> handles;  // by id
    for (const auto& [id, array] : inputs_) {
      BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<thin::Buffer> buffer,
                             session_.Upload(array.content, array.dtype, array.shape));
      handles[id] = buffer->handle();
      held_.push_back(std::move(buffer));
    }
    for (v1::Node& node : *request.mutable_graph()->mutable_nodes()) {
      if (node.op() != v1::OP_BUFFER) continue;
      node.mutable_buffer_arg()->set_id(handles.at(node.buffer_arg().id()));
    }
    for (const uint64_t id : gradients_) request.add_gradients(handles.at(id));
    for (const auto& [name, value] : arguments_.variables) {
      (*request.mutable_variables())[name] = value;
    }
    request.set_opts(arguments_.opts);
    request.set_match(arguments_.match);
    request.set_profile(arguments_.profile);
    RunResult result;
    BEAMD_ASSIGN_OR_RETURN(result.response, session_.Run(std::move(request)));
    for (int i = 0; i < result.response.outputs_size(); ++i) {
      const v1::BufferInfo& info = result.response.outputs(i).buffer();
      held_.push_back(session_.Adopt(info));
      Npy array{info.dtype(), {info.shape().begin(), info.shape().end()}, ""};
      BEAMD_ASSIGN_OR_RETURN(array.content, session_.DownloadHandle(info.handle()));
      result.outputs.push_back({OutputName(i), FileOf(i), std::move(array)});
    }
    return result;
  }

 private:
  absl::StatusOr<uint64_t> Buffer(const std::string& name, absl::string_view flag) const {
    uint64_t id = 0;
    const auto named = names_.buffers.find(name);
    const bool known = named != names_.buffers.end() || absl::SimpleAtoi(name, &id);
    if (named != names_.buffers.end()) id = named->second;
    if (known && buffers_.contains(id)) return id;
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", name,
                                                   ": the graph has no such BUFFER; it has ",
                                                   Listed(names_, buffers_)));
  }

  std::string OutputName(int i) const {
    const int outputs = OutputsOf(graph_);
    if (i < outputs) return NameOf(names_.outputs, i);
    return absl::StrCat(kGradient, arguments_.gradients[i - outputs]);
  }

  // By name, or by place.
  std::string FileOf(int i) const {
    auto file = arguments_.out.find(OutputName(i));
    if (file == arguments_.out.end() && i < OutputsOf(graph_)) {
      file = arguments_.out.find(absl::StrCat(i));
    }
    return file == arguments_.out.end() ? "" : file->second;
  }

  absl::Status CheckOutputs() {
    for (const std::string& name : arguments_.gradients) {
      BEAMD_ASSIGN_OR_RETURN(const uint64_t id, Buffer(name, "grad"));
      gradients_.push_back(id);
    }
    for (const auto& [name, file] : arguments_.out) {
      bool found = false;
      std::vector<std::string> all;
      for (int i = 0; i < OutputsOf(graph_) + static_cast<int>(gradients_.size()); ++i) {
        all.push_back(OutputName(i));
        found = found || all.back() == name;
        int number = 0;
        found = found || (i < OutputsOf(graph_) && absl::SimpleAtoi(name, &number) && number == i);
      }
      if (found) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--out ", name, ": there is no such output; there are ",
                       absl::StrJoin(all, ", "), "; --grad BUFFER makes grad.BUFFER"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs() {
    std::map<uint64_t, std::string> files;
    for (const auto& [name, file] : arguments_.in) {
      BEAMD_ASSIGN_OR_RETURN(const uint64_t id, Buffer(name, "in"));
      if (!files.emplace(id, file).second) {
        return absl::InvalidArgumentError(absl::StrCat("--in gives buffer ", id, " two files"));
      }
    }
    for (const auto& [id, node] : buffers_) {
      const std::string name = NameOf(names_.buffers, id);
      const auto& list = node->buffer_arg().shape();
      const std::vector<int64_t> shape(list.values().begin(), list.values().end());
      if (list.symbolic_size() > 0) {
        return absl::UnimplementedError(
            absl::StrCat("buffer ", name, " has a shape with variables, a file has numbers"));
      }
      const v1::Scalar dtype = node->dtype().scalar();
      const auto file = files.find(id);
      if (file == files.end()) {
        if (!arguments_.random) {
          return absl::InvalidArgumentError(
              absl::StrCat("buffer ", name, ", ", Describe(dtype, shape), ", has no content: --in ",
                           name, "=FILE.npy, or --random for any numbers"));
        }
        BEAMD_ASSIGN_OR_RETURN(inputs_[id], Numbers(dtype, shape, id));
        continue;
      }
      BEAMD_ASSIGN_OR_RETURN(Npy array, ReadNpyFile(file->second));
      if (array.dtype != dtype || array.shape != shape) {
        const bool cast = array.dtype != dtype;
        return absl::InvalidArgumentError(
            absl::StrCat(file->second, " holds ", Describe(array.dtype, array.shape), ", buffer ",
                         name, " is ", Describe(dtype, shape), ": save it with .",
                         cast ? absl::StrCat("astype(\"", thin::Name(dtype), "\")")
                              : absl::StrCat("reshape(", absl::StrJoin(shape, ", "), ")")));
      }
      inputs_[id] = std::move(array);
    }
    return absl::OkStatus();
  }

  // Of a generator that has no state: the same for one graph each time.
  static absl::StatusOr<Npy> Numbers(v1::Scalar dtype, const std::vector<int64_t>& shape,
                                     uint64_t seed) {
    constexpr int64_t kMost = int64_t{1} << 33;
    int64_t bytes = thin::SizeBytes(dtype);
    for (const int64_t size : shape) {
      if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMost || size < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("no random numbers for ", Describe(dtype, shape)));
      }
    }
    Npy array{dtype, shape, std::string(bytes, '\0')};
    const int64_t size = thin::SizeBytes(dtype);
    for (int64_t i = 0; size > 0 && i < bytes / size; ++i) {
      const uint64_t draw = (static_cast<uint64_t>(i) + seed * 977 + 1) * 0x9E3779B97F4A7C15U;
      const double unit = static_cast<double>(draw >> 11) * 0x1p-52 - 1;  // [-1, 1)
      char* const to = &array.content[i * size];
      if (dtype == v1::SCALAR_FLOAT32) {
        const auto value = static_cast<float>(unit);
        std::memcpy(to, &value, sizeof(value));
      } else if (dtype == v1::SCALAR_FLOAT64) {
        std::memcpy(to, &unit, sizeof(unit));
      } else if (dtype == v1::SCALAR_FLOAT16 || dtype == v1::SCALAR_BFLOAT16) {
        // The upper half of 1.0 to 2.0, as bits: exact in both.
        const uint16_t one = dtype == v1::SCALAR_FLOAT16 ? 0x3C00 : 0x3F80;
        const auto value = static_cast<uint16_t>(one + (draw >> 58));
        std::memcpy(to, &value, sizeof(value));
      } else {
        *to = static_cast<char>(dtype == v1::SCALAR_BOOL ? draw >> 63 : draw >> 61);
      }
    }
    return array;
  }

  thin::Session& session_;
  const v1::Graph& graph_;
  const GraphNames& names_;
  const RunArguments& arguments_;
  const std::map<uint64_t, const v1::Node*> buffers_;
  std::vector<uint64_t> gradients_;  // ids
  std::map<uint64_t, Npy> inputs_;
  std::vector<std::shared_ptr<thin::Buffer>> held_;
};

}  // namespace

absl::StatusOr<GraphNames> NamesOf(absl::string_view text) {
  GraphNames names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "# ")) continue;
    const bool buffer = absl::ConsumePrefix(&line, "buffer ");
    if (!buffer && !absl::ConsumePrefix(&line, "output ")) continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const std::string name(absl::StripAsciiWhitespace(parts.second));
    uint64_t number = 0, other = 0;
    // Words that happen to begin so.
    if (!absl::SimpleAtoi(parts.first, &number) || name.empty()) continue;
    const bool fresh = buffer ? names.buffers.emplace(name, number).second
                              : names.outputs.emplace(name, static_cast<int>(number)).second;
    if (absl::SimpleAtoi(name, &other) || name.find_first_of("=,") != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\" is no name: a number, or with = or , in it"));
    }
    if (!fresh) return absl::InvalidArgumentError(absl::StrCat("two are called ", name));
  }
  return names;
}

absl::StatusOr<GraphNames> NamesOfFile(const std::string& path) {
  if (path == "-") return GraphNames();
  BEAMD_ASSIGN_OR_RETURN(const std::string text, ReadLocalFile(path));
  const bool is_text = !text.empty() && (text[0] == '#' || text[0] == '%');
  return is_text ? NamesOf(text) : GraphNames();
}

absl::StatusOr<Pairs> ParsePairs(const std::vector<std::string>& entries) {
  Pairs pairs;
  for (const std::string& entry : entries) {
    const size_t at = entry.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == entry.size()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", entry, "\" isn't name=file"));
    }
    if (!pairs.emplace(entry.substr(0, at), entry.substr(at + 1)).second) {
      return absl::InvalidArgumentError(absl::StrCat(entry.substr(0, at), " stands there twice"));
    }
  }
  return pairs;
}

absl::StatusOr<RunResult> RunGraph(thin::Session& session, const v1::Graph& graph,
                                   const GraphNames& names, const RunArguments& arguments) {
  return GraphRun(session, graph, names, arguments).Run();
}

void PrintRun(const RunResult& result, bool json) {
  constexpr int64_t kShown = 8;
  for (const RunResult::Output& output : result.outputs) {
    const Npy& array = output.array;
    if (json) {
      JsonLine()
          .Text("output", output.name)
          .Text("dtype", thin::Name(array.dtype))
          .Text("shape", absl::StrJoin(array.shape, ","))
          .Text("file", output.file)
          .Print();
      continue;
    }
    std::string shown;
    const int64_t count = static_cast<int64_t>(array.content.size()) / thin::SizeBytes(array.dtype);
    for (int64_t i = 0; i < std::min(count, kShown); ++i) {
      absl::StrAppend(&shown, i > 0 ? " " : "", Element(array, i));
    }
    std::printf("%s: %s  %s\n", output.name.c_str(), Describe(array.dtype, array.shape).c_str(),
                !output.file.empty() ? absl::StrCat("in ", output.file).c_str()
                : count > kShown     ? absl::StrCat(shown, " ...").c_str()
                                     : shown.c_str());
  }
  const v1::RunStatistics& statistics = result.response.statistics();
  if (json) {
    JsonLine()
        .Number("kernels", statistics.kernels())
        .Number("compiled", statistics.compiled())
        .Number("run_s", statistics.run_s())
        .Print();
    return;
  }
  std::printf("%u kernels, %s, %u of them compiled now\n", statistics.kernels(),
              TimeText(statistics.run_s()).c_str(), statistics.compiled());
}

std::string TraceJson(const v1::RunResponse& response) {
  Profile profile;
  int64_t at_ns = 0;
  for (const v1::KernelRun& kernel : response.kernels()) {
    const auto duration_ns = static_cast<int64_t>(std::llround(kernel.seconds() * 1e9));
    profile.Add({.name = kernel.name(),
                 .category = kernel.kernel_hash().empty() ? "copy" : "kernel",
                 .start_ns = at_ns,
                 .duration_ns = duration_ns,
                 .ops = kernel.flops(),
                 .bytes = kernel.bytes()});
    at_ns += duration_ns;
  }
  return profile.TraceJson();
}

}  // namespace beamd
