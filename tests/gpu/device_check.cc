// What only a device can show, as one line of JSON: what it is, whether kernels with the
// heuristics' opts answer right on it and how long they take, and that its runner survives a
// planted hang and a planted illegal access.
//
//   device_check --device cuda:0 --corpus DIR --names a,b,... [--seconds 120]
//
// Exit status: 0 all well, 1 something isn't, 2 usage, 3 there is no such device.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "devices/registry.h"
#include "engine/base/command_line.h"
#include "engine/base/json_string.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/kernel/kernel.h"
#include "engine/llvm/codegen.h"
#include "engine/llvm/compiler.h"
#include "engine/uop/wire.h"
#include "server/workers/candidate_runner.h"
#include "server/workers/child_main.h"
#include "server/workers/codec.h"
#include "server/workers/runner_handler.h"
#include "server/workers/supervisor.h"
#include "tests/engine/llvm/program_builder.h"
#include "tests/testing/corpus.h"

namespace beamd {
namespace {

constexpr char kUsage[] = "device_check --device cuda:0 --corpus DIR --names a,b,... [flags]\n";

// Of a planted hang: a run that ends at all ends sooner.
constexpr absl::Duration kHangLimit = absl::Seconds(3);
constexpr absl::Duration kTaskLimit = absl::Seconds(60);

class Json {
 public:
  Json& Add(absl::string_view name, const std::string& raw) {
    absl::StrAppend(&text_, text_.empty() ? "" : ",", JsonString(name), ":", raw);
    return *this;
  }
  Json& Text(absl::string_view name, absl::string_view value) {
    return Add(name, JsonString(value));
  }
  Json& Number(absl::string_view name, double value) { return Add(name, absl::StrCat(value)); }
  Json& Flag(absl::string_view name, bool value) { return Add(name, value ? "true" : "false"); }
  std::string Object() const { return absl::StrCat("{", text_, "}"); }

 private:
  std::string text_;
};

std::string List(const std::vector<std::string>& items) {
  return absl::StrCat("[", absl::StrJoin(items, ","), "]");
}

// --- the device ---

std::string Describe(Device& device) {
  const DeviceInfo& info = device.info();
  Json json;
  json.Text("vendor", info.vendor).Text("model", info.model).Text("arch", info.arch);
  json.Text("features", device.caps().features).Text("driver", info.driver);
  json.Flag("emulated", info.emulated).Number("units", static_cast<double>(info.units));
  json.Number("memory_bytes", static_cast<double>(info.memory_bytes));
  json.Number("cache_bytes", static_cast<double>(info.cache_bytes));
  json.Number("clock_limit_mhz", static_cast<double>(info.clock_limit_mhz));
  json.Number("memory_clock_limit_mhz", static_cast<double>(info.memory_clock_limit_mhz));
  if (const auto now = device.Condition(); now.ok()) {
    json.Number("clock_mhz", static_cast<double>(now->clock_mhz));
    json.Number("temperature_celsius", static_cast<double>(now->temperature_celsius));
    json.Number("foreign_processes", static_cast<double>(now->foreign_processes));
  } else {
    json.Text("condition", now.status().message());
  }
  return json.Object();
}

// --- kernels ---

struct Checked {
  bool ok = false;
  std::string json;
};

Checked CheckKernel(Device& device, CandidateRunner& runner, KernelCompiler& compiler,
                    const testing::CorpusKernel& named) {
  Json json;
  json.Text("kernel", named.id);
  const auto failed = [&](absl::string_view step, absl::string_view why) {
    json.Text("failed", step).Text("why", why);
    return Checked{.ok = false, .json = json.Object()};
  };
  UOpGraph graph;
  const absl::StatusOr<UOp> sink = FromProto(named.graph, graph);
  if (!sink.ok()) return failed("parse", sink.status().message());
  const absl::StatusOr<Kernel> plain = Kernel::Create(*sink, device.caps());
  if (!plain.ok()) return failed("schedule", plain.status().message());
  const absl::Time start = absl::Now();
  const absl::StatusOr<CompileResult> unoptimised = compiler.Compile(*plain, {});
  if (!unoptimised.ok()) return failed("compile unoptimised", unoptimised.status().message());
  const Kernel chosen = HandCodedOptimizations(*plain);
  const absl::StatusOr<CompileResult> best = compiler.Compile(chosen, {});
  if (!best.ok()) return failed("compile", best.status().message());
  json.Number("compile_ms", absl::ToDoubleMilliseconds(absl::Now() - start));
  const KernelImage& image = best->image;
  const VerifyDone verified = runner.Verify(*sink, {.seed = 1}, image, &unoptimised->image);
  if (verified.failure != Failure::kNone) {
    return failed(absl::StrCat("verify: ", Name(verified.failure)), verified.detail);
  }
  json.Text("verified_by", verified.method)
      .Number("checked", static_cast<double>(verified.checked));
  const KernelImage* const images[] = {&image};
  MeasureOptions options;
  options.rounds = 5;
  const TimeDone timed = runner.Time(images, options);
  if (timed.failure != Failure::kNone) {
    return failed(absl::StrCat("time: ", Name(timed.failure)), timed.detail);
  }
  const double seconds = *std::min_element(timed.seconds[0].begin(), timed.seconds[0].end());
  json.Number("us", seconds * 1e6).Number("gflops", image.compute_ops / seconds * 1e-9);
  json.Number("gbytes_per_s", image.bytes / seconds * 1e-9);
  std::vector<std::string> opts;
  for (const Opt& opt : chosen.applied_opts()) opts.push_back(JsonString(ToString(opt)));
  json.Add("opts", List(opts));
  runner.Forget();
  return {.ok = !verified.method.empty(), .json = json.Object()};
}

// --- faults ---

// out[i] = i for the 64 work-items of a group, or slices of a CPU.
KernelImage Good(CodeGenerator& generator) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 64, false, true);
  const UOp i = p.Special("l0", 64);
  p.Store(out, i, i);
  return generator.Generate(p.Finish()).value_or(KernelImage());
}

