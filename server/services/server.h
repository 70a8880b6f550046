// The gRPC server: services, health, reflection; started, drained, stopped.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/services/credentials.h"
#include "server/services/desk.h"
#include "server/sessions/session_table.h"
#include "server/store/store.h"
#include "server/tuning/tuner.h"
#include "server/workers/fleet.h"
#include "server/workers/supervisor.h"

namespace beamd {

struct ServerOptions {
  std::string listen = "127.0.0.1:7411";
  // Empty: no unix socket.
  std::string unix_socket;
  std::string build;
  // Searches of one batch that run at once.
  int batch_parallel = 2;
  // Null: `listen` is without TLS.
  Certificates* certificates = nullptr;
  // Clients may show certificates; who they are is said by an access file.
  bool client_certificates = false;
  bool access_file = false;
  // Larger messages are refused by gRPC.
  int message_bytes = 64 << 20;
  // Memory for answers to look-ups that are asked again.
  int64_t lookup_cache_bytes = 64 << 20;
  DeskParts desk;
};

class Server {
 public:
  // Unavailable where the address can't be had. What it is given must outlive it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, Tuner& tuner,
                                                       Store& store, SessionTable& sessions,
                                                       Supervisor& supervisor, const Fleet& fleet);
  virtual ~Server() = default;

  // "127.0.0.1:41234": with the port that port 0 became.
  virtual const std::string& address() const = 0;
  // For how long requests have waited and none has begun or ended; zero: none waits.
  virtual absl::Duration Stalled() const = 0;
  // What the health service says of "beamd.v1.Store". The services that use the store go on: they
  // answer without it.
  virtual void ShowStore(bool writable) = 0;
  // Health says NOT_SERVING, new work is refused; jobs get until `grace` to end, then are
  // cancelled, and sessions are ended. Returns once the last call is answered.
  virtual void Drain(absl::Duration grace) = 0;
};

}  // namespace beamd
