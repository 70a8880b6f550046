// A kernel of a GPU made ready to run here: what its machine code and the emulator know of each
// other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "devices/emu/matrix.h"

namespace beamd::emu {

class GroupRun;

// What the code of a work-item is given. translate.cc knows these members by their offsets.
struct WorkItem {
  std::array<uint32_t, 3> local{};
  std::array<uint32_t, 3> group{};
  std::byte* shared = nullptr;
  // A buffer: its address, then how many bytes of it may be touched; then a variable each.
  const uint64_t* arguments = nullptr;
  GroupRun* run = nullptr;
  // From here on the emulator's own.
  uint32_t index = 0;  // in its group, x fastest
  uint32_t id = 0;     // in the launch
  enum class State : uint8_t { kReady, kAtBarrier, kAtCollective, kEnded };
  State state = State::kReady;
  uint32_t site = 0;  // which barrier or collective of the code it waits at
  const std::byte* operands = nullptr;
  std::byte* result = nullptr;
};

using Entry = void (*)(WorkItem*);

enum class AccessKind : uint8_t { kLoad, kStore, kAtomic };
enum class MemorySpace : uint8_t { kGlobal, kShared, kUnknown };

// A place in the code that touches memory.
struct Access {
  AccessKind kind = AccessKind::kLoad;
  MemorySpace space = MemorySpace::kUnknown;
  uint32_t bytes = 0;
  uint32_t alignment = 1;
  int32_t buffer = -1;         // kGlobal: which argument; -1: a constant of the module's own
  int64_t begin = 0, end = 0;  // kShared: the array's bytes; kGlobal constants: 0 and its size
  std::string array;           // kShared, constants: its name
};

enum class CollectiveKind : uint8_t {
  kMatrix,
  kShuffleIdx,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kPermute
};

// A place in the code where the work-items of a wave act together.
struct Collective {
  CollectiveKind kind = CollectiveKind::kMatrix;
  const MatrixOp* matrix = nullptr;
  std::string name;
};

// Constant data of the module, reachable through pointers that could be to anything.
struct ConstantData {
  std::string symbol;
  int64_t bytes = 0;
};

struct TranslatedKernel {
  std::string object;  // relocatable, for this host
  std::vector<Access> accesses;
  std::vector<Collective> collectives;
  std::vector<ConstantData> constants;
  int64_t shared_bytes = 0;
  int barriers = 0;
  // Logarithms of the bytes that accesses come in multiples of, of shared memory and of each
  // buffer: what races are told apart by.
  int shared_granule = 0;
  std::vector<int> buffer_granules;
};

// Symbol of the entry in the object.
inline constexpr char kEmuEntry[] = "beamd_emu_entry";

}  // namespace beamd::emu
