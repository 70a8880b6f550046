#include "client/beamctl/print.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/beamctl/format.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "google/protobuf/util/json_util.h"

namespace beamd {
namespace {

// "MATCH_SAME_ARCH" -> "same-arch".
std::string ShortName(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  std::string text = absl::AsciiStrToLower(name);
  for (char& c : text) {
    if (c == '_') c = '-';
  }
  return text;
}

std::string MatchText(v1::Match match) { return ShortName(v1::Match_Name(match), "MATCH_"); }

// What somebody else wrote, such that a terminal shows it and does nothing else.
std::string ForTerminal(absl::string_view text) {
  // Marks that turn the direction of writing are letters to Utf8SafeCEscape.
  return absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\u202a", "\\u202a"},
                                                           {"\u202b", "\\u202b"},
                                                           {"\u202c", "\\u202c"},
                                                           {"\u202d", "\\u202d"},
                                                           {"\u202e", "\\u202e"},
                                                           {"\u2066", "\\u2066"},
                                                           {"\u2067", "\\u2067"},
                                                           {"\u2068", "\\u2068"},
                                                           {"\u2069", "\\u2069"}});
}

// The members that scripts rely on come first.
JsonLine RecordLine(const v1::Record& record, absl::string_view match, bool persisted,
                    absl::string_view job) {
  JsonLine line;
  line.Text("key", record.key())
      .Texts("opts", OptTexts(record.opts()))
      .Number("best_s", record.best_s())
      .Number("hc_s", record.hc_s())
      .Number("unoptimised_s", record.unoptimised_s())
      .Bool("verified", record.verification().verified())
      .Text("match", match)
      .Bool("persisted", persisted)
      .Text("job", job)
      .Text("found_by", record.job())
      .Number("generation", static_cast<double>(record.generation()))
      .Text("kernel_hash", record.kernel_hash())
      .Text("device", record.device())
      .Number("search_s", record.search_s())
      .Text("end", ShortName(v1::SearchEnd_Name(record.end()), "SEARCH_END_"))
      .Text("method", record.verification().method())
      .Number("timed", static_cast<double>(record.timed()));
  return line;
}

void PrintRecordForPeople(const v1::Record& record) {
  std::printf("  opts         %s\n", OptsText(record.opts()).c_str());
  std::printf("  best         %s\n", TimeText(record.best_s()).c_str());
  std::printf("  heuristics   %s", TimeText(record.hc_s()).c_str());
  if (record.best_s() > 0 && record.hc_s() > 0) {
    std::printf("   (%.2fx)", record.hc_s() / record.best_s());
  }
  std::printf("\n  unoptimised  %s", TimeText(record.unoptimised_s()).c_str());
  if (record.best_s() > 0 && record.unoptimised_s() > 0) {
    std::printf("   (%.2fx)", record.unoptimised_s() / record.best_s());
  }
  const v1::Verification& verification = record.verification();
  std::printf("\n  verified     %s%s\n", verification.verified() ? "yes, against " : "no",
              verification.verified() ? verification.method().c_str() : "");
  std::printf("  key          %s, generation %llu\n", record.key().c_str(),
              static_cast<unsigned long long>(record.generation()));
}

// How much faster `after` is; 0: one of them is not known.
double Gain(double before, double after) { return before > 0 && after > 0 ? before / after : 0; }

std::string GainText(double before, double after) {
  const double gain = Gain(before, after);
  return gain > 0 ? absl::StrFormat("%.2fx", gain) : "-";
}

size_t TerminalColumns() {
  constexpr size_t kOtherwise = 80;
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : kOtherwise;
}

std::string FailuresText(const google::protobuf::Map<std::string, uint64_t>& failures) {
  std::vector<std::string> parts;
  for (const auto& [reason, count] : failures) parts.push_back(absl::StrCat(count, " ", reason));
  std::sort(parts.begin(), parts.end());
  return absl::StrJoin(parts, ", ");
}

std::string PoolText(const v1::ProcessPool& pool) {
  return absl::StrCat(pool.children_size(), " running, ", pool.tasks_done(), " tasks done",
                      pool.replaced().empty() ? "" : "; replaced: ", FailuresText(pool.replaced()));
}

}  // namespace

