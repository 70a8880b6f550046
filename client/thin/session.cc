#include "client/thin/session.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/thin/channel.h"
#include "client/thin/checksum.h"
#include "client/thin/errors.h"
#include "client/thin/macros.h"
#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/executor.grpc.pb.h"

namespace beamd::thin {
namespace {

// How often unused buffers are freed, and how many are waited for at most.
constexpr absl::Duration kFreeEvery = absl::Milliseconds(500);
constexpr size_t kFreeAtOnce = 64;
// Transfers that a checksum refuses, before it is believed that the next one will be too.
constexpr int kMostDamaged = 5;
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);

void SetDuration(absl::Duration from, google::protobuf::Duration* to) {
  absl::Duration rest;
  to->set_seconds(absl::IDivDuration(from, absl::Seconds(1), &rest));
  to->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}
absl::Duration ToDuration(const google::protobuf::Duration& from) {
  return absl::Seconds(from.seconds()) + absl::Nanoseconds(from.nanos());
}

// What another try may mend: the way to the server, or what was damaged on it.
bool IsWorthARetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDataLoss(status);
}

absl::Status Cancelled() { return absl::CancelledError("the session is closed"); }

}  // namespace

// Handles of buffers that nobody has any more.
struct Buffer::FreeList {
  std::string session;  // since it is open
  std::mutex mutex;
  std::vector<uint64_t> handles;
  std::condition_variable changed;
};

Buffer::Buffer(std::shared_ptr<FreeList> frees, uint64_t handle, DType dtype,
               std::vector<int64_t> shape, uint64_t bytes)
    : frees_(std::move(frees)),
      handle_(handle),
      dtype_(dtype),
      shape_(std::move(shape)),
      bytes_(bytes) {}

const std::string& Buffer::session() const { return frees_->session; }

Buffer::~Buffer() {
  const std::lock_guard lock(frees_->mutex);
  frees_->handles.push_back(handle_);
  if (frees_->handles.size() >= kFreeAtOnce) frees_->changed.notify_all();
}

class Session::Core {
 public:
  Core(std::unique_ptr<v1::Executor::Stub> stub, SessionOptions options)
      : stub_(std::move(stub)),
        options_(std::move(options)),
        frees_(std::make_shared<Buffer::FreeList>()) {}

  ~Core() {
    static_cast<void>(Close());
    if (housekeeper_.joinable()) housekeeper_.join();
    if (worker_.joinable()) worker_.join();
  }

  absl::Status Open() {
    v1::OpenSessionRequest request;
    request.mutable_device()->set_id(options_.device);
    request.mutable_device()->set_kind(options_.device_kind);
    request.mutable_device()->set_arch(options_.device_arch);
    if (options_.lease > absl::ZeroDuration()) {
      SetDuration(options_.lease, request.mutable_lease());
    }
    request.set_label(options_.label);
    // One that opened without our hearing of it ends with its lease.
    BEAMD_THIN_RETURN_IF_ERROR(
        Again(absl::Now() + options_.open_timeout, [&](grpc::ClientContext& context) {
          return stub_->OpenSession(&context, request, &info_);
        }));
    id_ = info_.id();
    device_ = info_.device();
    chunk_limit_ = info_.chunk_bytes();
    frees_->session = id_;
    return Start(&housekeeper_, [this] { KeepHouse(); });
  }

