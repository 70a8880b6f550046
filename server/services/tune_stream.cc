#include "server/services/tune_stream.h"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "grpcpp/alarm.h"
#include "server/services/acted_on.h"
#include "server/services/reply.h"
#include "server/services/validate.h"

namespace beamd {
namespace {

// Silence after which a stream says that its job lives.
constexpr absl::Duration kHeartbeat = absl::Seconds(1);
// A client whose deadline passes may say so before the server's own clock does.
constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(200);

// Steps are taken by Pump: at most one write is out at a time, and Finish comes once, after the
// last. It is held by the reactor, by the job's callback, by its alarm and by the executor's work,
// any of which may come last.
class TuneStream : public std::enable_shared_from_this<TuneStream> {
 public:
  TuneStream(const char* method, std::unique_ptr<google::protobuf::Message> request,
             StreamSource source, RefusedNamer namer, Desk& desk,
             grpc::CallbackServerContext* context,
             grpc::ServerWriteReactor<grpc::ByteBuffer>* reactor)
      : request_(std::move(request)),
        source_(std::move(source)),
        namer_(std::move(namer)),
        desk_(desk),
        visit_(desk.EnterStream(*context, method)),
        reactor_(reactor) {}

  // On the executor.
  void Take(const grpc::ByteBuffer& bytes) {
    if (!absl::IsUnauthenticated(visit_.admitted)) NameRequest(bytes, *request_, visit_.object);
    if (visit_.admitted.ok()) {
      Start(bytes);
    } else {
      Refuse(bytes);
    }
  }

  void Cancel() {
    std::unique_ptr<JobWatch> watch;
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
      watch = std::move(watch_);
      kept_ = watch != nullptr && watch->job().kept();
    }
    if (watch != nullptr) {
      const bool late = absl::Now() >= visit_.deadline - kDeadlineSlack;
      watch->Leave(late ? StopReason::kDeadline : StopReason::kCancelled);
    }
    Pump();
  }

  void Written(bool ok) {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      last_write_ = SteadyNow();
      if (!ok) cancelled_ = true;
    }
    Pump();
  }

  // The call is over; the reactor goes.
  void Done() {
    std::unique_ptr<JobWatch> watch;
    std::unique_ptr<grpc::Alarm> alarm;
    MutexLock lock(mutex_);
    reactor_ = nullptr;
    watch = std::move(watch_);
    alarm = std::move(alarm_);
  }

 private:
  // Not let in. A role that is too low is a person's: what was wanted is looked at as closely as
  // what was let in. Other refusals guard the daemon, and cost next to nothing.
  void Refuse(const grpc::ByteBuffer& bytes) {
    if (absl::IsPermissionDenied(visit_.admitted) && ParseMessage(bytes, *request_).ok()) {
      NameRefused();
    }
    {
      MutexLock lock(mutex_);
      started_ = true;
      end_ = visit_.admitted;
    }
    Pump();
  }

  void Start(const grpc::ByteBuffer& bytes) {
    const bool gone = [&] {
      MutexLock lock(mutex_);
      started_ = cancelled_;
      return cancelled_;
    }();
    // Before anything was done for it.
    if (gone) return Pump();
    absl::StatusOr<Tuner::Answer> answer = Answer(bytes);
    if (answer.ok()) {
      NameActedOn(answer->accepted, visit_.object);
      // Before the client is told.
      if (!answer->accepted.job().empty()) desk_.Began(visit_, visit_.object, answer->accepted);
    }
    {
      MutexLock lock(mutex_);
      started_ = true;
      if (!answer.ok()) {
        end_ = answer.status();
      } else {
        *outbox_.emplace_back().mutable_accepted() = std::move(answer->accepted);
        watch_ = std::move(answer->watch);
        if (answer->result) {
          NameActedOn(*answer->result, visit_.object);
          *outbox_.emplace_back().mutable_result() = *std::move(answer->result);
          end_ = absl::OkStatus();
        }
      }
    }
    Pump();
    SetAlarm();
  }

  absl::StatusOr<Tuner::Answer> Answer(const grpc::ByteBuffer& bytes) {
    if (absl::Now() >= visit_.deadline) {
      return absl::DeadlineExceededError("the deadline has passed");
    }
    BEAMD_RETURN_IF_ERROR(ParseMessage(bytes, *request_));
    const absl::Status known = CheckKnown(*request_);
    absl::StatusOr<Tuner::Answer> answer = known.ok() ? Ask() : known;
    if (!answer.ok()) NameRefused();
    return answer;
  }

  absl::StatusOr<Tuner::Answer> Ask() {
    return source_(*request_, visit_.caller(), [self = weak_from_this()] {
      if (const auto stream = self.lock()) stream->Pump();
    });
  }

  void NameRefused() {
    if (namer_ != nullptr) namer_(*request_, visit_.object);
  }