std::string MissText(v1::MissReason reason) {
  if (reason == v1::MISS_REASON_UNSPECIFIED) return "";
  return absl::StrCat(" (", ShortName(v1::MissReason_Name(reason), "MISS_REASON_"), ")");
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration to;
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  to.set_seconds(seconds);
  to.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return to;
}

absl::StatusOr<std::vector<v1::Opt>> ParseOpts(const std::string& text) {
  std::vector<v1::Opt> opts;
  absl::string_view left = absl::StripAsciiWhitespace(text);
  if (left == "-") return opts;
  while (!left.empty()) {
    const size_t open = std::min(left.find_first_of(" ("), left.size());
    v1::OptOp op;
    if (!v1::OptOp_Parse(absl::StrCat("OPT_OP_", left.substr(0, open)), &op)) {
      return absl::InvalidArgumentError(absl::StrCat("no opt \"", left.substr(0, open), "\""));
    }
    v1::Opt& opt = opts.emplace_back();
    opt.set_op(op);
    left.remove_prefix(open);
    if (absl::ConsumePrefix(&left, "(")) {
      const size_t close = left.find(')');
      const std::vector<absl::string_view> numbers =
          absl::StrSplit(left.substr(0, std::min(close, left.size())), ',');
      int32_t axis = 0;
      int32_t amount = 0;
      if (close == absl::string_view::npos || numbers.size() > 2 ||
          !absl::SimpleAtoi(numbers[0], &axis) ||
          (numbers.size() == 2 && !absl::SimpleAtoi(numbers[1], &amount))) {
        return absl::InvalidArgumentError("an opt is NAME or NAME(AXIS) or NAME(AXIS, AMOUNT)");
      }
      opt.set_axis(axis);
      if (numbers.size() == 2) opt.set_amount(amount);
      left.remove_prefix(close + 1);
    }
    left = absl::StripLeadingAsciiWhitespace(left);
  }
  return opts;
}

ProgressLine::ProgressLine(std::string name, bool json)
    : name_(std::move(name)), quiet_(json), terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(const v1::TuneEvent& event) {
  if (quiet_) return;
  if (event.has_progress()) return ShowProgress(event.progress());
  const v1::TuneAccepted& accepted = event.accepted();
  if (accepted.job().empty()) return;
  End();
  std::fprintf(stderr, "%s: job %s on %s%s%s\n", name_.c_str(), accepted.job().c_str(),
               accepted.device().c_str(), accepted.joined() ? ", joined" : "",
               MissText(accepted.miss()).c_str());
}

void ProgressLine::ShowProgress(const v1::TuneProgress& progress) {
  if (!progress.debug().empty()) {
    End();
    std::fprintf(stderr, "%s\n", progress.debug().c_str());
  }
  std::string text, found;
  if (progress.phase() == v1::PHASE_QUEUED) {
    text = absl::StrCat("queued, ", progress.queue_position(), " ahead");
  } else {
    text = ShortName(v1::Phase_Name(progress.phase()), "PHASE_");
    if (progress.phase() == v1::PHASE_SEARCHING) {
      absl::StrAppend(&text, " round ", progress.round(), ", ", progress.candidates_done(), " of ",
                      progress.candidates_total());
    }
    if (progress.best_s() > 0) {
      absl::StrAppend(&found, ", best ", TimeText(progress.best_s()), " ",
                      OptsText(progress.best_opts()));
    }
    if (!progress.failures().empty()) {
      absl::StrAppend(&found, ", lost ", FailuresText(progress.failures()));
    }
  }
  // Plain lines are for what is new; the clock alone is not.
  if (!terminal_ && text + found == last_) return;
  last_ = text + found;
  std::string clock = absl::StrFormat(", %.1f s", progress.elapsed_s());
  if (progress.eta_s() > 0) absl::StrAppendFormat(&clock, ", ETA %.1f s", progress.eta_s());
  if (terminal_) {
    // A line that wraps could not be rewritten. What is cut off is the end: long opts, not the clock.
    const std::string line = absl::StrCat(name_, ": ", text, clock, found);
    std::fprintf(stderr, "\r\033[K%s", line.substr(0, TerminalColumns() - 1).c_str());
    dirty_ = true;
  } else {
    std::fprintf(stderr, "%s: %s%s%s\n", name_.c_str(), text.c_str(), found.c_str(), clock.c_str());
  }
}

