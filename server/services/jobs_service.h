// The Jobs service: what the daemon searches for, and what became of it.
#pragma once

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/jobs.grpc.pb.h"
#include "server/services/desk.h"
#include "server/tuning/tuner.h"

namespace beamd {

class JobsService final
    : public v1::Jobs::WithRawCallbackMethod_List<
          v1::Jobs::WithRawCallbackMethod_Get<v1::Jobs::WithRawCallbackMethod_Watch<
              v1::Jobs::WithRawCallbackMethod_Cancel<v1::Jobs::Service>>>> {
 public:
  JobsService(Tuner& tuner, Desk& desk) : tuner_(tuner), desk_(desk) {}
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;

 private:
  Tuner& tuner_;
  Desk& desk_;
};

}  // namespace beamd
