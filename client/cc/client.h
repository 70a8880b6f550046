// beamd's services as functions. Errors are statuses that carry the server's ErrorDetail
// (engine/base/error_detail.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/tuning.pb.h"

namespace beamd {

struct CallOptions {
  absl::Time deadline = absl::InfiniteFuture();
  // W3C trace context of the caller; empty: the server starts a trace.
  std::string traceparent;
};

// Thread-safe.
class Client {
 public:
  // "127.0.0.1:7070". Connects on the first call, which is Unavailable where nobody listens.
  static std::unique_ptr<Client> Create(const std::string& address);
  ~Client();

  // Returns with the result; `on_event` is called on this thread for what comes before it. False
  // ends the call: Cancelled.
  absl::StatusOr<v1::TuneResult> Tune(const v1::TuneRequest& request,
                                      const std::function<bool(const v1::TuneEvent&)>& on_event,
                                      const CallOptions& options = {});
  absl::StatusOr<v1::LookupResponse> Lookup(const v1::LookupRequest& request,
                                            const CallOptions& options = {});
  absl::StatusOr<v1::ListRecordsResponse> ListRecords(const v1::ListRecordsRequest& request,
                                                      const CallOptions& options = {});
  absl::StatusOr<v1::GetRecordResponse> GetRecord(const v1::GetRecordRequest& request,
                                                  const CallOptions& options = {});
  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const CallOptions& options = {});
  absl::StatusOr<v1::ShowResponse> Show(const v1::ShowRequest& request,
                                        const CallOptions& options = {});

 private:
  struct Stubs;

  explicit Client(std::unique_ptr<Stubs> stubs);

  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace beamd
