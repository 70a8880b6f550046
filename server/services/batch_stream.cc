#include "server/services/batch_stream.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/mutex.h"
#include "grpcpp/alarm.h"
#include "server/services/acted_on.h"
#include "server/services/reply.h"
#include "server/services/tune_stream.h"

namespace beamd {
namespace {

using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// How often the batch is looked at when nothing says that there is news: so late it may see that its
// budget is over.
constexpr std::chrono::milliseconds kLookEvery{100};
// For how long the first item of who may not tune is waited for, by whose name the audit knows it.
constexpr absl::Duration kRefusedWait = absl::Seconds(1);

// Held by the reactor, by the batch's callback, by its alarm and by the executor's work. One read
// is out until the client is done; one write at most.
class BatchStream : public std::enable_shared_from_this<BatchStream> {
 public:
  BatchStream(Desk& desk, grpc::CallbackServerContext* context, Reactor* reactor)
      : desk_(desk), visit_(desk.EnterStream(*context, "Batches.Tune")), reactor_(reactor) {}

  void Start(Tuner& tuner, const BatchOptions& options) {
    tuner_ = &tuner;
    if (!visit_.admitted.ok() && !absl::IsPermissionDenied(visit_.admitted)) {
      return End(visit_.admitted);
    }
    if (visit_.admitted.ok()) MakeBatch(options);
    reactor_->StartRead(&in_);
    SetAlarm();
  }

  void MakeBatch(const BatchOptions& options) {
    batch_ = std::make_unique<Batch>(*tuner_, visit_.caller(), options, [self = weak_from_this()] {
      if (const auto stream = self.lock()) stream->PostPump();
    });
  }

  void Read(bool ok) {
    desk_.executor().Post([self = shared_from_this(), ok] { self->Take(ok); });
  }
  void Written(bool ok) {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      cancelled_ |= !ok;
    }
    PostPump();
  }
  void Cancel() {
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
    }
    PostPump();
  }
  // The call is over; the reactor goes, and the batch's jobs are left.
  void Done() {
    std::unique_ptr<grpc::Alarm> alarm;
    {
      MutexLock lock(mutex_);
      reactor_ = nullptr;
      alarm = std::move(alarm_);
    }
    // On the executor, where the batch may be in use.
    desk_.executor().Post([self = shared_from_this()] {
      MutexLock lock(self->pumping_);
      self->batch_.reset();
    });
  }

 private:
  void Take(bool ok) {
    if (!visit_.admitted.ok()) return TakeRefused(ok);
    if (ok) {
      v1::TuneBatchRequest request;
      absl::Status status = ParseRequest(in_, request);
      MutexLock pumping(pumping_);
      if (batch_ == nullptr) return;
      const bool item = request.has_item();
      if (status.ok()) status = batch_->Add(std::move(request));
      if (!status.ok()) {
        NameRead();
        return End(status);
      }
      came_ += item ? 1 : 0;
      ReadOn();
    } else {
      MutexLock pumping(pumping_);
      if (batch_ != nullptr) batch_->Close();
    }
    PostPump();
  }

  // Who may not tune has sent `begin`, then an item.
  void TakeRefused(bool ok) {
    MutexLock pumping(pumping_);
    if (ok) NameRead();
    if (ok && ++refused_reads_ < 2) return ReadOn();
    End(visit_.admitted);
  }

  void ReadOn() {
    MutexLock lock(mutex_);
    if (reactor_ != nullptr && !finished_) reactor_->StartRead(&in_);
  }

  // What the message that was read last names, whatever is wrong with it.
  void NameRead() BEAMD_REQUIRES(pumping_) {
    NameRequest(in_, v1::TuneBatchRequest::default_instance(), visit_.object);
    v1::TuneBatchRequest request;
    if (ParseMessage(in_, request).ok() && request.has_item()) {
      NameKernel(*tuner_, request.item().request().graph(), visit_.object);
    }
  }

  void PostPump() {
    {
      MutexLock lock(mutex_);
      if (posted_) return;
      posted_ = true;
    }
    desk_.executor().Post([self = shared_from_this()] { self->Pump(); });
  }

