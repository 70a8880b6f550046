// Servers that a bench starts beside itself.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace beamd {

[[noreturn]] void Die(const std::string& why);

// A server in a process of its own, ended by its id. It says "ready ADDRESS" on its standard output
// once it serves; Die where it doesn't.
class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> argv);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }
  // From starting it to "ready".
  double ready_s() const { return ready_s_; }
  // Resident memory of it alone, without its children.
  double resident_bytes() const;

 private:
  pid_t pid_ = -1;
  std::string address_;
  double ready_s_ = 0;
};

// The daemon that was built with this program.
std::string BuiltDaemon();

// A fresh folder in memory where the system has such, so that no disk's time is measured.
std::string FastDirectory();

}  // namespace beamd
