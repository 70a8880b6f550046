// beamd's services as functions. Errors are statuses that carry the server's ErrorDetail
// (engine/base/error_detail.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/thin/credentials.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/batch.pb.h"
#include "proto/beamd/v1/executor.pb.h"
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

struct CallOptions {
  absl::Time deadline = absl::InfiniteFuture();
  // W3C trace context of the caller; empty: the server starts a trace.
  std::string traceparent;
  // For how long Tune tries to find its job again after it lost the connection.
  absl::Duration reattach = absl::ZeroDuration();
};

// Thread-safe.
class Client {
 public:
  // "127.0.0.1:7070". Connects on the first call, which is Unavailable where nobody listens.
  static std::unique_ptr<Client> Create(const std::string& address);
  // The same, encrypted or with a token. InvalidArgument for a file that can't be read, and for a
  // token that would travel openly to another machine.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const std::string& address,
                                                        const Credentials& credentials);
  ~Client();

  // Returns with the result; `on_event` is called on this thread for what comes before it. False
  // ends the call: Cancelled.
  absl::StatusOr<v1::TuneResult> Tune(const v1::TuneRequest& request,
                                      const std::function<bool(const v1::TuneEvent&)>& on_event,
                                      const CallOptions& options = {});
  // The same of a job that is there already.
  absl::StatusOr<v1::TuneResult> WatchJob(const std::string& job,
                                          const std::function<bool(const v1::TuneEvent&)>& on_event,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request,
                                                const CallOptions& options = {});
  absl::StatusOr<v1::Job> GetJob(const std::string& id, const CallOptions& options = {});
  absl::StatusOr<v1::Job> CancelJob(const std::string& id, const CallOptions& options = {});
  absl::StatusOr<v1::LookupResponse> Lookup(const v1::LookupRequest& request,
                                            const CallOptions& options = {});
  absl::StatusOr<v1::ListRecordsResponse> ListRecords(const v1::ListRecordsRequest& request,
                                                      const CallOptions& options = {});
  absl::StatusOr<v1::GetRecordResponse> GetRecord(const v1::GetRecordRequest& request,
                                                  const CallOptions& options = {});
  absl::StatusOr<v1::ResolveResponse> Resolve(const v1::ResolveRequest& request,
                                              const CallOptions& options = {});
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request,
                                              const CallOptions& options = {});
  absl::StatusOr<v1::ReplayResponse> Replay(const v1::ReplayRequest& request,
                                            const CallOptions& options = {});
  // `on_record` is called on this thread; an error of it ends the call.
  absl::Status Export(const v1::ExportRequest& request,
                      const std::function<absl::Status(const v1::ExportedRecord&)>& on_record,
                      const CallOptions& options = {});
  // `next` gives the records one by one; false: there are no more.
  absl::StatusOr<v1::ImportResponse> Import(
      const std::function<absl::StatusOr<bool>(v1::ExportedRecord&)>& next,
      const CallOptions& options = {});
  absl::Status Backup(const std::function<absl::Status(const v1::BackupPiece&)>& on_piece,
                      const CallOptions& options = {});
  // Sends all items, then tells `on_event` what becomes of them; false ends the call: Cancelled.
  absl::Status TuneBatch(const v1::TuneBatchBegin& begin,
                         const std::vector<v1::TuneBatchItem>& items,
                         const std::function<bool(const v1::TuneBatchEvent&)>& on_event,
                         const CallOptions& options = {});
  absl::StatusOr<v1::ScheduleModelResponse> ScheduleModel(const v1::ScheduleModelRequest& request,
                                                          const CallOptions& options = {});
  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const CallOptions& options = {});
  absl::StatusOr<v1::Device> ReleaseDevice(const std::string& id, const CallOptions& options = {});
  absl::StatusOr<v1::ShowResponse> Show(const v1::ShowRequest& request,
                                        const CallOptions& options = {});

 private:
  struct Stubs;

  explicit Client(std::unique_ptr<Stubs> stubs);

  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace beamd
