#include "devices/emu/group_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace beamd::emu {
namespace {

// Items that a cell may name besides real ones.
constexpr uint32_t kSeveral = 0xffffffff;
constexpr uint32_t kAtomically = 0xfffffffe;
constexpr uint64_t kMostIds = 0xfffffff0;
// An epoch at which watching starts over rather than run out of numbers.
constexpr uint32_t kLastEpoch = std::numeric_limits<uint32_t>::max() - 1;

constexpr size_t kSharedAlignment = 4096;

uint64_t Cell(uint32_t epoch, uint32_t item) { return uint64_t{epoch} << 32 | item; }
uint32_t EpochOf(uint64_t cell) { return static_cast<uint32_t>(cell >> 32); }
uint32_t ItemOf(uint64_t cell) { return static_cast<uint32_t>(cell); }

const char* Verb(AccessKind kind) {
  switch (kind) {
    case AccessKind::kLoad:
      return "load";
    case AccessKind::kStore:
      return "store";
    case AccessKind::kAtomic:
      return "atomic operation";
  }
  return "";
}

std::string Triple(uint64_t number, const std::array<int64_t, 3>& sizes) {
  const auto x = static_cast<uint64_t>(sizes[0]), y = static_cast<uint64_t>(sizes[1]);
  return absl::StrCat("(", number % x, ",", number / x % y, ",", number / x / y, ")");
}

// PTX ISA 8.7, 9.7.9.6 "shfl.sync": the lane whose value lane `lane` gets.
uint32_t ShuffleSource(CollectiveKind kind, uint32_t lane, uint32_t b, uint32_t c) {
  const uint32_t value = b & 31, clamp = c & 31, segment = c >> 8 & 31;
  const uint32_t highest = (lane & segment) | (clamp & ~segment);
  int64_t source = 0;
  bool valid = false;
  switch (kind) {
    case CollectiveKind::kShuffleUp:
      source = int64_t{lane} - value;
      valid = source >= int64_t{highest};
      break;
    case CollectiveKind::kShuffleDown:
      source = lane + value;
      valid = source <= highest;
      break;
    case CollectiveKind::kShuffleXor:
      source = lane ^ value;
      valid = source <= highest;
      break;
    default:
      source = (lane & segment) | (value & ~segment);
      valid = source <= highest;
      break;
  }
  return valid ? static_cast<uint32_t>(source) : lane;
}

}  // namespace

void Shadow::Free::operator()(uint64_t* cells) const { std::free(cells); }

bool Shadow::Reserve(size_t cells, bool with_loads) {
  // Cleared pages come from the system untouched, which a vector would write.
  if (cells > cells_) {
    stores_.reset(static_cast<uint64_t*>(std::calloc(cells, sizeof(uint64_t))));
    cells_ = stores_ == nullptr ? 0 : cells;
  }
  if (!with_loads) {
    loads_.reset();
    load_cells_ = 0;
  } else if (cells > load_cells_) {
    loads_.reset(static_cast<uint64_t*>(std::calloc(cells, sizeof(uint64_t))));
    load_cells_ = loads_ == nullptr ? 0 : cells;
  }
  return cells_ >= cells && (!with_loads || load_cells_ >= cells);
}

void Shadow::Clear() {
  if (stores_ != nullptr) std::memset(stores_.get(), 0, cells_ * sizeof(uint64_t));
  if (loads_ != nullptr) std::memset(loads_.get(), 0, load_cells_ * sizeof(uint64_t));
}