  absl::Status Close() {
    std::deque<std::function<void(bool)>> left;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return absl::OkStatus();
      closing_ = true;
      left.swap(tasks_);
      for (grpc::ClientContext* context : contexts_) context->TryCancel();
    }
    changed_.notify_all();
    {
      const std::lock_guard lock(frees_->mutex);
      frees_->changed.notify_all();
    }
    for (const auto& task : left) task(false);
    if (id_.empty()) return absl::OkStatus();
    v1::CloseSessionRequest request;
    request.set_session(id_);
    v1::CloseSessionResponse response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCloseTimeout));
    const absl::Status status = FromGrpc(stub_->CloseSession(&context, request, &response));
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  // Tries `call` until it succeeds, fails for good, or the time is over.
  template <typename Call>
  absl::Status Again(absl::Time deadline, const Call& call) {
    return AgainWhole(deadline, [&] { return Once(deadline, call); });
  }
  template <typename Call>
  absl::Status AgainWhole(absl::Time deadline, const Call& call) {
    absl::Duration pause = options_.first_pause;
    for (int damaged = 0;;) {
      absl::Status status = call();
      if (status.ok() || !IsWorthARetry(status)) return status;
      if (absl::IsDataLoss(status) && ++damaged == kMostDamaged) return status;
      // From half of it on, so that many clients don't come back at one moment.
      const absl::Duration wait = pause * Fraction();
      if (absl::Now() + wait >= deadline) return status;
      if (!Sleep(wait)) return Cancelled();
      pause = std::min(pause * 2, options_.longest_pause);
    }
  }
  template <typename Call>
  absl::Status Once(absl::Time deadline, const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    if (!Begin(context)) return Cancelled();
    const absl::Status status = FromGrpc(call(context));
    return End(context) ? status : Cancelled();
  }

  // While it is noted here, Close cancels it. False: it is closed.
  bool Begin(grpc::ClientContext& context) {
    const std::lock_guard lock(mutex_);
    if (!closing_) contexts_.insert(&context);
    return !closing_;
  }
  bool End(grpc::ClientContext& context) {
    const std::lock_guard lock(mutex_);
    contexts_.erase(&context);
    return !closing_;
  }

  absl::Time Deadline(const std::optional<absl::Duration>& timeout = std::nullopt) const {
    return absl::Now() + timeout.value_or(options_.timeout);
  }

  absl::Status KeepAlive(absl::Time deadline, v1::Session* info) {
    v1::KeepAliveRequest request;
    request.set_session(id_);
    absl::Status status = Again(deadline, [&](grpc::ClientContext& context) {
      return stub_->KeepAlive(&context, request, info);
    });
    const std::lock_guard lock(mutex_);
    if (status.ok()) info_ = *info;
    return status;
  }

  absl::Status Free(const std::vector<uint64_t>& handles) {
    if (handles.empty()) return absl::OkStatus();
    v1::FreeRequest request;
    request.set_session(id_);
    request.mutable_handles()->Add(handles.begin(), handles.end());
    v1::FreeResponse response;
    const absl::Status status = Again(Deadline(), [&](grpc::ClientContext& context) {
      return stub_->Free(&context, request, &response);
    });
    if (!absl::IsNotFound(status)) return status;
    // One that is gone keeps the server from freeing the others.
    for (const uint64_t handle : handles) {
      if (handles.size() == 1) break;
      BEAMD_THIN_RETURN_IF_ERROR(Free({handle}));
    }
    return absl::OkStatus();
  }

  std::vector<uint64_t> TakeUnused() {
    const std::lock_guard lock(frees_->mutex);
    return std::exchange(frees_->handles, {});
  }

  absl::Status SendContent(absl::string_view content, uint64_t handle, uint64_t offset,
                           absl::Time deadline, const std::string& digest) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    if (!Begin(context)) return Cancelled();
    v1::UploadResponse response;
    const std::unique_ptr<grpc::ClientWriter<v1::UploadChunk>> writer =
        stub_->Upload(&context, &response);
    uint64_t most = options_.chunk_bytes;
    if (chunk_limit_ > 0) most = std::min(most, chunk_limit_);
    most = std::max<uint64_t>(most, 1);
    v1::UploadChunk chunk;
    chunk.set_session(id_);
    chunk.set_handle(handle);
    while (offset < content.size()) {
      const absl::string_view part = content.substr(offset, most);
      chunk.set_offset(offset);
      chunk.set_data(part.data(), part.size());
      chunk.set_crc32c(Crc32c(part));
      if (!writer->Write(chunk)) break;
      chunk.clear_session();
      chunk.clear_handle();
      offset += part.size();
    }
    writer->WritesDone();
    absl::Status status = FromGrpc(writer->Finish());
    if (!End(context)) return Cancelled();
    if (status.ok() && !digest.empty() && !response.sha256().empty() &&
        response.sha256() != digest) {
      return absl::DataLossError("the server received something else than was sent");
    }
    return status;
  }

  absl::Status Receive(uint64_t handle, absl::Time deadline, std::string* content) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    if (!Begin(context)) return Cancelled();
    v1::DownloadRequest request;
    request.set_session(id_);
    request.set_handle(handle);
    request.set_offset(content->size());
    const std::unique_ptr<grpc::ClientReader<v1::DownloadChunk>> reader =
        stub_->Download(&context, request);
    absl::Status fault;
    v1::DownloadChunk chunk;
    std::optional<uint64_t> whole;
    while (reader->Read(&chunk)) {
      if (!fault.ok()) continue;
      if (chunk.has_buffer()) {
        whole = chunk.buffer().bytes();
        content->reserve(*whole);
      }
      if (chunk.offset() != content->size()) {
        fault = absl::DataLossError(
            absl::StrCat("a chunk at ", chunk.offset(), ", not at ", content->size()));
      } else if (Crc32c(chunk.data()) != chunk.crc32c()) {
        fault = absl::DataLossError(
            absl::StrCat("the chunk at ", chunk.offset(), " of buffer ", handle, " is damaged"));
      } else {
        content->append(chunk.data());
        continue;
      }
      context.TryCancel();
    }
    absl::Status status = FromGrpc(reader->Finish());
    if (!End(context)) return Cancelled();
    if (!fault.ok()) return fault;
    if (status.ok() && whole && *whole != content->size()) {
      return absl::UnavailableError("the stream ended early");
    }
    return status;
  }

  void Post(std::function<void(bool)> task) {
    {
      const std::lock_guard lock(mutex_);
      if (!closing_ && (worker_.joinable() || Start(&worker_, [this] { Work(); }).ok())) {
        tasks_.push_back(std::move(task));
        changed_.notify_all();
        return;
      }
    }
    task(false);
  }

  v1::Session info() const {
    const std::lock_guard lock(mutex_);
    return info_;
  }
  v1::Executor::Stub& stub() { return *stub_; }
  const std::string& id() const { return id_; }
  const std::string& device() const { return device_; }
  const std::shared_ptr<Buffer::FreeList>& frees() const { return frees_; }

 private:
  static absl::Status Start(std::thread* thread, std::function<void()> work) {
    try {
      *thread = std::thread(std::move(work));
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(absl::StrCat("no thread: ", error.what()));
    }
    return absl::OkStatus();
  }

  double Fraction() {
    const std::lock_guard lock(mutex_);
    return std::uniform_real_distribution<double>(0.5, 1)(random_);
  }

  // False: it is closed.
  bool Sleep(absl::Duration time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, absl::ToChronoNanoseconds(time), [this] { return closing_; });
  }

  bool is_closing() const {
    const std::lock_guard lock(mutex_);
    return closing_;
  }

  void Work() {
    for (;;) {
      std::function<void(bool)> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task(true);
    }
  }

  // Renews the lease, and frees what is unused.
  void KeepHouse() {
    const absl::Duration lease = ToDuration(info().lease());
    const absl::Duration every = lease > absl::ZeroDuration()
                                     ? std::max(lease / 3, absl::Milliseconds(10))
                                     : absl::Seconds(10);
    absl::Time next = absl::Now() + every;
    while (!is_closing()) {
      {
        std::unique_lock lock(frees_->mutex);
        const absl::Duration wait =
            std::clamp(next - absl::Now(), absl::ZeroDuration(), kFreeEvery);
        frees_->changed.wait_for(lock, absl::ToChronoNanoseconds(wait), [this] {
          return frees_->handles.size() >= kFreeAtOnce || is_closing();
        });
      }
      // What fails here fails again, and is told, in the calls of the session.
      static_cast<void>(Free(TakeUnused()));
      if (absl::Now() < next || is_closing()) continue;
      v1::Session info;
      if (options_.keep_alive) static_cast<void>(KeepAlive(absl::Now() + every, &info));
      next = absl::Now() + every;
    }
  }

  const std::unique_ptr<v1::Executor::Stub> stub_;
  const SessionOptions options_;
  const std::shared_ptr<Buffer::FreeList> frees_;
  // Since Open.
  std::string id_, device_;
  uint64_t chunk_limit_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  v1::Session info_;
  std::set<grpc::ClientContext*> contexts_;
  std::deque<std::function<void(bool)>> tasks_;
  std::minstd_rand random_{std::random_device{}()};
  std::thread housekeeper_, worker_;
};

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const std::string& address,
                                                       const SessionOptions& options) {
  BEAMD_THIN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                              MakeChannel(address, options.credentials));
  auto core = std::make_unique<Core>(v1::Executor::NewStub(channel), options);
  BEAMD_THIN_RETURN_IF_ERROR(core->Open());
  return std::unique_ptr<Session>(new Session(std::move(core)));
}

