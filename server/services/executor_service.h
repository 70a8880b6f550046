// The Executor service: sessions, their buffers, and tensor graphs run on them.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/executor.grpc.pb.h"
#include "server/services/desk.h"
#include "server/services/services.h"
#include "server/sessions/session_table.h"

namespace beamd {

class ExecutorService final
    : public v1::Executor::WithRawCallbackMethod_OpenSession<
          v1::Executor::WithRawCallbackMethod_KeepAlive<
              v1::Executor::WithRawCallbackMethod_CloseSession<
                  v1::Executor::WithRawCallbackMethod_BeginUpload<
                      v1::Executor::WithRawCallbackMethod_Upload<
                          v1::Executor::WithRawCallbackMethod_Download<
                              v1::Executor::WithRawCallbackMethod_Free<
                                  v1::Executor::WithRawCallbackMethod_Run<
                                      v1::Executor::WithRawCallbackMethod_ScheduleModel<
                                          v1::Executor::Service>>>>>>>>> {
 public:
  ExecutorService(SessionTable& sessions, Tuner& tuner, Supervisor& supervisor, const Fleet& fleet,
                  Desk& desk)
      : sessions_(sessions), tuner_(tuner), supervisor_(supervisor), fleet_(fleet), desk_(desk) {}
  RawUnary OpenSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  RawUnary KeepAlive(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                     grpc::ByteBuffer* response) override;
  RawUnary CloseSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* response) override;
  RawUnary BeginUpload(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                       grpc::ByteBuffer* response) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  RawUnary Free(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  RawUnary Run(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
               grpc::ByteBuffer* response) override;
  RawUnary ScheduleModel(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                         grpc::ByteBuffer* response) override;

 private:
  absl::Status SubmitSchedule(const v1::ScheduleModelRequest& request,
                              const std::shared_ptr<UnaryCall>& call);
  absl::Status DescribeModel(const v1::ScheduleModelRequest& request, const std::string& device,
                             const TaskEnd& end, v1::ScheduleModelResponse& response);

  SessionTable& sessions_;
  Tuner& tuner_;
  Supervisor& supervisor_;
  const Fleet& fleet_;
  Desk& desk_;
};

}  // namespace beamd
