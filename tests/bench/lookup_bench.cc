// Look-ups per second that a daemon answers, beside a bare echo over the same transport: what the
// service itself costs. A JSON line a figure.
//
//   lookup_bench [--beamd PATH] [--records 1000,1000000] [--seconds 3] [--kernels 64]
//
// Client and server are two processes, one client thread an outstanding call, requests and answers
// raw bytes, for the daemon and for the echo alike; the echo answers a request's bytes. The store is
// in memory (/dev/shm) where the system has that, so that filling it takes no disk's time; what a
// look-up reads is cached anyway. ready_s is the time from starting the daemon to "ready".
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"
#include "server/store/store.h"
#include "tests/bench/server_process.h"
#include "tests/testing/daemon.h"

ABSL_FLAG(std::string, beamd, "", "the daemon's binary; empty: the one built beside this program");
ABSL_FLAG(std::string, records, "1000,1000000", "sizes of stores, with commas");
ABSL_FLAG(double, seconds, 3, "of each figure");
ABSL_FLAG(int, kernels, 64, "distinct kernels that are looked up");
ABSL_FLAG(bool, echo_server, false, "be the echo: started by the bench itself");

namespace beamd {
namespace {

using Clock = std::chrono::steady_clock;

// Answers every unary call with its request's bytes.
class Echo final : public grpc::CallbackGenericService {
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&bytes_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "no request"));
      StartWriteAndFinish(&bytes_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer bytes_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor;
  }
};