void ProgressLine::End() {
  if (dirty_) std::fputs("\r\033[K", stderr);
  dirty_ = false;
}

BatchLine::BatchLine(bool json) : quiet_(json), terminal_(isatty(STDERR_FILENO) == 1) {}

void BatchLine::Show(const v1::TuneBatchEvent& event) {
  if (quiet_ || !event.has_progress()) return;
  const v1::TuneBatchProgress& progress = event.progress();
  std::string text = absl::StrFormat("%d of %d kernels, %d running, %.1f s", progress.done(),
                                     progress.items(), progress.running(), progress.elapsed_s());
  if (progress.budget_s() > 0) absl::StrAppendFormat(&text, " of %.1f s", progress.budget_s());
  if (progress.best_s() > 0) {
    absl::StrAppend(&text, ", ", TimeText(progress.hc_s()), " -> ", TimeText(progress.best_s()));
  }
  for (const v1::TuneBatchItemProgress& one : progress.now()) {
    absl::StrAppend(&text, "; #", one.id(), " ",
                    ShortName(v1::Phase_Name(one.progress().phase()), "PHASE_"), " ",
                    one.progress().candidates_done(), "/", one.progress().candidates_total());
  }
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", text.substr(0, TerminalColumns() - 1).c_str());
    dirty_ = true;
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
}

void BatchLine::End() {
  if (dirty_) std::fputs("\r\033[K", stderr);
  dirty_ = false;
}

absl::Status ToStatus(int code, const v1::ErrorDetail& from) {
  ErrorDetail detail{.reason = from.reason(), .field = from.field()};
  if (from.has_node()) detail.node = from.node();
  if (from.has_limit()) detail.limit = from.limit();
  if (from.has_value()) detail.value = from.value();
  return WithDetail(absl::Status(static_cast<absl::StatusCode>(code), from.message()), detail);
}

void PrintResult(const std::string& name, const v1::TuneResult& result, bool json) {
  const v1::Record& record = result.record();
  if (json) {
    return RecordLine(record, MatchText(result.match()), result.persisted(), result.job())
        .Text("name", name)
        .Text("trace", result.trace_id())
        .Print();
  }
  std::printf("%s: %s%s\n", name.c_str(), MatchText(result.match()).c_str(),
              result.persisted() ? "" : ", not stored");
  PrintRecordForPeople(record);
  if (result.match() == v1::MATCH_SEARCHED) {
    std::printf("  search       %.2f s, %llu timed, ended %s\n", record.search_s(),
                static_cast<unsigned long long>(record.timed()),
                ShortName(v1::SearchEnd_Name(record.end()), "SEARCH_END_").c_str());
  }
}

void PrintDetached(const std::string& name, const std::string& job, bool json) {
  if (json) return JsonLine().Text("name", name).Text("job", job).Print();
  std::printf("%s: job %s goes on; `beamctl jobs watch %s` shows it\n", name.c_str(), job.c_str(),
              job.c_str());
}

void PrintJob(const v1::Job& job, bool json) {
  const std::string state = ShortName(v1::JobState_Name(job.state()), "JOB_STATE_");
  const v1::TuneProgress& progress = job.progress();
  const double best_s = job.has_result() ? job.result().record().best_s() : progress.best_s();
  const std::string priority = ShortName(v1::Priority_Name(job.priority()), "PRIORITY_");
  if (json) {
    return JsonLine()
        .Text("job", job.id())
        .Text("state", state)
        .Text("key", job.key())
        .Text("principal", job.principal())
        .Text("priority", job.priority() == v1::PRIORITY_UNSPECIFIED ? "normal" : priority)
        .Text("device", job.device())
        .Text("label", job.label())
        .Raw("created_s", absl::StrCat(job.created().seconds()))
        .Number("watchers", job.watchers())
        .Number("resumes", job.resumes())
        .Number("queue_position", progress.queue_position())
        .Number("best_s", best_s)
        .Text("mode", ShortName(v1::TuneMode_Name(job.mode()), "TUNE_MODE_"))
        .Text("miss", ShortName(v1::MissReason_Name(job.miss()), "MISS_REASON_"))
        .Text("error", job.error())
        .Print();
  }
  const absl::Time created = absl::FromUnixSeconds(job.created().seconds());
  std::printf("%s  %s  %-9s  %-8s  %s%s%s%s%s\n", job.id().c_str(),
              absl::FormatTime("%Y-%m-%d %H:%M:%S", created, absl::LocalTimeZone()).c_str(),
              state.c_str(), TimeText(best_s).c_str(), ForTerminal(job.principal()).c_str(),
              MissText(job.miss()).c_str(),
              job.label().empty() ? "" : absl::StrCat("  ", ForTerminal(job.label())).c_str(),
              job.resumes() > 0 ? absl::StrCat(", resumed ", job.resumes(), " times").c_str() : "",
              job.error().empty() ? "" : absl::StrCat("  ", ForTerminal(job.error())).c_str());
}

