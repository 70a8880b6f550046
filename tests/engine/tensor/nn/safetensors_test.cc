#include "engine/tensor/nn/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/tensor/tensor.h"
#include "tests/testing/unfused.h"

namespace beamd::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Evaluated {
  testing::UnfusedRealizer realizer;
  LazyContext context{"cpu:0", &realizer};
};

std::vector<std::byte> File(absl::string_view header, size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

// Why a file of `header` and `data_bytes` zeros is refused; empty if it isn't.
std::string Refused(absl::string_view header, size_t data_bytes) {
  LazyContext context;
  const absl::StatusOr<Safetensors> parsed = ParseSafetensors(context, File(header, data_bytes));
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

std::string One(absl::string_view body) { return absl::StrCat("{\"t\":{", body, "}}"); }

TEST(Safetensors, AnEmptyHeaderHoldsNothing) {
  EXPECT_EQ(Refused("{}", 0), "");
  EXPECT_EQ(Refused("{ }   ", 0), "");
}

TEST(Safetensors, ReadsSpacesEscapesAndMetadata) {
  LazyContext context;
  const absl::StatusOr<Safetensors> parsed = ParseSafetensors(
      context, File("{ \"__metadata__\" : {\"k\\n\":\"\\u00e4\\ud83d\\ude00\"},\n"
                    "\"a\\\"b\": {\"shape\":[1 , 2],\"data_offsets\":[0,2],\"dtype\":\"I8\"} }",
                    2));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 1U);
  EXPECT_EQ(parsed->tensors[0].first, "a\"b");
  EXPECT_EQ(parsed->tensors[0].second.shape(), (Shape{1, 2}));
  EXPECT_EQ(parsed->tensors[0].second.dtype(), Scalar::kInt8);
  EXPECT_EQ(parsed->metadata.at("k\n"), "\xC3\xA4\xF0\x9F\x98\x80");
}

// Written by safetensors 0.8 for Python: tensors by the size of their elements, spaces at the end.
TEST(Safetensors, ReadsTheReferenceImplementationsFile) {
  Evaluated lazy;
  std::vector<std::byte> bytes = File(
      "{\"__metadata__\":{\"x\":\"\xC3\xBC\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],"
      "\"data_offsets\":[0,8]},\"c\":{\"dtype\":\"I16\",\"shape\":[0,2],\"data_offsets\":[8,8]},"
      "\"a\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[8,10]}}    ",
      10);
  constexpr unsigned char kData[] = {0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 1, 0};
  std::memcpy(&bytes[bytes.size() - sizeof(kData)], kData, sizeof(kData));
  const absl::StatusOr<Safetensors> parsed = ParseSafetensors(lazy.context, bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 3U);
  EXPECT_EQ(parsed->tensors[0].first, "b");
  EXPECT_THAT(*parsed->tensors[0].second.ToVector<float>(), ElementsAre(1, 2));
  EXPECT_EQ(parsed->tensors[1].second.shape(), (Shape{0, 2}));
  EXPECT_THAT(*parsed->tensors[2].second.ToVector<bool>(), ElementsAre(true, false));
}

TEST(Safetensors, HostileFilesAreRefused) {
  LazyContext context;
  const std::vector<std::byte> bytes = File("{}", 0);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(context, std::span(bytes).first(size)).ok()) << size;
  }
  std::vector<std::byte> huge = bytes;
  std::memset(huge.data(), 0xFF, 8);
  EXPECT_FALSE(ParseSafetensors(context, huge).ok());

  struct Hostile {
    std::string header;
    size_t data_bytes;
    std::string reason;
  };
  const std::string offsets = "\"data_offsets\":";
  for (const Hostile& hostile : std::vector<Hostile>{
           {"", 0, "doesn't begin"},
           {" {}", 0, "doesn't begin"},
           {"[]", 0, "doesn't begin"},
           {"{", 0, "no '\"'"},
           {"{}x", 0, "more after"},
           {"{}", 4, "4 bytes after the last tensor"},
           {"{\"t\":1}", 0, "no '{'"},
           {"{\"t\":{}}", 0, "needs a dtype"},
           {"{\"t", 0, "without an end"},
           {"{\"t\\", 0, "without an end"},
           {"{\"\\x\":{}}", 0, "unknown escape"},
           {"{\"\\ud800\":{}}", 0, "surrogate"},
           {"{\"\\ud800\\u0041\":{}}", 0, "surrogate"},
           {"{\"\\udc00\":{}}", 0, "surrogate"},
           {"{\"\\u12g4\":{}}", 0, "hexadecimal"},
           {"{\"a\nb\":{}}", 0, "bad character"},
           {"{\"\xC0\x80\":{}}", 0, "bad character"},
           {"{\"\xED\xA0\x80\":{}}", 0, "bad character"},
           {"{\"\xF4\x90\x80\x80\":{}}", 0, "bad character"},
           {"{\"\xE2\x82", 0, "bad character"},
           {One("\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]"), 4, "unknown dtype"},
           {One("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1"), 4, "unexpected"},
           {One("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]"), 4,
            "unexpected \"dtype\""},
           {One("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "no number"},
           {One("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "no ']'"},
           {One("\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]"), 4, "leading 0"},
           {One("\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]"), 4, "no number"},
           {One("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "two numbers"},
           {One("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]"), 4, "more than 2"},
           {One("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "expected from 0"},
           {One("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]"), 4, "in 4 bytes"},
           {One("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, "take 8"},
           {One("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]"), 5, "expected from 0"},
           {One("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]"), 4,
            "too large"},
           {One("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
            "overflows"},
           {One("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), 0,
            "overflows"},
           {One("\"dtype\":\"I8\",\"shape\":[9223372036854775807],"
                "\"data_offsets\":[0,9223372036854775807]"),
            1, "in 1 bytes"},
           {absl::StrCat("{\"t\":{\"dtype\":\"I8\",\"shape\":[1],", offsets,
                         "[0,1]},\"t\":{\"dtype\":\"I8\",\"shape\":[1],", offsets, "[1,2]}}"),
            2, "\"t\" twice"},
           {absl::StrCat("{\"a\":{\"dtype\":\"I8\",\"shape\":[2],", offsets,
                         "[0,2]},\"b\":{\"dtype\":\"I8\",\"shape\":[1],", offsets, "[1,2]}}"),
            2, "expected from 2"},
           {absl::StrCat("{\"a\":{\"dtype\":\"I8\",\"shape\":[1],", offsets,
                         "[0,1]},\"b\":{\"dtype\":\"I8\",\"shape\":[1],", offsets, "[2,3]}}"),
            3, "expected from 1"},
           {"{\"__metadata__\":{\"k\":1}}", 0, "no '\"'"},
           {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "twice"},
           {absl::StrCat(std::string(100'000, '{')), 0, "no '\"'"},
       }) {
    EXPECT_THAT(Refused(hostile.header, hostile.data_bytes), HasSubstr(hostile.reason))
        << hostile.header.substr(0, 100);
  }
  std::string axes = "1";
  for (int i = 0; i < 64; ++i) axes += ",1";
  EXPECT_THAT(
      Refused(One(absl::StrCat("\"dtype\":\"I8\",\"shape\":[", axes, "],", offsets, "[0,1]")), 1),
      HasSubstr("more than 64"));
}

TEST(Safetensors, ABoolIsZeroOrOne) {
  LazyContext context;
  std::vector<std::byte> bytes =
      File(One("\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]"), 2);
  EXPECT_TRUE(ParseSafetensors(context, bytes).ok());
  bytes.back() = std::byte{2};
  EXPECT_THAT(ParseSafetensors(context, bytes).status().message(), HasSubstr("neither 0 nor 1"));
}

// Every single byte of a good file changed: an answer or a typed error, never more.
TEST(Safetensors, ChangedBytesAreNoHarm) {
  const std::string header =
      "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":"
      "[0,8]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[8,9]}}";
  const std::vector<std::byte> good = File(header, 9);
  LazyContext context;
  ASSERT_TRUE(ParseSafetensors(context, good).ok());
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int to : {0x00, 0x22, 0x30, 0x39, 0x5C, 0x5D, 0x7B, 0x7D, 0x80, 0xFF}) {
      std::vector<std::byte> bad = good;
      bad[at] = static_cast<std::byte>(to);
      const absl::StatusOr<Safetensors> parsed = ParseSafetensors(context, bad);
      const absl::StatusCode code = parsed.status().code();
      EXPECT_TRUE(parsed.ok() || code == absl::StatusCode::kInvalidArgument) << at;
    }
  }
}

TEST(Safetensors, EveryDTypeComesBack) {
  Evaluated lazy;
  NamedTensors tensors;
  for (int s = 1; s < kScalarCount; ++s) {
    const Scalar dtype = static_cast<Scalar>(s);
    tensors.emplace_back(std::string(Name(dtype)),
                         Tensor::Arange(lazy.context, 6).Cast(dtype).Reshape({2, 3}));
  }
  tensors.emplace_back("nothing \"\\\n", Tensor::Zeros(lazy.context, {0, 3}));
  const absl::StatusOr<std::vector<std::byte>> bytes =
      WriteSafetensors(tensors, {{"format", "beamd"}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const absl::StatusOr<Safetensors> back = ParseSafetensors(lazy.context, *bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->metadata.at("format"), "beamd");
  ASSERT_EQ(back->tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(back->tensors[i].first, tensors[i].first);
    EXPECT_EQ(back->tensors[i].second.dtype(), tensors[i].second.dtype());
    EXPECT_EQ(back->tensors[i].second.shape(), tensors[i].second.shape());
    EXPECT_EQ(*back->tensors[i].second.ToBytes(), *tensors[i].second.ToBytes());
  }
}

TEST(Safetensors, NamesThatCannotBeAreRefused) {
  LazyContext context;
  const Tensor t = Tensor::Zeros(context, {1});
  EXPECT_EQ(WriteSafetensors({{"a", t}, {"a", t}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors({{"__metadata__", t}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors({{"\xFF", t}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, AFileThatIsShortOrNoneIsRefused) {
  LazyContext context;
  const std::string path = absl::StrCat(::testing::TempDir(), "/b.safetensors");
  const std::vector<std::byte> good =
      File(One("\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]"), 4);
  for (size_t size = 0; size <= good.size(); ++size) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(good.data()), static_cast<std::streamsize>(size));
    const absl::StatusOr<Safetensors> loaded = LoadSafetensorsFile(context, path);
    EXPECT_EQ(loaded.ok(), size == good.size()) << size;
    if (!loaded.ok()) {
      EXPECT_THAT(loaded.status().message(), HasSubstr(path));
    }
  }
  // As long as a disk, without a byte on it: refused by its header.
  std::filesystem::resize_file(path, 0);
  std::filesystem::resize_file(path, uintmax_t{1} << 40);
  EXPECT_EQ(LoadSafetensorsFile(context, path).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
}

TEST(Safetensors, AFileIsReplacedWhole) {
  Evaluated lazy;
  const std::string path = absl::StrCat(::testing::TempDir(), "/a.safetensors");
  for (const float value : {1.0F, 2.0F}) {
    const Tensor t = Tensor::From<float>(lazy.context, std::vector<float>{value, 3}, {2});
    ASSERT_TRUE(SaveSafetensorsFile({{"t", t}}, path).ok());
    const absl::StatusOr<Safetensors> back = LoadSafetensorsFile(lazy.context, path);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_THAT(*back->tensors[0].second.ToVector<float>(), ElementsAre(value, 3));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_EQ(LoadSafetensorsFile(lazy.context, path + ".not").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadSafetensorsFile(lazy.context, ::testing::TempDir()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(SaveSafetensorsFile({}, path + "/no/folder").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace beamd::nn