  void Pump() {
    std::optional<v1::TuneEvent> event;
    std::optional<absl::Status> finish;
    grpc::ServerWriteReactor<grpc::ByteBuffer>* reactor = nullptr;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_ || !started_) return;
      if (outbox_.empty() && !end_ && !cancelled_) TakeNews();
      if (cancelled_) {
        // It let go of what goes on without it.
        finish = !visit_.admitted.ok() ? visit_.admitted
                 : kept_               ? absl::OkStatus()
                                       : absl::CancelledError("the client is gone");
      } else if (!outbox_.empty()) {
        event = std::move(outbox_.front());
        outbox_.pop_front();
      } else {
        finish = end_;
      }
      writing_ = event.has_value();
      finished_ = finish.has_value();
      if (event) bytes_ = ToBytes(*event);
      reactor = reactor_;
    }
    // Without the lock: gRPC may call Written before these return.
    if (event) reactor->StartWrite(&bytes_);
    if (finish) {
      desk_.Leave(visit_, *finish);
      reactor->Finish(ToGrpcStatus(*finish));
    }
  }

  void TakeNews() BEAMD_REQUIRES(mutex_) {
    if (watch_ == nullptr) return;
    Job::News news = watch_->job().Look(seen_);
    seen_ = news.number;
    if (news.progress) {
      last_progress_ = *news.progress;
      *outbox_.emplace_back().mutable_progress() = *std::move(news.progress);
    }
    if (!news.end) return;
    end_ = news.end->status();
    if (!news.end->ok()) return;
    v1::TuneResult& result = *outbox_.emplace_back().mutable_result();
    result = **std::move(news.end);
    result.set_trace_id(visit_.trace.id);
    NameActedOn(result, visit_.object);
  }

  void SetAlarm() {
    MutexLock lock(mutex_);
    if (finished_ || reactor_ == nullptr) return;
    // A new one each time: setting an alarm from its own callback would destroy what runs.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kHeartbeat),
                [self = shared_from_this()](bool due) {
                  if (!due) return;
                  self->Beat();
                  self->SetAlarm();
                });
  }

  void Beat() {
    {
      MutexLock lock(mutex_);
      const absl::Time now = SteadyNow();
      if (watch_ == nullptr || writing_ || now - last_write_ < kHeartbeat / 2) return;
      v1::TuneProgress& progress = *outbox_.emplace_back().mutable_progress();
      progress = last_progress_;
      progress.set_heartbeat(true);
      progress.set_job(watch_->job().id());
      progress.set_elapsed_s(absl::ToDoubleSeconds(absl::Now() - visit_.began));
      progress.clear_debug();
    }
    Pump();
  }

  const std::unique_ptr<google::protobuf::Message> request_;
  const StreamSource source_;
  const RefusedNamer namer_;
  Desk& desk_;
  // Its object is filled in by Start, then by what takes the job's end: never twice at once.
  Visit visit_;
  Mutex mutex_;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* reactor_ BEAMD_GUARDED_BY(mutex_);
  std::unique_ptr<JobWatch> watch_ BEAMD_GUARDED_BY(mutex_);
  uint64_t seen_ BEAMD_GUARDED_BY(mutex_) = 0;
  v1::TuneProgress last_progress_ BEAMD_GUARDED_BY(mutex_);
  std::deque<v1::TuneEvent> outbox_ BEAMD_GUARDED_BY(mutex_);
  // How the call ends once the outbox is empty.
  std::optional<absl::Status> end_ BEAMD_GUARDED_BY(mutex_);
  absl::Time last_write_ BEAMD_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool started_ BEAMD_GUARDED_BY(mutex_) = false;
  bool writing_ BEAMD_GUARDED_BY(mutex_) = false;
  bool finished_ BEAMD_GUARDED_BY(mutex_) = false;
  bool cancelled_ BEAMD_GUARDED_BY(mutex_) = false;
  bool kept_ BEAMD_GUARDED_BY(mutex_) = false;  // the job that was watched goes on
  grpc::ByteBuffer bytes_;                      // of the write that is out
  std::unique_ptr<grpc::Alarm> alarm_ BEAMD_GUARDED_BY(mutex_);
};

class TuneReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  TuneReactor(const char* method, std::unique_ptr<google::protobuf::Message> parsed,
              StreamSource source, RefusedNamer namer, Desk& desk,
              grpc::CallbackServerContext* context, const grpc::ByteBuffer& request)
      : stream_(std::make_shared<TuneStream>(method, std::move(parsed), std::move(source),
                                             std::move(namer), desk, context, this)) {
    desk.executor().Post([stream = stream_, request] { stream->Take(request); });
  }
  void OnCancel() override { stream_->Cancel(); }
  void OnWriteDone(bool ok) override { stream_->Written(ok); }
  void OnDone() override {
    stream_->Done();
    delete this;
  }

 private:
  const std::shared_ptr<TuneStream> stream_;
};

}  // namespace

void NameKernel(const Tuner& tuner, const v1::Graph& graph, AuditObject& object) {
  const absl::StatusOr<ParsedKernel> kernel = tuner.parts().parse(graph);
  if (kernel.ok()) {
    SetNamed(object, "kernel", kernel->hash.Hex());
  } else if (graph.nodes_size() > 0) {
    SetNamed(object, "graph_nodes", absl::StrCat(graph.nodes_size()));
  }
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTuneStream(
    const char* method, std::unique_ptr<google::protobuf::Message> parsed, StreamSource source,
    RefusedNamer namer, Desk& desk, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* request) {
  return new TuneReactor(method, std::move(parsed), std::move(source), std::move(namer), desk,
                         context, *request);
}

}  // namespace beamd
