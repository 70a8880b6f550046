// The stream of a Batches.Tune call: items in, what becomes of them out.
#pragma once

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/batch.grpc.pb.h"
#include "server/services/desk.h"
#include "server/tuning/batch.h"
#include "server/tuning/tuner.h"

namespace beamd {

class BatchesService final : public v1::Batches::WithRawCallbackMethod_Tune<v1::Batches::Service> {
 public:
  BatchesService(Tuner& tuner, BatchOptions options, Desk& desk)
      : tuner_(tuner), options_(options), desk_(desk) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Tune(
      grpc::CallbackServerContext* context) override;

 private:
  Tuner& tuner_;
  const BatchOptions options_;
  Desk& desk_;
};

}  // namespace beamd
