#include "server/services/records_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/search/pipeline.h"
#include "server/services/acted_on.h"
#include "server/services/exporter.h"
#include "server/services/pull_stream.h"
#include "server/services/push_stream.h"
#include "server/services/reply.h"
#include "server/tuning/imported.h"

namespace beamd {
namespace {

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kLargestPage = 1000;
constexpr int kKeysMax = 10000;
// Of an import, in its answer, which a client takes up to 4 MB of.
constexpr int kRefusalsTold = 1000;
// Of an import, in the audit.
constexpr size_t kKeysNamed = 16;

absl::StatusOr<Digest> ParseDigest(const std::string& hex, const char* field) {
  absl::StatusOr<Digest> digest = Digest::FromHex(hex);
  if (digest.ok()) return digest;
  return InvalidArgument(absl::StrCat(field, " is no 64 hexadecimal digits"),
                         {.reason = "BAD_KEY", .field = field});
}

absl::Status ListRecords(Store& store, const v1::ListRecordsRequest& request,
                         v1::ListRecordsResponse& response) {
  if (!request.kernel_hash().empty()) {
    BEAMD_ASSIGN_OR_RETURN(const Digest kernel, ParseDigest(request.kernel_hash(), "kernel_hash"));
    BEAMD_ASSIGN_OR_RETURN(std::vector<v1::Record> records, store.RecordsOf(kernel));
    for (v1::Record& record : records) *response.add_records() = std::move(record);
    return absl::OkStatus();
  }
  std::optional<Digest> after;
  if (!request.page_token().empty()) {
    BEAMD_ASSIGN_OR_RETURN(after, ParseDigest(request.page_token(), "page_token"));
  }
  const uint32_t size =
      std::min(request.page_size() == 0 ? kDefaultPage : request.page_size(), kLargestPage);
  // One more than the page, to know whether there is another.
  BEAMD_ASSIGN_OR_RETURN(std::vector<v1::Record> records,
                         store.ListRecords(after, static_cast<int>(size) + 1));
  const bool more = records.size() > size;
  if (more) records.pop_back();
  if (more) response.set_next_page_token(records.back().key());
  for (v1::Record& record : records) *response.add_records() = std::move(record);
  return absl::OkStatus();
}

absl::Status GetRecord(Store& store, const v1::GetRecordRequest& request,
                       v1::GetRecordResponse& response) {
  BEAMD_ASSIGN_OR_RETURN(const Digest key, ParseDigest(request.key(), "key"));
  BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Record> record,
                         store.FindRecord(key, request.generation()));
  if (!record) {
    return WithDetail(absl::NotFoundError(absl::StrCat("no record of key ", request.key())),
                      {.reason = "NO_RECORD", .field = "key"});
  }
  BEAMD_ASSIGN_OR_RETURN(const Digest kernel, Digest::FromHex(record->kernel_hash()));
  BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Graph> graph, store.FindGraph(kernel));
  if (graph) *response.mutable_graph() = *std::move(graph);
  *response.mutable_record() = *std::move(record);
  return absl::OkStatus();
}

absl::Status Resolve(Store& store, const v1::ResolveRequest& request,
                     v1::ResolveResponse& response) {
  if (request.keys_size() > kKeysMax) {
    return InvalidArgument(
        absl::StrCat(request.keys_size(), " keys, the limit is ", kKeysMax),
        {.reason = "TOO_MANY", .field = "keys", .limit = kKeysMax, .value = request.keys_size()});
  }
  const uint64_t newest = store.sequence();
  if (request.snapshot() > newest) {
    return InvalidArgument(
        absl::StrCat("snapshot ", request.snapshot(), " is not yet: ", newest, " is the newest"),
        {.reason = "NO_SNAPSHOT",
         .field = "snapshot",
         .limit = static_cast<int64_t>(newest),
         .value = static_cast<int64_t>(request.snapshot())});
  }
  response.set_snapshot(request.snapshot() == 0 ? newest : request.snapshot());
  for (int i = 0; i < request.keys_size(); ++i) {
    BEAMD_ASSIGN_OR_RETURN(const Digest key,
                           ParseDigest(request.keys(i), absl::StrCat("keys[", i, "]").c_str()));
    BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Record> record,
                           store.FindRecordAt(key, response.snapshot()));
    v1::Record& to = *response.add_records();
    if (record) to = *std::move(record);
    to.set_key(request.keys(i));
  }
  return absl::OkStatus();
}

absl::Status Explain(Store& store, const v1::ExplainRequest& request,
                     v1::ExplainResponse& response) {
  BEAMD_ASSIGN_OR_RETURN(const Digest key, ParseDigest(request.key(), "key"));
  BEAMD_ASSIGN_OR_RETURN(std::optional<v1::Record> record,
                         store.FindRecord(key, request.generation()));
  if (!record) {
    return WithDetail(absl::NotFoundError(absl::StrCat("no record of key ", request.key())),
                      {.reason = "NO_RECORD", .field = "key"});
  }
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Store::Candidate> candidates,
                         store.CandidatesOf(record->job()));
  for (const auto& [number, from] : candidates) {
    v1::Candidate& to = *response.add_candidates();
    to.set_number(number);
    *to.mutable_opts() = from.opts();
    to.set_failure(from.failure() < kFailureCount
                       ? std::string(Name(static_cast<Failure>(from.failure())))
                       : "unknown");
    to.set_detail(from.detail());
    to.set_best_s(from.best_s());
    to.set_uops(from.uops());
    to.set_round(from.round());
    to.set_compile_s(static_cast<double>(from.compile_ns()) * 1e-9);
  }
  *response.mutable_record() = *std::move(record);
  return absl::OkStatus();
}

