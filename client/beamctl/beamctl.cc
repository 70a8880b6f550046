// beamctl: asks a beamd for opts, records, devices, and what the compiler makes of a kernel; shows
// what a tensor graph comes to.

#include <algorithm>
#include <cerrno>
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
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/beamctl/backup.h"
#include "client/beamctl/format.h"
#include "client/beamctl/lock_file.h"
#include "client/beamctl/model.h"
#include "client/beamctl/picture.h"
#include "client/beamctl/plan.h"
#include "client/beamctl/port_probe.h"
#include "client/beamctl/print.h"
#include "client/beamctl/run.h"
#include "client/beamctl/stored.h"
#include "client/cc/client.h"
#include "client/cc/graph_file.h"
#include "client/cc/local_file.h"
#include "client/thin/session.h"
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
  run GRAPH --in NAME=FILE.npy --out NAME=FILE.npy
                                what a tensor graph computes of these arrays; --grad NAME: and the
                                gradient of output 0, as output grad.NAME; --profile FILE: the kernels'
                                times, for Perfetto. A BUFFER's name is its id (slot 3: 3), an output's
                                its place; lines `# buffer 3: images` and `# output 0: logits` of a
                                graph in text name them
  lookup GRAPH...               stored opts only
  records [KEY]                 what is stored; with KEY that record and its graph
  jobs                          what the server searches for and searched for, the newest first
  jobs get|watch|cancel ID...   of these jobs: all that is known, in JSON; the progress, then the
                                result; end them
  explain KEY                   what a record's search tried, why the winner won, by how much
  replay KEY|JOB/NUMBER         a record's winner, or a candidate that explain names, once more
  lock GRAPH... --out FILE      which records answer these kernels now, in a file; tune with
                                --frozen FILE takes those and nothing else
  export FILE, import FILE      records to and from elsewhere, as lines of JSON
  backup DIR                    a copy of the server's store
  devices                       what the server owns
  devices release ID...         time kernels there again: its quarantine ends
  doctor                        what protects the server and holds its children, and what is amiss
  show GRAPH --pass PASS        what a pass makes of the kernel ("ast", "ir", "asm", or a pass by name);
                                of a tensor graph "ast"
Without a server:
  restore BACKUP --store DIR    a store for `beamd serve` made of a backup
  plan GRAPH                    the kernels of a tensor graph: shapes, flops, bytes, the heuristics' opts
  graph GRAPH                   a picture in Graphviz's language (dot -Tsvg): of a tensor graph, or
                                with --kernel of its kernels, with --schedule of what runs; of a kernel

GRAPH is a file (- is standard input): protobuf JSON, binary, or text; or the text form of a graph.
Exit status: 0 ok, 2 usage, 3 invalid argument, 4 unavailable, 5 deadline or budget without an answer,
6 not found, 1 else. Of several kernels, that of the first that failed.
)";

