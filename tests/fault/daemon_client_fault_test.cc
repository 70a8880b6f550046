// What clients do to the shipped daemon: they vanish, don't read, send too much, or are too many.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/uop/wire.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/fault/daemon_fault.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::DaemonFault;
using ::beamd::testing::MatmulKernel;

bool Any(const v1::TuneEvent&) { return true; }

// A process that runs until this goes.
class Background {
 public:
  explicit Background(std::vector<std::string> argv) : pid_(fork()) {
    if (pid_ != 0) return;
    std::vector<char*> args;
    for (std::string& arg : argv) args.push_back(arg.data());
    args.push_back(nullptr);
    execv(args[0], args.data());
    _exit(127);
  }
  ~Background() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  const pid_t pid_;
};

// Another connection than anybody else's.
std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A call, on a connection of its own, whose steps the test takes one by one.
class SlowCall {
 public:
  SlowCall(const std::string& address, const std::string& method) : stub_(OwnChannel(address)) {
    stream_ = stub_.PrepareCall(&context_, method, &queue_);
    stream_->StartCall(nullptr);
    Wait();
  }
  ~SlowCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  void Send(const grpc::ByteBuffer& bytes) {
    stream_->WriteLast(bytes, {}, nullptr);
    Wait();
  }
  void Send(const google::protobuf::MessageLite& message) {
    const grpc::Slice slice(message.SerializeAsString());
    Send(grpc::ByteBuffer(&slice, 1));
  }
  // Empty at the end.
  std::string Read() {
    grpc::ByteBuffer bytes;
    stream_->Read(&bytes, nullptr);
    grpc::Slice whole;
    if (!Wait() || !bytes.DumpToSingleSlice(&whole).ok()) return "";
    return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
  }
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

class DaemonClients : public DaemonFault {
 protected:
  // A number of /proc/PID/status, in bytes.
  int64_t Memory(const std::string& field) const {
    std::ifstream status(absl::StrCat("/proc/", daemon_->pid(), "/status"));
    std::string name;
    int64_t kilobytes = 0;
    while (status >> name) {
      if (name == field + ":" && status >> kilobytes) return kilobytes << 10;
    }
    return 0;
  }
  void SetLimit(__rlimit_resource resource, rlim_t soft) const {
    rlimit limit{};
    ASSERT_EQ(prlimit(daemon_->pid(), resource, nullptr, &limit), 0);
    limit.rlim_cur = std::min(soft, limit.rlim_max);
    ASSERT_EQ(prlimit(daemon_->pid(), resource, &limit, nullptr), 0);
  }
  void ExpectItServes() {
    const absl::StatusOr<v1::TuneResult> result =
        Client::Create(daemon_->address())->Tune(Request(AddKernel(++size_), 1), Any);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->persisted());
  }
  void AwaitNoJobs() {
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    const auto lives = [](const v1::Job& job) {
      return job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_RUNNING;
    };
    while (true) {
      const absl::StatusOr<v1::ListJobsResponse> jobs = client_->ListJobs({});
      ASSERT_TRUE(jobs.ok()) << jobs.status();
      if (std::ranges::none_of(jobs->jobs(), lives)) return;
      ASSERT_LT(absl::Now(), limit);
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  int size_ = 64;
};

TEST_F(DaemonClients, MayVanishAtEveryStep) {
  // A stream that was not given back would be missed soon.
  StartDaemon({"--streams_per_client=16", "--abandon_grace=100ms"});
  ASSERT_TRUE(client_->Tune(Request(AddKernel(64), 1), Any).ok());
  const v1::TuneRequest stored = Request(AddKernel(64), 1);
  const v1::TuneRequest search = Request(MatmulKernel(512), 16);
  v1::TuneBatchBegin begin;
  v1::TuneBatchItem item;
  *item.mutable_request() = search;
  const auto stop = [](const auto&) { return absl::CancelledError("enough"); };
  const std::function<void()> steps[] = {
      // Before a message was sent, and before one was read.
      [&] { SlowCall(daemon_->address(), "/beamd.v1.Tuner/Tune"); },
      [&] { SlowCall(daemon_->address(), "/beamd.v1.Tuner/Tune").Send(search); },
      [&] { SlowCall(daemon_->address(), "/beamd.v1.Tuner/Lookup").Send(search); },
      [&] {
        EXPECT_FALSE(
            client_->Tune(search, [](const v1::TuneEvent& e) { return !e.has_accepted(); }).ok());
      },
      [&] {
        EXPECT_FALSE(
            client_->Tune(search, [](const v1::TuneEvent& e) { return e.progress().best_s() == 0; })
                .ok());
      },
      [&] {
        SlowCall call(daemon_->address(), "/beamd.v1.Tuner/Tune");
        call.Send(stored);
        EXPECT_NE(call.Read(), "");  // accepted; the result is under way
      },
      [&] {
        EXPECT_FALSE(
            client_->TuneBatch(begin, {item, item}, [](const v1::TuneBatchEvent&) { return false; })
                .ok());
      },
      [&] { SlowCall(daemon_->address(), "/beamd.v1.Batches/Tune"); },
      [&] { EXPECT_FALSE(client_->Export({}, stop).ok()); },
      [&] { SlowCall(daemon_->address(), "/beamd.v1.Records/Export").Send(v1::ExportRequest()); },
      [&] {
        int sent = 0;
        EXPECT_FALSE(client_
                         ->Import([&](v1::ExportedRecord& record) -> absl::StatusOr<bool> {
                           *record.mutable_graph() = stored.graph();
                           if (++sent == 3) return absl::CancelledError("enough");
                           return true;
                         })
                         .ok());
      },
      [&] { SlowCall(daemon_->address(), "/beamd.v1.Records/Import"); },
      [&] { EXPECT_FALSE(client_->Backup(stop).ok()); },
  };
  for (int round = 0; round < 3; ++round) {
    for (const auto& step : steps) step();
  }
  AwaitNoJobs();
  ExpectItServes();
  // No backup was left behind.
  const auto left = [&] {
    return std::ranges::any_of(std::filesystem::directory_iterator(directory_), [](const auto& f) {
      return absl::StrContains(f.path().string(), "checkpoint");
    });
  };
  for (int i = 0; i < 500 && left(); ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(left());
}

TEST_F(DaemonClients, OnesThatDieTakeNothingAlong) {
  StartDaemon({"--streams_per_client=8", "--abandon_grace=100ms"});
  { std::ofstream(directory_ + "/kernel.json") << GraphToJson(MatmulKernel(512)); }
  for (int round = 0; round < 20; ++round) {
    const Background client({"client/beamctl/beamctl", "--server", daemon_->address(), "tune",
                             directory_ + "/kernel.json", "--width", "16"});
    absl::SleepFor(absl::Milliseconds(25 * round));
  }
  AwaitNoJobs();
  ExpectItServes();
}

TEST_F(DaemonClients, OneThatDoesNotReadHoldsUpNobody) {
  StartDaemon({"--drain_timeout=100ms"});
  v1::TuneRequest request = Request(MatmulKernel(256), 4);
  request.mutable_search()->set_debug(2);  // a line a candidate
  std::vector<std::unique_ptr<SlowCall>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<SlowCall>(daemon_->address(), "/beamd.v1.Tuner/Tune"));
    slow.back()->Send(request);
  }
  const absl::StatusOr<v1::TuneResult> result = client_->Tune(request, Any);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectItServes();
  EXPECT_LT(Memory("VmRSS"), int64_t{1} << 30);
  // It may read late.
  v1::TuneEvent last;
  while (true) {
    const std::string bytes = slow.front()->Read();
    if (bytes.empty()) break;
    ASSERT_TRUE(last.ParseFromString(bytes));
  }
  EXPECT_EQ(last.result().record().key(), result->record().key());
  // Nor does it hold up the end.
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0);
}

