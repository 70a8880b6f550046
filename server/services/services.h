// The services that are one call each. Handlers parse, call, answer; see reply.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/admin.grpc.pb.h"
#include "proto/beamd/v1/tuning.grpc.pb.h"
#include "server/services/desk.h"
#include "server/services/lookup_cache.h"
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
  TunerService(Tuner& tuner, const Store& store, int64_t lookup_cache_bytes, Desk& desk)
      : tuner_(tuner), store_(store), cache_(lookup_cache_bytes), desk_(desk) {}
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Tune(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  RawUnary Lookup(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;

 private:
  struct LookupCall;
  // Some of the queries; then the rest, at the caller's next turn.
  void Answer(const std::shared_ptr<LookupCall>& lookup);
  void Count(const Matches& matches) const;

  Tuner& tuner_;
  const Store& store_;
  LookupCache<grpc::ByteBuffer> cache_;
  Desk& desk_;
};

class DevicesService final : public v1::Devices::WithRawCallbackMethod_List<
                                 v1::Devices::WithRawCallbackMethod_Release<v1::Devices::Service>> {
 public:
  DevicesService(const Store& store, Supervisor& supervisor, const Fleet& fleet, std::string build,
                 std::vector<std::string> protection, Desk& desk)
      : store_(store),
        supervisor_(supervisor),
        fleet_(fleet),
        build_(std::move(build)),
        protection_(std::move(protection)),
        desk_(desk) {}
  RawUnary List(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  RawUnary Release(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                   grpc::ByteBuffer* response) override;

 private:
  void Describe(const FleetDevice& from, v1::Device& to) const;

  const Store& store_;
  Supervisor& supervisor_;
  const Fleet& fleet_;
  const std::string build_;
  const std::vector<std::string> protection_;
  Desk& desk_;
};

class InspectorService final
    : public v1::Inspector::WithRawCallbackMethod_Show<
          v1::Inspector::WithRawCallbackMethod_Replay<v1::Inspector::Service>> {
 public:
  InspectorService(Tuner& tuner, Supervisor& supervisor, const Fleet& fleet, Desk& desk)
      : tuner_(tuner), supervisor_(supervisor), fleet_(fleet), desk_(desk) {}
  RawUnary Show(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  RawUnary Replay(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;

 private:
  absl::Status SubmitShow(const v1::ShowRequest& request, const std::shared_ptr<UnaryCall>& call);

  Tuner& tuner_;
  Supervisor& supervisor_;
  const Fleet& fleet_;
  Desk& desk_;
  std::atomic<bool> replaying_ = false;
};

}  // namespace beamd
