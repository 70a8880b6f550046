// Writes the corpus that fuzzing starts from: a valid value of each kind, a file a value.
//
//   seeds DIR
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/batch.pb.h"
#include "proto/beamd/v1/executor.pb.h"
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "server/store/stored.pb.h"
#include "server/store/stored_value.h"
#include "server/store/tuning_key.h"
#include "server/tuning/options.h"
#include "server/tuning/parse_kernel.h"
#include "tests/testing/daemon.h"
#include "tests/testing/executor_client.h"

namespace beamd {
namespace {

void Write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

void WriteExecutorSeeds(const std::filesystem::path& root) {
  const std::string session(32, 'a');
  for (const auto& [name, text] :
       {std::pair("assign",
                  "%0 = BUFFER float32 slot 1 shape (4)\n%1 = BUFFER float32 slot 2 shape (4)\n"
                  "%2 = ADD float32 (%0, %1)\n%3 = ASSIGN float32 (%0, %2)\n%4 = SINK void (%3)"),
        std::pair("sum",
                  "%0 = BUFFER float32 slot 1 shape (8,4)\n%1 = DEFINE_VAR int32 var \"n\" 1..8\n"
                  "%2 = SHRINK float32 (%0, %1) ints (0,$1,0,4)\n"
                  "%3 = REDUCE_AXIS float32 (%2) ADD axes (0,1)\n%4 = SINK void (%3)"),
        std::pair("layer",
                  "%0 = BUFFER float32 slot 1 shape (4,3)\n%1 = RESHAPE float32 (%0) ints (4,3,1)\n"
                  "%2 = EXPAND float32 (%1) ints (4,3,2)\n%3 = BUFFER float32 slot 2 shape (3,2)\n"
                  "%4 = RESHAPE float32 (%3) ints (1,3,2)\n%5 = EXPAND float32 (%4) ints (4,3,2)\n"
                  "%6 = MUL float32 (%2, %5)\n%7 = REDUCE_AXIS float32 (%6) ADD axes (1)\n"
                  "%8 = RESHAPE float32 (%7) ints (4,2)\n%9 = PERMUTE float32 (%8) ints (1,0)\n"
                  "%10 = CONTIGUOUS float32 (%9)\n%11 = PAD float32 (%10) ints (0,1,1,0)\n"
                  "%12 = FLIP float32 (%11) ints (0)\n%13 = CAST float16 (%12)\n"
                  "%14 = EXP2 float16 (%13)\n%15 = CAST float32 (%14)\n"
                  "%16 = REDUCE_AXIS float32 (%15) MAX axes (0,1)\n%17 = SINK void (%16)")}) {
    v1::RunRequest run;
    run.set_session(session);
    *run.mutable_graph() = testing::GraphOf(text);
    // Of what is one element; buffer 1 is in each.
    if (absl::string_view(name) != "assign") run.add_gradients(1);
    (*run.mutable_variables())["n"] = 3;
    Write(root / "RunRequest" / name, run.SerializeAsString());
    v1::ScheduleModelRequest model;
    *model.mutable_graph() = run.graph();
    model.mutable_search()->set_width(2);
    Write(root / "ScheduleModelRequest" / name, model.SerializeAsString());
  }
  v1::OpenSessionRequest open;
  open.mutable_device()->set_kind("cpu");
  open.mutable_lease()->set_seconds(30);
  Write(root / "OpenSessionRequest" / "lease", open.SerializeAsString());
  v1::KeepAliveRequest alive;
  alive.set_session(session);
  Write(root / "KeepAliveRequest" / "session", alive.SerializeAsString());
  v1::CloseSessionRequest close;
  close.set_session(session);
  Write(root / "CloseSessionRequest" / "session", close.SerializeAsString());
  v1::BeginUploadRequest upload;
  upload.set_session(session);
  upload.set_dtype(v1::SCALAR_FLOAT32);
  upload.add_shape(4);
  upload.set_sha256(std::string(32, 'd'));
  Write(root / "BeginUploadRequest" / "vector", upload.SerializeAsString());
  // The size of a slice, then the chunk.
  v1::UploadChunk chunk;
  chunk.set_offset(4096);
  chunk.set_data(std::string(300, 'x'));
  chunk.set_crc32c(0xDEADBEEF);
  Write(root / "upload_chunk" / "next", '\x10' + chunk.SerializeAsString());
  chunk.set_session(session);
  chunk.set_handle(7);
  Write(root / "upload_chunk" / "first", '\xff' + chunk.SerializeAsString());
  v1::DownloadRequest download;
  download.set_session(session);
  download.set_handle(1);
  download.set_bytes(8);
  Write(root / "DownloadRequest" / "part", download.SerializeAsString());
  v1::FreeRequest free;
  free.set_session(session);
  free.add_handles(1);
  Write(root / "FreeRequest" / "handle", free.SerializeAsString());
}

void WriteSeeds(const std::filesystem::path& root) {
  for (const auto& [name, graph] :
       {std::pair("add", testing::AddKernel(64)), std::pair("matmul", testing::MatmulKernel(8))}) {
    v1::TuneRequest tune;
    *tune.mutable_graph() = graph;
    tune.mutable_search()->set_width(2);
    tune.mutable_budget()->set_seconds(3);
    tune.mutable_device()->set_kind("cpu");
    Write(root / "TuneRequest" / name, tune.SerializeAsString());
    v1::LookupRequest lookup;
    *lookup.add_queries()->mutable_graph() = graph;
    Write(root / "LookupRequest" / name, lookup.SerializeAsString());
    v1::ShowRequest show;
    *show.mutable_graph() = graph;
    show.set_pass("ast");
    Write(root / "ShowRequest" / name, show.SerializeAsString());
    show.mutable_device()->set_kind("hip");
    show.set_heuristic(true);
    Write(root / "ShowRequest" / absl::StrCat(name, "_heuristic"), show.SerializeAsString());
    show.mutable_device()->set_kind("cuda");
    show.set_heuristic(false);
    for (const v1::OptOp op : {v1::OPT_OP_LOCAL, v1::OPT_OP_UPCAST}) {
      v1::Opt& opt = *show.add_opts();
      opt.set_op(op);
      opt.set_axis(0);
      opt.set_amount(2);
    }
    Write(root / "ShowRequest" / absl::StrCat(name, "_opts"), show.SerializeAsString());
    v1::TuneBatchRequest item;
    item.mutable_item()->set_id(name);
    item.mutable_item()->set_weight(2);
    *item.mutable_item()->mutable_request() = tune;
    Write(root / "TuneBatchRequest" / name, item.SerializeAsString());
    const ParsedKernel kernel = *ParseKernel(graph);
    v1::ExportedRecord exported;
    *exported.mutable_graph() = kernel.canonical;
    v1::Record& record = *exported.mutable_record();
    record.set_kernel_hash(kernel.hash.Hex());
    *record.mutable_search() = KeyOptions(DefaultSearchOptions());
    record.mutable_environment()->set_arch("znver3");
    record.set_key(HashTuningKey(kernel.hash, record.search(), record.environment()).Hex());
    record.set_best_s(1e-6);
    record.mutable_verification()->set_verified(true);
    Write(root / "ExportedRecord" / name, exported.SerializeAsString());
    // A value's type, as fuzz_stored.cc counts them, then the value.
    const auto stored = [&root, name = name](char type, const google::protobuf::Message& message) {
      Write(root / "stored" / absl::StrCat(name, "_", message.GetDescriptor()->name()),
            type + stored::Encode(message));
    };
    stored(0, record);
    stored(1, kernel.canonical);
    internal::StoredTiming timing;
    timing.set_failure(1);
    timing.set_compile_limit_ns(1000);
    stored(2, timing);
    internal::StoredJob job;
    job.set_id("01a22d170eab87235ebf");
    *job.mutable_request() = tune;
    job.set_key(record.key());
    stored(3, job);
    internal::StoredCandidate candidate;
    candidate.add_opts()->set_op(v1::OPT_OP_UPCAST);
    candidate.set_best_s(1e-6);
    stored(4, candidate);
    internal::StoredUsage usage;
    usage.set_day(20000);
    usage.set_device_seconds(2.5);
    stored(5, usage);
  }
  v1::TuneBatchRequest begin;
  begin.mutable_begin()->mutable_budget()->set_seconds(9);
  Write(root / "TuneBatchRequest" / "begin", begin.SerializeAsString());
  const std::string key(64, 'b');
  v1::ResolveRequest resolve;
  resolve.add_keys(key);
  resolve.set_snapshot(7);
  Write(root / "ResolveRequest" / "key", resolve.SerializeAsString());
  v1::ExplainRequest explain;
  explain.set_key(key);
  Write(root / "ExplainRequest" / "key", explain.SerializeAsString());
  v1::ExportRequest of_one;
  of_one.set_kernel_hash(key);
  Write(root / "ExportRequest" / "one", of_one.SerializeAsString());
  v1::ReplayRequest replay;
  replay.set_job("01a22d170eab87235ebf");
  replay.set_candidate(3);
  Write(root / "ReplayRequest" / "candidate", replay.SerializeAsString());
  v1::ListJobsRequest jobs;
  jobs.set_page_size(5);
  jobs.set_page_token("01a22d170eab87235ebf");
  Write(root / "ListJobsRequest" / "page", jobs.SerializeAsString());
  const auto of_job = [&](auto request) {
    request.set_id("01a22d170eab87235ebf");
    Write(root / request.GetDescriptor()->name() / "id", request.SerializeAsString());
  };
  of_job(v1::GetJobRequest());
  of_job(v1::WatchJobRequest());
  of_job(v1::CancelJobRequest());
  Write(root / "ListDevicesRequest" / "empty", "");
  Write(root / "BackupRequest" / "empty", "");
  v1::ReleaseDeviceRequest release;
  release.set_id("cpu:0");
  Write(root / "ReleaseDeviceRequest" / "id", release.SerializeAsString());
  v1::ListRecordsRequest list;
  list.set_page_size(5);
  list.set_kernel_hash(std::string(64, 'a'));
  Write(root / "ListRecordsRequest" / "page", list.SerializeAsString());
  v1::GetRecordRequest get;
  get.set_key(std::string(64, 'b'));
  get.set_generation(1);
  Write(root / "GetRecordRequest" / "key", get.SerializeAsString());
  Write(root / "access" / "file",
        "token:ci reader " + std::string(64, 'c') + "\ncert:a admin\nuid:5 importer\nany reader\n");
  Write(root / "access" / "trace", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  Write(root / "access" / "config", "store: \"/s\" jobs: 2 compile_cores: [0, 1]\n");
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  beamd::WriteSeeds(argv[1]);
  beamd::WriteExecutorSeeds(argv[1]);
  return 0;
}
