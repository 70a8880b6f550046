// The Admin service: copies of the store.
#pragma once

#include "grpcpp/grpcpp.h"
#include "proto/beamd/v1/admin.grpc.pb.h"
#include "server/services/desk.h"
#include "server/store/store.h"

namespace beamd {

class AdminService final : public v1::Admin::WithRawCallbackMethod_Backup<v1::Admin::Service> {
 public:
  // Removes what an earlier daemon left of its backups.
  AdminService(Store& store, Desk& desk);
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Backup(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request) override;

 private:
  Store& store_;
  Desk& desk_;
};

}  // namespace beamd
