#include "server/workers/candidate_runner.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuning/parse_kernel.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::testing::HasSubstr;

constexpr int kElements = 64;

class HostBuffer : public Buffer {
 public:
  explicit HostBuffer(size_t size) : own_(size), bytes_(own_) {}
  explicit HostBuffer(std::span<std::byte> bytes) : bytes_(bytes) {}
  size_t size_bytes() const override { return bytes_.size(); }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
    return absl::OkStatus();
  }
  void* mapped() override { return bytes_.data(); }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> own_;
  std::span<std::byte> bytes_;
};

// What an image does, with the elements of its buffers.
using Code = std::function<void(const std::vector<float*>&)>;

class HostExecutable : public Executable {
 public:
  explicit HostExecutable(Code code) : code(std::move(code)) {}
  const Code code;
};

// Runs images by name.
class HostDevice : public Device {
 public:
  HostDevice() { info_.memory_bytes = 1 << 20; }
  const TargetCaps& caps() const override { return caps_; }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t size) override {
    return std::make_unique<HostBuffer>(size);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> View(Buffer& parent, size_t offset,
                                               size_t size) override {
    return std::make_unique<HostBuffer>(
        dynamic_cast<HostBuffer&>(parent).bytes().subspan(offset, size));
  }
  absl::StatusOr<std::unique_ptr<Executable>> Load(const KernelImage& image) override {
    return std::make_unique<HostExecutable>(images.at(image.code));
  }
  absl::StatusOr<absl::Duration> Run(const Executable& exe, const Launch& launch) override {
    std::vector<float*> elements;
    for (Buffer* buffer : launch.buffers) elements.push_back(static_cast<float*>(buffer->mapped()));
    dynamic_cast<const HostExecutable&>(exe).code(elements);
    return took;
  }
  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(const Executable&,
                                                          const Launch&) override {
    return absl::UnimplementedError("");
  }
  absl::Status Wait() override { return absl::OkStatus(); }
  absl::Status FlushCache(std::span<Buffer* const>) override { return absl::OkStatus(); }

  std::map<std::string, Code> images;
  absl::Duration took = absl::Milliseconds(2);

 private:
  TargetCaps caps_;
  DeviceInfo info_;
};

void Add(const std::vector<float*>& b, int begin, int end) {
  for (int i = begin; i < end; ++i) b[0][i] = b[1][i] + b[2][i];
}

class CandidateRunnerTest : public ::testing::Test {
 protected:
  // out = a + b; in place: a += b.
  void SetUp() override { Make(/*in_place=*/false); }
  void Make(bool in_place) {
    v1::Graph graph = AddKernel(kElements);
    // The first operand is slot 1's, or the output itself.
    if (in_place) {
      graph.mutable_nodes()->DeleteSubrange(2, 1);
      graph.mutable_nodes(2)->set_src(0, 0);
      graph.mutable_nodes(3)->set_int_arg(1);
      graph.mutable_nodes(4)->set_src(0, 3);
      graph.mutable_nodes(5)->set_src(0, 2);
      graph.mutable_nodes(5)->set_src(1, 4);
      graph.mutable_nodes(6)->set_src(2, 5);
      graph.mutable_nodes(7)->set_src(0, 6);
    }
    absl::StatusOr<ParsedKernel> parsed = ParseKernel(graph);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    kernel_ = *std::move(parsed);
    uses_ = {{.slot = 0,
              .scalar = Scalar::kFloat32,
              .size_elements = kElements,
              .read = in_place,
              .written = true}};
    for (int slot = 1; slot < (in_place ? 2 : 3); ++slot) {
      uses_.push_back({.slot = slot,
                       .scalar = Scalar::kFloat32,
                       .size_elements = kElements,
                       .read = true,
                       .written = false});
    }
  }
  KernelImage Image(const std::string& name, Code code) {
    device_.images[name] = std::move(code);
    KernelImage image;
    image.code = name;
    image.buffers = uses_;
    return image;
  }
  VerifyDone Verify(const Code& candidate, const Code& oracle = nullptr) {
    const KernelImage image = Image("candidate", candidate);
    if (oracle == nullptr) return runner_.Verify(kernel_.sink, {.seed = 7}, image, nullptr);
    const KernelImage unoptimised = Image("unoptimised", oracle);
    return runner_.Verify(kernel_.sink, {.seed = 7}, image, &unoptimised);
  }
  void ExpectWrong(const VerifyDone& done, const std::string& why) {
    EXPECT_EQ(done.failure, Failure::kWrongAnswer) << Name(done.failure);
    EXPECT_THAT(done.detail, HasSubstr(why));
    EXPECT_EQ(done.method, "");
  }

