#include "server/services/transfer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/beamd/v1/executor.pb.h"
#include "server/services/acted_on.h"
#include "server/services/reply.h"
#include "server/services/upload_chunk.h"

namespace beamd {
namespace {

using google::protobuf::internal::WireFormatLite;

// Of a Download's chunk. Larger ones gain nothing and hold more memory; a small run of another
// client waits behind one of them.
constexpr int64_t kDownloadBytes = int64_t{256} << 10;
// What a client whose session has ended may take for the message that is on its way.
constexpr absl::Duration kCutGrace = absl::Milliseconds(300);
// Of a session's id, in the audit; ours are shorter.
constexpr size_t kIdShown = 64;

// Two messages: one is checked and written, a step at a time, while the other comes. A step runs
// where its message came, for waking another thread costs as much; where the next one is there
// already, that is the desk's.
class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // Begins once the call has what this returns.
  static grpc::ServerReadReactor<grpc::ByteBuffer>* Start(SessionTable& sessions, Desk& desk,
                                                          grpc::CallbackServerContext* context,
                                                          grpc::ByteBuffer* response) {
    std::shared_ptr<UploadReactor> reactor(new UploadReactor(sessions, desk, context, response));
    reactor->self_ = reactor;
    if (const absl::Status& admitted = reactor->visit_.admitted; !admitted.ok()) {
      reactor->End(admitted);
    } else {
      reactor->StartRead(&reactor->bytes_[0]);
    }
    return reactor.get();
  }

