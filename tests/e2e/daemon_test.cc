#include "tests/testing/daemon.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cc/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::MatmulKernel;
using ::beamd::testing::Ran;
using ::beamd::testing::RunProcess;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kBeamd[] = "server/beamd";

class DaemonTest : public ::testing::Test {
 protected:
  void StartDaemon(const std::vector<std::string>& flags = {}) {
    daemon_.reset();
    daemon_ = std::make_unique<Daemon>(kBeamd, directory_ + "/store", flags);
    client_ = Client::Create(daemon_->address());
  }

  static v1::TuneRequest Request(const v1::Graph& graph, uint32_t width = 1) {
    v1::TuneRequest request;
    *request.mutable_graph() = graph;
    request.mutable_search()->set_width(width);
    return request;
  }

  absl::StatusOr<v1::TuneResult> Tune(
      const v1::TuneRequest& request, const std::function<bool(const v1::TuneEvent&)>& event =
                                          [](const v1::TuneEvent&) { return true; }) {
    CallOptions options;
    options.deadline = absl::Now() + absl::Seconds(120);
    return client_->Tune(request, event, options);
  }

  v1::ListDevicesResponse Devices() {
    absl::StatusOr<v1::ListDevicesResponse> devices = client_->ListDevices();
    EXPECT_TRUE(devices.ok()) << devices.status();
    return devices.ok() ? *devices : v1::ListDevicesResponse();
  }

  const std::string directory_ = FreshDirectory();
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(DaemonTest, TunesOnceAndAnswersFromTheStoreEvenAfterARestart) {
  StartDaemon();
  std::vector<v1::TuneEvent> events;
  const absl::StatusOr<v1::TuneResult> first =
      Tune(Request(AddKernel(4096)), [&](const v1::TuneEvent& event) {
        events.push_back(event);
        return true;
      });
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->match(), v1::MATCH_SEARCHED);
  EXPECT_TRUE(first->persisted());
  const v1::Record& record = first->record();
  EXPECT_TRUE(record.verification().verified());
  EXPECT_GT(record.best_s(), 0);
  EXPECT_LE(record.best_s(), record.hc_s());
  EXPECT_LE(record.best_s(), record.unoptimised_s());
  EXPECT_EQ(record.environment().kind(), "cpu");
  EXPECT_FALSE(record.environment().llvm().empty());
  EXPECT_GT(record.environment().codegen_epoch(), 0);
  EXPECT_GT(record.environment().measurement_version(), 0);
  ASSERT_GE(events.size(), 2);
  EXPECT_EQ(events[0].accepted().key(), record.key());
  EXPECT_EQ(events[0].accepted().miss(), v1::MISS_REASON_NO_RECORD);
  EXPECT_EQ(events[0].accepted().job(), record.job());
  for (size_t i = 1; i < events.size(); ++i) EXPECT_TRUE(events[i].has_progress());

  for (int restart = 0; restart < 2; ++restart) {
    const absl::StatusOr<v1::TuneResult> again = Tune(Request(AddKernel(4096)));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->match(), v1::MATCH_STRICT);
    EXPECT_EQ(again->record().DebugString(), record.DebugString());
    v1::LookupRequest lookup;
    for (int i = 0; i < 3; ++i) *lookup.add_queries()->mutable_graph() = AddKernel(4096);
    lookup.mutable_queries(0)->mutable_search()->set_width(1);
    *lookup.mutable_queries(1)->mutable_graph() = AddKernel(8192);
    lookup.mutable_queries(2)->mutable_search()->set_width(7);
    const absl::StatusOr<v1::LookupResponse> found = client_->Lookup(lookup);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->answers(0).hit().match(), v1::MATCH_STRICT);
    EXPECT_EQ(found->answers(1).miss().reason(), v1::MISS_REASON_NO_RECORD);
    EXPECT_EQ(found->answers(2).miss().reason(), v1::MISS_REASON_OPTIONS_CHANGED);
    daemon_->Signal(SIGTERM);
    EXPECT_EQ(daemon_->Wait(), 0);
    StartDaemon();
  }
}

TEST_F(DaemonTest, RemovesOldCheckpointsOfItsOwnAlone) {
  const std::string ours = directory_ + "/store.checkpoint-1700000000000000000";
  const std::vector<std::string> others = {directory_ + "/store.checkpoint-before-upgrade",
                                           directory_ + "/store.checkpoint-17x",
                                           directory_ + "/store.checkpoint-"};
  for (const std::string& folder : others) std::filesystem::create_directory(folder);
  std::filesystem::create_directory(ours);
  StartDaemon();
  EXPECT_FALSE(std::filesystem::exists(ours));
  for (const std::string& folder : others) EXPECT_TRUE(std::filesystem::exists(folder)) << folder;
}

