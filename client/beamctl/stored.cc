#include "client/beamctl/stored.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/beamctl/format.h"
#include "client/beamctl/print.h"
#include "client/cc/local_file.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "google/protobuf/util/json_util.h"

namespace beamd {
namespace {

constexpr size_t kCandidatesShown = 15;

std::string RatioText(const v1::Finalist& finalist) {
  return absl::StrFormat("%.3fx  (%.3f to %.3f)", finalist.ratio(), finalist.ratio_low(),
                         finalist.ratio_high());
}

void PrintFinalists(const v1::Record& record) {
  TextTable table({"<final runs", "best", "<over the winner (95 %)"});
  for (const v1::Finalist& finalist : record.finalists()) {
    const bool winner = OptsText(finalist.opts()) == OptsText(record.opts());
    table.Row({OptsText(finalist.opts()), TimeText(finalist.best_s()),
               winner ? "the winner" : RatioText(finalist)});
  }
  std::fputs(table.ToText().c_str(), stdout);
  if (!record.has_challenger()) return;
  std::printf("It was the answer before, and stays: %s took %s of its time, which shows no gain.\n",
              OptsText(record.challenger().opts()).c_str(), RatioText(record.challenger()).c_str());
}

void PrintCandidates(const v1::ExplainResponse& explained) {
  std::vector<const v1::Candidate*> timed;
  std::map<std::string, int> lost;
  for (const v1::Candidate& candidate : explained.candidates()) {
    if (candidate.failure() == "none") {
      timed.push_back(&candidate);
    } else {
      ++lost[candidate.failure()];
    }
  }
  if (explained.candidates().empty()) {
    std::puts("What was tried isn't known: the record was made elsewhere, or by an older beamd.");
    return;
  }
  std::stable_sort(timed.begin(), timed.end(), [](const v1::Candidate* a, const v1::Candidate* b) {
    return a->best_s() < b->best_s();
  });
  std::printf("%d tried, %zu timed; the fastest:\n", explained.candidates_size(), timed.size());
  TextTable table({"#", "round", "test run", "uops", "compile", "<opts"});
  for (size_t i = 0; i < std::min(timed.size(), kCandidatesShown); ++i) {
    const v1::Candidate& c = *timed[i];
    table.Row({absl::StrCat(c.number()), absl::StrCat(c.round()), TimeText(c.best_s()),
               absl::StrCat(c.uops()), TimeText(c.compile_s()), OptsText(c.opts())});
  }
  std::fputs(table.ToText().c_str(), stdout);
  for (const auto& [reason, count] : lost) {
    const auto first =
        std::find_if(explained.candidates().begin(), explained.candidates().end(),
                     [&reason = reason](const v1::Candidate& c) { return c.failure() == reason; });
    std::printf("%d lost: %s; the first %s/%llu, %s%s%s\n", count, reason.c_str(),
                explained.record().job().c_str(), static_cast<unsigned long long>(first->number()),
                OptsText(first->opts()).c_str(), first->detail().empty() ? "" : ": ",
                first->detail().c_str());
  }
}

double Least(const google::protobuf::RepeatedField<double>& samples) {
  return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end());
}

// Of "records[2].record.key" the 2, and leaves "record.key".
size_t TakeIndex(std::string& field) {
  absl::string_view left = field;
  const size_t close = left.find(']');
  size_t index = 0;
  if (close == absl::string_view::npos || !absl::ConsumePrefix(&left, "records[") ||
      !absl::SimpleAtoi(left.substr(0, left.find(']')), &index)) {
    return SIZE_MAX;
  }
  left = absl::string_view(field).substr(close + 1);
  absl::ConsumePrefix(&left, ".");
  field = std::string(left);
  return index;
}

}  // namespace