absl::Status GroupRun::Prepare() {
  const TranslatedKernel& kernel = *plan_->kernel;
  const auto product = [](const std::array<int64_t, 3>& sizes) {
    return static_cast<uint64_t>(sizes[0]) * static_cast<uint64_t>(sizes[1]) *
           static_cast<uint64_t>(sizes[2]);
  };
  group_count_ = product(plan_->groups);
  groups_to_run_ = plan_->most_groups > 0
                       ? std::min(group_count_, static_cast<uint64_t>(plan_->most_groups))
                       : group_count_;
  item_count_ = static_cast<uint32_t>(product(plan_->items));
  const int fibers = item_count_ > 1 && (kernel.barriers > 0 || !kernel.collectives.empty())
                         ? static_cast<int>(item_count_)
                         : 1;
  if (fibers_ == nullptr || fibers_->count() < fibers) {
    BEAMD_ASSIGN_OR_RETURN(fibers_, Fibers::Create(fibers));
  }
  arguments_.clear();
  for (const BufferArgument& buffer : plan_->buffers) {
    arguments_.push_back(buffer.address);
    arguments_.push_back(buffer.bytes);
  }
  for (const int64_t v : plan_->variables) arguments_.push_back(static_cast<uint64_t>(v));

  const auto shared_bytes = static_cast<size_t>(kernel.shared_bytes);
  if (shared_ == nullptr || shared_bytes > shared_bytes_) {
    shared_bytes_ = (std::max<size_t>(shared_bytes, 1) + kSharedAlignment - 1) / kSharedAlignment *
                    kSharedAlignment;
    shared_ = {static_cast<std::byte*>(std::aligned_alloc(kSharedAlignment, shared_bytes_)),
               std::free};
  }
  bool reserved =
      shared_ != nullptr &&
      shared_shadow_.Reserve((shared_bytes >> kernel.shared_granule) + 1, /*with_loads=*/true);
  if (buffer_shadows_.size() < plan_->buffers.size()) buffer_shadows_.resize(plan_->buffers.size());
  for (size_t i = 0; i < plan_->buffers.size() && reserved; ++i) {
    const BufferArgument& buffer = plan_->buffers[i];
    // What nothing stores to can't be raced for.
    const size_t cells = buffer.written ? (buffer.bytes >> kernel.buffer_granules[i]) + 1 : 0;
    reserved = buffer_shadows_[i].Reserve(cells, buffer.written && buffer.read);
  }
  if (!reserved) return absl::ResourceExhaustedError("no memory to watch the kernel's accesses in");

  work_items_.assign(item_count_, WorkItem());
  for (uint32_t i = 0; i < item_count_; ++i) {
    WorkItem& item = work_items_[i];
    const auto x = static_cast<uint32_t>(plan_->items[0]),
               y = static_cast<uint32_t>(plan_->items[1]);
    item.local = {i % x, i / x % y, i / x / y};
    item.shared = shared_.get();
    item.arguments = arguments_.data();
    item.run = this;
    item.index = i;
  }
  order_.resize(item_count_);
  std::iota(order_.begin(), order_.end(), 0);
  group_stride_ = 1;
  if (plan_->seed == 1) std::reverse(order_.begin(), order_.end());
  if (plan_->seed > 1) {
    std::mt19937_64 random(plan_->seed);
    std::shuffle(order_.begin(), order_.end(), random);
    // Any number without a common factor leads through all groups.
    group_stride_ = random() % group_count_ | 1;
    while (std::gcd(group_stride_, group_count_) != 1) ++group_stride_;
  }
  return absl::OkStatus();
}

uint64_t GroupRun::OrderedGroup(uint64_t i) const {
  if (plan_->seed == 1) return group_count_ - 1 - i;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(i) * group_stride_ % group_count_);
}

void GroupRun::EnterGroup(uint64_t number) {
  if (epoch_ >= kLastEpoch - 1) {
    shared_shadow_.Clear();
    for (Shadow& shadow : buffer_shadows_) shadow.Clear();
    epoch_ = 0;
    launch_start_ = 1;
  }
  group_start_ = ++epoch_;
  if (kernel().shared_bytes > 0) {
    // NaNs, and indices that lead nowhere.
    std::memset(shared_.get(), 0xff, static_cast<size_t>(kernel().shared_bytes));
  }
  const auto x = static_cast<uint64_t>(plan_->groups[0]),
             y = static_cast<uint64_t>(plan_->groups[1]);
  const std::array<uint32_t, 3> group = {static_cast<uint32_t>(number % x),
                                         static_cast<uint32_t>(number / x % y),
                                         static_cast<uint32_t>(number / x / y)};
  for (WorkItem& item : work_items_) {
    item.group = group;
    item.id = static_cast<uint32_t>((number * item_count_ + item.index) % kMostIds);
    item.state = WorkItem::State::kReady;
  }
}

absl::Status GroupRun::Run(const LaunchPlan& plan) {
  plan_ = &plan;
  found_ = absl::OkStatus();
  for (const int64_t size : plan.groups) {
    if (size <= 0) return absl::OkStatus();
  }
  BEAMD_RETURN_IF_ERROR(Prepare());
  if (epoch_ >= kLastEpoch / 2) {
    shared_shadow_.Clear();
    for (Shadow& shadow : buffer_shadows_) shadow.Clear();
    epoch_ = 0;
  }
  launch_start_ = epoch_ + 1;
  if (item_count_ == 1 || (kernel().barriers == 0 && kernel().collectives.empty())) {
    fibers_->Start(0, &GroupRun::RunInTurn, this);
    fibers_->Resume(0);
    return found_;
  }
  for (uint64_t i = 0; i < groups_to_run_ && found_.ok(); ++i) {
    EnterGroup(OrderedGroup(i));
    RunTogether();
  }
  return found_;
}

