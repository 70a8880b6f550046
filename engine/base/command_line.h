// Flags of a command, bound to variables: `--name=value`, `--name value`, `--flag`, `--noflag`.
//
//   CommandLine line("beamd serve --store DIR [flags]");
//   line.Add("listen", &listen, "address to serve on");
//   BEAMD_ASSIGN_OR_RETURN(std::vector<std::string> rest, line.Parse(args));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace beamd {

enum class FlagKind : uint8_t { kString, kInt, kDouble, kBool, kDuration, kInts, kStrings };

class CommandLine {
 public:
  explicit CommandLine(std::string usage) : usage_(std::move(usage)) {}

  // The variable's value now is the default, and must outlive the object. `-` and `_` in a name are
  // the same.
  void Add(std::string name, std::string* value, std::string help);
  void Add(std::string name, int64_t* value, std::string help);
  void Add(std::string name, double* value, std::string help);
  void Add(std::string name, bool* value, std::string help);
  void Add(std::string name, absl::Duration* value, std::string help);
  // "0,2,3".
  void Add(std::string name, std::vector<int>* value, std::string help);
  // "a,b", and more each time that the flag is given.
  void Add(std::string name, std::vector<std::string>* value, std::string help);

  // Sets what `args` says and returns what is no flag, in order; all behind "--" is.
  // InvalidArgument with a line for each flag that isn't known and each value that isn't one; the
  // others are set.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& args) const;
  // Whether the flag was in the last Parse.
  bool Given(const std::string& name) const;
  // The names of all flags that were.
  std::vector<std::string> AllGiven() const;

  // Sets one flag, as `--name=value` does. InvalidArgument. It doesn't count as given.
  absl::Status Set(const std::string& name, const std::string& value) const;
  // Every flag's name and kind, in the order they were added.
  std::vector<std::pair<std::string, FlagKind>> Flags() const;

  // Usage and every flag with its default.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string help;
    std::string otherwise;  // the default, as text
    FlagKind kind = FlagKind::kString;
    std::function<bool(const std::string&)> set;
    mutable bool given = false;
  };
  const Flag* Find(std::string name) const;

  std::string usage_;
  std::vector<Flag> flags_;
};

}  // namespace beamd