void PrintTuned(const std::vector<TunedKernel>& kernels, bool json) {
  TextTable table({"<kernel", "used", "heuristics", "best", "gain", "total", "<opts"});
  double before = 0, after = 0;
  int failed = 0, runs = 0;
  for (const TunedKernel& kernel : kernels) {
    runs += kernel.uses;
    if (!kernel.result.ok()) {
      ++failed;
      if (json) {
        ErrorLine(kernel.result.status())
            .Text("name", kernel.name)
            .Text("kernel_hash", kernel.hash)
            .Number("uses", kernel.uses)
            .Print();
      } else {
        table.Row({kernel.name, absl::StrCat(kernel.uses), "-", "-", "-", "-",
                   absl::StrCat("failed: ", std::string(kernel.result.status().message()))});
      }
      continue;
    }
    const v1::TuneResult& result = *kernel.result;
    const v1::Record& record = result.record();
    before += kernel.uses * record.hc_s();
    after += kernel.uses * record.best_s();
    if (json) {
      RecordLine(record, MatchText(result.match()), result.persisted(), result.job())
          .Text("name", kernel.name)
          .Number("uses", kernel.uses)
          .Number("gain", Gain(record.hc_s(), record.best_s()))
          .Number("total_s", kernel.uses * record.best_s())
          .Print();
    } else {
      table.Row({kernel.name, absl::StrCat(kernel.uses), TimeText(record.hc_s()),
                 TimeText(record.best_s()), GainText(record.hc_s(), record.best_s()),
                 TimeText(kernel.uses * record.best_s()), OptsText(record.opts())});
    }
  }
  if (json) {
    return JsonLine()
        .Number("kernels", static_cast<double>(kernels.size()))
        .Number("failed", failed)
        .Number("runs", runs)
        .Number("hc_s", before)
        .Number("best_s", after)
        .Number("gain", Gain(before, after))
        .Print();
  }
  table.Row({"all", absl::StrCat(runs), TimeText(before), "", GainText(before, after),
             TimeText(after),
             failed > 0 ? absl::StrCat(failed, " failed and count for none") : ""});
  std::fputs(table.ToText().c_str(), stdout);
}

void PrintAnswer(const std::string& name, const v1::LookupAnswer& answer, bool json) {
  if (answer.has_hit()) {
    const v1::Record& record = answer.hit().record();
    if (json) {
      return RecordLine(record, MatchText(answer.hit().match()), true, record.job())
          .Text("name", name)
          .Print();
    }
    std::printf("%s: %s\n", name.c_str(), MatchText(answer.hit().match()).c_str());
    return PrintRecordForPeople(record);
  }
  const std::string why =
      answer.has_error() ? answer.error().message()
                         : ShortName(v1::MissReason_Name(answer.miss().reason()), "MISS_REASON_");
  if (json) {
    return JsonLine()
        .Text("key", answer.key())
        .Text("match", "none")
        .Text(answer.has_error() ? "error" : "miss", why)
        .Text("name", name)
        .Print();
  }
  std::printf("%s: %s\n", name.c_str(), why.c_str());
}

void PrintRecord(const v1::Record& record, bool json) {
  if (json) return RecordLine(record, "strict", true, record.job()).Print();
  std::printf("%s  %10s  %s  %s\n", record.key().c_str(), TimeText(record.best_s()).c_str(),
              record.environment().arch().c_str(), OptsText(record.opts()).c_str());
}

