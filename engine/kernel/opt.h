// One scheduling decision, and lists of them: what a search finds and a record keeps.
// Meaning and axis numbering are tinygrad 0.10.0's (codegen/kernel.py).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace beamd {

// Values are the wire's OptOp.
enum class OptOp : uint8_t {
  kUnspecified = 0,
  kTc = 1,
  kUpcast = 2,
  kUpcastMid = 3,
  kUnroll = 4,
  kLocal = 5,
  kGroup = 6,
  kGroupTop = 7,
  kNoLocals = 8,
  kPadTo = 9,
  kSwap = 10,
};

struct Opt {
  OptOp op = OptOp::kUnspecified;
  // Counted among all axes, but for UNROLL, GROUP and GROUPTOP among the reduce axes not yet taken.
  std::optional<int32_t> axis;
  // The factor; 0 takes the whole axis; for SWAP the other axis; for TC the matching level; for
  // NOLOCALS the work-items of a group, if that was found out (0.10.0 has none there, and pays no
  // heed to one).
  std::optional<int32_t> amount;

  auto operator<=>(const Opt&) const = default;
};

// "UPCAST(0, 4)", "NOLOCALS".
std::string ToString(const Opt& opt);
// "UPCAST(0, 4) UNROLL(0, 0)"; "-" for none.
std::string ToString(const std::vector<Opt>& opts);

}  // namespace beamd
