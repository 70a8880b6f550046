#include "tests/testing/corpus.h"

#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "engine/uop/wire.h"

namespace beamd::testing {
namespace {

struct CloseGz {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

std::optional<std::string> CorpusDir() {
  const char* dir = std::getenv("BEAMD_CORPUS");
  if (dir == nullptr || *dir == '\0') return std::nullopt;
  return dir;
}

absl::Status ForEachLine(const std::string& dir, absl::string_view file,
                         const std::function<absl::Status(const JsonValue& line)>& line) {
  const std::string path = absl::StrCat(dir, "/", file);
  const std::unique_ptr<gzFile_s, CloseGz> in(gzopen(path.c_str(), "rb"));
  if (in == nullptr) return absl::NotFoundError(absl::StrCat("no file ", path));
  std::string text;
  std::vector<char> chunk(1 << 16);
  int64_t number = 0;
  while (gzgets(in.get(), chunk.data(), static_cast<int>(chunk.size())) != nullptr) {
    text += chunk.data();
    if (text.back() != '\n' && gzeof(in.get()) == 0) continue;
    ++number;
    const absl::StatusOr<JsonValue> value = JsonValue::Parse(text);
    const absl::Status status = value.ok() ? line(*value) : value.status();
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(path, ", line ", number, ": ", status.message()));
    }
    text.clear();
  }
  int error = Z_OK;
  const char* message = gzerror(in.get(), &error);
  if (error < 0) return absl::DataLossError(absl::StrCat(path, ": ", message));
  return absl::OkStatus();
}

absl::StatusOr<v1::Graph> CorpusMessage(const JsonValue& line) {
  return GraphFromJson(line["graph"].raw());
}

absl::StatusOr<UOp> CorpusGraph(const JsonValue& line, UOpGraph& graph) {
  BEAMD_ASSIGN_OR_RETURN(const v1::Graph message, CorpusMessage(line));
  return FromProto(message, graph);
}

absl::StatusOr<std::vector<CorpusKernel>> ReadCorpusKernels(const std::string& dir,
                                                            const std::vector<std::string>& files) {
  std::vector<CorpusKernel> kernels;
  for (const std::string& file : files) {
    const absl::Status status = ForEachLine(dir, file, [&](const JsonValue& line) {
      BEAMD_ASSIGN_OR_RETURN(v1::Graph graph, CorpusMessage(line));
      kernels.push_back({line["id"].String(), std::move(graph)});
      return absl::OkStatus();
    });
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return kernels;
}

absl::StatusOr<std::vector<CorpusNumeric>> ReadCorpusNumeric(const std::string& dir) {
  std::vector<CorpusNumeric> cases;
  const auto read = [&](const JsonValue& line) -> absl::Status {
    CorpusNumeric& c = cases.emplace_back();
    c.id = line["id"].String();
    for (const JsonValue& b : line["buffers"].items()) {
      absl::string_view name = b["dtype"]["scalar"].String();
      if (!absl::ConsumePrefix(&name, "SCALAR_")) return absl::DataLossError("no scalar");
      const std::optional<Scalar> scalar = ScalarFromName(absl::AsciiStrToLower(name));
      if (!scalar) return absl::DataLossError(absl::StrCat("no scalar ", name));
      c.buffers.push_back({static_cast<uint64_t>(b["slot"].Int()), b["size"].Int(), *scalar});
    }
    for (const JsonValue& o : line["outputs"].items()) {
      CorpusNumeric::Output& output = c.outputs.emplace_back();
      output.slot = static_cast<uint64_t>(o["slot"].Int());
      for (const JsonValue& sample : o["samples"].items()) {
        const JsonValue& value = sample[1];
        output.samples.push_back(
            {sample[0].Int(), value.Double(),
             value.kind() == JsonValue::Kind::kBool ? value.Bool() : value.Int()});
      }
    }
    const JsonValue& variables = line["vars"];
    for (size_t i = 0; i < variables.keys().size(); ++i) {
      c.variables.emplace_back(variables.keys()[i], variables.items()[i].Int());
    }
    return absl::OkStatus();
  };
  BEAMD_RETURN_IF_ERROR(ForEachLine(dir, "numeric.jsonl.gz", read));
  return cases;
}

std::string CorpusInput(int64_t slot, int64_t count, Scalar scalar) {
  const int width = SizeBytes(scalar);
  std::string bytes(count * width, '\0');
  const uint32_t start = static_cast<uint32_t>(slot) * 2246822519u + 374761393u;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + start;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    char* const at = bytes.data() + i * width;
    if (IsFloat(scalar)) {
      StoreFloat((x >> 8) / 8388608.0 - 1, scalar, at);
    } else {
      const int64_t value = scalar == Scalar::kBool ? x & 1
                            : IsUnsigned(scalar)    ? static_cast<int64_t>(x % 201)
                                                    : static_cast<int64_t>(x % 201) - 100;
      StoreInt(value, scalar, at);
    }
  }
  return bytes;
}

}  // namespace beamd::testing