absl::Status PrintDoctor(const v1::ListDevicesResponse& response, bool json) {
  std::vector<std::string> amiss;
  const auto look_at = [&](const std::string& name, const v1::ProcessPool& pool) {
    if (pool.children().empty()) amiss.push_back(absl::StrCat(name, ": no process is up"));
    if (std::ranges::find(pool.sandbox(), "seccomp") == pool.sandbox().end()) {
      amiss.push_back(absl::StrCat(name, ": system calls aren't filtered"));
    }
    if (!json) {
      std::printf("%s: %d up, sandbox: %s\n", name.c_str(), pool.children_size(),
                  pool.sandbox().empty() ? "none" : absl::StrJoin(pool.sandbox(), ", ").c_str());
    }
  };
  if (!json) {
    std::printf("%s\nprotection: %s\n", response.build().c_str(),
                response.protection().empty() ? "none"
                                              : absl::StrJoin(response.protection(), ", ").c_str());
  }
  if (!response.store_fault().empty()) {
    amiss.push_back(absl::StrCat("the store takes no writes: ", response.store_fault()));
  }
  look_at("workers", response.workers());
  for (const v1::Device& device : response.devices()) {
    look_at(absl::StrCat("runner of ", device.id()), device.runners());
    if (device.state() != v1::DEVICE_STATE_READY) {
      amiss.push_back(absl::StrCat(device.id(), ": not ready"));
    }
  }
  if (json) PrintDevices(response, json);
  if (amiss.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(amiss, "; "));
}

void PrintDevices(const v1::ListDevicesResponse& response, bool json) {
  if (json) return PrintMessage(response);
  for (const v1::Device& device : response.devices()) {
    if (device.state() == v1::DEVICE_STATE_FAILED) {
      std::printf("%s  failed  %s\n", device.id().c_str(), device.why().c_str());
      continue;
    }
    const v1::Environment& environment = device.environment();
    std::printf("%s  %s  %s (%s)  LLVM %s%s%s\n", device.id().c_str(),
                ShortName(v1::DeviceState_Name(device.state()), "DEVICE_STATE_").c_str(),
                environment.model().c_str(), environment.arch().c_str(), environment.llvm().c_str(),
                environment.driver().empty() ? "" : "  driver ", environment.driver().c_str());
    if (!device.why().empty()) std::printf("  %s\n", device.why().c_str());
    std::printf("  runner   %s\n", PoolText(device.runners()).c_str());
    if (!device.has_condition()) continue;
    const v1::DeviceCondition& now = device.condition();
    std::printf("  now      %u MHz, memory %u MHz, %u C, %u foreign processes\n", now.clock_mhz(),
                now.memory_clock_mhz(), now.temperature_celsius(), now.foreign_processes());
  }
  for (const v1::Driver& driver : response.drivers()) {
    if (!driver.why().empty()) {
      std::printf("%s  no device  %s\n", driver.name().c_str(), driver.why().c_str());
    }
  }
  std::printf("workers    %s\n", PoolText(response.workers()).c_str());
}

void PrintShown(const v1::ShowResponse& response, bool json) {
  if (json) return PrintMessage(response);
  std::fputs(response.text().c_str(), stdout);
  if (!response.text().empty() && response.text().back() != '\n') std::fputs("\n", stdout);
}

void PrintMessage(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    std::printf("%s\n", text.c_str());
  }
}

JsonLine ErrorLine(const absl::Status& status) {
  JsonLine line;
  line.Text("error", absl::StatusCodeToString(status.code()))
      .Text("message", std::string(status.message()));
  if (const std::optional<ErrorDetail> detail = GetErrorDetail(status)) {
    line.Text("reason", detail->reason).Text("field", detail->field);
    if (detail->node) line.Number("node", static_cast<double>(*detail->node));
    if (detail->limit) line.Number("limit", static_cast<double>(*detail->limit));
    if (detail->value) line.Number("value", static_cast<double>(*detail->value));
  }
  return line;
}

void PrintError(const absl::Status& status, bool json) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string message(status.message());
  std::fprintf(stderr, "beamctl: %s: %s\n", code.c_str(), message.c_str());
  if (json) ErrorLine(status).Print();
}

}  // namespace beamd
