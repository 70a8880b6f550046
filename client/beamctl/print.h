// What beamctl prints: for people, or a line of JSON a thing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/beamctl/format.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/batch.pb.h"
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

google::protobuf::Duration ToProto(absl::Duration duration);

// "UPCAST(0, 4) NOLOCALS", as ToString(Opt) prints them; "-" and nothing are no opts.
absl::StatusOr<std::vector<v1::Opt>> ParseOpts(const std::string& text);

// " (no-record)", behind what has none; nothing where nobody said why.
std::string MissText(v1::MissReason reason);

// The progress of one search on standard error: one line rewritten on a terminal, plain lines where
// it is none, and nothing beside JSON.
class ProgressLine {
 public:
  ProgressLine(std::string name, bool json);
  void Show(const v1::TuneEvent& event);
  // Leaves the terminal's line clean.
  void End();

 private:
  void ShowProgress(const v1::TuneProgress& progress);

  const std::string name_;
  const bool quiet_;
  const bool terminal_;
  bool dirty_ = false;
  std::string last_;
};

// The same of a batch: one line for all its kernels.
class BatchLine {
 public:
  explicit BatchLine(bool json);
  void Show(const v1::TuneBatchEvent& event);
  void End();

 private:
  const bool quiet_;
  const bool terminal_;
  bool dirty_ = false;
};

// What a batch says of an item that failed, as the call alone would have said it.
absl::Status ToStatus(int code, const v1::ErrorDetail& from);

// On standard output.
void PrintResult(const std::string& name, const v1::TuneResult& result, bool json);
// Of a job that nobody waits for: its id.
void PrintDetached(const std::string& name, const std::string& job, bool json);
void PrintJob(const v1::Job& job, bool json);
void PrintAnswer(const std::string& name, const v1::LookupAnswer& answer, bool json);
// One kernel of a tensor graph, tuned or not.
struct TunedKernel {
  std::string name;
  std::string hash;
  int uses = 0;
  absl::StatusOr<v1::TuneResult> result;
};
// A row a kernel: how often it runs, the heuristics' time, the best, the gain, and the best of all
// its runs; totals below. As JSON a line a kernel and one of totals.
void PrintTuned(const std::vector<TunedKernel>& kernels, bool json);
void PrintRecord(const v1::Record& record, bool json);
// What is in force. FailedPrecondition naming what isn't and should be.
absl::Status PrintDoctor(const v1::ListDevicesResponse& response, bool json);
void PrintDevices(const v1::ListDevicesResponse& response, bool json);
void PrintShown(const v1::ShowResponse& response, bool json);
// As protobuf's JSON.
void PrintMessage(const google::protobuf::Message& message);

// What went wrong, in JSON; more may be added.
JsonLine ErrorLine(const absl::Status& status);
// On standard error; as JSON also on standard output, so that a script reads one stream.
void PrintError(const absl::Status& status, bool json);

}  // namespace beamd
