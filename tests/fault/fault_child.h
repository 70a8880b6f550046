// A child that does to itself what bad candidates do. Serves the frames of a compile worker and of
// a runner; the axis of a candidate's first opt says what happens.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/kernel/opt.h"

namespace beamd {

enum class Fault : int32_t {
  kNone,
  kAbort,
  kDivideByZero,  // in machine code
  kJumpToNull,
  kLoop,
  kAllocateTouched,   // without end
  kAllocateReserved,  // without end, address space only
  kGarbageLength,
  kGarbageBytes,
  kHalfFrame,      // then waits
  kHalfFrameEnds,  // then exits
  kNoTime,         // of a run: that number of kNoTimes
  kWrongTask,
  kSleep,  // `amount` milliseconds, then answers
  kLast,   // answers that it ends
  kListDescriptors,
};

// What no run takes.
inline constexpr double kNoTimes[] = {0.0, -1e-3, 5e-324, std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN()};

// A candidate that meets this fault.
std::vector<Opt> Faulty(Fault fault, int32_t amount = 0);

// If this process was started as a child: serves until the daemon goes, and exits. Call first in
// main.
void MaybeRunFaultChild(int argc, char** argv);

}  // namespace beamd
