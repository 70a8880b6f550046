// What an emulated GPU computes, and what it finds wrong with kernels that are.
#include "devices/emu/device.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "devices/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/devices/emu/kit.h"

namespace beamd {
namespace {

using ::testing::AllOf;
using testing::EmuKit;
using ::testing::HasSubstr;
using testing::Memory;
using testing::Message;
using testing::Reads;
using testing::ReadsAndWrites;
using ::testing::StartsWith;
using testing::Values;
using testing::Writes;

constexpr auto kF32 = Scalar::kFloat32;

// Where a group stands and an item in it, for both kinds of target, after StrReplaceAll.
constexpr char kIds[] = R"(
  %lx = call i32 @LX()
  %ly = call i32 @LY()
  %gx = call i32 @GX()
  %gz = call i32 @GZ()
)";

std::string WithIds(absl::string_view text, bool cuda) {
  return absl::StrReplaceAll(
      absl::StrReplaceAll(text, {{"$IDS", kIds}}),
      {{"@LX", cuda ? "@llvm.nvvm.read.ptx.sreg.tid.x" : "@llvm.amdgcn.workitem.id.x"},
       {"@LY", cuda ? "@llvm.nvvm.read.ptx.sreg.tid.y" : "@llvm.amdgcn.workitem.id.y"},
       {"@GX", cuda ? "@llvm.nvvm.read.ptx.sreg.ctaid.x" : "@llvm.amdgcn.workgroup.id.x"},
       {"@GZ", cuda ? "@llvm.nvvm.read.ptx.sreg.ctaid.z" : "@llvm.amdgcn.workgroup.id.z"},
       {"$BARRIER", cuda ? "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
                         : "fence syncscope(\"workgroup\") release\n"
                           "call void @llvm.amdgcn.s.barrier()\n"
                           "fence syncscope(\"workgroup\") acquire"}});
}

class EmuDevice : public ::testing::TestWithParam<const char*> {
 protected:
  bool cuda() const { return GetParam()[0] == 's'; }

  // Runs a body written with $IDS and $BARRIER.
  absl::Status Run(EmuKit& kit, absl::string_view parameters, absl::string_view body,
                   const EmuKit::Shape& shape, std::vector<std::vector<std::byte>>& memory,
                   absl::string_view globals = "", const std::vector<int64_t>& variables = {}) {
    return kit.Run(WithIds(kit.Module(parameters, body, globals), cuda()), shape, memory,
                   variables);
  }
};

// out[i] = a[i] + n where i = item + 8 row + 32 group + 64 layer.
constexpr char kAdd[] = R"($IDS
  %r = shl i32 %ly, 3
  %g = shl i32 %gx, 5
  %z = shl i32 %gz, 6
  %t = add i32 %lx, %r
  %u = add i32 %t, %g
  %v = add i32 %u, %z
  %i = zext i32 %v to i64
  %from = getelementptr float, ptr addrspace(1) %a, i64 %i
  %x = load float, ptr addrspace(1) %from, align 4
  %nf = sitofp i64 %n to float
  %y = fadd float %x, %nf
  %to = getelementptr float, ptr addrspace(1) %out, i64 %i
  store float %y, ptr addrspace(1) %to, align 4
  ret void
)";
constexpr char kAddParameters[] = "ptr addrspace(1) %out, ptr addrspace(1) %a, i64 %n";

EmuKit::Shape AddShape() {
  return {.buffers = {Writes(0, kF32, 192), Reads(1, kF32, 192)},
          .groups = {2, 1, 3},
          .items = {8, 4, 1},
          .variables = {{"n", 0, 100}}};
}

TEST_P(EmuDevice, RunsGridsOfThreeAxes) {
  for (const uint64_t seed : {0, 1, 2}) {
    EmuKit kit(GetParam(), seed);
    std::vector<float> a(192);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
    std::vector<std::vector<std::byte>> memory = {Memory(std::vector<float>(192, -1)), Memory(a)};
    const absl::Status status = Run(kit, kAddParameters, kAdd, AddShape(), memory, "", {7});
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<float> out = Values<float>(memory[0]);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<float>(i + 7));
  }
}