absl::StatusOr<Written> ExportTo(Client& client, const std::string& path,
                                 const std::string& kernel_hash, const CallOptions& options) {
  std::ofstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return LocalError("write", path, errno);
  }
  std::ostream& out = path == "-" ? std::cout : file;
  Written written;
  v1::ExportRequest request;
  request.set_kernel_hash(kernel_hash);
  BEAMD_RETURN_IF_ERROR(client.Export(
      request,
      [&](const v1::ExportedRecord& record) -> absl::Status {
        std::string line;
        const auto printed = google::protobuf::util::MessageToJsonString(record, &line);
        if (!printed.ok()) return absl::InternalError(std::string(printed.message()));
        out << line << "\n";
        ++written.count;
        written.bytes += line.size() + 1;
        return out.good() ? absl::OkStatus() : LocalError("write", path, errno);
      },
      options));
  out.flush();
  if (!out.good()) return LocalError("write", path, errno);
  return written;
}

absl::Status ImportFrom(Client& client, const std::string& path, const OnRefusedLine& on_refused,
                        const CallOptions& options, Imported& imported) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return LocalError("read", path, errno);
  }
  std::istream& in = path == "-" ? std::cin : file;
  int64_t number = 0;
  std::vector<int64_t> sent;  // numbers of the lines that the daemon got
  const auto next = [&](v1::ExportedRecord& record) -> absl::StatusOr<bool> {
    std::string line;
    while (std::getline(in, line)) {
      ++number;
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      record.Clear();
      const auto parsed = google::protobuf::util::JsonStringToMessage(line, &record);
      if (parsed.ok()) {
        sent.push_back(number);
        ++imported.sent;
        return true;
      }
      ++imported.refused;
      // Behind its first line the parser points at where it stopped.
      const std::string why(parsed.message());
      on_refused(number, InvalidArgument(absl::StrCat("no record: ", why.substr(0, why.find('\n'))),
                                         {.reason = "MALFORMED"}));
    }
    if (in.bad()) return LocalError("read", path, errno);
    if (imported.sent + imported.refused > 0) return false;
    return InvalidArgument(absl::StrCat(path, " holds no record"), {.reason = "EMPTY"});
  };
  BEAMD_ASSIGN_OR_RETURN(const v1::ImportResponse response, client.Import(next, options));
  for (v1::ErrorDetail detail : response.refused()) {
    // "records[2].record.key": of the third that was sent.
    const size_t index = TakeIndex(*detail.mutable_field());
    on_refused(index < sent.size() ? sent[index] : 0,
               ToStatus(static_cast<int>(absl::StatusCode::kInvalidArgument), detail));
  }
  imported.imported = response.imported();
  imported.kept = response.kept();
  imported.refused += response.refused_count();
  imported.unnamed = response.refused_count() - static_cast<uint64_t>(response.refused_size());
  return absl::OkStatus();
}

void PrintRefusedLine(const std::string& path, int64_t line, const absl::Status& why, bool json) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(why);
  const std::string field = detail ? detail->field : "";
  std::fprintf(stderr, "beamctl: %s:%lld: %s%s%s\n", path.c_str(), static_cast<long long>(line),
               field.c_str(), field.empty() ? "" : ": ", std::string(why.message()).c_str());
  if (json) ErrorLine(why).Number("line", static_cast<double>(line)).Print();
}

void PrintImported(const Imported& imported, bool json) {
  if (imported.unnamed > 0) {
    std::fprintf(stderr, "beamctl: %llu more lines were refused, which the daemon doesn't name\n",
                 static_cast<unsigned long long>(imported.unnamed));
  }
  if (json) {
    return JsonLine()
        .Number("imported", static_cast<double>(imported.imported))
        .Number("kept", static_cast<double>(imported.kept))
        .Number("refused", static_cast<double>(imported.refused))
        .Print();
  }
  std::printf("%llu imported, %llu already there, %llu refused\n",
              static_cast<unsigned long long>(imported.imported),
              static_cast<unsigned long long>(imported.kept),
              static_cast<unsigned long long>(imported.refused));
}