// With the graph in canonical form.
absl::Status CheckImport(const Tuner& tuner, const v1::ExportedRecord& from, v1::Graph& canonical) {
  BEAMD_ASSIGN_OR_RETURN(ParsedKernel kernel, tuner.parts().parse(from.graph()));
  BEAMD_RETURN_IF_ERROR(CheckImported(from.record(), kernel));
  canonical = std::move(kernel.canonical);
  return absl::OkStatus();
}

class Importer {
 public:
  Importer(const Tuner& tuner, Store& store)
      : tuner_(tuner), store_(store), before_(store.sequence()) {}

  absl::Status Take(const grpc::ByteBuffer& bytes) {
    v1::ExportedRecord from;
    const uint64_t index = index_++;
    v1::Graph canonical;
    absl::Status status = ParseRequest(bytes, from);
    if (status.ok()) status = CheckImport(tuner_, from, canonical);
    if (!status.ok()) {
      response_.set_refused_count(response_.refused_count() + 1);
      if (response_.refused_size() >= kRefusalsTold) return absl::OkStatus();
      v1::ErrorDetail& detail = *response_.add_refused();
      detail = ToErrorDetail(status);
      detail.set_field(
          absl::StrCat("records[", index, "]", detail.field().empty() ? "" : ".", detail.field()));
      return absl::OkStatus();
    }
    const std::string key = from.record().key();
    BEAMD_ASSIGN_OR_RETURN(const bool imported,
                           store_.ImportRecord(std::move(*from.mutable_record()), canonical));
    if (imported) {
      if (keys_.size() < kKeysNamed) keys_.push_back(key);
      response_.set_imported(response_.imported() + 1);
    } else {
      response_.set_kept(response_.kept() + 1);
    }
    return absl::OkStatus();
  }
  const v1::ImportResponse& response() const { return response_; }
  // The first keys, and between which of the store's sequences all of them are.
  void Name(AuditObject& object) const {
    NameActedOn(response_, object);
    if (keys_.empty()) return;
    SetNamed(object, "keys", absl::StrJoin(keys_, ","));
    SetNamed(object, "sequences", absl::StrCat(before_ + 1, "-", store_.sequence()));
  }

 private:
  const Tuner& tuner_;
  Store& store_;
  const uint64_t before_;
  uint64_t index_ = 0;
  std::vector<std::string> keys_;  // imported
  v1::ImportResponse response_;
};

}  // namespace

grpc::ServerUnaryReactor* RecordsService::List(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  return Reply<v1::ListRecordsRequest, v1::ListRecordsResponse>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Records.List"),
      [this](const auto& req, auto& resp) { return ListRecords(store_, req, resp); });
}

grpc::ServerUnaryReactor* RecordsService::Get(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return Reply<v1::GetRecordRequest, v1::GetRecordResponse>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Records.Get"),
      [this](const auto& req, auto& resp) { return GetRecord(store_, req, resp); });
}

grpc::ServerUnaryReactor* RecordsService::Resolve(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Reply<v1::ResolveRequest, v1::ResolveResponse>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Records.Resolve"),
      [this](const auto& req, auto& resp) { return beamd::Resolve(store_, req, resp); });
}

grpc::ServerUnaryReactor* RecordsService::Explain(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Reply<v1::ExplainRequest, v1::ExplainResponse>(
      std::make_shared<UnaryCall>(desk_, context, request, response, "Records.Explain"),
      [this](const auto& req, auto& resp) { return beamd::Explain(store_, req, resp); });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* RecordsService::Export(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartPullStream(
      "Records.Export",
      [this](const grpc::ByteBuffer& bytes, AuditObject&) -> absl::StatusOr<NextMessage> {
        v1::ExportRequest req;
        BEAMD_RETURN_IF_ERROR(ParseRequest(bytes, req));
        std::optional<Digest> kernel;
        if (!req.kernel_hash().empty()) {
          BEAMD_ASSIGN_OR_RETURN(kernel, ParseDigest(req.kernel_hash(), "kernel_hash"));
        }
        auto exporter = std::make_shared<Exporter>(store_, kernel);
        return [exporter] { return exporter->Next(); };
      },
      desk_, context, request);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* RecordsService::Import(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  auto importer = std::make_shared<Importer>(tuner_, store_);
  return StartPushStream(
      "Records.Import",
      {.take = [importer](const grpc::ByteBuffer& bytes) { return importer->Take(bytes); },
       .answer = [importer]() -> const google::protobuf::Message& { return importer->response(); },
       .name = [importer](AuditObject& object) { importer->Name(object); }},
      desk_, context, response);
}

}  // namespace beamd
