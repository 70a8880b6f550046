// A session of an Executor (proto/beamd/v1/executor.proto): buffers on a server's device, and runs.
//
// Errors are statuses with the server's detail (errors.h). What may be done twice (uploads,
// downloads, frees, listing) is tried again while the server is Unavailable, after growing pauses,
// until its time is over; an upload or download goes on where it broke. A Run is sent once: what it
// assigned would be assigned twice. Nothing here aborts or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/thin/credentials.h"
#include "client/thin/dtype.h"
#include "proto/beamd/v1/executor.pb.h"

namespace beamd::thin {

struct SessionOptions {
  // Which device; all empty: any that the server has. As Devices.List names it: "cpu:0".
  std::string device;
  std::string device_kind;
  std::string device_arch;
  // How long the server keeps the session without a call; zero: the server's default.
  absl::Duration lease = absl::ZeroDuration();
  // A thread renews the lease while the session is open. Without, calls alone do.
  bool keep_alive = true;
  // Free text, in the server's lists and logs.
  std::string label;
  // Of a call, all tries together, and of opening.
  absl::Duration timeout = absl::Minutes(10);
  absl::Duration open_timeout = absl::Seconds(20);
  // Between tries.
  absl::Duration first_pause = absl::Milliseconds(50);
  absl::Duration longest_pause = absl::Seconds(2);
  // Of an upload's chunk; the server's most where that is less. Another client's small run waits
  // behind one of them.
  uint64_t chunk_bytes = uint64_t{256} << 10;
  Credentials credentials;
};

// A buffer of a session; the last copy's end frees it, a little later. Thread-safe.
class Buffer {
 public:
  uint64_t handle() const { return handle_; }
  const std::string& session() const;
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  uint64_t bytes() const { return bytes_; }
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

 private:
  friend class Session;
  struct FreeList;

  Buffer(std::shared_ptr<FreeList> frees, uint64_t handle, DType dtype, std::vector<int64_t> shape,
         uint64_t bytes);

  const std::shared_ptr<FreeList> frees_;
  const uint64_t handle_;
  const DType dtype_;
  const std::vector<int64_t> shape_;
  const uint64_t bytes_;
};

struct UploadOptions {
  // By its digest, content that the server holds already isn't sent, and an upload that broke goes
  // on where it did. It costs a pass over the content.
  bool digest = true;
  std::optional<absl::Duration> timeout;
};

// Thread-safe. Calls of several threads overlap; those that name a common buffer happen in the order
// in which the server took them. Asynchronous calls of one session happen one after another, in the
// order in which they were made; a future that is waited for after the session's end is Cancelled.
class Session {
 public:
  template <typename T>
  using Future = std::future<absl::StatusOr<T>>;

  // "127.0.0.1:7070". Unavailable where nobody listens by the end of open_timeout.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const std::string& address,
                                                       const SessionOptions& options = {});
  // Closes the session, if Close didn't; waits at most a second for the server.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::string& id() const;
  const std::string& device() const;
  // As the server said last.
  v1::Session info() const;
  // Calls under way end as Cancelled, the server frees all. A second time it does nothing.
  absl::Status Close();
  // Renews the lease.
  absl::StatusOr<v1::Session> KeepAlive();

  // Dense, row-major, little-endian; as many bytes as the shape has elements.
  absl::StatusOr<std::shared_ptr<Buffer>> Upload(absl::string_view content, DType dtype,
                                                 const std::vector<int64_t>& shape,
                                                 const UploadOptions& options = {});
  // All of it. DataLoss where a checksum doesn't fit, however often it is asked for.
  absl::StatusOr<std::string> Download(const Buffer& buffer);
  absl::StatusOr<std::string> DownloadHandle(uint64_t handle);
  // Frees now what no copy of a Buffer is left of.
  absl::Status FreeUnused();
  // NotFound is no error: it is gone.
  absl::Status FreeHandles(const std::vector<uint64_t>& handles);

  // `request.session` is filled in. `timeout`: the session's unless given.
  absl::StatusOr<v1::RunResponse> Run(v1::RunRequest request,
                                      std::optional<absl::Duration> timeout = std::nullopt);
  // `request.device` is this session's where it is empty.
  absl::StatusOr<v1::ScheduleModelResponse> ScheduleModel(v1::ScheduleModelRequest request);
  // The Buffer that an answer names, owned from now on.
  std::shared_ptr<Buffer> Adopt(const v1::BufferInfo& info);

  // The same, later.
  Future<std::shared_ptr<Buffer>> UploadAsync(std::string content, DType dtype,
                                              std::vector<int64_t> shape,
                                              UploadOptions options = {});
  Future<std::string> DownloadAsync(std::shared_ptr<const Buffer> buffer);
  Future<v1::RunResponse> RunAsync(v1::RunRequest request);
  // `call(true)` on the session's thread, behind what was given to it before; `call(false)` where
  // the session ends first.
  void Post(std::function<void(bool open)> call);

 private:
  class Core;

  explicit Session(std::unique_ptr<Core> core);
  template <typename T>
  Future<T> Later(std::function<absl::StatusOr<T>()> call);

  const std::unique_ptr<Core> core_;
};

}  // namespace beamd::thin