absl::StatusOr<v1::Record> Locked(Client& client, const Lock& lock, const std::string& key,
                                  const CallOptions& options) {
  const auto entry = lock.find(key);
  if (entry == lock.end()) {
    return absl::NotFoundError(
        absl::StrCat("the lock file has no ", key, ": `beamctl lock` writes it"));
  }
  v1::GetRecordRequest request;
  request.set_key(key);
  request.set_generation(entry->second.generation);
  BEAMD_ASSIGN_OR_RETURN(v1::GetRecordResponse response, client.GetRecord(request, options));
  if (OptsText(response.record().opts()) != entry->second.opts) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon's generation ", entry->second.generation, " of ", key,
                     " is another than what was locked: ", OptsText(response.record().opts()),
                     ", not ", entry->second.opts));
  }
  return std::move(*response.mutable_record());
}

void PrintExplained(const v1::ExplainResponse& explained, bool json) {
  const v1::Record& record = explained.record();
  if (json) {
    std::string text;
    const auto status = google::protobuf::util::MessageToJsonString(explained, &text);
    if (status.ok()) std::puts(text.c_str());
    return;
  }
  std::printf("%s, generation %llu, on %s of %s\n", record.key().c_str(),
              static_cast<unsigned long long>(record.generation()), record.device().c_str(),
              record.host().c_str());
  std::printf("winner %s: %s, heuristics %s, unoptimised %s\n", OptsText(record.opts()).c_str(),
              TimeText(record.best_s()).c_str(), TimeText(record.hc_s()).c_str(),
              TimeText(record.unoptimised_s()).c_str());
  if (record.recalled() > 0 || record.spoiled() > 0) {
    std::printf("%llu candidates recalled after a restart, %llu runs repeated on a busy machine\n",
                static_cast<unsigned long long>(record.recalled()),
                static_cast<unsigned long long>(record.spoiled()));
  }
  PrintFinalists(record);
  PrintCandidates(explained);
}

void PrintReplayed(const v1::ReplayResponse& replayed, bool json) {
  if (json) {
    std::string text;
    const auto status = google::protobuf::util::MessageToJsonString(replayed, &text);
    if (status.ok()) std::puts(text.c_str());
    return;
  }
  std::printf("opts         %s\n", OptsText(replayed.opts()).c_str());
  std::printf("before       %s%s%s, %s\n", replayed.was_failure().c_str(),
              replayed.was_detail().empty() ? "" : ": ", replayed.was_detail().c_str(),
              TimeText(replayed.was_s()).c_str());
  std::printf("compile      %s, %lld uops, %llu bytes of code\n",
              TimeText(replayed.compile_s()).c_str(), static_cast<long long>(replayed.uops()),
              static_cast<unsigned long long>(replayed.code_bytes()));
  std::printf("time         %s of %d runs; unoptimised %s\n",
              TimeText(Least(replayed.samples())).c_str(), replayed.samples_size(),
              TimeText(Least(replayed.unoptimised_samples())).c_str());
  if (replayed.failure() == "none") {
    const v1::Verification& verification = replayed.verification();
    std::printf("answer       %s%s, %llu elements compared\n",
                verification.verified() ? "right, against " : "not checked",
                verification.method().c_str(),
                static_cast<unsigned long long>(verification.checked()));
  } else {
    std::printf("now          lost in %s: %s%s%s\n", replayed.stage().c_str(),
                replayed.failure().c_str(), replayed.detail().empty() ? "" : ": ",
                replayed.detail().c_str());
  }
}

v1::ReplayRequest ReplayOf(const std::string& what, uint64_t generation) {
  v1::ReplayRequest request;
  const std::vector<std::string> parts = absl::StrSplit(what, absl::MaxSplits('/', 1));
  uint64_t number = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &number)) {
    request.set_job(parts[0]);
    request.set_candidate(number);
  } else {
    request.set_key(what);
    request.set_generation(generation);
  }
  return request;
}

}  // namespace beamd