struct Flags {
  std::string server = "127.0.0.1:7070";
  Credentials credentials;
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
  bool detach = false;
  bool now = false;
  std::string frozen;
  std::vector<std::string> out;
  // run
  std::vector<std::string> in;
  std::vector<std::string> grad;
  std::vector<std::string> var;
  bool random = false;
  std::string profile;
  std::string store;
  std::string priority = "normal";
  int64_t limit = 100;  // jobs
  std::string label;
  int64_t seed = 0;
  int64_t debug = 0;
  bool noopt = false;
  bool strict = false;
  int64_t tc = 1;
  bool nolocals = false;
  bool allow_tf32 = false;
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
  line.Add("tls_ca", &flags.credentials.tls_ca, "PEM file of who signs the server's certificate");
  line.Add("tls_cert", &flags.credentials.tls_cert, "PEM file of a certificate to show it");
  line.Add("tls_key", &flags.credentials.tls_key, "PEM file of that certificate's key");
  line.Add("token_file", &flags.credentials.token_file, "file of a bearer token to show it");
  line.Add("json", &flags.json, "print JSON, a line a thing");
  line.Add("timeout", &flags.timeout, "deadline of the call; tune-model: of each kernel");
  line.Add("traceparent", &flags.traceparent, "W3C trace context to run under");
  line.Add("corpus", &flags.corpus, "file of JSON lines with id and graph, gzipped or not");
  line.Add("name", &flags.name, "id of the kernel in --corpus; several with commas");
  line.Add("device", &flags.device,
           "id (cpu:0), kind (cpu) or kind/arch (cpu/znver4); show: cuda/sm_90 or hip/gfx1100, be "
           "it here or not; plan: cpu, cuda or hip");
  line.Add("match", &flags.match, "how close a stored record must be: strict, same-arch, any");
  line.Add("width", &flags.width, "tune, lookup: beam width, else the server's");
  line.Add("budget", &flags.budget, "tune: a search ends with its best so far");
  line.Add("refresh", &flags.refresh, "tune: search, whatever is stored");
  line.Add("lookup_only", &flags.lookup_only, "tune: never search");
  line.Add("no_store", &flags.no_store, "tune: leave the store as it is");
  line.Add("now", &flags.now, "tune: answer at once, and search in the background");
  line.Add("frozen", &flags.frozen, "tune: only what this lock file says, never a search");
  line.Add("out", &flags.out, "lock: the file to write; run: NAME=FILE.npy, an output's");
  line.Add("in", &flags.in, "run: NAME=FILE.npy, a buffer's content");
  line.Add("grad", &flags.grad, "run: a buffer with respect to which output 0 is differentiated");
  line.Add("var", &flags.var, "run: NAME=VALUE, of a variable");
  line.Add("random", &flags.random,
           "run: buffers without a file hold any numbers, always the same");
  line.Add("profile", &flags.profile, "run: file for the times of its kernels, a Chrome trace");
  line.Add("store", &flags.store, "restore: the directory to make");
  line.Add("detach", &flags.detach, "tune: don't wait; the job goes on without a watcher");
  line.Add("priority", &flags.priority, "tune: batch, normal, interactive");
  line.Add("limit", &flags.limit, "jobs: this many, the newest");
  line.Add("label", &flags.label, "tune: free text for the record");
  line.Add("seed", &flags.seed, "tune, lookup: seed of the data that candidates are checked on");
  line.Add("debug", &flags.debug, "tune: 1 tells each best, 2 each candidate");
  line.Add("noopt", &flags.noopt, "tune, lookup: the unoptimised kernel");
  line.Add("strict", &flags.strict, "tune: fail where a candidate fails to compile");
  line.Add("tc", &flags.tc,
           "tune, lookup, show: tensor cores 0 off, 1 on, 2 their shapes alone; else the server's");
  line.Add("nolocals", &flags.nolocals, "tune, lookup: NOLOCALS is an action");
  line.Add("allow_tf32", &flags.allow_tf32,
           "tune, lookup, show: tensor cores may round float32 factors to 10 bits");
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
  absl::string_view operand = "graph";
};
constexpr int kMany = 1 << 20;
constexpr Command kCommands[] = {
    {"tune", 1, kMany,
     "server json timeout traceparent corpus name device match width budget refresh lookup_only "
     "no_store detach now frozen priority label seed debug noopt strict tc nolocals allow_tf32"},
    {"tune-model", 1, 1,
     "server json timeout traceparent device match width budget refresh lookup_only no_store "
     "frozen priority label seed debug noopt strict tc nolocals allow_tf32"},
    {"run", 1, 1, "server json timeout device match in out grad var random profile lookup_only"},
    {"lookup", 1, kMany,
     "server json timeout traceparent corpus name device match width seed noopt tc nolocals "
     "allow_tf32"},
    {"records", 0, kMany, "server json timeout traceparent kernel_hash generation"},
    {"jobs", 0, kMany, "server json timeout traceparent limit"},
    {"explain", 1, kMany, "server json timeout traceparent generation", "key"},
    {"replay", 1, kMany, "server json timeout traceparent generation", "key"},
    {"lock", 1, kMany,
     "server json timeout traceparent corpus name device width seed noopt tc nolocals allow_tf32 "
     "out"},
    {"export", 1, 1, "server timeout traceparent kernel_hash", "file"},
    {"import", 1, 1, "server json timeout traceparent", "file"},
    {"backup", 1, 1, "server timeout traceparent", "directory"},
    {"restore", 1, 1, "store", "directory"},
    {"devices", 0, kMany, "server json timeout traceparent"},
    {"doctor", 0, 0, "server json timeout traceparent"},
    {"show", 1, kMany,
     "server json timeout traceparent corpus name device pass opts heuristic tc allow_tf32"},
    {"plan", 1, 1, "json device"},
    {"graph", 1, 1, "corpus name tensor kernel schedule"},
};

