#include "tests/testing/executor_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "absl/strings/substitute.h"
#include "engine/base/crc32c.h"
#include "engine/base/sha256.h"
#include "engine/uop/text.h"
#include "engine/uop/uop.h"
#include "engine/uop/wire.h"

namespace beamd::testing {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

v1::Graph GraphOf(absl::string_view text) {
  UOpGraph graph;
  return ToProto(ParseText(text, graph).value());
}

std::string AddOne(uint64_t x, int n) {
  return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape ($1)
%1 = CONST float32 1.0
%2 = RESHAPE float32 (%1) ints (1)
%3 = EXPAND float32 (%2) ints ($1)
%4 = ADD float32 (%0, %3)
%5 = SINK void (%4))",
                          x, n);
}

std::string AddOneInPlace(uint64_t x, int n) {
  return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape ($1)
%1 = CONST float32 1.0
%2 = RESHAPE float32 (%1) ints (1)
%3 = EXPAND float32 (%2) ints ($1)
%4 = ADD float32 (%0, %3)
%5 = ASSIGN float32 (%0, %4)
%6 = SINK void (%5))",
                          x, n);
}

std::string Matmul(uint64_t a, uint64_t b, int n) {
  return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape ($2,$2)
%1 = RESHAPE float32 (%0) ints ($2,$2,1)
%2 = EXPAND float32 (%1) ints ($2,$2,$2)
%3 = BUFFER float32 slot $1 shape ($2,$2)
%4 = RESHAPE float32 (%3) ints (1,$2,$2)
%5 = EXPAND float32 (%4) ints ($2,$2,$2)
%6 = MUL float32 (%2, %5)
%7 = REDUCE_AXIS float32 (%6) ADD axes (1)
%8 = RESHAPE float32 (%7) ints ($2,$2)
%9 = SINK void (%8))",
                          a, b, n);
}

std::string LongSum(uint64_t x, int n) {
  return absl::Substitute(R"(%0 = BUFFER float32 slot $0 shape (1)
%1 = EXPAND float32 (%0) ints ($1)
%2 = SIN float32 (%1)
%3 = RESHAPE float32 (%2) ints (1,$1)
%4 = RESHAPE float32 (%2) ints ($1,1)
%5 = EXPAND float32 (%3) ints ($1,$1)
%6 = EXPAND float32 (%4) ints ($1,$1)
%7 = MUL float32 (%5, %6)
%8 = SIN float32 (%7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (0,1)
%10 = RESHAPE float32 (%9) ints (1)
%11 = ASSIGN float32 (%0, %10)
%12 = SINK void (%11))",
                          x, n);
}

v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::StatusDetails details;
  v1::ErrorDetail detail;
  if (details.ParseFromString(status.error_details()) && details.details_size() > 0) {
    details.details(0).UnpackTo(&detail);
  }
  return detail;
}

ExecutorClient::ExecutorClient(const std::string& address, const std::string& token)
    : token_(token) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
  // A connection of its own: clients are other people.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
  stub_ = v1::Executor::NewStub(channel);
}

void ExecutorClient::Authorize(grpc::ClientContext& context) const {
  if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
}

bool ExecutorClient::Open(double lease_s, const std::string& device) {
  grpc::ClientContext context;
  Authorize(context);
  v1::OpenSessionRequest request;
  if (!device.empty()) request.mutable_device()->set_id(device);
  if (lease_s > 0) {
    request.mutable_lease()->set_seconds(static_cast<int64_t>(lease_s));
    request.mutable_lease()->set_nanos(
        static_cast<int32_t>((lease_s - static_cast<double>(static_cast<int64_t>(lease_s))) * 1e9));
  }
  v1::Session session;
  if (!Note(stub_->OpenSession(&context, request, &session))) return false;
  session_ = session.id();
  return true;
}

std::optional<v1::Session> ExecutorClient::KeepAlive() {
  grpc::ClientContext context;
  Authorize(context);
  v1::KeepAliveRequest request;
  request.set_session(session_);
  v1::Session session;
  if (!Note(stub_->KeepAlive(&context, request, &session))) return std::nullopt;
  return session;
}

bool ExecutorClient::Close() {
  grpc::ClientContext context;
  Authorize(context);
  v1::CloseSessionRequest request;
  request.set_session(session_);
  v1::CloseSessionResponse response;
  return Note(stub_->CloseSession(&context, request, &response));
}

