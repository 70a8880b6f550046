// An Executor in the test's own process: buffers in memory, graphs run by the runtime on cpu:0, and
// transfers that break or are damaged when the test says so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/executor.grpc.pb.h"
#include "server/execution/runtime.h"

namespace beamd::testing {

class FakeExecutor final : public v1::Executor::Service {
 public:
  // Starts on a free port of loopback; the program ends where it can't.
  FakeExecutor();
  ~FakeExecutor() override;

  std::string address() const;

  // What goes wrong, each so many times.
  struct Faults {
    int unavailable_calls = 0;  // of any kind, before they do anything
    int broken_uploads = 0;     // after `break_after` bytes
    int broken_downloads = 0;
    int damaged_chunks = 0;  // of downloads
    uint64_t break_after = 0;
    bool lose_run = false;  // runs, and answers Unavailable
  };
  void Set(const Faults& faults);
  // Called so far.
  struct Calls {
    int open = 0, keep_alive = 0, close = 0, begin = 0, upload = 0, download = 0, free = 0, run = 0;
    uint64_t received_bytes = 0;
  };
  Calls calls() const;
  size_t buffers() const;
  // Kernels of the last run.
  int last_kernels() const;
  const v1::RunRequest& last_request() const { return last_request_; }

  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                           v1::Session* response) override;
  grpc::Status KeepAlive(grpc::ServerContext* context, const v1::KeepAliveRequest* request,
                         v1::Session* response) override;
  grpc::Status CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest* request,
                            v1::CloseSessionResponse* response) override;
  grpc::Status BeginUpload(grpc::ServerContext* context, const v1::BeginUploadRequest* request,
                           v1::BeginUploadResponse* response) override;
  grpc::Status Upload(grpc::ServerContext* context, grpc::ServerReader<v1::UploadChunk>* reader,
                      v1::UploadResponse* response) override;
  grpc::Status Download(grpc::ServerContext* context, const v1::DownloadRequest* request,
                        grpc::ServerWriter<v1::DownloadChunk>* writer) override;
  grpc::Status Free(grpc::ServerContext* context, const v1::FreeRequest* request,
                    v1::FreeResponse* response) override;
  grpc::Status Run(grpc::ServerContext* context, const v1::RunRequest* request,
                   v1::RunResponse* response) override;

 private:
  struct Held {
    v1::BufferInfo info;
    std::string sha256;
    std::string content;  // while it arrives
    std::shared_ptr<TensorBuffer> buffer;
  };

  bool Takes(int* fault);
  absl::Status RunLocked(const v1::RunRequest& request, v1::RunResponse* response);
  Held* Find(uint64_t handle);
  std::string Content(const Held& held);
  uint64_t Keep(std::shared_ptr<TensorBuffer> buffer, const std::vector<int64_t>& shape);

  mutable std::mutex mutex_;
  Faults faults_;
  Calls calls_;
  std::unique_ptr<Runtime> runtime_;
  std::map<uint64_t, Held> held_;
  uint64_t next_handle_ = 1;
  v1::RunRequest last_request_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace beamd::testing
