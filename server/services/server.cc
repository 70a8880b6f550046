#include "server/services/server.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "server/services/acceptor.h"
#include "server/services/admin_service.h"
#include "server/services/batch_stream.h"
#include "server/services/executor_service.h"
#include "server/services/jobs_service.h"
#include "server/services/local_listener.h"
#include "server/services/records_service.h"
#include "server/services/services.h"

namespace beamd {
namespace {

// What calls that are still open get after the drain before they are cut.
constexpr std::chrono::seconds kLastCalls{2};

// Memory of all requests that are being received: so many of the largest, but not less than this.
constexpr size_t kLargestMessages = 8;
constexpr size_t kLeastQuota = size_t{256} << 20;

std::vector<std::string> ProtectionOf(const ServerOptions& options) {
  std::vector<std::string> protection;
  if (options.certificates != nullptr) protection.emplace_back("tls");
  if (options.client_certificates) protection.emplace_back("client_certificates");
  if (options.access_file) protection.emplace_back("access_file");
  if (options.desk.audit != nullptr) protection.emplace_back("audit");
  return protection;
}

// Room for two of the largest items.
BatchOptions BatchOptionsOf(const ServerOptions& from) {
  BatchOptions options{.parallel = from.batch_parallel};
  options.bytes_max = std::max(options.bytes_max, 2 * int64_t{from.message_bytes});
  return options;
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, Tuner& tuner, Store& store, SessionTable& sessions,
             Supervisor& supervisor, const Fleet& fleet)
      : tuner_(tuner),
        sessions_(sessions),
        desk_(options.desk),
        tuner_service_(tuner, store, options.lookup_cache_bytes, desk_),
        records_(tuner, store, desk_),
        devices_(store, supervisor, fleet, options.build, ProtectionOf(options), desk_),
        inspector_(tuner, supervisor, fleet, desk_),
        jobs_(tuner, desk_),
        batches_(tuner, BatchOptionsOf(options), desk_),
        admin_(store, desk_),
        executor_(sessions, tuner, supervisor, fleet, desk_) {}

  ~GrpcServer() override {
    acceptor_ = nullptr;
    local_ = nullptr;
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  absl::Status Listen(const ServerOptions& options) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    BEAMD_ASSIGN_OR_RETURN(const TcpListeners listeners, ListenTcp(options.listen));
    to_grpc_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        options.certificates == nullptr
            ? grpc::InsecureServerCredentials()
            :  // A client without a certificate has a token, which only an access file knows.
            options.certificates->ServerCredentials(!options.access_file));
    builder.SetMaxReceiveMessageSize(options.message_bytes);
    builder.SetMaxSendMessageSize(-1);
    // A client whose host answers and which itself doesn't, or one behind a proxy, is noticed too.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    // Else there are two in a row, and no more while the stream is silent.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // gRPC looks at a message's length once it has the whole of it.
    grpc::ResourceQuota quota;
    quota.Resize(
        std::max(kLeastQuota, kLargestMessages * static_cast<size_t>(options.message_bytes)));
    builder.SetResourceQuota(quota);
    builder.RegisterService(&tuner_service_);
    builder.RegisterService(&records_);
    builder.RegisterService(&devices_);
    builder.RegisterService(&inspector_);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&batches_);
    builder.RegisterService(&admin_);
    builder.RegisterService(&executor_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC doesn't start");
    // Not before: gRPC closes what comes earlier.
    const auto take = [this](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      to_grpc_->HandleNewConnection(&connection);
    };
    // The buffers that sessions may still have.
    const auto promised = [this] {
      return sessions_.limits().total_buffers - sessions_.load().buffers;
    };
    BEAMD_ASSIGN_OR_RETURN(acceptor_, Acceptor::Start(listeners.sockets, take, promised));
    if (!options.unix_socket.empty()) {
      BEAMD_ASSIGN_OR_RETURN(local_, LocalListener::Start(options.unix_socket, *server_,
                                                          desk_.local_users(), promised));
    }
    for (const char* service :
         {"Tuner", "Records", "Devices", "Inspector", "Jobs", "Batches", "Admin", "Executor"}) {
      server_->GetHealthCheckService()->SetServingStatus(absl::StrCat("beamd.v1.", service), true);
    }
    const absl::string_view listen = options.listen;
    const size_t colon = listen.rfind(':');
    address_ = absl::StrCat(listen.substr(0, colon), ":", listeners.port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  absl::Duration Stalled() const override { return desk_.executor().Stalled(); }

  void ShowStore(bool writable) override {
    server_->GetHealthCheckService()->SetServingStatus("beamd.v1.Store", writable);
  }

  void Drain(absl::Duration grace) override {
    local_ = nullptr;
    server_->GetHealthCheckService()->SetServingStatus(false);
    tuner_.Drain(SteadyNow() + grace);
    sessions_.CloseAll();
    acceptor_ = nullptr;
    server_->Shutdown(std::chrono::system_clock::now() + kLastCalls);
    server_->Wait();
  }

 private:
  Tuner& tuner_;
  SessionTable& sessions_;
  Desk desk_;
  TunerService tuner_service_;
  RecordsService records_;
  DevicesService devices_;
  InspectorService inspector_;
  JobsService jobs_;
  BatchesService batches_;
  AdminService admin_;
  ExecutorService executor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> to_grpc_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<LocalListener> local_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Tuner& tuner,
                                                      Store& store, SessionTable& sessions,
                                                      Supervisor& supervisor, const Fleet& fleet) {
  auto server = std::make_unique<GrpcServer>(options, tuner, store, sessions, supervisor, fleet);
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

}  // namespace beamd
