#include "server/metrics/http.h"

#include <civetweb.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace beamd {

class HttpServer::Impl {
 public:
  explicit Impl(Handlers handlers) : handlers_(std::move(handlers)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (context_ != nullptr) mg_stop(context_);
  }

  absl::Status Listen(const std::string& listen) {
    const std::array<const char*, 11> options = {
        "listening_ports",   listen.c_str(), "num_threads", "32", "request_timeout_ms", "1000",
        "enable_keep_alive", "no",

        "max_request_size",  "8192",         nullptr};
    const mg_callbacks callbacks{};
    context_ = mg_start(&callbacks, this, const_cast<const char**>(options.data()));
    if (context_ == nullptr) {
      return absl::UnavailableError(absl::StrCat("can't listen for HTTP on ", listen));
    }
    mg_set_request_handler(context_, "/", &Impl::Handle, this);
    mg_server_port port{};
    mg_get_server_ports(context_, 1, &port);
    const absl::string_view host = listen;
    address_ = absl::StrCat(host.substr(0, host.rfind(':')), ":", port.port);
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

 private:
  static int Handle(mg_connection* connection, void* self) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const absl::string_view method = request.request_method;
    HttpAnswer answer;
    const auto& handlers = static_cast<Impl*>(self)->handlers_;
    const auto it = handlers.find(request.local_uri);
    if (method != "GET" && method != "HEAD") {
      answer = {.status = 405, .body = "GET and HEAD only\n"};
    } else if (it == handlers.end()) {
      answer = {.status = 404, .body = "nothing here\n"};
    } else {
      answer = it->second();
    }
    const std::string head = absl::StrCat(
        "HTTP/1.1 ", answer.status, " ", mg_get_response_code_text(connection, answer.status),
        "\r\nContent-Type: ", answer.content_type, "\r\nContent-Length: ", answer.body.size(),
        "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n",
        "\r\n");
    mg_write(connection, head.data(), head.size());
    if (method != "HEAD") mg_write(connection, answer.body.data(), answer.body.size());
    return answer.status;
  }

  const Handlers handlers_;
  mg_context* context_ = nullptr;
  std::string address_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              Handlers handlers) {
  auto impl = std::make_unique<Impl>(std::move(handlers));
  if (absl::Status status = impl->Listen(listen); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace beamd