  void OnReadDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      reading_ = false;
      if (ok) {
        ++filled_;
        ReadOn();
      } else {
        at_end_ = true;
      }
      if (busy_ || ended_) return;
      busy_ = true;
    }
    Step();
  }
  // Steps that were posted may still come, and hold this.
  void OnDone() override { self_ = nullptr; }

 private:
  UploadReactor(SessionTable& sessions, Desk& desk, grpc::CallbackServerContext* context,
                grpc::ByteBuffer* response)
      : sessions_(sessions),
        desk_(desk),
        response_(response),
        visit_(desk.EnterStream(*context, "Executor.Upload")) {}

  void ReadOn() BEAMD_REQUIRES(mutex_) {
    if (reading_ || at_end_ || ended_ || filled_ == bytes_.size()) return;
    reading_ = true;
    StartRead(&bytes_[(head_ + filled_) % bytes_.size()]);
  }

  void Wake() BEAMD_REQUIRES(mutex_) {
    if (busy_ || ended_ || (filled_ == 0 && !at_end_ && !cut_)) return;
    busy_ = true;
    desk_.executor().Post([self = self_] { self->Step(); });
  }

  // The session has ended, and what its client still sends, or doesn't, is of no use.
  void Cut() {
    MutexLock lock(mutex_);
    cut_ = true;
    Wake();
  }

  void Step() {
    grpc::ByteBuffer* bytes = nullptr;
    bool cut = false;
    {
      MutexLock lock(mutex_);
      if (filled_ > 0) bytes = &bytes_[head_];
      cut = cut_;
    }
    if (cut) return End(session_->Ended());
    if (bytes == nullptr) return End(Complete());
    const absl::Status status = Take(*bytes);
    const auto size = static_cast<int64_t>(bytes->Length());
    bytes->Clear();
    if (!status.ok()) return End(status);
    const absl::Duration pause = session_->PauseAfter(size);
    if (pause <= absl::ZeroDuration()) return GoOn();
    desk_.executor().PostAfter(pause, [self = self_] { self->GoOn(); });
  }

  void GoOn() {
    MutexLock lock(mutex_);
    busy_ = false;
    head_ = (head_ + 1) % bytes_.size();
    --filled_;
    ReadOn();
    Wake();
  }

  absl::Status Take(grpc::ByteBuffer& bytes) {
    UploadChunkView chunk;
    BEAMD_RETURN_IF_ERROR(ParseUploadChunk(bytes, chunk));
    if (session_ == nullptr) {
      // Read by hand: it may hold any bytes, and as many as it likes.
      SetNamed(visit_.object, "session", absl::CEscape(chunk.session.substr(0, kIdShown)));
      SetNamed(visit_.object, "handle", absl::StrCat(chunk.handle));
      BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                             sessions_.Find(chunk.session, visit_.principal.name));
      BEAMD_ASSIGN_OR_RETURN(upload_, session->OpenUpload(chunk.handle, chunk.piece.offset));
      session_ = std::move(session);
      joined_ = session_->Join([this, weak = std::weak_ptr(self_)] {
        const std::shared_ptr<UploadReactor> self = weak.lock();
        if (self != nullptr) desk_.executor().Post([self] { self->Cut(); });
      });
    } else if ((!chunk.session.empty() && chunk.session != session_->id()) ||
               (chunk.handle != 0 && chunk.handle != upload_.handle)) {
      return InvalidArgument("a chunk names another buffer than the first one",
                             {.reason = "OTHER_BUFFER",
                              .field = chunk.session.empty() ? "handle" : "session",
                              .value = static_cast<int64_t>(chunk.handle)});
    }
    if (joined_ == 0 || !session_->Touch(SteadyNow())) return session_->Ended();
    return upload_.state->Take(upload_.stream, chunk.piece, sessions_.limits().chunk_bytes);
  }

  absl::Status Complete() {
    if (session_ == nullptr) return InvalidArgument("no chunk came", {.reason = "EMPTY"});
    session_->CloseUpload(upload_);
    if (!upload_.state->complete()) {
      const int64_t arrived = upload_.state->arrived();
      return WithDetail(absl::FailedPreconditionError(absl::StrCat("the stream ended after ",
                                                                   arrived, " bytes: go on there")),
                        {.reason = "NOT_UPLOADED", .field = "offset", .value = arrived});
    }
    v1::UploadResponse answer;
    answer.set_handle(upload_.handle);
    answer.set_sha256(upload_.state->sha256());
    *response_ = ToBytes(answer);
    return absl::OkStatus();
  }

  void End(const absl::Status& status) {
    if (!status.ok() && session_ != nullptr) session_->CloseUpload(upload_);
    if (joined_ != 0) session_->Quit(joined_);
    {
      MutexLock lock(mutex_);
      ended_ = true;
    }
    desk_.Leave(visit_, status);
    Finish(ToGrpcStatus(status));
  }

  SessionTable& sessions_;
  Desk& desk_;
  grpc::ByteBuffer* const response_;
  Visit visit_;
  std::shared_ptr<UploadReactor> self_;
  // Of the steps.
  std::shared_ptr<Session> session_;
  uint64_t joined_ = 0;
  Session::Upload upload_;

  Mutex mutex_;
  std::array<grpc::ByteBuffer, 2> bytes_;  // from head_ on, filled_ of them wait for a step
  size_t head_ BEAMD_GUARDED_BY(mutex_) = 0;
  size_t filled_ BEAMD_GUARDED_BY(mutex_) = 0;
  bool reading_ BEAMD_GUARDED_BY(mutex_) = true;
  bool at_end_ BEAMD_GUARDED_BY(mutex_) = false;
  bool cut_ BEAMD_GUARDED_BY(mutex_) = false;
  bool busy_ BEAMD_GUARDED_BY(mutex_) = false;  // a step is posted, or runs
  bool ended_ BEAMD_GUARDED_BY(mutex_) = false;
};