TEST_P(EmuDevice, NamesAGridThatIsTooLarge) {
  EmuKit kit(GetParam());
  EmuKit::Shape shape = AddShape();
  shape.groups = {2, 1, 4};
  std::vector<std::vector<std::byte>> memory(2, Memory(std::vector<float>(192 + 64)));
  const absl::Status status = Run(kit, kAddParameters, kAdd, shape, memory, "", {7});
  EXPECT_THAT(
      Message(status),
      AllOf(StartsWith("out of bounds: load of 4 bytes at offset 768 of global memory, "
                       "slot 1, which has bytes [0, 768)"),
            HasSubstr("work-item (0,0,0) of group (0,0,3)"), HasSubstr("kernel \"kernel\"")));
}

TEST_P(EmuDevice, NamesAnItemThatStoresBeforeItsBuffer) {
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<float>(8))};
  const absl::Status status = Run(kit, "ptr addrspace(1) %out", R"($IDS
    %i = zext i32 %lx to i64
    %j = sub i64 2, %i
    %to = getelementptr float, ptr addrspace(1) %out, i64 %j
    store float 1.0, ptr addrspace(1) %to, align 4
    ret void)",
                                  {.buffers = {Writes(3, kF32, 8)}, .items = {4, 1, 1}}, memory);
  EXPECT_THAT(
      Message(status),
      AllOf(StartsWith("out of bounds: store of 4 bytes at offset -4 of global memory, slot 3"),
            HasSubstr("work-item (3,0,0)")));
}

TEST_P(EmuDevice, NamesMisalignedVectors) {
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<float>(64))};
  const absl::Status status = Run(kit, "ptr addrspace(1) %out", R"($IDS
    %k = mul i32 %lx, 5
    %i = zext i32 %k to i64
    %to = getelementptr float, ptr addrspace(1) %out, i64 %i
    store <4 x float> zeroinitializer, ptr addrspace(1) %to, align 16
    ret void)",
                                  {.buffers = {Writes(0, kF32, 64)}, .items = {4, 1, 1}}, memory);
  EXPECT_THAT(
      Message(status),
      AllOf(StartsWith("misaligned: store of 16 bytes at offset 20 of global memory, slot 0, "
                       "which is no multiple of 16"),
            HasSubstr("work-item (1,0,0)")));
}

// Two rounds in which each item hands its neighbour what it holds; $SECOND: the barrier that keeps
// the second round's store behind the first one's loads.
constexpr char kExchange[] = R"($IDS
  %i = zext i32 %lx to i64
  %n1 = add i32 %lx, 1
  %n2 = and i32 %n1, 63
  %n = zext i32 %n2 to i64
  %mine = getelementptr [64 x i32], ptr addrspace(3) @tile, i64 0, i64 %i
  %next = getelementptr [64 x i32], ptr addrspace(3) @tile, i64 0, i64 %n
  store i32 %lx, ptr addrspace(3) %mine, align 4
  $BARRIER
  %x = load i32, ptr addrspace(3) %next, align 4
  $SECOND
  store i32 %x, ptr addrspace(3) %mine, align 4
  $BARRIER
  %y = load i32, ptr addrspace(3) %next, align 4
  %to = getelementptr i32, ptr addrspace(1) %out, i64 %i
  store i32 %y, ptr addrspace(1) %to, align 4
  ret void
)";
constexpr char kTile[] = "@tile = internal addrspace(3) global [64 x i32] poison, align 16\n";

EmuKit::Shape ExchangeShape() {
  return {.buffers = {Writes(0, Scalar::kInt32, 64)}, .items = {64, 1, 1}, .shared_bytes = 256};
}

