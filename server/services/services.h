// The services that are one call each. Handlers parse, call, answer; see reply.h.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/admin.grpc.pb.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"
#include "server/services/executor.h"
#include "server/services/reply.h"
#include "server/store/store.h"
#include "server/tuning/tuner.h"
#include "server/workers/fleet.h"
#include "server/workers/supervisor.h"

namespace beamd {

using RawUnary = grpc::ServerUnaryReactor*;

class TunerService final : public v1::Tuner::WithRawCallbackMethod_Tune<
                               v1::Tuner::WithRawCallbackMethod_Lookup<v1::Tuner::Service>> {
 public:
  TunerService(Tuner& tuner, Executor& executor) : tuner_(tuner), executor_(executor) {}
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Tune(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  RawUnary Lookup(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;

 private:
  Tuner& tuner_;
  Executor& executor_;
};

class RecordsService final : public v1::Records::WithRawCallbackMethod_List<
                                 v1::Records::WithRawCallbackMethod_Get<v1::Records::Service>> {
 public:
  RecordsService(Store& store, Executor& executor) : store_(store), executor_(executor) {}
  RawUnary List(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  RawUnary Get(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
               grpc::ByteBuffer* response) override;

 private:
  Store& store_;
  Executor& executor_;
};

class DevicesService final : public v1::Devices::WithRawCallbackMethod_List<v1::Devices::Service> {
 public:
  DevicesService(const Supervisor& supervisor, const Fleet& fleet, std::string build,
                 Executor& executor)
      : supervisor_(supervisor), fleet_(fleet), build_(std::move(build)), executor_(executor) {}
  RawUnary List(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;

 private:
  const Supervisor& supervisor_;
  const Fleet& fleet_;
  const std::string build_;
  Executor& executor_;
};

class InspectorService final
    : public v1::Inspector::WithRawCallbackMethod_Show<v1::Inspector::Service> {
 public:
  InspectorService(const Tuner& tuner, Supervisor& supervisor, const Fleet& fleet,
                   Executor& executor)
      : tuner_(tuner), supervisor_(supervisor), fleet_(fleet), executor_(executor) {}
  RawUnary Show(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;

 private:
  absl::Status SubmitShow(const v1::ShowRequest& request, const std::shared_ptr<UnaryCall>& call);

  const Tuner& tuner_;
  Supervisor& supervisor_;
  const Fleet& fleet_;
  Executor& executor_;
};

}  // namespace beamd
