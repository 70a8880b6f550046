// Runs the work-groups of a launch, one after another, and watches what they do.
//
// A kernel without barriers and wave operations is a loop over its work-items. In others each
// work-item is a fiber that runs until it waits; a wave's operation is carried out once all of its
// lanes wait there, a barrier falls once all of the group do.
//
// What is found, and stops the launch:
//   out of bounds     an access that doesn't lie in its buffer's declared elements or its array
//   misaligned        an address that isn't a multiple of what the code promised
//   race              two work-items touch a byte, one of them stores, not both are atomic, and no
//                     barrier is between: in shared memory and, of buffers that the kernel stores
//                     to, across groups as well
//   uninitialised     a load of shared memory that nothing was stored to
//   divergent         a barrier or wave operation that only a part of the group or wave reaches
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "devices/emu/fiber.h"
#include "devices/emu/kernel.h"

namespace beamd::emu {

// Who last stored to and loaded from each granule of some memory. A cell is an epoch (high half)
// and a work-item; what is older than a launch or group counts as nothing, so nothing is cleared
// between them.
class Shadow {
 public:
  // At least `cells` cells; false where there is no memory for them. What grows starts afresh.
  bool Reserve(size_t cells, bool with_loads);
  void Clear();
  uint64_t* stores() const { return stores_.get(); }
  uint64_t* loads() const { return loads_.get(); }  // null: nothing loads

 private:
  struct Free {
    void operator()(uint64_t* cells) const;
  };
  std::unique_ptr<uint64_t[], Free> stores_, loads_;
  size_t cells_ = 0;
  size_t load_cells_ = 0;
};

struct BufferArgument {
  uint64_t address = 0;
  uint64_t bytes = 0;  // that may be touched
  int32_t slot = 0;
  bool read = false;
  bool written = false;
};

struct LaunchPlan {
  const TranslatedKernel* kernel = nullptr;
  Entry entry = nullptr;
  std::vector<std::pair<uint64_t, uint64_t>> constants;  // address, bytes; as kernel->constants
  std::string name;
  std::array<int64_t, 3> groups{};
  std::array<int64_t, 3> items{};
  int wave = 32;
  std::vector<BufferArgument> buffers;
  std::vector<int64_t> variables;
  // Of the order that groups and work-items run in. 0: ascending; 1: descending; else shuffled.
  uint64_t seed = 0;
  int64_t most_groups = 0;  // that run, the first in that order; 0: all
};

// Keeps its memory between launches. Not thread-safe.
class GroupRun {
 public:
  // Internal, with a report, where something was found: its kind comes first. ResourceExhausted
  // where there is no memory for watching.
  absl::Status Run(const LaunchPlan& plan);

  // For the code (runtime.cc). False: something was found, and the item must end (Abandon).
  bool TouchGlobal(WorkItem& item, const Access& access, uint64_t offset);
  bool TouchShared(WorkItem& item, const Access& access, uint64_t address);
  bool TouchUnknown(WorkItem& item, const Access& access, uint64_t address);
  bool Act(WorkItem& item, uint32_t collective, const std::byte* operands, std::byte* result);
  void Barrier(WorkItem& item, uint32_t site);
  // What is wrong with an access that the code itself found out of bounds or misaligned.
  void Fault(const WorkItem& item, const Access& access, uint64_t address);
  // Leaves the item's stack for good: nothing on it may own anything.
  [[noreturn]] void Abandon();

  const TranslatedKernel& kernel() const { return *plan_->kernel; }

 private:
  absl::Status Prepare();
  // The work of the fiber that takes one work-item after another.
  static void RunInTurn(void* self);
  static void RunItem(void* item);
  void RunTogether();
  bool ActTogether();
  void Act(uint32_t site, uint32_t first, uint32_t count);
  void EnterGroup(uint64_t number);
  uint64_t OrderedGroup(uint64_t i) const;
  bool TouchCells(const WorkItem& item, const Access& access, const Shadow& shadow, int granule,
                  uint64_t offset, bool shared);
  bool Conflicts(uint64_t cell, const WorkItem& item, bool shared) const;
  // Always false.
  bool Report(const WorkItem& item, const std::string& report);
  std::string Place(const Access& access, uint64_t offset) const;
  std::string ItemName(uint32_t id) const;
  std::string ItemName(const WorkItem& item) const;

  const LaunchPlan* plan_ = nullptr;
  std::unique_ptr<Fibers> fibers_;
  std::vector<WorkItem> work_items_;
  std::vector<uint32_t> order_;
  std::vector<uint64_t> arguments_;
  std::unique_ptr<std::byte, void (*)(void*)> shared_{nullptr, nullptr};
  size_t shared_bytes_ = 0;
  Shadow shared_shadow_;
  std::vector<Shadow> buffer_shadows_;
  uint64_t group_count_ = 0, group_stride_ = 1, groups_to_run_ = 0;
  uint32_t item_count_ = 0;
  // An epoch is from a barrier, or a group's beginning, to the next.
  uint32_t epoch_ = 0, group_start_ = 0, launch_start_ = 0;
  absl::Status found_;
};

}  // namespace beamd::emu
