// The tensor engine: scheduling and lowering a program of many operations, replaying a captured
// plan, a train step. Prints a JSON line a figure, with tinygrad 0.10.0's beside it where that is
// given.
//
//   tensor_bench [--tinygrad CHECKOUT --peer DIR] [--ops 1000] [--only schedule,train]
//
// --peer holds peer_schedule.py and peer_train.py, which run with CHECKOUT on the CPU, one after the
// other with ours, never at once.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/emit.h"
#include "engine/llvm/host.h"
#include "engine/lower/pipeline.h"
#include "engine/schedule/memory_plan.h"
#include "engine/schedule/schedule.h"
#include "engine/tensor/nn/layers.h"
#include "engine/tensor/nn/optim.h"
#include "engine/tensor/tensor.h"
#include "server/execution/plan.h"
#include "server/execution/runtime.h"
#include "tests/testing/programs.h"

ABSL_FLAG(std::string, tinygrad, "", "a checkout of tinygrad 0.10.0; empty: no comparison");
ABSL_FLAG(std::string, peer, "", "folder of peer_schedule.py and peer_train.py");
ABSL_FLAG(int, ops, 1000, "operations of the scheduled program");
ABSL_FLAG(std::vector<std::string>, only, {}, "programs,schedule,replay,train; empty: all");

namespace beamd {
namespace {

// The numbers that follow words in what a peer's script prints: "schedule 8.2s" -> {"schedule", 8.2}.
std::map<std::string, double> Peer(const std::string& script, const std::string& args) {
  std::map<std::string, double> numbers;
  if (absl::GetFlag(FLAGS_tinygrad).empty()) return numbers;
  const std::string command =
      absl::StrCat("CLANG=1 PYTHONPATH='", absl::GetFlag(FLAGS_tinygrad), "' python3 '",
                   absl::GetFlag(FLAGS_peer), "/", script, "' ", args);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return numbers;
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    char* end = nullptr;
    const double value = std::strtod(words[i + 1].c_str(), &end);
    if (end != words[i + 1].c_str()) numbers[words[i]] = value;
  }
  return numbers;
}

// `,"peer_NAME_s":X,"NAME_ratio":ours/X` where the peer printed NAME.
std::string Beside(const std::map<std::string, double>& peer, const std::string& name,
                   double ours) {
  const auto it = peer.find(name);
  if (it == peer.end()) return "";
  return absl::StrCat(",\"peer_", name, "_s\":", it->second, ",\"", name,
                      "_ratio\":", ours / it->second);
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

double SecondsOf(const std::function<void()>& f) {
  const absl::Time start = absl::Now();
  f();
  return absl::ToDoubleSeconds(absl::Now() - start);
}

std::vector<LazyBuffer> Roots(const std::vector<Tensor>& tensors) {
  std::vector<LazyBuffer> roots;
  roots.reserve(tensors.size());
  for (const Tensor& t : tensors) roots.push_back(t.lazydata());
  return roots;
}

// The recorded programs: kernels and memory.
absl::Status Programs() {
  for (const std::string& name : ProgramNames()) {
    LazyContext context;
    const Program program = MakeProgram(name, context);
    BEAMD_ASSIGN_OR_RETURN(const Schedule schedule, CreateSchedule(Roots(program.outputs)));
    const MemoryPlan plan = PlanMemory(schedule);
    std::printf(
        "{\"bench\":\"program\",\"name\":\"%s\",\"kernels\":%d,\"peak_bytes\":%lld,"
        "\"lower_bound_bytes\":%lld}\n",
        name.c_str(), schedule.kernel_count(), static_cast<long long>(plan.peak_bytes),
        static_cast<long long>(plan.lower_bound_bytes));
  }
  return absl::OkStatus();
}

// From a scheduled kernel to LLVM IR, which is where 0.10.0 has its source text.
absl::Status LowerKernel(UOp ast, const TargetCaps& caps) {
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Create(ast, caps));
  const Kernel scheduled = HandCodedOptimizations(RequiredOptimizations(kernel));
  UOpGraph nodes;
  BEAMD_ASSIGN_OR_RETURN(const LinearProgram program, Lower(scheduled, nodes, {}));
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  return EmitModule(program, caps, module);
}

absl::Status ScheduleAndLower() {
  const int ops = absl::GetFlag(FLAGS_ops);
  const TargetCaps caps = HostCaps();
  std::vector<double> build;
  std::vector<double> schedule;
  std::vector<double> lower;
  int kernels = 0;
  for (int i = 0; i < 5; ++i) {
    LazyContext context;
    Program program;
    build.push_back(SecondsOf([&] { program = MakeChain(context, ops); }));
    absl::StatusOr<Schedule> made;
    schedule.push_back(SecondsOf([&] { made = CreateSchedule(Roots(program.outputs)); }));
    BEAMD_RETURN_IF_ERROR(made.status());
    kernels = made->kernel_count();
    absl::Status status;
    lower.push_back(SecondsOf([&] {
      for (const ScheduleItem& item : made->items) {
        if (item.ast && status.ok()) status = LowerKernel(item.ast, caps);
      }
    }));
    BEAMD_RETURN_IF_ERROR(status);
  }
  const std::map<std::string, double> peer = Peer("peer_schedule.py", absl::StrCat(ops));
  std::printf(
      "{\"bench\":\"schedule\",\"ops\":%d,\"kernels\":%d,\"build_s\":%.6f,\"schedule_s\":%.6f,"
      "\"lower_s\":%.6f%s%s%s}\n",
      ops, kernels, Median(build), Median(schedule), Median(lower),
      Beside(peer, "build", Median(build)).c_str(),
      Beside(peer, "schedule", Median(schedule)).c_str(),
      Beside(peer, "lower", Median(lower)).c_str());
  return absl::OkStatus();
}

// What a replayed kernel takes beyond a launch of it alone.
absl::Status Replay() {
  constexpr int kKernels = 200;
  LazyContext context;
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, Runtime::Create());
  context.set_realizer(runtime.get());
  const Tensor x = Tensor::From<float>(context, std::vector<float>{1, 2, 3, 4}, {4});
  BEAMD_RETURN_IF_ERROR(x.Realize());
  const std::vector<LazyBuffer> inputs{x.lazydata()};
  const auto chain = [&](int kernels) {
    return Plan::Capture(*runtime, inputs, [&]() -> absl::StatusOr<std::vector<LazyBuffer>> {
      Tensor y = x;
      for (int i = 0; i < kernels; ++i) y = (y * 0.5 + 1).Contiguous();
      return std::vector<LazyBuffer>{y.lazydata()};
    });
  };
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, chain(kKernels));
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> one, chain(1));
  const auto run = [&](Plan& p) {
    constexpr int kRuns = 2001;
    std::vector<double> seconds;
    seconds.reserve(kRuns);
    for (int i = 0; i < kRuns; ++i) {
      seconds.push_back(SecondsOf([&] { BEAMD_CHECK(p.Run(inputs, {}).ok(), "the plan runs"); }));
    }
    return Median(seconds);
  };
  // The kernels themselves compute four floats: nanoseconds, which count as overhead here.
  const double many = run(*plan);
  const double single = run(*one);
  std::printf(
      "{\"bench\":\"replay\",\"kernels\":%d,\"us_per_kernel\":%.3f,\"us_of_one_kernel_plan\":%.3f}"
      "\n",
      plan->kernel_count(), 1e6 * many / plan->kernel_count(), 1e6 * single);
  return absl::OkStatus();
}