int ServeEcho() {
  Echo echo;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::printf("ready 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

struct Figure {
  double calls_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
};

// `outstanding` threads, each asking one thing after another.
Figure Measure(const std::string& address, const char* method,
               const std::vector<std::string>& requests, int outstanding, double seconds) {
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  std::vector<std::vector<double>> times(static_cast<size_t>(outstanding));
  std::vector<std::thread> threads;
  threads.reserve(times.size());
  const Clock::time_point warm = Clock::now() + std::chrono::milliseconds(300);
  const Clock::time_point end =
      warm + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (size_t t = 0; t < times.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t;; ++i) {
        const grpc::Slice slice(requests[i % requests.size()]);
        const grpc::ByteBuffer request(&slice, 1);
        grpc::ByteBuffer response;
        grpc::ClientContext context;
        const Clock::time_point start = Clock::now();
        const grpc::Status status =
            grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
                channel.get(), rpc, &context, request, &response);
        if (!status.ok()) Die(absl::StrCat(method, ": ", status.error_message()));
        const Clock::time_point now = Clock::now();
        if (now >= end) return;
        if (start >= warm) times[t].push_back(std::chrono::duration<double>(now - start).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const std::vector<double>& some : times) all.insert(all.end(), some.begin(), some.end());
  if (all.empty()) Die("no call was answered");
  std::sort(all.begin(), all.end());
  return {.calls_per_s = static_cast<double>(all.size()) / seconds,
          .p50_us = all[all.size() / 2] * 1e6,
          .p99_us = all[all.size() * 99 / 100] * 1e6};
}

void Print(const std::string& what, int64_t records, size_t bytes, int outstanding,
           const Figure& figure) {
  std::printf(
      "{\"what\":\"%s\",\"records\":%lld,\"request_bytes\":%zu,\"outstanding\":%d,"
      "\"calls_per_s\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n",
      what.c_str(), static_cast<long long>(records), bytes, outstanding, figure.calls_per_s,
      figure.p50_us, figure.p99_us);
  std::fflush(stdout);
}

// Has the daemon store a record of each kernel: the heuristics' opts, without a search.
std::vector<std::string> StoreKernels(const std::string& address, int kernels) {
  const auto stub =
      v1::Tuner::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  std::vector<std::string> requests;
  requests.reserve(static_cast<size_t>(kernels));
  for (int i = 0; i < kernels; ++i) {
    v1::TuneRequest tune;
    *tune.mutable_graph() = testing::AddKernel(64 * (i + 1));
    tune.mutable_search()->set_width(0);
    grpc::ClientContext context;
    const auto reader = stub->Tune(&context, tune);
    v1::TuneEvent event;
    while (reader->Read(&event)) {
    }
    if (const grpc::Status status = reader->Finish(); !status.ok()) Die(status.error_message());
    v1::LookupRequest lookup;
    v1::LookupQuery& query = *lookup.add_queries();
    *query.mutable_graph() = tune.graph();
    *query.mutable_search() = tune.search();
    requests.push_back(lookup.SerializeAsString());
    grpc::ClientContext check;
    v1::LookupResponse response;
    if (!stub->Lookup(&check, lookup, &response).ok() || !response.answers(0).has_hit()) {
      Die("a kernel that was tuned isn't found");
    }
  }
  return requests;
}

// Fills up with records of other kernels.
void Fill(const std::string& directory, int64_t records) {
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(directory);
  if (!store.ok()) Die(store.status().ToString());
  absl::StatusOr<std::vector<v1::Record>> first = (*store)->ListRecords({}, 1);
  if (!first.ok() || first->empty()) Die("no record to copy");
  v1::Record record = first->front();
  const v1::Graph graph = testing::AddKernel(64);
  for (int64_t i = 0; i < records; ++i) {
    record.set_key(HashBytes(absl::StrCat("key ", i)).Hex());
    record.set_kernel_hash(HashBytes(absl::StrCat("kernel ", i)).Hex());
    if (!(*store)->PutRecord(record, graph).ok()) Die("the store can't be filled");
  }
}

void Run(const std::string& self, const std::string& beamd) {
  const double seconds = absl::GetFlag(FLAGS_seconds);
  const std::string directory = FastDirectory();
  std::vector<std::string> requests;
  int64_t there = absl::GetFlag(FLAGS_kernels);
  const std::vector<std::string> serve = {beamd,
                                          "serve",
                                          "--listen",
                                          "127.0.0.1:0",
                                          "--store",
                                          directory,
                                          "--calls_per_second=0",
                                          "--log_level=warn"};
  {
    const ServerProcess daemon(serve);
    requests = StoreKernels(daemon.address(), absl::GetFlag(FLAGS_kernels));
  }
  size_t bytes = 0;
  for (const std::string& request : requests) bytes = std::max(bytes, request.size());
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_records), ',')) {
    int64_t records = 0;
    if (!absl::SimpleAtoi(text, &records)) Die("--records wants numbers");
    // Keys of one size are among those of the next.
    if (records > there) Fill(directory, records - absl::GetFlag(FLAGS_kernels));
    there = std::max(there, records);
    const ServerProcess daemon(serve);
    const ServerProcess echo({self, "--echo_server"});
    std::printf("{\"what\":\"ready\",\"records\":%lld,\"ready_s\":%.3f}\n",
                static_cast<long long>(there), daemon.ready_s());
    for (const int outstanding : {1, 8, 64}) {
      // In turn, so that what else the machine does falls on both.
      Figure hit;
      Figure bare;
      for (int round = 0; round < 3; ++round) {
        const Figure h =
            Measure(daemon.address(), "/beamd.v1.Tuner/Lookup", requests, outstanding, seconds / 3);
        const Figure b = Measure(echo.address(), "/echo/Call", requests, outstanding, seconds / 3);
        if (h.calls_per_s > hit.calls_per_s) hit = h;
        if (b.calls_per_s > bare.calls_per_s) bare = b;
      }
      Print("hit", there, bytes, outstanding, hit);
      Print("echo", there, bytes, outstanding, bare);
      std::printf(
          "{\"what\":\"ratio\",\"records\":%lld,\"outstanding\":%d,\"calls\":%.3f,\"p50\":%.3f}\n",
          static_cast<long long>(there), outstanding, hit.calls_per_s / bare.calls_per_s,
          hit.p50_us / bare.p50_us);
      std::fflush(stdout);
    }
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_echo_server)) return beamd::ServeEcho();
  const std::string binary = absl::GetFlag(FLAGS_beamd);
  beamd::Run(std::filesystem::canonical("/proc/self/exe"),
             binary.empty() ? beamd::BuiltDaemon() : binary);
  return 0;
}
