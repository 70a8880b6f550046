// beamctl: asks a beamd for opts, records, devices, and what the compiler makes of a kernel; shows
// what a tensor graph comes to.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/beamctl/model.h"
#include "client/beamctl/picture.h"
#include "client/beamctl/plan.h"
#include "client/beamctl/print.h"
#include "client/cc/client.h"
#include "client/cc/graph_file.h"
#include "engine/base/command_line.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "engine/uop/wire.h"

namespace beamd {
namespace {

constexpr char kUsage[] =
    R"(beamctl [--server ADDR] COMMAND [ARGUMENTS] [flags]

  tune GRAPH...                 opts for a kernel: stored ones, or a search
  tune --corpus FILE --name ID
  tune-model GRAPH              the same for every kernel of a tensor graph, and a table of gains
  lookup GRAPH...               stored opts only
  records [KEY]                 what is stored; with KEY that record and its graph
  devices                       what the server owns
  show GRAPH --pass PASS        what a pass makes of the kernel ("ast", "ir", "asm", or a pass by name);
                                of a tensor graph "ast"
Without a server:
  plan GRAPH                    the kernels of a tensor graph: shapes, flops, bytes, the heuristics' opts
  graph GRAPH                   a picture in Graphviz's language (dot -Tsvg): of a tensor graph, or
                                with --kernel of its kernels, with --schedule of what runs; of a kernel

GRAPH is a file (- is standard input): protobuf JSON, binary, or text; or the text form of a graph.
Exit status: 0 ok, 2 usage, 3 invalid argument, 4 unavailable, 5 deadline or budget without an answer,
6 not found, 1 else. Of several kernels, that of the first that failed.
)";

struct Flags {
  std::string server = "127.0.0.1:7070";
  bool json = false;
  absl::Duration timeout = absl::InfiniteDuration();
  std::string traceparent;
  std::string corpus;
  std::string name;
  std::string device;
  std::string match = "strict";
  // tune
  int64_t width = 0;
  absl::Duration budget = absl::InfiniteDuration();
  bool refresh = false;
  bool lookup_only = false;
  bool no_store = false;
  std::string label;
  int64_t seed = 0;
  int64_t debug = 0;
  bool noopt = false;
  bool strict = false;
  // graph
  bool tensor = false;
  bool kernel = false;
  bool schedule = false;
  // records
  std::string kernel_hash;
  int64_t generation = 0;
  // show
  std::string pass = "ast";
  std::string opts;
  bool heuristic = false;
  bool version = false;
  bool help = false;