  void Pump() {
    MutexLock pumping(pumping_);
    {
      MutexLock lock(mutex_);
      posted_ = false;
      if (writing_ || finished_ || reactor_ == nullptr) return;
    }
    if (!visit_.admitted.ok()) {
      if (absl::Now() - visit_.began >= kRefusedWait) End(visit_.admitted);
      return;
    }
    if (batch_ == nullptr) return;
    {
      mutex_.Lock();
      const bool cancelled = cancelled_;
      mutex_.Unlock();
      if (cancelled) return End(absl::CancelledError("the client is gone"));
    }
    const std::optional<Batch::News> news = batch_->Next();
    if (news) {
      if (news->event.has_accepted()) NoteItem(news->event);
      if (news->event.has_error()) NoteFailed(news->event, *news->item);
      MutexLock lock(mutex_);
      writing_ = true;
      out_ = ToBytes(news->event);
      reactor_->StartWrite(&out_);
    } else if (batch_->done()) {
      End(absl::OkStatus());
    }
  }

  void NoteItem(const v1::TuneBatchEvent& event) {
    AuditObject object;
    SetNamed(object, "item", event.id());
    NameActedOn(event.accepted(), object);
    desk_.Began(visit_, object, event.accepted());
    ++accepted_;
  }

  void NoteFailed(const v1::TuneBatchEvent& event, const v1::TuneBatchItem& item) {
    AuditObject object;
    SetNamed(object, "item", event.id());
    NameActedOn(item.request(), object);
    NameKernel(*tuner_, item.request().graph(), object);
    desk_.PartFailed(visit_, object, static_cast<absl::StatusCode>(event.code()),
                     event.error().reason());
    ++failed_;
  }

  void End(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      if (finished_ || reactor_ == nullptr) return;
      finished_ = true;
    }
    if (visit_.admitted.ok()) {
      SetNamed(visit_.object, "items", absl::StrCat(came_.load()));
      SetNamed(visit_.object, "accepted", absl::StrCat(accepted_.load()));
      SetNamed(visit_.object, "failed", absl::StrCat(failed_.load()));
    }
    desk_.Leave(visit_, status);
    reactor_->Finish(ToGrpcStatus(status));
  }

  void SetAlarm() {
    MutexLock lock(mutex_);
    if (finished_ || reactor_ == nullptr) return;
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(std::chrono::system_clock::now() + kLookEvery,
                [self = shared_from_this()](bool due) {
                  if (!due) return;
                  self->PostPump();
                  self->SetAlarm();
                });
  }

  Desk& desk_;
  Tuner* tuner_ = nullptr;
  Visit visit_;
  std::atomic<int64_t> came_ = 0, accepted_ = 0, failed_ = 0;  // items
  Mutex pumping_;  // held over what uses the batch; before mutex_
  std::unique_ptr<Batch> batch_ BEAMD_GUARDED_BY(pumping_);
  int refused_reads_ BEAMD_GUARDED_BY(pumping_) = 0;
  Mutex mutex_;
  Reactor* reactor_ BEAMD_GUARDED_BY(mutex_);
  bool writing_ BEAMD_GUARDED_BY(mutex_) = false;
  bool finished_ BEAMD_GUARDED_BY(mutex_) = false;
  bool cancelled_ BEAMD_GUARDED_BY(mutex_) = false;
  bool posted_ BEAMD_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer in_, out_;  // of the read and the write that are out
  std::unique_ptr<grpc::Alarm> alarm_ BEAMD_GUARDED_BY(mutex_);
};

class BatchReactor final : public Reactor {
 public:
  BatchReactor(Tuner& tuner, const BatchOptions& options, Desk& desk,
               grpc::CallbackServerContext* context)
      : stream_(std::make_shared<BatchStream>(desk, context, this)) {
    stream_->Start(tuner, options);
  }
  void OnReadDone(bool ok) override { stream_->Read(ok); }
  void OnWriteDone(bool ok) override { stream_->Written(ok); }
  void OnCancel() override { stream_->Cancel(); }
  void OnDone() override {
    stream_->Done();
    delete this;
  }

 private:
  const std::shared_ptr<BatchStream> stream_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* BatchesService::Tune(
    grpc::CallbackServerContext* context) {
  return new BatchReactor(tuner_, options_, desk_, context);
}

}  // namespace beamd