TEST_P(EmuDevice, BarriersHoldAGroupTogetherInAnyOrder) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EmuKit kit(GetParam(), seed);
    std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(64))};
    const std::string body = absl::StrReplaceAll(kExchange, {{"$SECOND", "$BARRIER"}});
    const absl::Status status =
        Run(kit, "ptr addrspace(1) %out", body, ExchangeShape(), memory, kTile);
    ASSERT_TRUE(status.ok()) << status;
    const std::vector<int32_t> out = Values<int32_t>(memory[0]);
    for (int32_t i = 0; i < 64; ++i) ASSERT_EQ(out[i], (i + 2) % 64) << seed;
  }
}

TEST_P(EmuDevice, NamesTheRaceOfAMissingBarrier) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EmuKit kit(GetParam(), seed);
    std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(64))};
    const std::string body = absl::StrReplaceAll(kExchange, {{"$SECOND", ""}});
    const absl::Status status =
        Run(kit, "ptr addrspace(1) %out", body, ExchangeShape(), memory, kTile);
    EXPECT_THAT(Message(status),
                AllOf(StartsWith("race: "), HasSubstr("of shared memory tile"),
                      HasSubstr("no barrier is between"), HasSubstr("of group (0,0,0)")))
        << seed;
  }
}

TEST_P(EmuDevice, NamesSharedMemoryThatNothingWasStoredTo) {
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(64))};
  const absl::Status status = Run(kit, "ptr addrspace(1) %out", R"($IDS
    %i = zext i32 %lx to i64
    %mine = getelementptr [64 x i32], ptr addrspace(3) @tile, i64 0, i64 %i
    %x = load i32, ptr addrspace(3) %mine, align 4
    %to = getelementptr i32, ptr addrspace(1) %out, i64 %i
    store i32 %x, ptr addrspace(1) %to, align 4
    ret void)",
                                  ExchangeShape(), memory, kTile);
  EXPECT_THAT(Message(status),
              StartsWith("uninitialised: load of 4 bytes at offset 0 of shared memory tile"));
}

TEST_P(EmuDevice, NamesAnArrayThatIsLeftForItsNeighbour) {
  EmuKit kit(GetParam());
  EmuKit::Shape shape = ExchangeShape();
  shape.shared_bytes = 1024;
  shape.items = {65, 1, 1};
  shape.buffers = {Writes(0, Scalar::kInt32, 65)};
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(65))};
  const absl::Status status = Run(kit, "ptr addrspace(1) %out", R"($IDS
    %i = zext i32 %lx to i64
    %mine = getelementptr [64 x i32], ptr addrspace(3) @tile, i64 0, i64 %i
    %there = getelementptr [65 x i32], ptr addrspace(3) @other, i64 0, i64 %i
    store i32 1, ptr addrspace(3) %there, align 4
    store i32 1, ptr addrspace(3) %mine, align 4
    ret void)",
                                  shape, memory,
                                  absl::StrCat(kTile,
                                               "@other = internal addrspace(3) global "
                                               "[65 x i32] poison, align 16\n"));
  EXPECT_THAT(
      Message(status),
      AllOf(StartsWith("out of bounds: store of 4 bytes at offset 256 of shared memory tile, "
                       "which has bytes [0, 256)"),
            HasSubstr("work-item (64,0,0)")));
}

TEST_P(EmuDevice, NamesDivergentBarriers) {
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(64))};
  const absl::Status status = Run(kit, "ptr addrspace(1) %out", R"($IDS
    %c = icmp ult i32 %lx, 60
    br i1 %c, label %wait, label %end
  wait:
    $BARRIER
    br label %end
  end:
    ret void)",
                                  ExchangeShape(), memory);
  EXPECT_THAT(Message(status),
              StartsWith("divergent barrier: 60 of 64 work-items wait at it, 4 ended"));
}

