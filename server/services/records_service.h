// The Records service: what is stored, for people, for jobs of many ranks, and for other daemons.
#pragma once

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"
#include "server/services/desk.h"
#include "server/store/store.h"
#include "server/tuning/tuner.h"

namespace beamd {

class RecordsService final
    : public v1::Records::WithRawCallbackMethod_List<
          v1::Records::WithRawCallbackMethod_Get<v1::Records::WithRawCallbackMethod_Resolve<
              v1::Records::WithRawCallbackMethod_Explain<v1::Records::WithRawCallbackMethod_Export<
                  v1::Records::WithRawCallbackMethod_Import<v1::Records::Service>>>>>> {
 public:
  RecordsService(const Tuner& tuner, Store& store, Desk& desk)
      : tuner_(tuner), store_(store), desk_(desk) {}
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Resolve(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Export(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Import(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* response) override;

 private:
  const Tuner& tuner_;
  Store& store_;
  Desk& desk_;
};

}  // namespace beamd