void GroupRun::RunInTurn(void* self) {
  auto& run = *static_cast<GroupRun*>(self);
  const Entry entry = run.plan_->entry;
  for (uint64_t i = 0; i < run.groups_to_run_; ++i) {
    run.EnterGroup(run.OrderedGroup(i));
    for (const uint32_t item : run.order_) entry(&run.work_items_[item]);
  }
}

void GroupRun::RunItem(void* item) {
  auto& self = *static_cast<WorkItem*>(item);
  self.run->plan_->entry(&self);
  self.state = WorkItem::State::kEnded;
}

void GroupRun::RunTogether() {
  for (WorkItem& item : work_items_) {
    fibers_->Start(static_cast<int>(item.index), &GroupRun::RunItem, &item);
  }
  while (true) {
    for (const uint32_t i : order_) {
      if (work_items_[i].state != WorkItem::State::kReady) continue;
      fibers_->Resume(static_cast<int>(i));
      if (!found_.ok()) return;
    }
    if (ActTogether()) continue;
    if (!found_.ok()) return;
    // Nobody goes on by itself: all wait at one barrier, or something is wrong.
    const WorkItem* waiting = nullptr;
    uint32_t ended = 0, here = 0;
    for (const WorkItem& item : work_items_) {
      if (item.state == WorkItem::State::kEnded) {
        ++ended;
      } else if (waiting == nullptr || item.site == waiting->site) {
        waiting = waiting == nullptr ? &item : waiting;
        ++here;
      }
    }
    if (waiting == nullptr) return;
    if (here != item_count_) {
      Report(*waiting, absl::StrCat("divergent barrier: ", here, " of ", item_count_,
                                    " work-items wait at it, ", ended, " ended, ",
                                    item_count_ - here - ended, " wait at another"));
      return;
    }
    ++epoch_;
    for (WorkItem& item : work_items_) item.state = WorkItem::State::kReady;
  }
}

// Carries out what the lanes of whole waves wait for. False where none does.
bool GroupRun::ActTogether() {
  bool any = false;
  const auto wave = static_cast<uint32_t>(plan_->wave);
  for (uint32_t first = 0; first < item_count_; first += wave) {
    const uint32_t count = std::min(wave, item_count_ - first);
    const WorkItem* waiting = nullptr;
    uint32_t here = 0;
    for (uint32_t lane = 0; lane < count; ++lane) {
      const WorkItem& item = work_items_[first + lane];
      if (item.state != WorkItem::State::kAtCollective) continue;
      if (waiting == nullptr) waiting = &item;
      here += item.site == waiting->site;
    }
    if (waiting == nullptr) continue;
    const Collective& collective = kernel().collectives[waiting->site];
    if (here != count) {
      Report(*waiting, absl::StrCat("divergent wave operation: ", here, " of ", count,
                                    " lanes reach ", collective.name));
      return false;
    }
    if (collective.kind == CollectiveKind::kMatrix &&
        count != static_cast<uint32_t>(collective.matrix->wave)) {
      Report(*waiting, absl::StrCat("incomplete wave: ", collective.name, " takes ",
                                    collective.matrix->wave, " lanes, the wave has ", count));
      return false;
    }
    Act(waiting->site, first, count);
    if (!found_.ok()) return false;
    any = true;
    for (uint32_t lane = 0; lane < count; ++lane) {
      work_items_[first + lane].state = WorkItem::State::kReady;
    }
  }
  return any;
}

void GroupRun::Act(uint32_t site, uint32_t first, uint32_t count) {
  const Collective& collective = kernel().collectives[site];
  if (collective.kind == CollectiveKind::kMatrix) {
    std::array<MatrixLane, 64> lanes;
    for (uint32_t l = 0; l < count; ++l) {
      lanes[l] = {work_items_[first + l].operands, work_items_[first + l].result};
    }
    if (!Multiply(*collective.matrix, std::span(lanes).first(count))) {
      Report(work_items_[first], absl::StrCat("differing lanes: ", collective.name,
                                              " wants some elements in two lanes alike"));
    }
    return;
  }
  for (uint32_t l = 0; l < count; ++l) {
    // Operands are words: of a shuffle mask, value, b, c; of a permutation address, value.
    std::array<uint32_t, 4> own{};
    const bool permutes = collective.kind == CollectiveKind::kPermute;
    std::memcpy(own.data(), work_items_[first + l].operands, permutes ? 8 : 16);
    uint32_t source = own[0] / 4 % static_cast<uint32_t>(plan_->wave);
    if (!permutes) {
      const uint32_t all = count == 32 ? ~uint32_t{0} : (uint32_t{1} << count) - 1;
      if ((own[0] & all) != all) {
        Report(work_items_[first + l], absl::StrCat("divergent wave operation: ", collective.name,
                                                    " names fewer lanes than reach it"));
        return;
      }
      source = ShuffleSource(collective.kind, l, own[2], own[3]);
    }
    if (source >= count) source = l;
    std::memcpy(work_items_[first + l].result, work_items_[first + source].operands + 4, 4);
  }
}

