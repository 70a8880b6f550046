// A file of flags, as protobuf's text format: a flag is a field of its name.
//
//   # /etc/beamd/beamd.textproto
//   store: "/var/lib/beamd"
//   jobs: 2
//   compile_cores: [0, 1, 2]
//   run_timeout: "60s"
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/command_line.h"

namespace beamd {

// Sets the flags that `text` names. InvalidArgument with a line, "NAME:LINE: WHAT", for every
// fault, up to a hundred of the text; what is well is set all the same. `name` stands for the file.
absl::Status ApplyConfig(const std::string& name, absl::string_view text, const CommandLine& line);

// The whole of a file that is at most 1 MB. InvalidArgument naming it where it can't be read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace beamd