struct Mlp : nn::Module {
  explicit Mlp(LazyContext& context) : l1(context, 784, 256), l2(context, 256, 10) {
    Register("l1", l1);
    Register("l2", l2);
  }
  Tensor operator()(const Tensor& x) const { return l2(l1(x).Relu()); }
  nn::Linear l1;
  nn::Linear l2;
};

absl::Status TrainStep() {
  LazyContext context;
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, Runtime::Create());
  context.set_realizer(runtime.get());
  context.training = true;
  const Mlp model(context);
  const std::unique_ptr<nn::Optimizer> optimizer = nn::SGD(model.Parameters(), {.lr = 0.01});
  const Tensor x = Tensor::Rand(context, {64, 784});
  const Tensor y = Tensor::Randint(context, {64}, 0, 10);
  BEAMD_RETURN_IF_ERROR(Tensor::Realize({x, y}));
  const auto step = [&](std::span<const LazyBuffer>) -> absl::StatusOr<std::vector<LazyBuffer>> {
    optimizer->ZeroGrad();
    const Tensor loss = model(x).SparseCategoricalCrossentropy(y);
    BEAMD_RETURN_IF_ERROR(loss.Backward());
    BEAMD_ASSIGN_OR_RETURN(std::vector<Tensor> updated, optimizer->ScheduleStep());
    updated.insert(updated.begin(), loss);
    return Roots(updated);
  };
  const std::vector<LazyBuffer> inputs{x.lazydata(), y.lazydata()};
  std::vector<double> eager;
  for (int i = 0; i < 7; ++i) {
    absl::Status status;
    eager.push_back(SecondsOf([&] {
      absl::StatusOr<std::vector<LazyBuffer>> roots = step(inputs);
      status = roots.ok() ? runtime->Realize(*roots) : roots.status();
    }));
    BEAMD_RETURN_IF_ERROR(status);
  }
  CapturedFunction captured(*runtime, step);
  std::vector<double> replay;
  for (int i = 0; i < 53; ++i) {
    absl::Status status;
    const double seconds = SecondsOf([&] { status = captured.Call(inputs).status(); });
    BEAMD_RETURN_IF_ERROR(status);
    if (i >= 3) replay.push_back(seconds);
  }
  const std::map<std::string, double> peer = Peer("peer_train.py", "");
  std::printf("{\"bench\":\"train_step\",\"kernels\":%d,\"eager_s\":%.6f,\"jit_s\":%.6f%s%s}\n",
              captured.plan()->kernel_count(), Median(eager), Median(replay),
              Beside(peer, "eager", Median(eager)).c_str(),
              Beside(peer, "jit", Median(replay)).c_str());
  return absl::OkStatus();
}

int Main() {
  const std::vector<std::string> only = absl::GetFlag(FLAGS_only);
  const std::vector<std::pair<std::string, absl::Status (*)()>> benches{
      {"programs", Programs},
      {"schedule", ScheduleAndLower},
      {"replay", Replay},
      {"train", TrainStep}};
  int failed = 0;
  for (const auto& [name, bench] : benches) {
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    if (const absl::Status status = bench(); !status.ok()) {
      std::fprintf(stderr, "tensor_bench: %s: %s\n", name.c_str(), status.ToString().c_str());
      ++failed;
    }
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