  CallOptions Call() const {
    CallOptions options{.traceparent = traceparent};
    if (timeout < absl::InfiniteDuration()) options.deadline = absl::Now() + timeout;
    return options;
  }
};

CommandLine MakeCommandLine(Flags& flags) {
  CommandLine line(kUsage);
  line.Add("server", &flags.server, "address of the beamd");
  line.Add("json", &flags.json, "print JSON, a line a thing");
  line.Add("timeout", &flags.timeout, "deadline of the call; tune-model: of each kernel");
  line.Add("traceparent", &flags.traceparent, "W3C trace context to run under");
  line.Add("corpus", &flags.corpus, "file of JSON lines with id and graph, gzipped or not");
  line.Add("name", &flags.name, "id of the kernel in --corpus; several with commas");
  line.Add("device", &flags.device,
           "id (cpu:0), kind (cpu) or kind/arch (cpu/znver4); plan: cpu, cuda or hip");
  line.Add("match", &flags.match, "how close a stored record must be: strict, same-arch, any");
  line.Add("width", &flags.width, "tune, lookup: beam width, else the server's");
  line.Add("budget", &flags.budget, "tune: a search ends with its best so far");
  line.Add("refresh", &flags.refresh, "tune: search, whatever is stored");
  line.Add("lookup_only", &flags.lookup_only, "tune: never search");
  line.Add("no_store", &flags.no_store, "tune: leave the store as it is");
  line.Add("label", &flags.label, "tune: free text for the record");
  line.Add("seed", &flags.seed, "tune, lookup: seed of the data that candidates are checked on");
  line.Add("debug", &flags.debug, "tune: 1 tells each best, 2 each candidate");
  line.Add("noopt", &flags.noopt, "tune, lookup: the unoptimised kernel");
  line.Add("strict", &flags.strict, "tune: fail where a candidate fails to compile");
  line.Add("tensor", &flags.tensor, "graph: of a tensor graph, as without");
  line.Add("kernel", &flags.kernel, "graph: of a kernel, or of a tensor graph's kernels");
  line.Add("schedule", &flags.schedule, "graph: of what runs, and the buffers between");
  line.Add("kernel_hash", &flags.kernel_hash, "records: only those of this kernel");
  line.Add("generation", &flags.generation, "records KEY: that one, else the newest");
  line.Add("pass", &flags.pass, "show: the pass");
  line.Add("opts", &flags.opts, "show: opts to apply, as tune prints them");
  line.Add("heuristic", &flags.heuristic, "show: apply what the heuristics choose");
  line.Add("version", &flags.version, "print the version");
  line.Add("help", &flags.help, "print this");
  return line;
}

struct Command {
  absl::string_view name;
  int least, most;         // operands; where --corpus names graphs, none are needed
  absl::string_view uses;  // flags, with spaces
};
constexpr int kMany = 1 << 20;
constexpr Command kCommands[] = {
    {"tune", 1, kMany,
     "server json timeout traceparent corpus name device match width budget refresh lookup_only "
     "no_store label seed debug noopt strict"},
    {"tune-model", 1, 1,
     "server json timeout traceparent device match width budget refresh lookup_only no_store label "
     "seed debug noopt strict"},
    {"lookup", 1, kMany,
     "server json timeout traceparent corpus name device match width seed noopt"},
    {"records", 0, kMany, "server json timeout traceparent kernel_hash generation"},
    {"devices", 0, 0, "server json timeout traceparent"},
    {"show", 1, kMany, "server json timeout traceparent corpus name device pass opts heuristic"},
    {"plan", 1, 1, "json device"},
    {"graph", 1, 1, "corpus name tensor kernel schedule"},
};

bool Uses(const Command& command, absl::string_view flag) {
  const std::vector<absl::string_view> uses = absl::StrSplit(command.uses, ' ');
  return std::ranges::find(uses, flag) != uses.end();
}

v1::DeviceSelector Selector(const std::string& text) {
  v1::DeviceSelector selector;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  if (absl::StrContains(text, ":")) {
    selector.set_id(text);
  } else {
    selector.set_kind(parts[0]);
    if (parts.size() == 2) selector.set_arch(parts[1]);
  }
  return selector;
}

absl::StatusOr<v1::MatchPolicy> Policy(const std::string& text) {
  if (text == "strict") return v1::MATCH_POLICY_STRICT;
  if (text == "same-arch") return v1::MATCH_POLICY_SAME_ARCH;
  if (text == "any") return v1::MATCH_POLICY_ANY;
  return absl::InvalidArgumentError(absl::StrCat("--match can't be \"", text, "\""));
}

struct NamedGraph {
  std::string name;
  v1::Graph graph;
};

absl::StatusOr<std::vector<NamedGraph>> ReadGraphs(const std::vector<std::string>& files,
                                                   const Flags& flags) {
  std::vector<NamedGraph> graphs;
  for (const std::string& file : files) {
    BEAMD_ASSIGN_OR_RETURN(v1::Graph graph, ReadGraphFile(file));
    graphs.push_back({file, std::move(graph)});
  }
  if (!flags.corpus.empty()) {
    const std::vector<std::string> names = absl::StrSplit(flags.name, ',');
    BEAMD_ASSIGN_OR_RETURN(std::vector<v1::Graph> read, ReadCorpusGraphs(flags.corpus, names));
    for (size_t i = 0; i < names.size(); ++i) graphs.push_back({names[i], std::move(read[i])});
  }
  return graphs;
}

absl::Status WantKernels(const std::vector<NamedGraph>& graphs) {
  for (const NamedGraph& named : graphs) {
    if (!HasTensorOps(named.graph)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(named.name, " is a tensor graph: `beamctl tune-model` tunes its kernels"));
  }
  return absl::OkStatus();
}

v1::SearchOptions Search(const Flags& flags, const CommandLine& line) {
  v1::SearchOptions search;
  if (line.Given("width")) search.set_width(static_cast<uint32_t>(flags.width));
  if (line.Given("seed")) search.set_seed(static_cast<uint64_t>(flags.seed));
  if (line.Given("debug")) search.set_debug(static_cast<uint32_t>(flags.debug));
  if (line.Given("noopt")) search.set_noopt(flags.noopt);
  if (line.Given("strict")) search.set_strict(flags.strict);
  return search;
}

// All of a request but its graph.
absl::StatusOr<v1::TuneRequest> TuneRequestOf(const Flags& flags, const CommandLine& line) {
  v1::TuneRequest request;
  *request.mutable_search() = Search(flags, line);
  if (!flags.device.empty()) *request.mutable_device() = Selector(flags.device);
  BEAMD_ASSIGN_OR_RETURN(const v1::MatchPolicy policy, Policy(flags.match));
  request.set_match(policy);
  if (flags.refresh) request.set_mode(v1::TUNE_MODE_REFRESH);
  if (flags.lookup_only) request.set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
  if (flags.budget < absl::InfiniteDuration()) {
    *request.mutable_budget() = ToProto(flags.budget);
  }
  request.set_no_store(flags.no_store);
  request.set_label(flags.label);
  return request;
}

// One search, its progress told under `name`.
absl::StatusOr<v1::TuneResult> TuneOne(Client& client, const v1::TuneRequest& request,
                                       const std::string& name, const Flags& flags) {
  ProgressLine progress(name, flags.json);
  absl::StatusOr<v1::TuneResult> result = client.Tune(
      request,
      [&](const v1::TuneEvent& event) {
        progress.Show(event);
        return true;
      },
      flags.Call());
  progress.End();
  return result;
}

absl::Status Tune(Client& client, const std::vector<NamedGraph>& graphs, const Flags& flags,
                  const CommandLine& line) {
  BEAMD_RETURN_IF_ERROR(WantKernels(graphs));
  BEAMD_ASSIGN_OR_RETURN(v1::TuneRequest request, TuneRequestOf(flags, line));
  for (const NamedGraph& named : graphs) {
    *request.mutable_graph() = named.graph;
    BEAMD_ASSIGN_OR_RETURN(const v1::TuneResult result,
                           TuneOne(client, request, named.name, flags));
    PrintResult(named.name, result, flags.json);
  }
  return absl::OkStatus();
}

// A kernel that fails doesn't keep the others from being tuned; a daemon that isn't there does.
// `told`: what went wrong stands in the table already.
absl::Status TuneModel(Client& client, const v1::Graph& graph, const Flags& flags,
                       const CommandLine& line, bool& told) {
  BEAMD_ASSIGN_OR_RETURN(const TargetCaps caps, TargetOfKind(""));
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, ScheduleModel(graph, caps));
  BEAMD_ASSIGN_OR_RETURN(v1::TuneRequest request, TuneRequestOf(flags, line));
  std::vector<TunedKernel> tuned;
  absl::Status failed;
  int failures = 0;
  for (const ModelKernel& kernel : model->kernels) {
    *request.mutable_graph() = ToProto(kernel.ast);
    const std::string name =
        absl::StrCat("kernel ", tuned.size() + 1, " of ", model->kernels.size(), ", ", kernel.name);
    tuned.push_back({kernel.name, kernel.hash, kernel.uses, TuneOne(client, request, name, flags)});
    const absl::Status& status = tuned.back().result.status();
    if (absl::IsUnavailable(status)) return status;
    if (status.ok()) continue;
    failed.Update(status);
    ++failures;
  }
  PrintTuned(tuned, flags.json);
  told = true;
  if (failed.ok()) return failed;
  return absl::Status(failed.code(),
                      absl::StrCat(failures, " of ", tuned.size(),
                                   " kernels failed, the first: ", std::string(failed.message())));
}