bool Uses(const Command& command, absl::string_view flag) {
  // Whoever calls a server may have to say who it is.
  if (absl::StartsWith(flag, "tls_") || flag == "token_file") flag = "server";
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

absl::StatusOr<v1::Priority> PriorityOf(const std::string& text) {
  if (text == "batch") return v1::PRIORITY_BATCH;
  if (text == "normal") return v1::PRIORITY_NORMAL;
  if (text == "interactive") return v1::PRIORITY_INTERACTIVE;
  return absl::InvalidArgumentError(absl::StrCat("--priority can't be \"", text, "\""));
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
  if (line.Given("tc")) search.set_tc(static_cast<uint32_t>(flags.tc));
  if (line.Given("nolocals")) search.set_nolocals(flags.nolocals);
  if (line.Given("allow_tf32")) search.set_allow_tf32(flags.allow_tf32);
  return search;
}

// All of a request but its graph.
absl::StatusOr<v1::TuneRequest> TuneRequestOf(const Flags& flags, const CommandLine& line) {
  v1::TuneRequest request;
  *request.mutable_search() = Search(flags, line);
  if (!flags.device.empty()) *request.mutable_device() = Selector(flags.device);
  BEAMD_ASSIGN_OR_RETURN(const v1::MatchPolicy policy, Policy(flags.match));
  request.set_match(policy);
  BEAMD_ASSIGN_OR_RETURN(const v1::Priority priority, PriorityOf(flags.priority));
  request.set_priority(priority);
  request.set_detach(flags.detach);
  if (flags.refresh) request.set_mode(v1::TUNE_MODE_REFRESH);
  if (flags.now) request.set_mode(v1::TUNE_MODE_NOW);
  if (flags.lookup_only) request.set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
  if (flags.budget < absl::InfiniteDuration()) {
    *request.mutable_budget() = ToProto(flags.budget);
  }
  request.set_no_store(flags.no_store);
  request.set_label(flags.label);
  return request;
}

// One search, its progress told under `name`.
// For how long a lost daemon is looked for: it may be restarted, and takes up its jobs.
constexpr absl::Duration kReattach = absl::Seconds(30);

// `detached`: the job that goes on where the request lets go of it.
absl::StatusOr<v1::TuneResult> TuneOne(Client& client, const v1::TuneRequest& request,
                                       const std::string& name, const Flags& flags,
                                       std::string& detached) {
  ProgressLine progress(name, flags.json);
  CallOptions options = flags.Call();
  options.reattach = kReattach;
  absl::StatusOr<v1::TuneResult> result = client.Tune(
      request,
      [&](const v1::TuneEvent& event) {
        progress.Show(event);
        if (!flags.detach || event.accepted().job().empty()) return true;
        detached = event.accepted().job();
        return false;
      },
      options);
  progress.End();
  return result;
}

// The key that an exact record of the kernel has, and that record where there is one.
absl::StatusOr<v1::LookupAnswer> LookUp(Client& client, const v1::Graph& graph, const Flags& flags,
                                        const CommandLine& line) {
  v1::LookupRequest request;
  v1::LookupQuery& query = *request.add_queries();
  *query.mutable_graph() = graph;
  *query.mutable_search() = Search(flags, line);
  if (!flags.device.empty()) *query.mutable_device() = Selector(flags.device);
  BEAMD_ASSIGN_OR_RETURN(v1::LookupResponse response, client.Lookup(request, flags.Call()));
  if (response.answers_size() != 1) return absl::InternalError("no answer");
  v1::LookupAnswer& answer = *response.mutable_answers(0);
  if (answer.has_error()) return absl::InvalidArgumentError(answer.error().message());
  return std::move(answer);
}

absl::StatusOr<v1::TuneResult> TuneFrozen(Client& client, const v1::Graph& graph, const Lock& lock,
                                          const Flags& flags, const CommandLine& line) {
  BEAMD_ASSIGN_OR_RETURN(const v1::LookupAnswer answer, LookUp(client, graph, flags, line));
  v1::TuneResult result;
  BEAMD_ASSIGN_OR_RETURN(*result.mutable_record(),
                         Locked(client, lock, answer.key(), flags.Call()));
  result.set_match(v1::MATCH_STRICT);
  result.set_persisted(true);
  return result;
}

absl::Status TuneAllFrozen(Client& client, const std::vector<NamedGraph>& graphs,
                           const Flags& flags, const CommandLine& line) {
  BEAMD_ASSIGN_OR_RETURN(const Lock lock, ReadLockFile(flags.frozen));
  for (const NamedGraph& named : graphs) {
    BEAMD_ASSIGN_OR_RETURN(const v1::TuneResult result,
                           TuneFrozen(client, named.graph, lock, flags, line));
    PrintResult(named.name, result, flags.json);
  }
  return absl::OkStatus();
}

absl::Status Tune(Client& client, const std::vector<NamedGraph>& graphs, const Flags& flags,
                  const CommandLine& line) {
  BEAMD_RETURN_IF_ERROR(WantKernels(graphs));
  if (!flags.frozen.empty()) return TuneAllFrozen(client, graphs, flags, line);
  BEAMD_ASSIGN_OR_RETURN(v1::TuneRequest request, TuneRequestOf(flags, line));
  for (const NamedGraph& named : graphs) {
    *request.mutable_graph() = named.graph;
    std::string detached;
    const absl::StatusOr<v1::TuneResult> result =
        TuneOne(client, request, named.name, flags, detached);
    if (!detached.empty()) {
      PrintDetached(named.name, detached, flags.json);
      continue;
    }
    BEAMD_RETURN_IF_ERROR(result.status());
    PrintResult(named.name, *result, flags.json);
  }
  return absl::OkStatus();
}

// All kernels of a model, as one batch; what became of each is put into `tuned`.
absl::Status TuneKernels(Client& client, const v1::ScheduleModelResponse& model,
                         v1::TuneRequest request, const Flags& flags,
                         std::vector<TunedKernel>& tuned) {
  v1::TuneBatchBegin begin;
  // It is the model's, and the daemon shares it out.
  if (request.has_budget()) *begin.mutable_budget() = request.budget();
  request.clear_budget();
  std::vector<v1::TuneBatchItem> items;
  for (const v1::ModelKernel& kernel : model.kernels()) {
    v1::TuneBatchItem& item = items.emplace_back();
    item.set_id(absl::StrCat(items.size() - 1));
    item.set_weight(kernel.launches());
    *item.mutable_request() = request;
    *item.mutable_request()->mutable_graph() = kernel.graph();
  }
  BatchLine progress(flags.json);
  absl::Status status = client.TuneBatch(
      begin, items,
      [&](const v1::TuneBatchEvent& event) {
        progress.Show(event);
        size_t index = 0;
        if (!absl::SimpleAtoi(event.id(), &index) || index >= tuned.size()) return true;
        if (event.has_result()) tuned[index].result = event.result();
        if (event.has_error()) tuned[index].result = ToStatus(event.code(), event.error());
        return true;
      },
      flags.Call());
  progress.End();
  return status;
}

// A kernel that fails doesn't keep the others from being tuned; a daemon that isn't there does.
// `told`: what went wrong stands in the table already.
absl::Status TuneModel(Client& client, const v1::Graph& graph, const Flags& flags,
                       const CommandLine& line, bool& told) {
  BEAMD_ASSIGN_OR_RETURN(v1::TuneRequest request, TuneRequestOf(flags, line));
  v1::ScheduleModelRequest schedule;
  *schedule.mutable_graph() = graph;
  *schedule.mutable_device() = request.device();
  BEAMD_ASSIGN_OR_RETURN(const v1::ScheduleModelResponse model,
                         client.ScheduleModel(schedule, flags.Call()));
  std::vector<TunedKernel> tuned;
  tuned.reserve(static_cast<size_t>(model.kernels_size()));
  for (const v1::ModelKernel& kernel : model.kernels()) {
    tuned.push_back({kernel.name(), kernel.kernel_hash(), static_cast<int>(kernel.launches()),
                     absl::UnknownError("no answer")});
  }
  if (flags.frozen.empty()) {
    BEAMD_RETURN_IF_ERROR(TuneKernels(client, model, std::move(request), flags, tuned));
  } else {
    BEAMD_ASSIGN_OR_RETURN(const Lock lock, ReadLockFile(flags.frozen));
    for (size_t i = 0; i < tuned.size(); ++i) {
      tuned[i].result =
          TuneFrozen(client, model.kernels(static_cast<int>(i)).graph(), lock, flags, line);
    }
  }
  PrintTuned(tuned, flags.json);
  told = true;
  absl::Status failed;
  int failures = 0;
  for (const TunedKernel& kernel : tuned) {
    failed.Update(kernel.result.status());
    failures += kernel.result.ok() ? 0 : 1;
  }
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

absl::Status LockKernels(Client& client, const std::vector<NamedGraph>& graphs, const Flags& flags,
                         const CommandLine& line) {
  Lock lock;
  std::vector<NamedGraph> kernels;
  for (const NamedGraph& named : graphs) {
    if (IsKernel(named.graph)) {
      kernels.push_back(named);
      continue;
    }
    BEAMD_ASSIGN_OR_RETURN(const TargetCaps caps, TargetOfKind(""));
    BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, ScheduleModel(named.graph, caps));
    for (const ModelKernel& kernel : model->kernels) {
      kernels.push_back({absl::StrCat(named.name, ", ", kernel.name), ToProto(kernel.ast)});
    }
  }
  for (const NamedGraph& kernel : kernels) {
    BEAMD_ASSIGN_OR_RETURN(const v1::LookupAnswer answer,
                           LookUp(client, kernel.graph, flags, line));
    if (!answer.has_hit()) {
      return absl::NotFoundError(absl::StrCat(kernel.name, " has no record that answers",
                                              MissText(answer.miss().reason()),
                                              ": tune it first, with these options"));
    }
    const v1::Record& record = answer.hit().record();
    lock[answer.key()] = {.generation = record.generation(), .opts = OptsText(record.opts())};
  }
  if (!flags.out.empty()) return WriteLockFile(flags.out[0], lock);
  std::fputs(LockText(lock).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Explain(Client& client, const std::vector<std::string>& keys, const Flags& flags) {
  for (const std::string& key : keys) {
    v1::ExplainRequest request;
    request.set_key(key);
    request.set_generation(static_cast<uint64_t>(flags.generation));
    BEAMD_ASSIGN_OR_RETURN(const v1::ExplainResponse response,
                           client.Explain(request, flags.Call()));
    PrintExplained(response, flags.json);
  }
  return absl::OkStatus();
}

absl::Status Replay(Client& client, const std::vector<std::string>& operands, const Flags& flags) {
  for (const std::string& what : operands) {
    const v1::ReplayRequest request = ReplayOf(what, static_cast<uint64_t>(flags.generation));
    BEAMD_ASSIGN_OR_RETURN(const v1::ReplayResponse response, client.Replay(request, flags.Call()));
    PrintReplayed(response, flags.json);
  }
  return absl::OkStatus();
}

// On standard error, since an export may go to standard output.
absl::Status Told(const absl::StatusOr<Written>& written, const char* what,
                  const std::string& where) {
  if (!written.ok()) return written.status();
  std::fprintf(stderr, "beamctl: %llu %s%s, %llu bytes, written to %s\n",
               static_cast<unsigned long long>(written->count), what,
               written->count == 1 ? "" : "s", static_cast<unsigned long long>(written->bytes),
               where == "-" ? "standard output" : where.c_str());
  return absl::OkStatus();
}

// `told`: each refused line stands in the answers already.
absl::Status Import(Client& client, const std::string& path, const Flags& flags, bool& told) {
  Imported imported;
  absl::Status status = ImportFrom(
      client, path,
      [&](int64_t line, const absl::Status& why) { PrintRefusedLine(path, line, why, flags.json); },
      flags.Call(), imported);
  if (!status.ok()) {
    if (imported.sent > 0) {
      std::fprintf(stderr,
                   "beamctl: %llu records were sent, and how many of them were taken isn't known; "
                   "importing them again does no harm\n",
                   static_cast<unsigned long long>(imported.sent));
    }
    return status;
  }
  PrintImported(imported, flags.json);
  told = true;
  if (imported.refused == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(imported.refused, " lines were refused"));
}

absl::Status ListJobs(Client& client, const Flags& flags) {
  v1::ListJobsRequest request;
  int64_t left = flags.limit;
  do {
    request.set_page_size(static_cast<uint32_t>(std::clamp<int64_t>(left, 1, 1000)));
    BEAMD_ASSIGN_OR_RETURN(const v1::ListJobsResponse response,
                           client.ListJobs(request, flags.Call()));
    for (const v1::Job& job : response.jobs()) PrintJob(job, flags.json);
    left -= response.jobs_size();
    request.set_page_token(response.next_page_token());
  } while (left > 0 && !request.page_token().empty());
  return absl::OkStatus();
}

absl::Status Jobs(Client& client, const std::vector<std::string>& operands, const Flags& flags) {
  if (operands.empty()) return ListJobs(client, flags);
  for (size_t i = 1; i < operands.size(); ++i) {
    const std::string& id = operands[i];
    if (operands[0] == "watch") {
      ProgressLine progress(absl::StrCat("job ", id), flags.json);
      const absl::StatusOr<v1::TuneResult> result = client.WatchJob(
          id,
          [&](const v1::TuneEvent& event) {
            progress.Show(event);
            return true;
          },
          flags.Call());
      progress.End();
      BEAMD_RETURN_IF_ERROR(result.status());
      PrintResult(id, *result, flags.json);
      continue;
    }
    if (operands[0] == "get") {
      BEAMD_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(id, flags.Call()));
      PrintMessage(job);
    } else {
      BEAMD_ASSIGN_OR_RETURN(const v1::Job job, client.CancelJob(id, flags.Call()));
      PrintJob(job, flags.json);
    }
  }
  return absl::OkStatus();
}

// An error where something is amiss.
absl::Status Doctor(Client& client, const Flags& flags) {
  BEAMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response, client.ListDevices(flags.Call()));
  return PrintDoctor(response, flags.json);
}

absl::Status Devices(Client& client, const std::vector<std::string>& operands, const Flags& flags) {
  for (size_t i = 1; i < operands.size(); ++i) {
    BEAMD_RETURN_IF_ERROR(client.ReleaseDevice(operands[i], flags.Call()).status());
  }
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

absl::Status Show(Client& client, const std::vector<NamedGraph>& graphs, const Flags& flags,
                  const CommandLine& line) {
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
    *request.mutable_search() = Search(flags, line);
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

absl::Status RunTensors(const std::string& file, const v1::Graph& graph, const Flags& flags) {
  if (IsKernel(graph)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " is a kernel: `beamctl run` takes tensor graphs"));
  }
  RunArguments arguments{
      .gradients = flags.grad, .random = flags.random, .profile = !flags.profile.empty()};
  if (flags.lookup_only) arguments.opts = v1::OPTS_POLICY_LOOKUP_ONLY;
  BEAMD_ASSIGN_OR_RETURN(arguments.match, Policy(flags.match));
  BEAMD_ASSIGN_OR_RETURN(arguments.in, ParsePairs(flags.in));
  BEAMD_ASSIGN_OR_RETURN(arguments.out, ParsePairs(flags.out));
  BEAMD_ASSIGN_OR_RETURN(const auto variables, ParsePairs(flags.var));
  for (const auto& [name, value] : variables) {
    if (absl::SimpleAtoi(value, &arguments.variables[name])) continue;
    return absl::InvalidArgumentError(absl::StrCat("--var ", name, "=", value, " isn't a number"));
  }
  BEAMD_ASSIGN_OR_RETURN(const GraphNames names, NamesOfFile(file));
  thin::SessionOptions options{.label = "beamctl run", .credentials = flags.credentials};
  if (!flags.device.empty()) {
    const v1::DeviceSelector selector = Selector(flags.device);
    options.device = selector.id();
    options.device_kind = selector.kind();
    options.device_arch = selector.arch();
  }
  if (flags.timeout < absl::InfiniteDuration()) {
    options.timeout = flags.timeout;
    options.open_timeout = std::min(options.open_timeout, flags.timeout);
  }
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<thin::Session> session,
                         thin::Session::Open(flags.server, options));
  BEAMD_ASSIGN_OR_RETURN(const RunResult result, RunGraph(*session, graph, names, arguments));
  for (const RunResult::Output& output : result.outputs) {
    if (output.file.empty()) continue;
    BEAMD_RETURN_IF_ERROR(WriteNpyFile(output.file, output.array));
  }
  if (!flags.profile.empty()) {
    BEAMD_RETURN_IF_ERROR(WriteLocalFile(flags.profile, TraceJson(result.response)));
  }
  PrintRun(result, flags.json);
  return session->Close();
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
    return absl::StrCat(command.name, " wants a ", command.operand);
  }
  if (given > command.most) {
    return command.most == 0 ? absl::StrCat(command.name, " takes no argument")
                             : absl::StrCat(command.name, " takes one ", command.operand);
  }
  if (!Policy(flags.match).ok()) return std::string(Policy(flags.match).status().message());
  if (!PriorityOf(flags.priority).ok()) {
    return std::string(PriorityOf(flags.priority).status().message());
  }
  if (command.name == "jobs" && !operands.empty()) {
    const bool known = operands[0] == "get" || operands[0] == "watch" || operands[0] == "cancel";
    if (!known) return absl::StrCat("jobs can't ", operands[0]);
    if (operands.size() == 1) return absl::StrCat("jobs ", operands[0], " wants an id");
  }
  if (command.name == "devices" && !operands.empty() &&
      (operands[0] != "release" || operands.size() == 1)) {
    return "devices takes no argument but `release ID...`";
  }
  if (!ParseOpts(flags.opts).ok()) return "--opts can't be read";
  for (const int64_t number :
       {flags.width, flags.seed, flags.debug, flags.generation, flags.limit}) {
    if (number < 0) return "no number here can be negative";
  }
  for (const int64_t number : {flags.width, flags.debug}) {
    if (number > UINT32_MAX) return absl::StrCat(number, " is too large");
  }
  if (flags.budget < absl::ZeroDuration()) return "--budget can't be negative";
  if (flags.refresh && flags.lookup_only) {
    return "--refresh always searches, --lookup_only never does";
  }
  if (flags.now + flags.refresh + flags.lookup_only + !flags.frozen.empty() > 1) {
    return "--now, --refresh, --lookup_only and --frozen each say where answers come from";
  }
  if (command.name == "lock" && flags.out.size() > 1) return "lock writes one file";
  if (command.name == "restore" && flags.store.empty()) return "restore wants --store DIR";
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

  const absl::StatusOr<std::unique_ptr<Client>> created =
      Client::Create(flags.server, flags.credentials);
  if (!created.ok()) return Usage(std::string(created.status().message()));
  Client* const client = created->get();
  absl::StatusOr<std::vector<NamedGraph>> graphs = command->least > 0 && command->operand == "graph"
                                                       ? ReadGraphs(operands, flags)
                                                       : std::vector<NamedGraph>();
  absl::Status status = graphs.status();
  bool told = false;
  if (status.ok()) {
    if (name == "tune") status = Tune(*client, *graphs, flags, line);
    if (name == "tune-model") status = TuneModel(*client, graphs->front().graph, flags, line, told);
    if (name == "run") status = RunTensors(operands[0], graphs->front().graph, flags);
    if (name == "lookup") status = Lookup(*client, *graphs, flags, line, told);
    if (name == "records") status = Records(*client, operands, flags);
    if (name == "explain") status = Explain(*client, operands, flags);
    if (name == "replay") status = Replay(*client, operands, flags);
    if (name == "lock") status = LockKernels(*client, *graphs, flags, line);
    if (name == "export") {
      status = Told(ExportTo(*client, operands[0], flags.kernel_hash, flags.Call()), "record",
                    operands[0]);
    }
    if (name == "import") status = Import(*client, operands[0], flags, told);
    if (name == "backup") {
      status = Told(Backup(*client, operands[0], flags.Call()), "file", operands[0]);
    }
    if (name == "restore") {
      std::string warning;
      status = Restore(operands[0], flags.store, warning);
      if (!warning.empty()) std::fprintf(stderr, "beamctl: warning: %s\n", warning.c_str());
    }
    if (name == "jobs") status = Jobs(*client, operands, flags);
    if (name == "devices") status = Devices(*client, operands, flags);
    if (name == "doctor") status = Doctor(*client, flags);
    if (name == "show") status = Show(*client, *graphs, flags, line);
    if (name == "plan") status = Plan(graphs->front().graph, flags);
    if (name == "graph") status = Picture(graphs->front().graph, flags);
  }
  if (!status.ok()) PrintError(status, flags.json && !told);
  if (absl::IsUnavailable(status) && !flags.json && name != "restore") {
    const std::string hint = ConnectionHint(flags.server, !flags.credentials.tls_ca.empty());
    std::fprintf(stderr, "%s\n", hint.c_str());
  }
  return ExitStatus(status);
}

// An answer that nobody got is a failure too, of a file of this machine.
int WithOutput(int exit_status) {
  const bool lost = std::ferror(stdout) != 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (!lost && flushed) return exit_status;
  // Which error an earlier write met isn't kept.
  const absl::Status status = LocalError("write", "standard output", flushed ? EIO : errno);
  PrintError(status, false);
  return exit_status != 0 ? exit_status : ExitStatus(status);
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) { return beamd::WithOutput(beamd::Run({argv + 1, argv + argc})); }
