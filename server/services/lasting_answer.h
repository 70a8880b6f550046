// Which answers to look-ups hold as long as no record is written, so that they may be kept.
#pragma once

#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

// Not one that says what couldn't be had just now: the store may be readable the next time, though
// nothing was written to it.
bool IsLasting(const v1::LookupResponse& response);

}  // namespace beamd
