#include "server/execution/device_memory.h"

#include <memory>

#include "absl/status/status.h"
#include "devices/cpu/device.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

std::shared_ptr<OpenedDevice> Open(std::shared_ptr<Counters> counters) {
  return std::make_shared<OpenedDevice>("cpu:0", *OpenCpuDevice(), std::move(counters));
}

TEST(DeviceMemory, IsUsedAgainBySize) {
  const auto counters = std::make_shared<Counters>();
  const auto device = Open(counters);
  void* first = nullptr;
  {
    const auto memory = device->Allocate(4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    first = (*memory)->buffer().mapped();
    EXPECT_EQ(counters->Get().memory_bytes, 4096);
  }
  EXPECT_EQ(counters->Get().memory_bytes, 0);
  EXPECT_EQ(device->waiting_bytes(), 4096);
  const auto other = device->Allocate(8192);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*other)->buffer().mapped(), first);
  const auto again = device->Allocate(4096);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->buffer().mapped(), first);
  EXPECT_EQ(device->waiting_bytes(), 0);
  EXPECT_EQ(counters->Get().memory_bytes, 3 * 4096);
}

TEST(DeviceMemory, WindowKeepsWhatItLiesIn) {
  const auto counters = std::make_shared<Counters>();
  const auto device = Open(counters);
  std::shared_ptr<DeviceMemory> window;
  {
    const auto memory = device->Allocate(4096);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const auto made = DeviceMemory::Window(*memory, 1024, 64);
    ASSERT_TRUE(made.ok()) << made.status();
    window = *made;
    EXPECT_EQ(&window->whole(), memory->get());
    EXPECT_TRUE(absl::IsOutOfRange(DeviceMemory::Window(*memory, 4096, 64).status()));
  }
  EXPECT_EQ(counters->Get().memory_bytes, 4096);
  EXPECT_EQ(window->buffer().size_bytes(), 64);
  window.reset();
  EXPECT_EQ(counters->Get().memory_bytes, 0);
}

TEST(DeviceMemory, OutlivesWhoOpenedItsDevice) {
  std::shared_ptr<DeviceMemory> memory;
  {
    const auto device = Open(std::make_shared<Counters>());
    memory = *device->Allocate(64);
  }
  const std::byte byte[] = {std::byte{1}};
  EXPECT_TRUE(memory->buffer().Write(0, byte).ok());
}

TEST(DeviceMemory, SaysWhenThereIsNone) {
  const auto device = Open(std::make_shared<Counters>());
  EXPECT_TRUE(absl::IsResourceExhausted(device->Allocate(int64_t{1} << 60).status()));
}

}  // namespace
}  // namespace beamd