// `told`: what went wrong stands in the answers already.
absl::Status Lookup(Client& client, const std::vector<NamedGraph>& graphs, const Flags& flags,
                    const CommandLine& line, bool& told) {
  BEAMD_RETURN_IF_ERROR(WantKernels(graphs));
  BEAMD_ASSIGN_OR_RETURN(const v1::MatchPolicy policy, Policy(flags.match));
  v1::LookupRequest request;
  for (const NamedGraph& named : graphs) {
    v1::LookupQuery& query = *request.add_queries();
    *query.mutable_graph() = named.graph;
    *query.mutable_search() = Search(flags, line);
    query.set_match(policy);
    if (!flags.device.empty()) *query.mutable_device() = Selector(flags.device);
  }
  BEAMD_ASSIGN_OR_RETURN(const v1::LookupResponse response, client.Lookup(request, flags.Call()));
  told = true;
  absl::Status status;
  for (int i = 0; i < response.answers_size(); ++i) {
    const v1::LookupAnswer& answer = response.answers(i);
    PrintAnswer(graphs[i].name, answer, flags.json);
    if (answer.has_error()) {
      status.Update(
          absl::InvalidArgumentError(absl::StrCat(graphs[i].name, ": ", answer.error().message())));
    } else if (answer.has_miss()) {
      status.Update(absl::NotFoundError(absl::StrCat(graphs[i].name, ": not stored")));
    }
  }
  return status;
}

