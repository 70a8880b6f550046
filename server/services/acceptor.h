// Accepts connections and hands them on. gRPC's own listener, once descriptors run out, accepts
// nothing ever again; here what comes then is turned away, and some descriptors stay for the
// daemon's files and children.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace beamd {

// Of a limit of descriptors (RLIMIT_NOFILE), how many connections leave: for tables of the store,
// children, files.
int64_t ReservedDescriptors(int64_t limit);

class Acceptor {
 public:
  // `take` owns the connection; it is called on the acceptor's thread.
  using Take = std::function<void(int connection)>;
  // Descriptors that others may still take: connections leave them too, but for at most half of what
  // there is. Called as `take` is.
  using Promised = std::function<int64_t()>;

  // Owns `listeners`, which listen and don't block.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(std::vector<int> listeners, Take take,
                                                         Promised promised);
  // Closes the listeners; connections stay with who took them.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  Acceptor(std::vector<int> listeners, Take take, Promised promised);
  void Accept();

  std::vector<int> listeners_;
  const Take take_;
  const Promised promised_;
  int stop_ = -1;
  std::thread thread_;
};

struct TcpListeners {
  std::vector<int> sockets;
  int port = 0;
};
// On every address that "host:port" or "[host]:port" stands for, on one port; 0: any. Unavailable
// where there is none to be had.
absl::StatusOr<TcpListeners> ListenTcp(const std::string& address);

}  // namespace beamd
