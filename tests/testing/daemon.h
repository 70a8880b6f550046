// A beamd of the test's own: a process on a free port of loopback, with a store that the test
// names.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "proto/beamd/v1/ast.pb.h"

namespace beamd::testing {

// What a process printed and how it ended.
struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};
// Runs to its end.
Ran RunProcess(const std::vector<std::string>& argv);

class Daemon {
 public:
  // Fails the test where it doesn't become ready. `binary` is a path below the test's runfiles.
  Daemon(const std::string& binary, const std::string& store,
         const std::vector<std::string>& flags = {});
  // Kills it, if it still runs.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Its children whose first argument is `kind`: "worker", "runner", "session".
  std::vector<pid_t> Children(const std::string& kind) const;
  // Waits for its end: the exit status, or minus the signal that ended it.
  int Wait();

 private:
  pid_t pid_ = -1;
  std::string address_;
};

// A token for `name` in `role`, of the beamd at `binary`; its line is put into the access file.
std::string MakeToken(const std::string& binary, const std::string& name, const std::string& role,
                      const std::string& access_file);

// A fresh directory, named after the running test or, in SetUpTestSuite, its suite.
std::string FreshDirectory();

// out[i] = a[i] + b[i] over n float32.
v1::Graph AddKernel(int n);
// c = a x b over n x n float32.
v1::Graph MatmulKernel(int n);

}  // namespace beamd::testing
