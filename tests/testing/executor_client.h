// Executor's calls as tests and benches make them: raw, one at a time, nothing hidden or retried.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/executor.grpc.pb.h"

namespace beamd::testing {

// The graph of engine/uop/text.h's form.
v1::Graph GraphOf(absl::string_view text);

// Graphs in that form. out = x + 1, and x = x + 1, of n float32.
std::string AddOne(uint64_t x, int n);
std::string AddOneInPlace(uint64_t x, int n);
// out = a x b over n x n float32.
std::string Matmul(uint64_t a, uint64_t b, int n);
// x = a sum of n * n terms, x of 1 float32: some ten nanoseconds of work a term.
std::string LongSum(uint64_t x, int n);

// The ErrorDetail of a call that failed; empty where it has none.
v1::ErrorDetail DetailOf(const grpc::Status& status);

class ExecutorClient {
 public:
  // Waits for the connection. `token` is the caller's, where the server wants one.
  explicit ExecutorClient(const std::string& address, const std::string& token = "");

  v1::Executor::Stub& stub() { return *stub_; }
  const std::string& session() const { return session_; }
  // The last call's that failed.
  const grpc::Status& status() const { return status_; }
  v1::ErrorDetail detail() const { return DetailOf(status_); }

  // False where the call failed, which status() has then.
  bool Open(double lease_s = 0, const std::string& device = "");
  std::optional<v1::Session> KeepAlive();
  bool Close();
  // 0 where a call failed.
  uint64_t Upload(v1::Scalar dtype, const std::vector<int64_t>& shape,
                  std::span<const std::byte> bytes, bool digest = false);
  uint64_t Upload(const std::vector<int64_t>& shape, const std::vector<float>& values);
  // Chunks of a stream, from `offset` on; `spoil`: the CRC of the first is wrong.
  bool SendChunks(uint64_t handle, std::span<const std::byte> bytes, size_t offset,
                  size_t chunk_bytes, bool spoil = false);
  std::optional<v1::BeginUploadResponse> Begin(const v1::BeginUploadRequest& request);
  // The whole content, or from `offset` on.
  std::optional<std::string> Download(uint64_t handle, uint64_t offset = 0, uint64_t bytes = 0);
  std::vector<float> Floats(uint64_t handle);
  bool Free(const std::vector<uint64_t>& handles);
  // Of a graph whose BUFFERs name this session's handles.
  std::optional<v1::RunResponse> Run(v1::RunRequest request);
  std::optional<v1::RunResponse> Run(absl::string_view text);

 private:
  void Authorize(grpc::ClientContext& context) const;
  bool Note(const grpc::Status& status) {
    if (!status.ok()) status_ = status;
    return status.ok();
  }

  const std::string token_;
  std::unique_ptr<v1::Executor::Stub> stub_;
  std::string session_;
  grpc::Status status_;
};

}  // namespace beamd::testing