TEST_P(EmuDevice, NamesRacesInGlobalMemoryWithinAndAcrossGroups) {
  // Each item stores to word lx / 2 of a group's own words, or of all groups' if %gx counts not.
  constexpr char kStore[] = R"($IDS
    %g = mul i32 %gx, $STRIDE
    %h = lshr i32 %lx, $SHIFT
    %k = add i32 %g, %h
    %i = zext i32 %k to i64
    %to = getelementptr i32, ptr addrspace(1) %out, i64 %i
    store i32 7, ptr addrspace(1) %to, align 4
    ret void)";
  EmuKit kit(GetParam());
  const EmuKit::Shape shape = {
      .buffers = {Writes(0, Scalar::kInt32, 16)}, .groups = {2, 1, 1}, .items = {8, 1, 1}};
  const auto run = [&](const char* stride, const char* shift) {
    std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(16))};
    return Run(kit, "ptr addrspace(1) %out",
               absl::StrReplaceAll(kStore, {{"$STRIDE", stride}, {"$SHIFT", shift}}), shape,
               memory);
  };
  EXPECT_TRUE(run("8", "0").ok());
  EXPECT_THAT(Message(run("8", "1")),
              AllOf(StartsWith("race: store of 4 bytes at offset 0 of global memory, slot 0, where "
                               "work-item (0,0,0) of group (0,0,0) stored"),
                    HasSubstr("; work-item (1,0,0) of group (0,0,0)")));
  EXPECT_THAT(Message(run("0", "0")),
              AllOf(StartsWith("race: "), HasSubstr("work-item (0,0,0) of group (0,0,0) stored"),
                    HasSubstr("; work-item (0,0,0) of group (1,0,0)")));
}

TEST_P(EmuDevice, NamesAByteThatIsReadWhileItIsStored) {
  // Item i stores byte i and reads byte i + 1 of what all share.
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<uint8_t>(8))};
  const absl::Status status =
      Run(kit, "ptr addrspace(1) %out", R"($IDS
    %i = zext i32 %lx to i64
    %n = add i64 %i, 1
    %from = getelementptr i8, ptr addrspace(1) %out, i64 %n
    %x = load i8, ptr addrspace(1) %from, align 1
    %to = getelementptr i8, ptr addrspace(1) %out, i64 %i
    store i8 %x, ptr addrspace(1) %to, align 1
    ret void)",
          {.buffers = {ReadsAndWrites(0, Scalar::kUint8, 8)}, .items = {4, 1, 1}}, memory);
  EXPECT_THAT(Message(status),
              StartsWith("race: store of 1 bytes at offset 1 of global memory, slot 0, where "
                         "work-item (0,0,0) of group (0,0,0) loaded"));
}

