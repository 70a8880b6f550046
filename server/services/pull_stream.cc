#include "server/services/pull_stream.h"

#include <utility>

#include "server/services/reply.h"

namespace beamd {
namespace {

// At most one of a step on the executor and a write is under way, so that what a step leaves is
// there for the next without a lock; OnDone comes behind both.
class PullReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  PullReactor(const char* method, PullSource source, Desk& desk,
              grpc::CallbackServerContext* context, const grpc::ByteBuffer& request)
      : desk_(desk), visit_(desk.EnterStream(*context, method)) {
    if (!visit_.admitted.ok()) {
      End(visit_.admitted);
      return;
    }
    desk_.executor().Post([this, source = std::move(source), request] {
      absl::StatusOr<NextMessage> next = source(request, visit_.object);
      if (!next.ok()) return End(next.status());
      next_ = *std::move(next);
      Step();
    });
  }

  void OnWriteDone(bool ok) override {
    desk_.executor().Post([this, ok] {
      if (!ok) return End(absl::CancelledError("the client is gone"));
      Step();
    });
  }
  void OnDone() override { delete this; }

 private:
  void Step() {
    absl::StatusOr<std::unique_ptr<google::protobuf::Message>> message = next_();
    if (!message.ok()) return End(message.status());
    if (*message == nullptr) return End(absl::OkStatus());
    bytes_ = ToBytes(**message);
    StartWrite(&bytes_);
  }

  void End(const absl::Status& status) {
    desk_.Leave(visit_, status);
    next_ = nullptr;
    Finish(ToGrpcStatus(status));
  }

  Desk& desk_;
  Visit visit_;
  NextMessage next_;
  grpc::ByteBuffer bytes_;  // of the write that is out
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartPullStream(const char* method, PullSource source,
                                                            Desk& desk,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request) {
  return new PullReactor(method, std::move(source), desk, context, *request);
}

}  // namespace beamd