absl::Status Records(Client& client, const std::vector<std::string>& keys, const Flags& flags) {
  for (const std::string& key : keys) {
    v1::GetRecordRequest request;
    request.set_key(key);
    request.set_generation(static_cast<uint64_t>(flags.generation));
    BEAMD_ASSIGN_OR_RETURN(const v1::GetRecordResponse response,
                           client.GetRecord(request, flags.Call()));
    PrintMessage(response);
  }
  if (!keys.empty()) return absl::OkStatus();
  v1::ListRecordsRequest request;
  request.set_kernel_hash(flags.kernel_hash);
  do {
    BEAMD_ASSIGN_OR_RETURN(const v1::ListRecordsResponse response,
                           client.ListRecords(request, flags.Call()));
    for (const v1::Record& record : response.records()) PrintRecord(record, flags.json);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::Status Devices(Client& client, const Flags& flags) {
  BEAMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response, client.ListDevices(flags.Call()));
  PrintDevices(response, flags.json);
  return absl::OkStatus();
}

// Needs no compiler, so it needs no server.
absl::Status ShowTensors(const v1::Graph& graph, const Flags& flags) {
  BEAMD_ASSIGN_OR_RETURN(const std::string text, TensorText(graph));
  if (flags.pass != "ast" || !flags.opts.empty() || flags.heuristic) {
    return absl::InvalidArgumentError(
        "a tensor graph has the pass \"ast\" and no opts; `beamctl plan` tells its kernels");
  }
  v1::ShowResponse shown;
  shown.set_text(text);
  PrintShown(shown, flags.json);
  return absl::OkStatus();
}

absl::Status Show(Client& client, const std::vector<NamedGraph>& graphs, const Flags& flags) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<v1::Opt> opts, ParseOpts(flags.opts));
  for (const NamedGraph& named : graphs) {
    if (!IsKernel(named.graph)) {
      BEAMD_RETURN_IF_ERROR(ShowTensors(named.graph, flags));
      continue;
    }
    v1::ShowRequest request;
    *request.mutable_graph() = named.graph;
    request.mutable_opts()->Add(opts.begin(), opts.end());
    request.set_heuristic(flags.heuristic);
    request.set_pass(flags.pass);
    if (!flags.device.empty()) *request.mutable_device() = Selector(flags.device);
    BEAMD_ASSIGN_OR_RETURN(const v1::ShowResponse response, client.Show(request, flags.Call()));
    PrintShown(response, flags.json);
  }
  return absl::OkStatus();
}

absl::Status Plan(const v1::Graph& graph, const Flags& flags) {
  BEAMD_ASSIGN_OR_RETURN(const TargetCaps caps, TargetOfKind(flags.device));
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, ScheduleModel(graph, caps));
  PrintPlan(*model, flags.json);
  return absl::OkStatus();
}

absl::Status Picture(const v1::Graph& graph, const Flags& flags) {
  const bool kernel = flags.kernel || (!flags.tensor && !flags.schedule && IsKernel(graph));
  BEAMD_ASSIGN_OR_RETURN(const std::string text, Draw(graph, flags.schedule ? PictureOf::kSchedule
                                                             : kernel       ? PictureOf::kKernels
                                                                            : PictureOf::kTensors));
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

int ExitStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return 3;
    case absl::StatusCode::kUnavailable:
      return 4;
    case absl::StatusCode::kDeadlineExceeded:
      return 5;
    case absl::StatusCode::kNotFound:
      return 6;
    default:
      return 1;
  }
}