  static void Right(const std::vector<float*>& b) { Add(b, 0, kElements); }
  static void RightInPlace(const std::vector<float*>& b) {
    for (int i = 0; i < kElements; ++i) b[0][i] += b[1][i];
  }

  ParsedKernel kernel_;
  std::vector<KernelImage::Buffer> uses_;
  HostDevice device_;
  CandidateRunner runner_{device_};
};

TEST_F(CandidateRunnerTest, ARightAnswerIsVerified) {
  VerifyDone done = Verify(Right);
  EXPECT_EQ(done.failure, Failure::kNone) << done.detail;
  EXPECT_EQ(done.method, "evaluator");
  EXPECT_EQ(done.checked, kElements);
  done = Verify(Right, Right);
  EXPECT_EQ(done.failure, Failure::kNone) << done.detail;
  EXPECT_EQ(done.method, "unoptimised");
}

TEST_F(CandidateRunnerTest, AWriteOutsideABufferIsWrongThoughTheAnswerIsRight) {
  for (const int slot : {0, 1, 2}) {
    const std::string name = "slot " + std::to_string(slot);
    ExpectWrong(Verify([&](const std::vector<float*>& b) {
                  Right(b);
                  b[slot][kElements] = 1;
                }),
                "wrote behind the end of " + name);
    // The guards are whole again: each candidate answers for itself.
    runner_.Forget();
    ExpectWrong(Verify([&](const std::vector<float*>& b) {
                  Right(b);
                  b[slot][-1] = 1;
                }),
                "wrote before the begin of " + name);
    runner_.Forget();
  }
}

TEST_F(CandidateRunnerTest, AGuardThatWasBrokenIsWholeForTheNext) {
  const auto outside = [](const std::vector<float*>& b) {
    Right(b);
    b[1][kElements] = 1;
  };
  ExpectWrong(Verify(outside), "wrote behind");
  EXPECT_EQ(Verify(Right).failure, Failure::kNone);
}

TEST_F(CandidateRunnerTest, AnOutputThatIsLeftPartlyUnwrittenIsWrong) {
  for (const Code& oracle : {Code(), Code(Right)}) {
    ExpectWrong(Verify([](const std::vector<float*>& b) { Add(b, 0, kElements - 1); }, oracle), "");
    ExpectWrong(Verify([](const std::vector<float*>& b) { Add(b, 1, kElements); }, oracle), "");
    // What one candidate wrote is not there for the next.
    ExpectWrong(Verify([](const std::vector<float*>&) {}, oracle), "");
  }
}

TEST_F(CandidateRunnerTest, OneThatChangesItsInputsSpoilsNoOthersAnswer) {
  const auto scribbles = [](const std::vector<float*>& b) {
    Right(b);
    b[1][3] = 1000;
  };
  ExpectWrong(Verify(scribbles), "slot 1");
  EXPECT_EQ(Verify(Right).failure, Failure::kNone);
}

TEST_F(CandidateRunnerTest, AKernelThatWritesWhatItReadsIsCheckedFromEqualContent) {
  Make(/*in_place=*/true);
  for (int again = 0; again < 2; ++again) {
    for (const Code& oracle : {Code(), Code(RightInPlace)}) {
      const VerifyDone done = Verify(RightInPlace, oracle);
      EXPECT_EQ(done.failure, Failure::kNone) << done.detail;
      EXPECT_EQ(done.checked, kElements);
      ExpectWrong(Verify(
                      [](const std::vector<float*>& b) {
                        RightInPlace(b);
                        RightInPlace(b);
                      },
                      oracle),
                  "");
    }
  }
}

TEST_F(CandidateRunnerTest, TimesThatAreNoneAreDiscarded) {
  const KernelImage image = Image("candidate", Right);
  const KernelImage* const images[] = {&image};
  for (const absl::Duration took :
       {absl::ZeroDuration(), -absl::Milliseconds(1), absl::InfiniteDuration()}) {
    device_.took = took;
    const TimeDone done = runner_.Time(images, {});
    EXPECT_EQ(done.failure, Failure::kInvalidTime) << took;
    EXPECT_TRUE(done.seconds.empty());
  }
  device_.took = absl::Milliseconds(2);
  EXPECT_EQ(runner_.Time(images, {}).failure, Failure::kNone);
}

}  // namespace
}  // namespace beamd