TEST_P(EmuDevice, AtomicsDoNotRaceWithEachOther) {
  EmuKit kit(GetParam(), 2);
  constexpr char kCount[] = R"($IDS
    %x = atomicrmw add ptr addrspace(1) %out, i32 1 monotonic, align 4
    ret void)";
  const EmuKit::Shape shape = {
      .buffers = {ReadsAndWrites(0, Scalar::kInt32, 1)}, .groups = {3, 1, 1}, .items = {32, 1, 1}};
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>{5})};
  const absl::Status status = Run(kit, "ptr addrspace(1) %out", kCount, shape, memory);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Values<int32_t>(memory[0])[0], 5 + 96);
  const absl::Status mixed =
      Run(kit, "ptr addrspace(1) %out", absl::StrReplaceAll(kCount, {{"ret void", R"(
    %y = load i32, ptr addrspace(1) %out, align 4
    ret void)"}}),
          shape, memory);
  EXPECT_THAT(Message(mixed), StartsWith("race: "));
}

TEST_P(EmuDevice, StoresToSlotsThatTheImageOnlyReadsAreRefused) {
  EmuKit kit(GetParam());
  EmuKit::Shape shape = AddShape();
  std::swap(shape.buffers[0].written, shape.buffers[0].read);
  std::vector<std::vector<std::byte>> memory(2, Memory(std::vector<float>(192)));
  const absl::Status status = Run(kit, kAddParameters, kAdd, shape, memory, "", {7});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(Message(status), HasSubstr("stores to slot 0"));
}

TEST_P(EmuDevice, KernelsAreLeftWithinTheLimitsOfTheirTarget) {
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory(2, Memory(std::vector<float>(192)));
  EmuKit::Shape shape = AddShape();
  shape.items = {33, 32, 1};
  EXPECT_TRUE(absl::IsInvalidArgument(Run(kit, kAddParameters, kAdd, shape, memory, "", {7})));
  shape = ExchangeShape();
  shape.shared_bytes = 128;
  std::vector<std::vector<std::byte>> one = {Memory(std::vector<int32_t>(64))};
  const absl::Status status =
      Run(kit, "ptr addrspace(1) %out", absl::StrReplaceAll(kExchange, {{"$SECOND", "$BARRIER"}}),
          shape, one, kTile);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_P(EmuDevice, WhatItDoesNotKnowIsNamed) {
  EmuKit kit(GetParam());
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(1))};
  const absl::Status intrinsic =
      kit.Run(kit.Module("ptr addrspace(1) %out",
                         cuda() ? "call void @llvm.nvvm.cp.async.commit.group()\nret void"
                                : "call void @llvm.amdgcn.s.sleep(i32 1)\nret void"),
              {.buffers = {Writes(0, Scalar::kInt32, 1)}}, memory);
  EXPECT_TRUE(absl::IsUnimplemented(intrinsic)) << intrinsic;
  EXPECT_THAT(Message(intrinsic),
              HasSubstr(cuda() ? "llvm.nvvm.cp.async.commit.group" : "llvm.amdgcn.s.sleep"));
  const absl::Status assembly =
      kit.Run(kit.Module("ptr addrspace(1) %out", "call void asm \"nop\", \"\"()\nret void"),
              {.buffers = {Writes(0, Scalar::kInt32, 1)}}, memory);
  EXPECT_TRUE(absl::IsUnimplemented(assembly)) << assembly;
  const absl::Status outside =
      kit.Run(kit.Module("ptr addrspace(1) %out", "call void @elsewhere()\nret void",
                         "declare void @elsewhere()"),
              {.buffers = {Writes(0, Scalar::kInt32, 1)}}, memory);
  EXPECT_TRUE(absl::IsUnimplemented(outside)) << outside;
  EXPECT_THAT(Message(outside), HasSubstr("elsewhere"));
}

TEST_P(EmuDevice, GoesOnAfterAReport) {
  EmuKit kit(GetParam());
  EmuKit::Shape shape = AddShape();
  shape.groups = {2, 1, 4};
  std::vector<std::vector<std::byte>> memory(2, Memory(std::vector<float>(192)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(Run(kit, kAddParameters, kAdd, shape, memory, "", {7}).ok());
    EXPECT_TRUE(Run(kit, kAddParameters, kAdd, AddShape(), memory, "", {7}).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EmuDevice, ::testing::Values("sm_80", "gfx1100", "gfx90a"));

TEST(EmuDeviceOfAmd, WantsFencesAroundBarriers) {
  EmuKit kit("gfx1100");
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(1))};
  const auto run = [&](const char* before, const char* behind) {
    return kit.Run(kit.Module("ptr addrspace(1) %out",
                              absl::StrCat(before, "\ncall void @llvm.amdgcn.s.barrier()\n", behind,
                                           "\nret void")),
                   {.buffers = {Writes(0, Scalar::kInt32, 1)}, .items = {4, 1, 1}}, memory);
  };
  const char* const release = "fence syncscope(\"workgroup\") release";
  const char* const acquire = "fence syncscope(\"workgroup\") acquire";
  EXPECT_TRUE(run(release, acquire).ok());
  EXPECT_THAT(Message(run("", acquire)), HasSubstr("no release fence"));
  EXPECT_THAT(Message(run(release, "")), HasSubstr("no acquire fence"));
  EXPECT_FALSE(run("fence syncscope(\"wavefront\") release", acquire).ok());
}

TEST(EmuDeviceOfNvidia, ShufflesAWarp) {
  EmuKit kit("sm_80", 3);
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(64 * 4))};
  const absl::Status status =
      kit.Run(kit.Module("ptr addrspace(1) %out", R"(
    %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
    %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 5, i32 31)
    %b = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %t, i32 3, i32 31)
    %c = call i32 @llvm.nvvm.shfl.sync.up.i32(i32 -1, i32 %t, i32 2, i32 0)
    %d = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %t, i32 9, i32 31)
    %v0 = insertelement <4 x i32> poison, i32 %a, i32 0
    %v1 = insertelement <4 x i32> %v0, i32 %b, i32 1
    %v2 = insertelement <4 x i32> %v1, i32 %c, i32 2
    %v3 = insertelement <4 x i32> %v2, i32 %d, i32 3
    %i = zext i32 %t to i64
    %to = getelementptr <4 x i32>, ptr addrspace(1) %out, i64 %i
    store <4 x i32> %v3, ptr addrspace(1) %to, align 16
    ret void)"),
              {.buffers = {Writes(0, Scalar::kInt32, 256)}, .items = {64, 1, 1}}, memory);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<int32_t> out = Values<int32_t>(memory[0]);
  for (int32_t i = 0; i < 64; ++i) {
    const int32_t lane = i % 32, warp = i - lane;
    EXPECT_EQ(out[4 * i], warp + (lane ^ 5));
    EXPECT_EQ(out[4 * i + 1], warp + (lane + 3 < 32 ? lane + 3 : lane));
    EXPECT_EQ(out[4 * i + 2], warp + (lane >= 2 ? lane - 2 : lane));
    EXPECT_EQ(out[4 * i + 3], warp + 9);
  }
}