int Usage(const std::string& why) {
  std::fprintf(stderr, "beamctl: %s\nbeamctl --help says more.\n", why.c_str());
  return 2;
}

// What is wrong with how the command is used; empty if nothing.
std::string UsageError(const Command& command, const std::vector<std::string>& operands,
                       const Flags& flags, const CommandLine& line) {
  for (const std::string& flag : line.AllGiven()) {
    if (!Uses(command, flag)) return absl::StrCat(command.name, " has no use for --", flag);
  }
  if (flags.corpus.empty() != flags.name.empty()) return "--corpus and --name go together";
  const auto given = static_cast<int>(operands.size());
  if (given < command.least && flags.corpus.empty()) {
    return absl::StrCat(command.name, " wants a graph");
  }
  if (given > command.most) {
    return command.most == 0 ? absl::StrCat(command.name, " takes no argument")
                             : absl::StrCat(command.name, " takes one graph");
  }
  if (!Policy(flags.match).ok()) return std::string(Policy(flags.match).status().message());
  if (!ParseOpts(flags.opts).ok()) return "--opts can't be read";
  for (const int64_t number : {flags.width, flags.seed, flags.debug, flags.generation}) {
    if (number < 0) return "no number here can be negative";
  }
  for (const int64_t number : {flags.width, flags.debug}) {
    if (number > UINT32_MAX) return absl::StrCat(number, " is too large");
  }
  if (flags.budget < absl::ZeroDuration()) return "--budget can't be negative";
  if (flags.refresh && flags.lookup_only) {
    return "--refresh always searches, --lookup_only never does";
  }
  if (flags.tensor + flags.kernel + flags.schedule > 1) return "one picture at a time";
  if (command.name == "plan" && !TargetOfKind(flags.device).ok()) {
    return std::string(TargetOfKind(flags.device).status().message());
  }
  return "";
}

int Run(const std::vector<std::string>& args) {
  Flags flags;
  const CommandLine line = MakeCommandLine(flags);
  const absl::StatusOr<std::vector<std::string>> parsed = line.Parse(args);
  if (!parsed.ok()) return Usage(std::string(parsed.status().message()));
  if (flags.help) {
    std::fputs(line.Help().c_str(), stdout);
    return 0;
  }
  if (flags.version) {
    std::printf("beamctl %s\n", kBeamdVersion);
    return 0;
  }
  if (parsed->empty()) return Usage("no command");
  const std::string& name = parsed->front();
  const Command* command =
      std::ranges::find_if(kCommands, [&](const Command& c) { return c.name == name; });
  if (command == std::end(kCommands)) return Usage(absl::StrCat("no command ", name));
  const std::vector<std::string> operands(parsed->begin() + 1, parsed->end());
  const std::string wrong = UsageError(*command, operands, flags, line);
  if (!wrong.empty()) return Usage(wrong);

  const std::unique_ptr<Client> client = Client::Create(flags.server);
  absl::StatusOr<std::vector<NamedGraph>> graphs =
      command->least > 0 ? ReadGraphs(operands, flags) : std::vector<NamedGraph>();
  absl::Status status = graphs.status();
  bool told = false;
  if (status.ok()) {
    if (name == "tune") status = Tune(*client, *graphs, flags, line);
    if (name == "tune-model") status = TuneModel(*client, graphs->front().graph, flags, line, told);
    if (name == "lookup") status = Lookup(*client, *graphs, flags, line, told);
    if (name == "records") status = Records(*client, operands, flags);
    if (name == "devices") status = Devices(*client, flags);
    if (name == "show") status = Show(*client, *graphs, flags);
    if (name == "plan") status = Plan(graphs->front().graph, flags);
    if (name == "graph") status = Picture(graphs->front().graph, flags);
  }
  if (!status.ok()) PrintError(status, flags.json && !told);
  if (absl::IsUnavailable(status) && !flags.json) {
    std::fprintf(stderr, "Is a daemon there? `beamd serve --listen %s --store DIR` starts one.\n",
                 flags.server.c_str());
  }
  return ExitStatus(status);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) { return beamd::Run({argv + 1, argv + argc}); }