void GroupRun::Barrier(WorkItem& item, uint32_t site) {
  if (item_count_ == 1) {
    ++epoch_;
    return;
  }
  item.state = WorkItem::State::kAtBarrier;
  // Above the numbers of collectives, so that one number tells where an item waits.
  item.site = site + static_cast<uint32_t>(kernel().collectives.size());
  fibers_->Yield();
}

bool GroupRun::Act(WorkItem& item, uint32_t collective, const std::byte* operands,
                   std::byte* result) {
  item.site = collective;
  item.operands = operands;
  item.result = result;
  if (item_count_ == 1) {
    // A wave of one lane can shuffle, not multiply.
    const Collective& c = kernel().collectives[collective];
    if (c.kind == CollectiveKind::kMatrix) {
      return Report(item, absl::StrCat("incomplete wave: ", c.name, " by one lane"));
    }
    Act(collective, 0, 1);
    return found_.ok();
  }
  item.state = WorkItem::State::kAtCollective;
  fibers_->Yield();
  return true;
}

bool GroupRun::Conflicts(uint64_t cell, const WorkItem& item, bool shared) const {
  const uint32_t epoch = EpochOf(cell);
  if (ItemOf(cell) == item.id || epoch < launch_start_) return false;
  // Before this group: of another one, which nothing orders with it.
  return epoch == epoch_ || (!shared && epoch < group_start_);
}

bool GroupRun::TouchCells(const WorkItem& item, const Access& access, const Shadow& shadow,
                          int granule, uint64_t offset, bool shared) {
  const uint64_t last = (offset + access.bytes - 1) >> granule;
  const bool stores = access.kind != AccessKind::kLoad;
  const bool atomic = access.kind == AccessKind::kAtomic;
  for (uint64_t at = offset >> granule; at <= last; ++at) {
    uint64_t& stored = shadow.stores()[at];
    if (shared && !stores && EpochOf(stored) < group_start_) {
      return Report(item,
                    absl::StrCat("uninitialised: ", Place(access, offset),
                                 ", where this group stored nothing at byte ", at << granule));
    }
    if (Conflicts(stored, item, shared) && !(atomic && ItemOf(stored) == kAtomically)) {
      return Report(
          item, absl::StrCat("race: ", Place(access, offset), ", where ", ItemName(ItemOf(stored)),
                             " stored and no barrier is between (byte ", at << granule, ")"));
    }
    if (stores && shadow.loads() != nullptr && Conflicts(shadow.loads()[at], item, shared)) {
      return Report(item,
                    absl::StrCat("race: ", Place(access, offset), ", where ",
                                 ItemName(ItemOf(shadow.loads()[at])),
                                 " loaded and no barrier is between (byte ", at << granule, ")"));
    }
    if (stores) {
      stored = Cell(epoch_, atomic ? kAtomically : item.id);
    } else if (shadow.loads() != nullptr) {
      uint64_t& loaded = shadow.loads()[at];
      loaded = Cell(epoch_, Conflicts(loaded, item, shared) ? kSeveral : item.id);
    }
  }
  return true;
}

bool GroupRun::TouchGlobal(WorkItem& item, const Access& access, uint64_t offset) {
  return TouchCells(item, access, buffer_shadows_[access.buffer],
                    kernel().buffer_granules[access.buffer], offset, /*shared=*/false);
}

bool GroupRun::TouchShared(WorkItem& item, const Access& access, uint64_t address) {
  const uint64_t offset = address - reinterpret_cast<uint64_t>(shared_.get());
  const auto begin = static_cast<uint64_t>(access.begin), end = static_cast<uint64_t>(access.end);
  if (offset < begin || offset >= end || access.bytes > end - offset ||
      offset % access.alignment != 0) {
    Fault(item, access, address);
    return false;
  }
  return TouchCells(item, access, shared_shadow_, kernel().shared_granule, offset,
                    /*shared=*/true);
}

