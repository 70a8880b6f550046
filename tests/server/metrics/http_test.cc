#include "server/metrics/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

int Connect(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(absl::string_view(address).substr(address.rfind(':') + 1), &port));
  to.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// What comes back until the server closes.
std::string Ask(const std::string& address, const std::string& request) {
  const int fd = Connect(address);
  EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char chunk[4096];
  ssize_t n = 0;
  while ((n = read(fd, chunk, sizeof(chunk))) > 0) answer.append(chunk, static_cast<size_t>(n));
  close(fd);
  return answer;
}

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = HttpServer::Start(
        "127.0.0.1:0", {{"/healthz", [] { return HttpAnswer{.body = "ok\n"}; }},
                        {"/readyz", [] { return HttpAnswer{.status = 503, .body = "drains\n"}; }}});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  std::string Get(const std::string& path) {
    return Ask(server_->address(), "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTest, ThoseWhoNeverFinishAskingDelayNobody) {
  std::vector<int> slow;
  for (int i = 0; i < 24; ++i) {
    slow.push_back(Connect(server_->address()));
    EXPECT_EQ(send(slow.back(), "GET /hea", 8, MSG_NOSIGNAL), 8);
  }
  EXPECT_THAT(Get("/healthz"), HasSubstr("ok"));
  // None has been given up yet: the answer came at once.
  for (const int fd : slow) {
    char byte = 0;
    EXPECT_EQ(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
    close(fd);
  }
}

TEST_F(HttpTest, AnswersItsPaths) {
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Get("/healthz"), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(Get("/readyz"), StartsWith("HTTP/1.1 503 "));
}

TEST_F(HttpTest, ServesNothingElse) {
  for (const char* path :
       {"/", "/healthz/", "/healthz/..", "/etc/passwd", "/../etc/passwd", "/metrics", "//"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  EXPECT_THAT(
      Ask(server_->address(), "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
      StartsWith("HTTP/1.1 405 "));
}

TEST_F(HttpTest, OutlivesGarbageAndSilence) {
  for (const std::string& request : {std::string("\0\xff\r\n\r\n", 6), std::string("GET\r\n\r\n"),
                                     "GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n"}) {
    Ask(server_->address(), request);
  }
  std::vector<int> silent;
  silent.reserve(3);
  for (int i = 0; i < 3; ++i) silent.push_back(Connect(server_->address()));
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
  for (const int fd : silent) close(fd);
}

TEST(HttpServer, SaysWhereItCantListen) {
  const auto first = HttpServer::Start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsUnavailable(HttpServer::Start((*first)->address(), {}).status()));
  EXPECT_TRUE(absl::IsUnavailable(HttpServer::Start("nonsense", {}).status()));
}

}  // namespace
}  // namespace beamd
