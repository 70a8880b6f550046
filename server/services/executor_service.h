// The Executor service: sessions, their buffers, and tensor graphs run on them.
#pragma once

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/executor.grpc.pb.h"
#include "server/services/desk.h"
#include "server/services/services.h"
#include "server/sessions/session_table.h"

namespace beamd {

class ExecutorService final : public v1::Executor::WithRawCallbackMethod_OpenSession<
                                  v1::Executor::WithRawCallbackMethod_KeepAlive<
                                      v1::Executor::WithRawCallbackMethod_CloseSession<
                                          v1::Executor::WithRawCallbackMethod_BeginUpload<
                                              v1::Executor::WithRawCallbackMethod_Upload<
                                                  v1::Executor::WithRawCallbackMethod_Download<
                                                      v1::Executor::WithRawCallbackMethod_Free<
                                                          v1::Executor::WithRawCallbackMethod_Run<
                                                              v1::Executor::Service>>>>>>>> {
 public:
  ExecutorService(SessionTable& sessions, Desk& desk) : sessions_(sessions), desk_(desk) {}
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

 private:
  SessionTable& sessions_;
  Desk& desk_;
};

}  // namespace beamd