// A chunk's message in two slices: the fields before its data, and the data, which stays where it
// is: the slice keeps the content.
grpc::ByteBuffer ChunkBytes(const BufferSnapshot& snapshot, int64_t offset, int64_t size,
                            bool first) {
  const std::byte* const data = snapshot.content->data() + offset;
  v1::DownloadChunk fields;
  fields.set_offset(static_cast<uint64_t>(offset));
  fields.set_crc32c(Crc32c(0, {data, static_cast<size_t>(size)}));
  if (first) *fields.mutable_buffer() = snapshot.info;
  std::string head = fields.SerializeAsString();
  {
    google::protobuf::io::StringOutputStream stream(&head);  // appends
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(WireFormatLite::MakeTag(v1::DownloadChunk::kDataFieldNumber,
                                         WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    out.WriteVarint32(static_cast<uint32_t>(size));
  }
  auto* const kept = new std::shared_ptr<const Content>(snapshot.content);
  const std::array<grpc::Slice, 2> slices = {
      grpc::Slice(head),
      grpc::Slice(
          const_cast<std::byte*>(data), static_cast<size_t>(size),
          [](void* content) { delete static_cast<std::shared_ptr<const Content>*>(content); },
          kept)};
  return {slices.data(), slices.size()};
}

// Two messages: one is made, a step at a time, while the other goes; steps run as an upload's do.
class DownloadReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(SessionTable& sessions, Desk& desk,
                                                           grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer& request) {
    std::shared_ptr<DownloadReactor> reactor(new DownloadReactor(sessions, desk, context));
    reactor->self_ = reactor;
    desk.executor().Post([reactor, request] { reactor->Open(request); });
    return reactor.get();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      gone_ |= !ok;
      if (!gone_ && !cut_ && made_) WriteOn();
      if (busy_ || ended_ || !HasStep()) return;
      busy_ = true;
    }
    Step();
  }
  // Steps that were posted may still come, and hold this.
  void OnDone() override { self_ = nullptr; }

 private:
  DownloadReactor(SessionTable& sessions, Desk& desk, grpc::CallbackServerContext* context)
      : sessions_(sessions),
        desk_(desk),
        context_(context),
        visit_(desk.EnterStream(*context, "Executor.Download")) {}

  void Open(const grpc::ByteBuffer& bytes) {
    const absl::Status& admitted = visit_.admitted;
    if (!admitted.ok() && !absl::IsPermissionDenied(admitted)) return End(admitted);
    v1::DownloadRequest request;
    const absl::Status status = ParseRequest(bytes, request);
    if (status.ok()) NameActedOn(request, visit_.object);
    if (!admitted.ok()) return End(admitted);
    if (!status.ok()) return End(status);
    absl::StatusOr<std::shared_ptr<Session>> session =
        sessions_.Find(request.session(), visit_.principal.name);
    if (!session.ok()) return End(session.status());
    session_ = *std::move(session);
    session_->Read(
        request.handle(), [self = self_, request](absl::StatusOr<BufferSnapshot> snapshot) {
          // It may be the supervisor's thread.
          self->desk_.executor().Post([self, request, snapshot = std::move(snapshot)]() mutable {
            if (!snapshot.ok()) return self->End(snapshot.status());
            self->Begin(request, *std::move(snapshot));
          });
        });
  }

  void Begin(const v1::DownloadRequest& request, BufferSnapshot snapshot) {
    const uint64_t size = snapshot.info.bytes();
    if (request.offset() > size || request.bytes() > size - request.offset()) {
      return End(
          WithDetail(absl::OutOfRangeError(absl::StrCat("bytes ", request.offset(), " + ",
                                                        request.bytes(), " of a buffer of ", size)),
                     {.reason = "RANGE",
                      .field = request.offset() > size ? "offset" : "bytes",
                      .limit = static_cast<int64_t>(size),
                      .value = static_cast<int64_t>(request.offset())}));
    }
    // What a client doesn't take holds memory that is the session's.
    joined_ = session_->Join([this, weak = std::weak_ptr(self_)] {
      const std::shared_ptr<DownloadReactor> self = weak.lock();
      if (self != nullptr) desk_.executor().Post([self] { self->Cut(); });
    });
    if (joined_ == 0) return End(session_->Ended());
    snapshot_ = std::move(snapshot);
    offset_ = static_cast<int64_t>(request.offset());
    end_ = request.bytes() == 0 ? static_cast<int64_t>(size)
                                : static_cast<int64_t>(request.offset() + request.bytes());
    Step();
  }

  // The session has ended. Who takes what is on its way is told so; who doesn't has to go.
  void Cut() {
    MutexLock lock(mutex_);
    if (ended_) return;
    cut_ = true;
    Wake();
    desk_.executor().PostAfter(kCutGrace, [self = self_] {
      MutexLock lock(self->mutex_);
      if (!self->ended_) self->context_->TryCancel();
    });
  }

  // Makes the next message. Only one step is posted or runs at a time.
  void Step() {
    bool gone = false;
    bool cut = false;
    bool drained = false;
    {
      MutexLock lock(mutex_);
      gone = gone_;
      // A message that is out goes first.
      if (cut_ && writing_) {
        busy_ = false;
        return;
      }
      cut = cut_;
      drained = at_end_ && !made_ && !writing_;
    }
    if (gone && !cut) return End(absl::CancelledError("the client is gone"));
    if (drained && !gone) return End(absl::OkStatus());
    if (cut) return End(session_->Ended());
    session_->Touch(SteadyNow());
    const int64_t size = std::min(kDownloadBytes, end_ - offset_);
    grpc::ByteBuffer bytes = ChunkBytes(snapshot_, offset_, size, first_);
    first_ = false;
    offset_ += size;
    const absl::Duration pause = session_->PauseAfter(size);
    MutexLock lock(mutex_);
    next_.Swap(&bytes);
    made_ = true;
    at_end_ = offset_ == end_;
    if (!writing_ && !gone_) WriteOn();
    if (pause <= absl::ZeroDuration()) return GoOn();
    desk_.executor().PostAfter(pause, [self = self_] {
      MutexLock lock(self->mutex_);
      self->GoOn();
    });
  }

  void GoOn() BEAMD_REQUIRES(mutex_) {
    busy_ = false;
    Wake();
  }

  void WriteOn() BEAMD_REQUIRES(mutex_) {
    bytes_.Swap(&next_);
    made_ = false;
    writing_ = true;
    StartWrite(&bytes_);
  }

  // There is a message to make, or nothing left to wait for.
  bool HasStep() const BEAMD_REQUIRES(mutex_) {
    const bool makes = !made_ && !at_end_ && !cut_;
    return makes || (!writing_ && (gone_ || cut_ || (at_end_ && !made_)));
  }
  void Wake() BEAMD_REQUIRES(mutex_) {
    if (busy_ || ended_ || !HasStep()) return;
    busy_ = true;
    desk_.executor().Post([self = self_] { self->Step(); });
  }

  void End(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      ended_ = true;
    }
    if (joined_ != 0) session_->Quit(joined_);
    desk_.Leave(visit_, status);
    snapshot_ = {};
    Finish(ToGrpcStatus(status));
  }

  SessionTable& sessions_;
  Desk& desk_;
  grpc::CallbackServerContext* const context_;
  Visit visit_;
  std::shared_ptr<DownloadReactor> self_;
  // Of the steps.
  std::shared_ptr<Session> session_;
  uint64_t joined_ = 0;
  BufferSnapshot snapshot_;
  int64_t offset_ = 0, end_ = 0;
  bool first_ = true;

  Mutex mutex_;
  grpc::ByteBuffer bytes_;  // of the write that is out
  grpc::ByteBuffer next_;   // made_: waits for that
  bool made_ BEAMD_GUARDED_BY(mutex_) = false;
  bool writing_ BEAMD_GUARDED_BY(mutex_) = false;
  bool at_end_ BEAMD_GUARDED_BY(mutex_) = false;  // the last message was made
  bool gone_ BEAMD_GUARDED_BY(mutex_) = false;    // the client
  bool cut_ BEAMD_GUARDED_BY(mutex_) = false;     // the session has ended
  bool busy_ BEAMD_GUARDED_BY(mutex_) = true;     // a step is posted, or runs
  bool ended_ BEAMD_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* StartUpload(SessionTable& sessions, Desk& desk,
                                                       grpc::CallbackServerContext* context,
                                                       grpc::ByteBuffer* response) {
  return UploadReactor::Start(sessions, desk, context, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartDownload(SessionTable& sessions, Desk& desk,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) {
  return DownloadReactor::Start(sessions, desk, context, *request);
}

}  // namespace beamd