std::optional<v1::BeginUploadResponse> ExecutorClient::Begin(
    const v1::BeginUploadRequest& request) {
  grpc::ClientContext context;
  Authorize(context);
  v1::BeginUploadResponse response;
  if (!Note(stub_->BeginUpload(&context, request, &response))) return std::nullopt;
  return response;
}

bool ExecutorClient::SendChunks(uint64_t handle, std::span<const std::byte> bytes, size_t offset,
                                size_t chunk_bytes, bool spoil) {
  grpc::ClientContext context;
  Authorize(context);
  v1::UploadResponse response;
  const auto writer = stub_->Upload(&context, &response);
  bool first = true;
  while (offset < bytes.size()) {
    const size_t size = std::min(chunk_bytes, bytes.size() - offset);
    v1::UploadChunk chunk;
    if (first) {
      chunk.set_session(session_);
      chunk.set_handle(handle);
    }
    chunk.set_offset(offset);
    chunk.set_data(bytes.data() + offset, size);
    chunk.set_crc32c(Crc32c(0, bytes.subspan(offset, size)) ^ (first && spoil ? 1 : 0));
    first = false;
    if (!writer->Write(chunk)) break;
    offset += size;
  }
  writer->WritesDone();
  return Note(writer->Finish());
}

uint64_t ExecutorClient::Upload(v1::Scalar dtype, const std::vector<int64_t>& shape,
                                std::span<const std::byte> bytes, bool digest) {
  v1::BeginUploadRequest request;
  request.set_session(session_);
  request.set_dtype(dtype);
  request.mutable_shape()->Add(shape.begin(), shape.end());
  if (digest) {
    const auto sha256 = Sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    request.set_sha256(sha256.data(), sha256.size());
  }
  const std::optional<v1::BeginUploadResponse> begun = Begin(request);
  if (!begun) return 0;
  if (begun->offset() == bytes.size()) return begun->handle();
  return SendChunks(begun->handle(), bytes, begun->offset(), kChunkBytes) ? begun->handle() : 0;
}

uint64_t ExecutorClient::Upload(const std::vector<int64_t>& shape,
                                const std::vector<float>& values) {
  return Upload(v1::SCALAR_FLOAT32, shape, std::as_bytes(std::span(values)));
}

std::optional<std::string> ExecutorClient::Download(uint64_t handle, uint64_t offset,
                                                    uint64_t bytes) {
  grpc::ClientContext context;
  Authorize(context);
  v1::DownloadRequest request;
  request.set_session(session_);
  request.set_handle(handle);
  request.set_offset(offset);
  request.set_bytes(bytes);
  const auto reader = stub_->Download(&context, request);
  std::string content;
  v1::DownloadChunk chunk;
  bool right = true;
  while (reader->Read(&chunk)) {
    right &= chunk.offset() == offset + content.size() &&
             chunk.crc32c() == Crc32c(0, std::as_bytes(std::span(chunk.data())));
    content += chunk.data();
  }
  if (!Note(reader->Finish())) return std::nullopt;
  if (!right) {
    status_ = grpc::Status(grpc::StatusCode::DATA_LOSS, "a chunk isn't what it says");
    return std::nullopt;
  }
  return content;
}

std::vector<float> ExecutorClient::Floats(uint64_t handle) {
  const std::optional<std::string> content = Download(handle);
  std::vector<float> values;
  if (!content) return values;
  values.resize(content->size() / sizeof(float));
  std::memcpy(values.data(), content->data(), values.size() * sizeof(float));
  return values;
}

bool ExecutorClient::Free(const std::vector<uint64_t>& handles) {
  grpc::ClientContext context;
  Authorize(context);
  v1::FreeRequest request;
  request.set_session(session_);
  request.mutable_handles()->Add(handles.begin(), handles.end());
  v1::FreeResponse response;
  return Note(stub_->Free(&context, request, &response));
}

std::optional<v1::RunResponse> ExecutorClient::Run(v1::RunRequest request) {
  grpc::ClientContext context;
  Authorize(context);
  request.set_session(session_);
  v1::RunResponse response;
  if (!Note(stub_->Run(&context, request, &response))) return std::nullopt;
  return response;
}

std::optional<v1::RunResponse> ExecutorClient::Run(absl::string_view text) {
  v1::RunRequest request;
  *request.mutable_graph() = GraphOf(text);
  return Run(std::move(request));
}

}  // namespace beamd::testing