TEST_F(DaemonClients, ThreeGigabytesInAMessageAreRefusedAndNotKept) {
  StartDaemon({"--message_bytes=1048576"});
  const int64_t before = Memory("VmHWM");
  // One piece of memory, sent again and again.
  const grpc::Slice piece(std::string(size_t{1} << 20, '\1'));
  const std::vector<grpc::Slice> pieces(3 << 10, piece);
  for (const char* method : {"/beamd.v1.Tuner/Lookup", "/beamd.v1.Tuner/Tune",
                             "/beamd.v1.Records/Import", "/beamd.v1.Batches/Tune"}) {
    SlowCall call(daemon_->address(), method);
    call.Send(grpc::ByteBuffer(pieces.data(), pieces.size()));
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method;
  }
  EXPECT_LT(Memory("VmHWM") - before, int64_t{700} << 20);
  // A smaller one is told what the limit is.
  SlowCall call(daemon_->address(), "/beamd.v1.Tuner/Lookup");
  call.Send(grpc::ByteBuffer(pieces.data(), 2));
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "2097152 vs. 1048576"))
      << status.error_message();
  ExpectItServes();
}

TEST_F(DaemonClients, ThatAreTooManyAreTurnedAwayAndTheRestGoesOn) {
  StartDaemon();
  ASSERT_TRUE(client_->ListDevices().ok());
  SetLimit(RLIMIT_NOFILE, 300);
  const size_t colon = daemon_->address().rfind(':');
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(daemon_->address().substr(colon + 1), &port));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> connections;
  for (int i = 0; i < 600; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    connections.push_back(fd);
  }
  // A connection that was there is served, and children are replaced.
  const absl::StatusOr<v1::ListDevicesResponse> devices = client_->ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  for (const v1::ChildProcess& child : devices->workers().children()) {
    kill(static_cast<pid_t>(child.pid()), SIGKILL);
  }
  const absl::StatusOr<v1::TuneResult> result = client_->Tune(Request(AddKernel(1000), 1), Any);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->persisted());
  const auto come_in = [&] {
    SlowCall call(daemon_->address(), "/beamd.v1.Devices/List");
    call.Send(v1::ListDevicesRequest());
    call.Read();
    return call.Finish();
  };
  EXPECT_EQ(come_in().error_code(), grpc::StatusCode::UNAVAILABLE);
  for (const int fd : connections) close(fd);
  // Others come in again.
  grpc::Status status;
  for (int i = 0; i < 100; ++i) {
    status = come_in();
    if (status.ok()) break;
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
  ExpectItServes();
}