bool GroupRun::TouchUnknown(WorkItem& item, const Access& access, uint64_t address) {
  const auto shared = reinterpret_cast<uint64_t>(shared_.get());
  const auto shared_bytes = static_cast<uint64_t>(kernel().shared_bytes);
  const auto inside = [&](uint64_t begin, uint64_t bytes) {
    return address >= begin && address - begin < bytes && access.bytes <= bytes - (address - begin);
  };
  Access here = access;
  const bool aligned = address % access.alignment == 0;
  if (aligned && inside(shared, shared_bytes)) {
    here.space = MemorySpace::kShared;
    here.end = kernel().shared_bytes;
    return TouchShared(item, here, address);
  }
  for (size_t i = 0; i < plan_->buffers.size(); ++i) {
    const BufferArgument& buffer = plan_->buffers[i];
    if (!aligned || !inside(buffer.address, buffer.bytes)) continue;
    here.space = MemorySpace::kGlobal;
    here.buffer = static_cast<int32_t>(i);
    const bool stores = access.kind != AccessKind::kLoad;
    if (!buffer.written && !stores) return true;
    if (buffer.written) return TouchGlobal(item, here, address - buffer.address);
  }
  for (const auto& [begin, bytes] : plan_->constants) {
    if (aligned && access.kind == AccessKind::kLoad && inside(begin, bytes)) return true;
  }
  Fault(item, access, address);
  return false;
}

void GroupRun::Fault(const WorkItem& item, const Access& access, uint64_t address) {
  uint64_t base = 0, begin = 0, end = 0;
  std::string where;
  if (access.space == MemorySpace::kShared) {
    base = reinterpret_cast<uint64_t>(shared_.get());
    begin = static_cast<uint64_t>(access.begin);
    end = static_cast<uint64_t>(access.end);
  } else if (access.space == MemorySpace::kGlobal && access.buffer >= 0) {
    base = plan_->buffers[access.buffer].address;
    end = plan_->buffers[access.buffer].bytes;
  } else {
    Report(item, absl::StrCat(address % access.alignment != 0 ? "misaligned: " : "out of bounds: ",
                              Verb(access.kind), " of ", access.bytes, " bytes aligned to ",
                              access.alignment, " at address ", absl::Hex(address),
                              ", which is in none of the launch's buffers",
                              access.array.empty() ? "" : absl::StrCat(" (", access.array, ")")));
    return;
  }
  const auto offset = static_cast<int64_t>(address - base);
  const bool outside =
      address < base + begin || address - base >= end || access.bytes > end - (address - base);
  const std::string kind = outside ? "out of bounds: " : "misaligned: ";
  std::string what = absl::StrCat(kind, Place(access, static_cast<uint64_t>(offset)));
  if (outside) {
    absl::StrAppend(&what, ", which has bytes [", begin, ", ", end, ")");
  } else {
    absl::StrAppend(&what, ", which is no multiple of ", access.alignment);
  }
  Report(item, what);
}

std::string GroupRun::Place(const Access& access, uint64_t offset) const {
  const std::string what = absl::StrCat(Verb(access.kind), " of ", access.bytes,
                                        " bytes at offset ", static_cast<int64_t>(offset), " of ");
  if (access.space == MemorySpace::kShared) {
    return absl::StrCat(what, "shared memory", access.array.empty() ? "" : " ", access.array);
  }
  return absl::StrCat(what, "global memory, slot ", plan_->buffers[access.buffer].slot);
}

std::string GroupRun::ItemName(uint32_t id) const {
  if (id == kSeveral) return "several work-items";
  if (id == kAtomically) return "an atomic operation";
  return absl::StrCat("work-item ", Triple(id % item_count_, plan_->items), " of group ",
                      Triple(id / item_count_, plan_->groups));
}

std::string GroupRun::ItemName(const WorkItem& item) const {
  return absl::StrCat("work-item ", Triple(item.index, plan_->items), " of group (", item.group[0],
                      ",", item.group[1], ",", item.group[2], ")");
}

bool GroupRun::Report(const WorkItem& item, const std::string& report) {
  found_ = absl::InternalError(
      absl::StrCat(report, "; ", ItemName(item), ", kernel \"", plan_->name, "\""));
  return false;
}

void GroupRun::Abandon() {
  // To the loop over groups, which resumes no item of this launch.
  fibers_->Yield();
  BEAMD_CHECK(false, "a work-item that was abandoned isn't resumed");
}

}  // namespace beamd::emu