// Stores a terabyte away from its buffer.
KernelImage IllegalAccess(CodeGenerator& generator) {
  constexpr int64_t kFar = int64_t{1} << 38;
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt32, 64, false, true);
  const UOp i = p.Special("l0", 64);
  const UOp at =
      p.Alu(Op::kAdd, p.Add(Op::kCast, Scalar::kInt64, {i}), p.Int(kFar, Scalar::kInt64));
  p.Store(out, at, i);
  return generator.Generate(p.Finish()).value_or(KernelImage());
}

// Stores for centuries.
KernelImage Hang(CodeGenerator& generator) {
  ProgramBuilder p;
  const UOp out = p.Buffer(Scalar::kInt64, 64, false, true);
  p.Special("l0", 1);
  const UOp turn = p.Range(p.Int(int64_t{1} << 60, Scalar::kInt64));
  const UOp at = p.Alu(Op::kAnd, turn, p.Int(63, Scalar::kInt64));
  p.Store(out, at, turn);
  p.End(turn);
  return generator.Generate(p.Finish()).value_or(KernelImage());
}

// A runner of the device in a process of its own, as the daemon has.
class Runner {
 public:
  explicit Runner(const std::string& device)
      : pool_(supervisor_.AddPool({.name = "runner",
                                   .args = {"runner", absl::StrCat("--device=", device)},
                                   .cores = {}})) {}

  TaskEnd Time(const KernelImage& image, absl::Duration limit) {
    PoolTask task;
    task.owner = supervisor_.NewId();
    task.limit = limit;
    internal::TimeRequest& request = *task.request.mutable_time();
    *request.add_images() = ToFrame(image);
    request.set_warmups(1);
    request.set_rounds(1);
    Mutex mutex;
    CondVar changed;
    std::optional<TaskEnd> end;
    task.done = [&](const TaskEnd& done) {
      const MutexLock lock(mutex);
      end = done;
      changed.NotifyOne();
    };
    supervisor_.Submit(pool_, std::move(task));
    MutexLock lock(mutex);
    while (!end) changed.Wait(mutex);
    return *std::move(end);
  }
  PoolState State() const { return supervisor_.State(pool_); }

 private:
  Supervisor supervisor_;
  const PoolId pool_;
};

bool Ran(const TaskEnd& end) {
  return end.outcome == TaskOutcome::kDone && end.reply.timed().failure() == 0;
}

std::string Told(const TaskEnd& end) {
  if (end.outcome != TaskOutcome::kDone) return absl::StrCat(Name(end.outcome), ": ", end.detail);
  const internal::TimeReply& reply = end.reply.timed();
  return absl::StrCat(Name(static_cast<Failure>(reply.failure())), ": ", reply.detail());
}

