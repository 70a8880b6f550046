#include "server/services/push_stream.h"

#include <utility>

#include "server/services/reply.h"

namespace beamd {
namespace {

// One of a read and a step on the executor is under way at any time.
class PushReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PushReactor(const char* method, PushSink sink, Desk& desk, grpc::CallbackServerContext* context,
              grpc::ByteBuffer* response)
      : sink_(std::move(sink)),
        desk_(desk),
        response_(response),
        visit_(desk.EnterStream(*context, method)) {
    if (!visit_.admitted.ok()) {
      End(visit_.admitted);
      return;
    }
    StartRead(&bytes_);
  }

  void OnReadDone(bool ok) override {
    desk_.executor().Post([this, ok] {
      if (!ok) {
        *response_ = ToBytes(sink_.answer());
        return End(absl::OkStatus());
      }
      const absl::Status status = sink_.take(bytes_);
      if (!status.ok()) return End(status);
      StartRead(&bytes_);
    });
  }
  void OnDone() override { delete this; }

 private:
  void End(const absl::Status& status) {
    if (visit_.admitted.ok()) sink_.name(visit_.object);
    desk_.Leave(visit_, status);
    Finish(ToGrpcStatus(status));
  }

  const PushSink sink_;
  Desk& desk_;
  grpc::ByteBuffer* const response_;
  Visit visit_;
  grpc::ByteBuffer bytes_;  // of the read that is out
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* StartPushStream(const char* method, PushSink sink,
                                                           Desk& desk,
                                                           grpc::CallbackServerContext* context,
                                                           grpc::ByteBuffer* response) {
  return new PushReactor(method, std::move(sink), desk, context, response);
}

}  // namespace beamd