Session::Session(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Session::~Session() = default;

const std::string& Session::id() const { return core_->id(); }
const std::string& Session::device() const { return core_->device(); }
v1::Session Session::info() const { return core_->info(); }
absl::Status Session::Close() { return core_->Close(); }

absl::StatusOr<v1::Session> Session::KeepAlive() {
  v1::Session info;
  BEAMD_THIN_RETURN_IF_ERROR(core_->KeepAlive(core_->Deadline(), &info));
  return info;
}

absl::StatusOr<std::shared_ptr<Buffer>> Session::Upload(absl::string_view content, DType dtype,
                                                        const std::vector<int64_t>& shape,
                                                        const UploadOptions& options) {
  int64_t wanted = SizeBytes(dtype);
  bool fits = wanted > 0;
  for (const int64_t size : shape) {
    fits = fits && size >= 0 && !__builtin_mul_overflow(wanted, size, &wanted);
  }
  if (!fits || static_cast<uint64_t>(wanted) != content.size()) {
    return absl::InvalidArgumentError(absl::StrCat(content.size(), " bytes are no ", Name(dtype),
                                                   " of shape (", absl::StrJoin(shape, ", "), ")"));
  }
  const absl::Time deadline = core_->Deadline(options.timeout);
  v1::BeginUploadRequest request;
  request.set_session(core_->id());
  request.set_dtype(dtype);
  request.mutable_shape()->Add(shape.begin(), shape.end());
  if (options.digest) request.set_sha256(Sha256(content));
  uint64_t handle = 0;
  const absl::Status status = core_->AgainWhole(deadline, [&]() -> absl::Status {
    if (handle != 0 && !options.digest) {
      // What broke can't be gone on with.
      BEAMD_THIN_RETURN_IF_ERROR(core_->Free({handle}));
      handle = 0;
    }
    request.set_handle(handle);
    v1::BeginUploadResponse begun;
    BEAMD_THIN_RETURN_IF_ERROR(core_->Once(deadline, [&](grpc::ClientContext& context) {
      return core_->stub().BeginUpload(&context, request, &begun);
    }));
    handle = begun.handle();
    if (begun.offset() >= content.size()) return absl::OkStatus();
    return core_->SendContent(content, handle, begun.offset(), deadline, request.sha256());
  });
  if (!status.ok()) {
    if (handle != 0) static_cast<void>(core_->Free({handle}));
    return status;
  }
  v1::BufferInfo info;
  info.set_handle(handle);
  info.set_dtype(dtype);
  info.mutable_shape()->Add(shape.begin(), shape.end());
  info.set_bytes(content.size());
  return Adopt(info);
}

absl::StatusOr<std::string> Session::Download(const Buffer& buffer) {
  return DownloadHandle(buffer.handle());
}

absl::StatusOr<std::string> Session::DownloadHandle(uint64_t handle) {
  const absl::Time deadline = core_->Deadline();
  std::string content;
  BEAMD_THIN_RETURN_IF_ERROR(
      core_->AgainWhole(deadline, [&] { return core_->Receive(handle, deadline, &content); }));
  return content;
}

absl::Status Session::FreeUnused() { return core_->Free(core_->TakeUnused()); }
absl::Status Session::FreeHandles(const std::vector<uint64_t>& handles) {
  return core_->Free(handles);
}

absl::StatusOr<v1::RunResponse> Session::Run(v1::RunRequest request,
                                             std::optional<absl::Duration> timeout) {
  request.set_session(core_->id());
  v1::RunResponse response;
  BEAMD_THIN_RETURN_IF_ERROR(
      core_->Once(core_->Deadline(timeout), [&](grpc::ClientContext& context) {
        return core_->stub().Run(&context, request, &response);
      }));
  return response;
}

absl::StatusOr<v1::ScheduleModelResponse> Session::ScheduleModel(v1::ScheduleModelRequest request) {
  if (!request.has_device()) request.mutable_device()->set_id(core_->device());
  v1::ScheduleModelResponse response;
  BEAMD_THIN_RETURN_IF_ERROR(core_->Again(core_->Deadline(), [&](grpc::ClientContext& context) {
    return core_->stub().ScheduleModel(&context, request, &response);
  }));
  return response;
}

std::shared_ptr<Buffer> Session::Adopt(const v1::BufferInfo& info) {
  return std::shared_ptr<Buffer>(new Buffer(core_->frees(), info.handle(), info.dtype(),
                                            {info.shape().begin(), info.shape().end()},
                                            info.bytes()));
}

void Session::Post(std::function<void(bool open)> call) { core_->Post(std::move(call)); }

template <typename T>
Session::Future<T> Session::Later(std::function<absl::StatusOr<T>()> call) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
  Future<T> future = promise->get_future();
  Post([promise = std::move(promise), call = std::move(call)](bool open) {
    promise->set_value(open ? call() : absl::StatusOr<T>(Cancelled()));
  });
  return future;
}

Session::Future<std::shared_ptr<Buffer>> Session::UploadAsync(std::string content, DType dtype,
                                                              std::vector<int64_t> shape,
                                                              UploadOptions options) {
  return Later<std::shared_ptr<Buffer>>(
      [this, content = std::move(content), dtype, shape = std::move(shape), options] {
        return Upload(content, dtype, shape, options);
      });
}

Session::Future<std::string> Session::DownloadAsync(std::shared_ptr<const Buffer> buffer) {
  return Later<std::string>([this, buffer = std::move(buffer)] { return Download(*buffer); });
}

Session::Future<v1::RunResponse> Session::RunAsync(v1::RunRequest request) {
  return Later<v1::RunResponse>([this, request = std::move(request)] { return Run(request); });
}

}  // namespace beamd::thin
