#include "server/services/server.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "server/services/executor.h"
#include "server/services/services.h"

namespace beamd {
namespace {

// What calls that are still open get after the drain before they are cut.
constexpr std::chrono::seconds kLastCalls{2};

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, Tuner& tuner, Store& store, Supervisor& supervisor,
             const Fleet& fleet)
      : tuner_(tuner),
        executor_(options.handler_threads),
        tuner_service_(tuner, executor_),
        records_(store, executor_),
        devices_(supervisor, fleet, options.build, executor_),
        inspector_(tuner, supervisor, fleet, executor_) {}

  ~GrpcServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  absl::Status Listen(const ServerOptions& options) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
    // Else a second server would share the port without a word.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(options.message_bytes_max);
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(&tuner_service_);
    builder.RegisterService(&records_);
    builder.RegisterService(&devices_);
    builder.RegisterService(&inspector_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat("can't listen on ", options.listen));
    }
    for (const char* service : {"Tuner", "Records", "Devices", "Inspector"}) {
      server_->GetHealthCheckService()->SetServingStatus(absl::StrCat("beamd.v1.", service), true);
    }
    const absl::string_view listen = options.listen;
    const size_t colon = listen.rfind(':');
    address_ = absl::StrCat(listen.substr(0, colon), ":", port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Drain(absl::Duration grace) override {
    server_->GetHealthCheckService()->SetServingStatus(false);
    tuner_.Drain(absl::Now() + grace);
    server_->Shutdown(std::chrono::system_clock::now() + kLastCalls);
    server_->Wait();
  }

 private:
  Tuner& tuner_;
  Executor executor_;
  TunerService tuner_service_;
  RecordsService records_;
  DevicesService devices_;
  InspectorService inspector_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Tuner& tuner,
                                                      Store& store, Supervisor& supervisor,
                                                      const Fleet& fleet) {
  auto server = std::make_unique<GrpcServer>(options, tuner, store, supervisor, fleet);
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

}  // namespace beamd