TEST_F(DaemonClients, AreAnsweredWhileTheStoreTakesNoWrites) {
  StartDaemon();
  const v1::TuneRequest before = Request(AddKernel(64), 1), meanwhile = Request(AddKernel(65), 1);
  ASSERT_TRUE(client_->Tune(before, Any)->persisted());
  const auto health = [&] {
    SlowCall call(daemon_->address(), "/grpc.health.v1.Health/Check");
    // Field 1: the service.
    const std::string service = "beamd.v1.Store";
    const std::string bytes = absl::StrCat("\x0a", std::string(1, char(service.size())), service);
    const grpc::Slice slice(bytes);
    call.Send(grpc::ByteBuffer(&slice, 1));
    return call.Read();
  };
  const std::string kServing = "\x08\x01", kNotServing = "\x08\x02";
  EXPECT_EQ(health(), kServing);

  // As on a disk that is full.
  SetLimit(RLIMIT_FSIZE, 1);
  bool durable = true;
  const absl::StatusOr<v1::TuneResult> result = client_->Tune(meanwhile, [&](const auto& event) {
    if (event.has_accepted()) durable = !event.accepted().not_durable();
    return true;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(durable);
  EXPECT_FALSE(result->persisted());
  EXPECT_GT(result->record().best_s(), 0);
  EXPECT_TRUE(client_->Tune(before, Any)->persisted());
  for (int i = 0; i < 500 && health() != kNotServing; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(health(), kNotServing);
  EXPECT_TRUE(absl::StrContains(client_->ListDevices()->store_fault(), "File too large"));

  SetLimit(RLIMIT_FSIZE, RLIM_INFINITY);
  for (int i = 0; i < 2000 && health() != kServing; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(health(), kServing);
  bool persisted = false;
  for (int i = 0; i < 500 && !persisted; ++i) {
    persisted = client_->Tune(meanwhile, Any)->persisted();
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(persisted);
  Restart();
  for (const v1::TuneRequest* request : {&before, &meanwhile}) {
    const absl::StatusOr<v1::TuneResult> stored = client_->Tune(*request, Any);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->match(), v1::MATCH_STRICT);
    EXPECT_TRUE(stored->persisted());
  }
}

}  // namespace
}  // namespace beamd
