// A small HTTP server for what reads and never changes: metrics and health.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace beamd {

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

class HttpServer {
 public:
  // By path: "/metrics". Called on the server's threads.
  using Handlers = std::map<std::string, std::function<HttpAnswer()>>;

  // "127.0.0.1:9090", "[::1]:0"; port 0 takes a free one. Unavailable where the address can't be
  // had. Other paths get 404, other methods than GET and HEAD 405, a request that isn't complete in
  // five seconds is dropped.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           Handlers handlers);
  // Waits for handlers that run.
  ~HttpServer();

  // "127.0.0.1:41234".
  const std::string& address() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace beamd
