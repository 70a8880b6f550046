// Valid messages made wrong, by a seed.
#pragma once

#include <random>
#include <string>

#include "google/protobuf/message.h"

namespace beamd::testing {

// Changes one thing of the message's meaning: a field set to a value that is likely at fault (0, a
// neighbour, an extreme), cleared, set where it wasn't, taken from another place of its kind, or, of
// a list, moved, doubled or dropped.
void MutateFields(google::protobuf::Message& message, std::mt19937_64& random);
// Sets one field, anywhere in `into`, as it is somewhere in `from`, which may be `into`.
void Splice(const google::protobuf::Message& from, google::protobuf::Message& into,
            std::mt19937_64& random);
// Changes bytes: flipped bits, bytes of length and tag ranges, parts dropped, doubled or swapped.
void MutateBytes(std::string& bytes, std::mt19937_64& random);

}  // namespace beamd::testing
