#include "client/thin/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/thin/errors.h"
#include "tests/client/thin/fake_executor.h"

namespace beamd::thin {
namespace {

using ::beamd::testing::FakeExecutor;
using ::testing::HasSubstr;

std::string Content(size_t size) {
  std::string content;
  for (size_t i = 0; i < size; ++i) content.push_back(static_cast<char>(i * 2654435761U >> 13));
  return content;
}

class SessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Opened(SessionOptions options = {}) {
    options.first_pause = absl::Milliseconds(5);
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(server_.address(), options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  FakeExecutor server_;
};

TEST_F(SessionTest, BringsContentThereAndBack) {
  const auto session = Opened();
  for (const size_t size : {0, 1, 65536, 65537, 1000000}) {
    const std::string content = Content(size);
    const auto buffer = session->Upload(content, kUint8, {static_cast<int64_t>(size)});
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->bytes(), size);
    const auto back = session->Download(**buffer);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == content) << size;
  }
}

TEST_F(SessionTest, SendsWhatTheServerHoldsNoSecondTime) {
  const auto session = Opened();
  const std::string content = Content(300000);
  const auto first = session->Upload(content, kUint8, {300000});
  const auto second = session->Upload(content, kUint8, {300000});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(server_.calls().received_bytes, 300000);
  EXPECT_NE((*first)->handle(), (*second)->handle());
  const auto third = session->Upload(content, kUint8, {300000}, {.digest = false});
  EXPECT_EQ(server_.calls().received_bytes, 600000);
  EXPECT_TRUE(*session->Download(**third) == content);
}

TEST_F(SessionTest, GoesOnWhereATransferBroke) {
  const auto session = Opened();
  server_.Set({.broken_uploads = 2, .broken_downloads = 2, .break_after = 100000});
  const std::string content = Content(1000000);
  const auto buffer = session->Upload(content, kUint8, {1000000});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(server_.calls().upload, 3);
  EXPECT_EQ(server_.calls().received_bytes, 1000000);  // none of it twice
  const auto back = session->Download(**buffer);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == content);
  EXPECT_EQ(server_.calls().download, 3);
}

TEST_F(SessionTest, AnUploadWithoutADigestBeginsAnew) {
  const auto session = Opened();
  server_.Set({.broken_uploads = 1, .break_after = 100000});
  const auto buffer = session->Upload(Content(300000), kUint8, {300000}, {.digest = false});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_GT(server_.calls().received_bytes, 300000);
  EXPECT_EQ(server_.buffers(), 1);  // the broken one is freed
}

TEST_F(SessionTest, AsksAgainForWhatWasDamaged) {
  const auto session = Opened();
  const auto buffer = session->Upload(Content(200000), kUint8, {200000});
  server_.Set({.damaged_chunks = 2});
  EXPECT_TRUE(*session->Download(**buffer) == Content(200000));
  server_.Set({.damaged_chunks = 1000});
  EXPECT_TRUE(absl::IsDataLoss(session->Download(**buffer).status()));
}

TEST_F(SessionTest, TriesAgainWhatMayBeDoneTwice) {
  server_.Set({.unavailable_calls = 3});
  const auto session = Opened();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(server_.calls().open, 4);
  server_.Set({.unavailable_calls = 2});
  EXPECT_TRUE(session->Upload("abcd", kFloat32, {1}).ok());
}

TEST_F(SessionTest, RunsOnce) {
  const auto session = Opened();
  server_.Set({.unavailable_calls = 1});
  EXPECT_TRUE(absl::IsUnavailable(session->Run({}).status()));
  EXPECT_EQ(server_.calls().run, 1);
}

TEST_F(SessionTest, TellsWhatTheServerSays) {
  const auto session = Opened();
  v1::RunRequest request;
  request.mutable_graph()->add_nodes()->set_op(v1::OP_ADD);
  const absl::Status status = session->Run(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  ASSERT_TRUE(DetailOf(status)) << status;
  EXPECT_EQ(DetailOf(status)->node(), 0);
  EXPECT_FALSE(DetailOf(absl::InvalidArgumentError("other")));
}

TEST_F(SessionTest, RefusesContentOfAnotherSize) {
  const auto session = Opened();
  const absl::Status status = session->Upload("abc", kFloat32, {1}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("3 bytes are no float32 of shape (1)"));
  EXPECT_FALSE(session->Upload("", kFloat32, {int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_EQ(server_.calls().begin, 0);
}

TEST_F(SessionTest, RenewsItsLease) {
  const auto session = Opened({.lease = absl::Milliseconds(60)});
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_GT(server_.calls().keep_alive, 3);
  const auto silent = Opened({.lease = absl::Milliseconds(60), .keep_alive = false});
  ASSERT_TRUE(session->Close().ok());
  const int before = server_.calls().keep_alive;
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(server_.calls().keep_alive, before);
}

TEST_F(SessionTest, FreesWhatNobodyHas) {
  const auto session = Opened();
  {
    const auto buffer = session->Upload("abcd", kFloat32, {1});
    EXPECT_EQ(server_.buffers(), 1);
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (server_.buffers() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(server_.buffers(), 0);
}

TEST_F(SessionTest, OneThatIsGoneKeepsNoOtherAlive) {
  const auto session = Opened();
  {
    const auto gone = session->Upload("abcd", kFloat32, {1});
    const auto other = session->Upload("efgh", kFloat32, {1});
    ASSERT_TRUE(gone.ok() && other.ok());
    EXPECT_TRUE(session->FreeHandles({(*gone)->handle()}).ok());
  }
  // Both handles may go in one call, of which the server refuses all.
  EXPECT_TRUE(session->FreeUnused().ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (server_.buffers() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(server_.buffers(), 0);
}

TEST_F(SessionTest, DoesTasksInOrderAndCancelsWhatIsLeft) {
  auto session = Opened();
  std::vector<Session::Future<std::shared_ptr<Buffer>>> uploads;
  for (int i = 0; i < 5; ++i) uploads.push_back(session->UploadAsync("abcd", kFloat32, {1}));
  uint64_t last = 0;
  for (auto& upload : uploads) {
    const auto buffer = upload.get();
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_GT((*buffer)->handle(), last);
    last = (*buffer)->handle();
    EXPECT_EQ(*session->DownloadAsync(*buffer).get(), "abcd");
  }
  absl::Notification begun, go;
  session->Post([&](bool) {
    begun.Notify();
    go.WaitForNotification();
  });
  begun.WaitForNotification();
  auto late = session->UploadAsync("abcd", kFloat32, {1});
  ASSERT_TRUE(session->Close().ok());
  EXPECT_TRUE(absl::IsCancelled(late.get().status()));
  go.Notify();
  EXPECT_TRUE(absl::IsCancelled(session->UploadAsync("abcd", kFloat32, {1}).get().status()));
  EXPECT_TRUE(absl::IsCancelled(session->Upload("abcd", kFloat32, {1}).status()));
  EXPECT_EQ(server_.calls().close, 1);
}

TEST(Session, IsUnavailableWhereNobodyListens) {
  const absl::Time begin = absl::Now();
  const absl::Status status =
      Session::Open("127.0.0.1:1", {.open_timeout = absl::Milliseconds(300)}).status();
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

}  // namespace
}  // namespace beamd::thin
