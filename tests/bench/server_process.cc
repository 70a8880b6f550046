#include "tests/bench/server_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace beamd {

using Clock = std::chrono::steady_clock;

void Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

ServerProcess::ServerProcess(std::vector<std::string> argv) {
  const Clock::time_point start = Clock::now();
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (std::string& arg : argv) args.push_back(arg.data());
  args.push_back(nullptr);
  int out[2];
  if (pipe(out) != 0) Die("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    execv(args[0], args.data());
    _exit(127);
  }
  close(out[1]);
  FILE* lines = fdopen(out[0], "r");
  char address[128] = {};
  if (std::fscanf(lines, "ready %127s", address) != 1) Die(argv[0] + " did not become ready");
  std::fclose(lines);
  address_ = address;
  ready_s_ = std::chrono::duration<double>(Clock::now() - start).count();
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

double ServerProcess::resident_bytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  double pages = 0, resident = 0;
  if (!(statm >> pages >> resident)) Die("the server is gone");
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::string BuiltDaemon() {
  const std::filesystem::path self = std::filesystem::canonical("/proc/self/exe");
  return self.parent_path().parent_path().parent_path() / "server/beamd";
}

std::string FastDirectory() {
  const std::string root = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
  std::string directory = root + "/beamd-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) Die("no temporary folder");
  return directory;
}

}  // namespace beamd