// The planted kernel ends as it must, and the next good one runs, on a fresh process.
Checked Survives(Runner& runner, absl::string_view name, const KernelImage& planted,
                 const KernelImage& good, absl::Duration limit, const std::string& reason) {
  const auto count = [&] {
    const PoolState state = runner.State();
    const auto it = state.replaced.find(reason);
    return it == state.replaced.end() ? uint64_t{0} : it->second;
  };
  const uint64_t before = count();
  const TaskEnd end = runner.Time(planted, limit);
  const absl::Time start = absl::Now();
  const bool again = Ran(runner.Time(good, kTaskLimit));
  const double recovered_s = absl::ToDoubleSeconds(absl::Now() - start);
  bool replaced = count() > before;
  for (int i = 0; i < 600 && !replaced; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    replaced = count() > before;
  }
  Json json;
  json.Text("fault", name).Text("told", Told(end)).Number("recovered_s", recovered_s);
  json.Flag("next_kernel_ran", again).Flag("runner_replaced", replaced);
  return {.ok = !Ran(end) && again && replaced, .json = json.Object()};
}

// --- all of it ---

struct Flags {
  std::string device = "cuda:0";
  std::string corpus;
  std::string names;
  int64_t seconds = 120;
};

int Check(const Flags& flags) {
  absl::StatusOr<std::unique_ptr<Device>> opened = OpenDevice(flags.device);
  if (!opened.ok()) {
    std::printf("%s\n", Json()
                            .Text("device", flags.device)
                            .Text("none", opened.status().message())
                            .Object()
                            .c_str());
    return 3;
  }
  const std::unique_ptr<Device> device = *std::move(opened);
  const absl::StatusOr<std::unique_ptr<KernelCompiler>> compiler =
      KernelCompiler::Create(device->caps());
  absl::StatusOr<std::unique_ptr<CodeGenerator>> generator = CodeGenerator::Create(device->caps());
  const std::vector<std::string> names = absl::StrSplit(flags.names, ',', absl::SkipEmpty());
  absl::StatusOr<std::vector<testing::CorpusKernel>> hot = std::vector<testing::CorpusKernel>();
  if (!names.empty()) hot = testing::ReadCorpusKernels(flags.corpus, {"hot.jsonl.gz"});
  for (const absl::Status& status : {compiler.status(), generator.status(), hot.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "device_check: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  bool ok = true;
  Json json;
  json.Text("device", flags.device).Add("is", Describe(*device));

  std::vector<std::string> kernels;
  const absl::Time deadline = absl::Now() + absl::Seconds(flags.seconds);
  CandidateRunner runner(*device);
  int left_out = 0;
  for (const std::string& name : names) {
    const auto named =
        std::find_if(hot->begin(), hot->end(), [&](const auto& k) { return k.id == name; });
    if (named == hot->end() || absl::Now() > deadline) {
      ++left_out;
      continue;
    }
    const Checked checked = CheckKernel(*device, runner, **compiler, *named);
    ok &= checked.ok;
    kernels.push_back(checked.json);
    // A device that a kernel broke is of no more use to this process.
    if (!device->Wait().ok()) break;
  }
  json.Add("kernels", List(kernels)).Number("kernels_left_out", left_out);

  Runner child(flags.device);
  const KernelImage good = Good(**generator);
  const Checked first = {Ran(child.Time(good, kTaskLimit)), ""};
  json.Flag("runner_runs", first.ok);
  const Checked illegal =
      Survives(child, "illegal access", IllegalAccess(**generator), good, kTaskLimit, "device");
  const Checked hang = Survives(child, "hang", Hang(**generator), good, kHangLimit, "timeout");
  json.Add("faults", List({illegal.json, hang.json}));
  ok &= first.ok && illegal.ok && hang.ok;
  json.Flag("ok", ok);
  std::printf("%s\n", json.Object().c_str());
  return ok ? 0 : 1;
}

int Run(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "runner") {
    const std::vector<std::string> rest(args.begin() + 1, args.end());
    BindToParent(rest);
    RunnerHandler handler(ChildFlag(rest, "device", ""));
    return RunChild(rest, handler);
  }
  Flags flags;
  CommandLine line(kUsage);
  line.Add("device", &flags.device, "the device");
  line.Add("corpus", &flags.corpus, "folder of the corpus");
  line.Add("names", &flags.names, "kernels of hot.jsonl.gz, with commas");
  line.Add("seconds", &flags.seconds, "no kernel is begun after them");
  const absl::StatusOr<std::vector<std::string>> rest = line.Parse(args);
  if (!rest.ok() || !rest->empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return Check(flags);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) { return beamd::Run({argv + 1, argv + argc}); }