TEST(EmuDeviceOfNvidia, NamesWarpOperationsThatAPartOfTheWarpReaches) {
  EmuKit kit("sm_80");
  std::vector<std::vector<std::byte>> memory = {Memory(std::vector<int32_t>(1))};
  const absl::Status status =
      kit.Run(kit.Module("ptr addrspace(1) %out", R"(
    %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
    %c = icmp ult i32 %t, 16
    br i1 %c, label %part, label %end
  part:
    %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 5, i32 31)
    br label %end
  end:
    ret void)"),
              {.buffers = {Writes(0, Scalar::kInt32, 1)}, .items = {32, 1, 1}}, memory);
  EXPECT_THAT(Message(status), StartsWith("divergent wave operation: 16 of 32 lanes reach"));
}

TEST(EmuTarget, KnowsWhatCodeIsGeneratedFor) {
  for (const char* arch : {"sm_75", "sm_80", "sm_90", "gfx90a", "gfx942", "gfx1100", "gfx1201"}) {
    const absl::StatusOr<TargetCaps> caps = EmuTarget(arch);
    ASSERT_TRUE(caps.ok()) << caps.status();
    EXPECT_EQ(caps->arch, arch);
    EXPECT_EQ(caps->code_form, CodeForm::kBitcode);
  }
  EXPECT_EQ(EmuTarget("cuda")->arch, "sm_80");
  EXPECT_EQ(EmuTarget("hip")->arch, "gfx1100");
  EXPECT_EQ(EmuTarget("gfx90a")->wave_size, 64);
  for (const char* arch : {"", "sm_", "sm_81x", "znver4", "sm_20"}) {
    EXPECT_TRUE(absl::IsNotFound(EmuTarget(arch).status())) << arch;
  }
}

TEST(EmuDriver, IsOpenedByNameAndNeverListed) {
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice("emu:gfx90a");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->caps().arch, "gfx90a");
  EXPECT_TRUE(absl::IsNotFound(OpenDevice("emu:znver4").status()));
  EXPECT_TRUE(absl::IsNotFound(OpenDevice("emu").status()));
  EXPECT_THAT(DeviceNames(), ::testing::IsEmpty());
}

TEST(EmuDeviceInfo, SaysThatItIsEmulated) {
  EmuKit kit("sm_80");
  EXPECT_TRUE(kit.device().info().emulated);
  EXPECT_EQ(kit.device().info().vendor, "beamd");
  EXPECT_EQ(kit.device().info().model, "emulated sm_80");
}

}  // namespace
}  // namespace beamd