TEST_F(DaemonTest, TunesAKernelOfImages) {
  StartDaemon();
  v1::Graph graph = MatmulKernel(64);
  for (v1::Node& node : *graph.mutable_nodes()) {
    if (node.op() != v1::OP_DEFINE_GLOBAL) continue;
    node.mutable_dtype()->set_scalar(v1::SCALAR_FLOAT16);
    for (const uint32_t side : {64, 16, 4}) node.mutable_dtype()->add_image_shape(side);
  }
  const absl::StatusOr<v1::TuneResult> tuned = Tune(Request(graph));
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_TRUE(tuned->record().verification().verified());
  EXPECT_LE(tuned->record().best_s(), tuned->record().unoptimised_s());
  const absl::StatusOr<v1::TuneResult> again = Tune(Request(graph));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->match(), v1::MATCH_STRICT);
  // The same matrices as plain buffers are another kernel.
  v1::LookupRequest lookup;
  *lookup.add_queries()->mutable_graph() = MatmulKernel(64);
  lookup.mutable_queries(0)->mutable_search()->set_width(1);
  const absl::StatusOr<v1::LookupResponse> found = client_->Lookup(lookup);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->answers(0).miss().reason(), v1::MISS_REASON_NO_RECORD);
}

TEST_F(DaemonTest, WhatItToldAsPersistedSurvivesKill9) {
  StartDaemon();
  const absl::StatusOr<v1::TuneResult> told = Tune(Request(AddKernel(4096)));
  ASSERT_TRUE(told.ok()) << told.status();
  ASSERT_TRUE(told->persisted());
  daemon_->Signal(SIGKILL);
  EXPECT_EQ(daemon_->Wait(), -SIGKILL);
  StartDaemon();
  v1::GetRecordRequest request;
  request.set_key(told->record().key());
  const absl::StatusOr<v1::GetRecordResponse> kept = client_->GetRecord(request);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->record().DebugString(), told->record().DebugString());
  EXPECT_GT(kept->graph().nodes_size(), 0);
  EXPECT_EQ(client_->ListRecords({})->records_size(), 1);
}

TEST_F(DaemonTest, TwoClientsThatWantTheSameShareAJob) {
  StartDaemon();
  const v1::TuneRequest request = Request(MatmulKernel(128), 4);
  absl::StatusOr<v1::TuneResult> other = absl::UnknownError("not asked");
  bool joined = false;
  std::thread second;
  const absl::StatusOr<v1::TuneResult> result = Tune(request, [&](const v1::TuneEvent& event) {
    // The first is accepted: from here on the second finds its job.
    if (!event.has_accepted()) return true;
    second = std::thread([&] {
      const std::unique_ptr<Client> client = Client::Create(daemon_->address());
      other = client->Tune(request, [&](const v1::TuneEvent& theirs) {
        if (theirs.has_accepted()) joined = theirs.accepted().joined();
        return true;
      });
    });
    return true;
  });
  if (second.joinable()) second.join();
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(joined);
  EXPECT_EQ(result->job(), other->job());
  EXPECT_EQ(result->record().DebugString(), other->record().DebugString());
  EXPECT_NE(result->trace_id(), other->trace_id());
}

