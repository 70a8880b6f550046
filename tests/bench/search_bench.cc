// Whole searches of named kernels through a daemon with its workers and runner, a JSON line a
// kernel: the figures that tinygrad 0.10.0's beam_search is compared by.
//
//   search_bench --corpus DIR --names a,b,... --width W [--beamd PATH] [--rounds 10]
//
// search_s is the wall time from the accepted request to the result, the verified record written.
// best_s and hc_s are the least of ten warm runs at full size in this process, nothing flushed in
// between.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "devices/measure.h"
#include "devices/registry.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/compiler.h"
#include "engine/uop/wire.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"
#include "server/workers/codec.h"
#include "tests/testing/corpus.h"

ABSL_FLAG(std::string, corpus, "", "folder of the corpus");
ABSL_FLAG(std::string, names, "",
          "kernels of hot.jsonl.gz, separated by commas; empty: all of f32");
ABSL_FLAG(int, width, 4, "beam width");
ABSL_FLAG(std::string, beamd, "", "the daemon's binary; empty: the one built beside this program");

namespace beamd {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A daemon with a store of its own, ended by id.
class Daemon {
 public:
  explicit Daemon(const std::string& binary) {
    store_ = std::filesystem::temp_directory_path() / "beamd-bench-XXXXXX";
    if (mkdtemp(store_.data()) == nullptr) Die("no temporary folder");
    int out[2];
    if (pipe(out) != 0) Die("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      execl(binary.c_str(), binary.c_str(), "serve", "--listen", "127.0.0.1:0", "--store",
            store_.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(out[1]);
    FILE* lines = fdopen(out[0], "r");
    char line[256];
    while (fgets(line, sizeof(line), lines) != nullptr) {
      const std::string text(line);
      if (text.rfind("ready ", 0) != 0) continue;
      address_ = text.substr(6, text.find_last_not_of('\n') - 5);
      return;
    }
    Die("the daemon did not start: " + binary);
  }
  ~Daemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(store_);
  }
  const std::string& address() const { return address_; }

 private:
  [[noreturn]] static void Die(const std::string& why) {
    std::fprintf(stderr, "search_bench: %s\n", why.c_str());
    std::exit(1);
  }
  pid_t pid_ = 0;
  std::string store_, address_;
};

struct Searched {
  double search_s = 0;
  v1::Record record;
};

absl::StatusOr<Searched> Search(v1::Tuner::Stub& stub, const v1::Graph& graph, int width) {
  grpc::ClientContext context;
  v1::TuneRequest request;
  *request.mutable_graph() = graph;
  request.mutable_search()->set_width(static_cast<uint32_t>(width));
  request.set_mode(v1::TUNE_MODE_REFRESH);
  auto stream = stub.Tune(&context, request);
  Clock::time_point accepted = Clock::now();
  Searched searched;
  v1::TuneEvent event;
  bool answered = false;
  while (stream->Read(&event)) {
    if (event.has_accepted()) accepted = Clock::now();
    if (!event.has_result()) continue;
    searched.search_s = SecondsSince(accepted);
    searched.record = event.result().record();
    answered = true;
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return absl::UnknownError(status.error_message());
  if (!answered) return absl::UnknownError("the stream ended without a result");
  return searched;
}

// Least of ten warm runs, a kernel's image an opt list; interleaved.
absl::StatusOr<std::vector<double>> Retime(Device& device, const v1::Graph& graph,
                                           const std::vector<std::vector<Opt>>& lists) {
  UOpGraph nodes;
  BEAMD_ASSIGN_OR_RETURN(const UOp ast, FromProto(graph, nodes));
  const TargetCaps caps = HostCaps();
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(ast, caps));
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<KernelCompiler> compiler,
                         KernelCompiler::Create(caps));
  std::vector<KernelImage> images;
  for (const std::vector<Opt>& opts : lists) {
    Kernel scheduled = kernel;
    BEAMD_RETURN_IF_ERROR(scheduled.ApplyAll(opts));
    BEAMD_ASSIGN_OR_RETURN(CompileResult result, compiler->Compile(scheduled, {}));
    images.push_back(std::move(result.image));
  }
  return LeastOfRuns(device, images, 10);
}

int Main() {
  const std::string corpus = absl::GetFlag(FLAGS_corpus);
  std::map<std::string, v1::Graph> hot;
  const absl::StatusOr<std::vector<testing::CorpusKernel>> kernels =
      testing::ReadCorpusKernels(corpus, {"hot.jsonl.gz"});
  if (!kernels.ok()) {
    std::fprintf(stderr, "search_bench: %s\n", kernels.status().ToString().c_str());
    return 2;
  }
  std::vector<std::string> names;
  for (const testing::CorpusKernel& k : *kernels) {
    hot[k.id] = k.graph;
    if (k.id.find("f32") != std::string::npos) names.push_back(k.id);
  }
  if (const std::string list = absl::GetFlag(FLAGS_names); !list.empty()) {
    names = absl::StrSplit(list, ',');
  }
  std::string binary = absl::GetFlag(FLAGS_beamd);
  if (binary.empty()) {
    binary = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../server/beamd";
  }
  const Daemon daemon(binary);
  const auto stub =
      v1::Tuner::NewStub(grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials()));
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice("cpu:0");
  if (!device.ok()) {
    std::fprintf(stderr, "search_bench: %s\n", device.status().ToString().c_str());
    return 1;
  }
  int failed = 0;
  for (const std::string& name : names) {
    const auto graph = hot.find(name);
    if (graph == hot.end()) {
      std::fprintf(stderr, "search_bench: no kernel is named %s\n", name.c_str());
      return 2;
    }
    const absl::StatusOr<Searched> searched =
        Search(*stub, graph->second, absl::GetFlag(FLAGS_width));
    absl::StatusOr<std::vector<double>> times =
        searched.ok()
            ? Retime(**device, graph->second,
                     {FromWire(searched->record.opts()), FromWire(searched->record.hc_opts())})
            : searched.status();
    if (!times.ok()) {
      std::fprintf(stderr, "search_bench: %s: %s\n", name.c_str(),
                   times.status().ToString().c_str());
      ++failed;
      continue;
    }
    const v1::Record& r = searched->record;
    std::string opts;
    for (const Opt& opt : FromWire(r.opts()))
      absl::StrAppend(&opts, opts.empty() ? "" : ",", "\"", ToString(opt), "\"");
    std::printf(
        "{\"kernel\":\"%s\",\"width\":%d,\"search_s\":%.3f,\"timed\":%llu,\"best_s\":%.9g,"
        "\"hc_s\":%.9g,\"opts\":[%s],\"verified\":%s}\n",
        name.c_str(), absl::GetFlag(FLAGS_width), searched->search_s,
        static_cast<unsigned long long>(r.timed()), (*times)[0], (*times)[1], opts.c_str(),
        r.verification().verified() ? "true" : "false");
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return beamd::Main();
}
