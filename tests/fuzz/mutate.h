// Valid messages made wrong, by a seed.
#pragma once

#include <random>
#include <string>

#include "google/protobuf/message.h"

namespace beamd::testing {

// Changes one thing of the message's meaning: a field set to a value that is likely at fault (0, a
// neighbour, an extreme), cleared, added to, or, of a list, moved, doubled or dropped.
void MutateFields(google::protobuf::Message& message, std::mt19937_64& random);
// Changes bytes: flipped bits, bytes of length and tag ranges, parts dropped, doubled or swapped.
void MutateBytes(std::string& bytes, std::mt19937_64& random);

}  // namespace beamd::testing