TEST_F(DaemonTest, ASearchOutlivesItsWorkerAndItsRunner) {
  StartDaemon();
  int killed = 0;
  const absl::StatusOr<v1::TuneResult> result =
      Tune(Request(MatmulKernel(128), 2), [&](const v1::TuneEvent& event) {
        if (event.progress().phase() != v1::PHASE_SEARCHING || killed == 2) return true;
        const v1::ListDevicesResponse devices = Devices();
        const v1::ProcessPool& pool =
            killed == 0 ? devices.workers() : devices.devices(0).runners();
        if (!pool.children().empty()) {
          kill(static_cast<pid_t>(pool.children(0).pid()), SIGKILL);
          ++killed;
        }
        return true;
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(killed, 2);
  EXPECT_TRUE(result->record().verification().verified());
  const v1::ListDevicesResponse devices = Devices();
  EXPECT_EQ(devices.workers().replaced().at("crash"), 1);
  EXPECT_EQ(devices.devices(0).runners().replaced().at("crash"), 1);
}

TEST_F(DaemonTest, AKernelTooLargeForItsRunnerEndsTheRunnerAndIsToldSo) {
  StartDaemon({"--runner_memory_mb=256"});
  v1::TuneRequest request = Request(AddKernel(64 << 20));
  request.mutable_search()->set_noopt(true);
  const absl::Status status = Tune(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("run_memory 1"));
  EXPECT_EQ(Devices().devices(0).runners().replaced().at("memory"), 1);
  EXPECT_TRUE(Tune(Request(AddKernel(4096))).ok());
}

TEST_F(DaemonTest, AQueuedJobSaysThatItLives) {
  StartDaemon({"--jobs=1"});
  std::thread first([&] {
    // Until the second has heard enough: no machine searches this one in less.
    const std::unique_ptr<Client> client = Client::Create(daemon_->address());
    client
        ->Tune(Request(MatmulKernel(2048), 32), [](const v1::TuneEvent&) { return true; },
               {.deadline = absl::Now() + absl::Seconds(6)})
        .IgnoreError();
  });
  absl::SleepFor(absl::Seconds(1));
  int heartbeats = 0;
  const absl::StatusOr<v1::TuneResult> left =
      Tune(Request(AddKernel(4096)), [&](const v1::TuneEvent& event) {
        if (!event.progress().heartbeat()) return true;
        EXPECT_EQ(event.progress().phase(), v1::PHASE_QUEUED);
        EXPECT_EQ(event.progress().queue_position(), 1);
        EXPECT_GT(event.progress().elapsed_s(), 0);
        return ++heartbeats < 2;
      });
  first.join();
  EXPECT_EQ(heartbeats, 2);
  EXPECT_EQ(left.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(DaemonTest, CapturesEveryCandidate) {
  StartDaemon({"--capture", directory_ + "/capture"});
  const absl::StatusOr<v1::TuneResult> result = Tune(Request(AddKernel(4096)));
  ASSERT_TRUE(result.ok()) << result.status();
  std::ifstream capture(directory_ + "/capture");
  std::string line;
  ASSERT_TRUE(std::getline(capture, line));
  EXPECT_THAT(line, HasSubstr(absl::StrCat("{\"kernel\":\"", result->record().kernel_hash(),
                                           "\",\"graph\":{\"nodes\":[")));
  uint64_t timed = 0;
  while (std::getline(capture, line)) {
    EXPECT_THAT(line, HasSubstr("\"opts\":\""));
    timed += absl::StrContains(line, "\"failure\":\"none\"") ? 1 : 0;
  }
  EXPECT_EQ(timed, result->record().timed());
}

TEST_F(DaemonTest, AClientThatLeavesEndsItsJob) {
  StartDaemon({"--abandon_grace=100ms"});
  const absl::StatusOr<v1::TuneResult> left = Tune(
      Request(MatmulKernel(512), 8),
      [](const v1::TuneEvent& event) { return event.progress().phase() != v1::PHASE_SEARCHING; });
  EXPECT_EQ(left.status().code(), absl::StatusCode::kCancelled) << left.status();
  // One job at a time: this one would wait for the abandoned search's end.
  EXPECT_TRUE(Tune(Request(AddKernel(4096))).ok());
  EXPECT_EQ(client_->ListRecords({})->records_size(), 1);
}

TEST_F(DaemonTest, ADeadlineThatPassesIsDeadlineExceeded) {
  StartDaemon();
  CallOptions options;
  options.deadline = absl::Now() + absl::Milliseconds(300);
  const auto result = client_->Tune(
      Request(MatmulKernel(512), 8), [](const v1::TuneEvent&) { return true; }, options);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
}

TEST_F(DaemonTest, ABudgetGivesTheBestSoFar) {
  StartDaemon();
  v1::TuneRequest request = Request(MatmulKernel(256), 16);
  request.mutable_budget()->set_seconds(3);
  const absl::Time began = absl::Now();
  const absl::StatusOr<v1::TuneResult> result = Tune(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(absl::Now() - began, absl::Seconds(15));
  EXPECT_GT(result->record().best_s(), 0);
  EXPECT_LE(result->record().best_s(), result->record().unoptimised_s());
}

TEST_F(DaemonTest, SigtermEndsItWithItsChildrenAndTellsTheBestSoFar) {
  StartDaemon({"--drain_timeout=100ms"});
  std::vector<pid_t> children;
  const v1::ListDevicesResponse devices = Devices();
  for (const auto& child : devices.workers().children()) {
    children.push_back(static_cast<pid_t>(child.pid()));
  }
  children.push_back(static_cast<pid_t>(devices.devices(0).runners().children(0).pid()));
  const absl::StatusOr<v1::TuneResult> result =
      Tune(Request(MatmulKernel(512), 16), [&](const v1::TuneEvent& event) {
        if (event.progress().phase() == v1::PHASE_SEARCHING) daemon_->Signal(SIGTERM);
        return true;
      });
  if (result.ok()) {
    EXPECT_EQ(result->record().end(), v1::SEARCH_END_SHUTDOWN);
    EXPECT_FALSE(result->persisted());
  } else {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
  }
  EXPECT_EQ(daemon_->Wait(), 0);
  for (const pid_t child : children) EXPECT_NE(kill(child, 0), 0) << child << " lives on";
}

TEST_F(DaemonTest, ASecondOneOnItsStoreSaysWhy) {
  StartDaemon();
  const Ran second =
      RunProcess({kBeamd, "serve", "--listen", "127.0.0.1:0", "--store", directory_ + "/store"});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("in use by another beamd"));
  EXPECT_THAT(second.out, IsEmpty());
}

TEST_F(DaemonTest, ATakenAddressSaysWhy) {
  StartDaemon();
  const Ran second = RunProcess(
      {kBeamd, "serve", "--listen", daemon_->address(), "--store", directory_ + "/other"});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("can't listen on"));
}

TEST_F(DaemonTest, UsageErrorsAre2) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"serve"},
        {"serve", "--store", directory_, "--stroe=x"},
        {"serve", "--store", directory_, "--jobs=many"},
        {"serve", "--store", directory_, "--timing_cores=9999"},
        {"serve", "--store", directory_, "--width=100000"},
        {"sevre"},
        {"worker"},
        {}}) {
    std::vector<std::string> argv = {kBeamd};
    argv.insert(argv.end(), args.begin(), args.end());
    const Ran ran = RunProcess(argv);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, Not(IsEmpty()));
  }
  const Ran help = RunProcess({kBeamd, "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("--store=VALUE"));
}

TEST_F(DaemonTest, TensorCoresAreOffOnOrShapesAloneAsASearchSays) {
  StartDaemon();
  v1::ShowRequest request;
  *request.mutable_graph() = MatmulKernel(64);
  request.set_pass("asm");
  request.mutable_device()->set_kind("cuda");
  request.mutable_device()->set_arch("sm_80");
  v1::Opt& opt = *request.add_opts();
  opt.set_op(v1::OPT_OP_TC);
  opt.set_axis(0);
  opt.set_amount(0);
  // float32: only by rounding its factors.
  EXPECT_THAT(std::string(client_->Show(request).status().message()),
              HasSubstr("no tensor core fits"));
  request.mutable_search()->set_allow_tf32(true);
  EXPECT_THAT(client_->Show(request)->text(), HasSubstr("mma.sync"));
  request.mutable_search()->set_tc(2);
  const std::string shapes = client_->Show(request)->text();
  EXPECT_THAT(shapes, HasSubstr("fma.rn.f32"));
  EXPECT_THAT(shapes, Not(HasSubstr("mma.sync")));
  request.mutable_search()->set_tc(0);
  EXPECT_THAT(std::string(client_->Show(request).status().message()),
              HasSubstr("tensor cores are off"));
}

TEST_F(DaemonTest, ShowsWhatAPassMakesOfAKernel) {
  StartDaemon();
  v1::ShowRequest request;
  *request.mutable_graph() = AddKernel(4096);
  request.set_pass("ast");
  v1::Opt& opt = *request.add_opts();
  opt.set_op(v1::OPT_OP_UPCAST);
  opt.set_axis(0);
  opt.set_amount(4);
  const absl::StatusOr<v1::ShowResponse> ast = client_->Show(request);
  ASSERT_TRUE(ast.ok()) << ast.status();
  EXPECT_THAT(ast->text(), HasSubstr("SINK"));
  EXPECT_THAT(ast->text(), HasSubstr("(1024,4)"));
  request.set_pass("ir");
  EXPECT_THAT(client_->Show(request)->text(), HasSubstr("target triple"));
  request.set_pass("asm");
  EXPECT_THAT(client_->Show(request)->text(), HasSubstr("ret"));
  // Of GPUs that aren't here.
  request.mutable_device()->set_kind("cuda");
  request.mutable_device()->set_arch("sm_90");
  EXPECT_THAT(client_->Show(request)->text(), HasSubstr(".target sm_90"));
  request.mutable_device()->set_arch("gfx1100");
  EXPECT_EQ(client_->Show(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.mutable_device()->set_kind("hip");
  EXPECT_THAT(client_->Show(request)->text(), HasSubstr("s_endpgm"));
  request.clear_device();
  request.set_pass("nonsense");
  const absl::Status unknown = client_->Show(request).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("expand"));
  request.set_pass("ast");
  opt.set_axis(7);
  EXPECT_EQ(client_->Show(request).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace beamd
