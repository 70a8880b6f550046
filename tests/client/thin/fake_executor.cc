#include "tests/client/thin/fake_executor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/thin/checksum.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/tensor/graph.h"
#include "engine/tensor/graph_gradient.h"
#include "engine/uop/wire.h"

namespace beamd::testing {
namespace {

constexpr uint64_t kChunk = 1 << 16;

grpc::Status ToGrpc(const absl::Status& status) {
  v1::StatusDetails details;
  if (const std::optional<ErrorDetail> detail = GetErrorDetail(status)) {
    v1::ErrorDetail message;
    message.set_reason(detail->reason);
    message.set_field(detail->field);
    if (detail->node) message.set_node(static_cast<uint32_t>(*detail->node));
    details.add_details()->PackFrom(message);
  }
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
          details.SerializeAsString()};
}

const grpc::Status kAway{grpc::StatusCode::UNAVAILABLE, "away"};

}  // namespace

FakeExecutor::FakeExecutor() {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  BEAMD_CHECK(runtime.ok(), runtime.status().ToString());
  runtime_ = *std::move(runtime);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  BEAMD_CHECK(server_ != nullptr && port_ != 0, "a port of loopback");
}

FakeExecutor::~FakeExecutor() { server_->Shutdown(std::chrono::system_clock::now()); }

std::string FakeExecutor::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeExecutor::Set(const Faults& faults) {
  const std::lock_guard lock(mutex_);
  faults_ = faults;
}
FakeExecutor::Calls FakeExecutor::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}
size_t FakeExecutor::buffers() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}
int FakeExecutor::last_kernels() const {
  const std::lock_guard lock(mutex_);
  return runtime_->last_kernel_count();
}

bool FakeExecutor::Takes(int* fault) { return *fault > 0 && (*fault)-- > 0; }

FakeExecutor::Held* FakeExecutor::Find(uint64_t handle) {
  const auto found = held_.find(handle);
  return found == held_.end() ? nullptr : &found->second;
}

grpc::Status FakeExecutor::OpenSession(grpc::ServerContext* /*context*/,
                                       const v1::OpenSessionRequest* request,
                                       v1::Session* response) {
  const std::lock_guard lock(mutex_);
  ++calls_.open;
  if (Takes(&faults_.unavailable_calls)) return kAway;
  response->set_id("the one");
  response->set_device("cpu:0");
  *response->mutable_lease() = request->lease();
  response->set_chunk_bytes(kChunk);
  return grpc::Status::OK;
}

grpc::Status FakeExecutor::KeepAlive(grpc::ServerContext* /*context*/,
                                     const v1::KeepAliveRequest* /*request*/,
                                     v1::Session* response) {
  const std::lock_guard lock(mutex_);
  ++calls_.keep_alive;
  response->set_buffers(held_.size());
  return grpc::Status::OK;
}

grpc::Status FakeExecutor::CloseSession(grpc::ServerContext* /*context*/,
                                        const v1::CloseSessionRequest* /*request*/,
                                        v1::CloseSessionResponse* /*response*/) {
  const std::lock_guard lock(mutex_);
  ++calls_.close;
  held_.clear();
  return grpc::Status::OK;
}

grpc::Status FakeExecutor::BeginUpload(grpc::ServerContext* /*context*/,
                                       const v1::BeginUploadRequest* request,
                                       v1::BeginUploadResponse* response) {
  const std::lock_guard lock(mutex_);
  ++calls_.begin;
  if (Takes(&faults_.unavailable_calls)) return kAway;
  uint64_t handle = request->handle();
  if (handle == 0) {
    handle = next_handle_++;
    Held held;
    held.info.set_handle(handle);
    held.info.set_dtype(request->dtype());
    *held.info.mutable_shape() = request->shape();
    auto buffer = std::make_shared<TensorBuffer>();
    buffer->device = "cpu:0";
    buffer->dtype = static_cast<Scalar>(request->dtype());
    buffer->size_elements = 1;
    for (const int64_t size : request->shape()) buffer->size_elements *= size;
    held.info.set_bytes(buffer->size_bytes());
    held.buffer = std::move(buffer);
    held.sha256 = request->sha256();
    for (const auto& [other, known] : held_) {
      if (known.sha256 == held.sha256 && !held.sha256.empty() && known.buffer->memory) {
        held.content = Content(known);
      }
    }
    if (held.content.size() == held.info.bytes()) {
      const absl::Status status = runtime_->Write(
          *held.buffer, std::as_bytes(std::span(held.content.data(), held.content.size())));
      if (!status.ok()) return ToGrpc(status);
    }
    held_.emplace(handle, std::move(held));
  }
  const Held* const held = Find(handle);
  if (held == nullptr) return {grpc::StatusCode::NOT_FOUND, "no such buffer"};
  response->set_handle(handle);
  response->set_offset(held->content.size());
  return grpc::Status::OK;
}

grpc::Status FakeExecutor::Upload(grpc::ServerContext* /*context*/,
                                  grpc::ServerReader<v1::UploadChunk>* reader,
                                  v1::UploadResponse* response) {
  const std::lock_guard lock(mutex_);
  ++calls_.upload;
  v1::UploadChunk chunk;
  Held* held = nullptr;
  uint64_t received = 0;
  while (reader->Read(&chunk)) {
    if (held == nullptr) held = Find(chunk.handle());
    if (held == nullptr) return {grpc::StatusCode::NOT_FOUND, "no such buffer"};
    if (chunk.offset() != held->content.size() || chunk.data().size() > kChunk ||
        chunk.crc32c() != thin::Crc32c(chunk.data())) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              absl::StrCat("a wrong chunk of ", chunk.data().size(), " at ", chunk.offset(), " of ",
                           held->content.size(), " in ", held->info.bytes())};
    }
    received += chunk.data().size();
    calls_.received_bytes += chunk.data().size();
    held->content += chunk.data();
    if (received > faults_.break_after && Takes(&faults_.broken_uploads)) return kAway;
  }
  if (held == nullptr || held->content.size() != held->info.bytes()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "not all of it"};
  }
  const absl::Status status = runtime_->Write(
      *held->buffer, std::as_bytes(std::span(held->content.data(), held->content.size())));
  response->set_handle(held->info.handle());
  if (!held->sha256.empty()) response->set_sha256(thin::Sha256(held->content));
  return ToGrpc(status);
}

std::string FakeExecutor::Content(const Held& held) {
  if (held.info.bytes() == 0) return "";
  std::string content(held.buffer->size_bytes(), '\0');
  const absl::Status status = runtime_->Read(
      *held.buffer, std::as_writable_bytes(std::span(content.data(), content.size())));
  BEAMD_CHECK(status.ok(), status.ToString());
  return content;
}

grpc::Status FakeExecutor::Download(grpc::ServerContext* /*context*/,
                                    const v1::DownloadRequest* request,
                                    grpc::ServerWriter<v1::DownloadChunk>* writer) {
  const std::lock_guard lock(mutex_);
  ++calls_.download;
  const Held* const held = Find(request->handle());
  if (held == nullptr) return {grpc::StatusCode::NOT_FOUND, "no such buffer"};
  const std::string content = Content(*held);
  v1::DownloadChunk chunk;
  *chunk.mutable_buffer() = held->info;
  uint64_t offset = request->offset();
  do {
    const std::string part = content.substr(offset, kChunk);
    chunk.set_offset(offset);
    chunk.set_data(part);
    chunk.set_crc32c(thin::Crc32c(part) + (Takes(&faults_.damaged_chunks) ? 1 : 0));
    writer->Write(chunk);
    chunk.clear_buffer();
    offset += part.size();
    if (offset > faults_.break_after && Takes(&faults_.broken_downloads)) return kAway;
  } while (offset < content.size());
  return grpc::Status::OK;
}

grpc::Status FakeExecutor::Free(grpc::ServerContext* /*context*/, const v1::FreeRequest* request,
                                v1::FreeResponse* /*response*/) {
  const std::lock_guard lock(mutex_);
  ++calls_.free;
  for (const uint64_t handle : request->handles()) {
    if (!held_.contains(handle)) return {grpc::StatusCode::NOT_FOUND, "no such buffer"};
  }
  for (const uint64_t handle : request->handles()) held_.erase(handle);
  return grpc::Status::OK;
}

uint64_t FakeExecutor::Keep(std::shared_ptr<TensorBuffer> buffer,
                            const std::vector<int64_t>& shape) {
  Held held;
  held.info.set_handle(next_handle_++);
  held.info.set_dtype(static_cast<v1::Scalar>(buffer->dtype));
  int64_t elements = 1;
  for (const int64_t size : shape) {
    held.info.add_shape(size);
    elements *= size;
  }
  held.info.set_bytes(elements * SizeBytes(buffer->dtype));
  held.buffer = std::move(buffer);
  const uint64_t handle = held.info.handle();
  held_.emplace(handle, std::move(held));
  return handle;
}

absl::Status FakeExecutor::RunLocked(const v1::RunRequest& request, v1::RunResponse* response) {
  UOpGraph graph;
  std::vector<UOp> nodes;
  BEAMD_ASSIGN_OR_RETURN(UOp root, FromProto(request.graph(), graph, {}, &nodes));
  const std::vector<uint64_t> wanted(request.gradients().begin(), request.gradients().end());
  if (!wanted.empty()) {
    BEAMD_ASSIGN_OR_RETURN(root, GradientGraph(root, wanted, nodes, {}, "cpu:0"));
  }
  LazyContext context("cpu:0", runtime_.get());
  absl::flat_hash_map<uint64_t, Tensor> inputs;
  for (const UOp u : Toposort(root)) {
    if (u.is(Op::kDefineVar)) {
      const VariableArg& var = u.data<VariableArg>();
      const auto value = request.variables().find(var.name);
      if (value != request.variables().end()) {
        BEAMD_RETURN_IF_ERROR(
            context.Bind(context.Variable(var.name, var.min, var.max), value->second));
      }
    }
    if (!u.is(Op::kBuffer)) continue;
    const uint64_t id = u.data<BufferArg>().id;
    const Held* const held = Find(id);
    if (held == nullptr) return absl::NotFoundError(absl::StrCat("no buffer ", id));
    Shape shape;
    for (const int64_t size : held->info.shape()) shape.push_back(size);
    inputs.emplace(id, Tensor(LazyBuffer::FromBuffer(context, held->buffer, shape)));
  }
  BEAMD_ASSIGN_OR_RETURN(const GraphTensors tensors,
                         TensorsFromGraph(context, root, inputs, nodes));
  std::vector<LazyBuffer> roots;
  std::vector<uint64_t> handles;
  for (size_t i = 0; i < tensors.outputs.size(); ++i) {
    UOp u = root.is(Op::kSink) ? root.src(static_cast<int>(i)) : root;
    const bool is_memory = u.is(Op::kAssign | Op::kBuffer);
    LazyBuffer value = tensors.outputs[i].lazydata();
    while (is_memory && !u.is(Op::kBuffer)) u = u.src(0);
    handles.push_back(is_memory ? u.data<BufferArg>().id : 0);
    // Memory of its own, whatever the expression came to.
    if (!is_memory) {
      value = value.Contiguous();
      const bool shares = value.is_realized() || value.base().op() == Op::kBufferView ||
                          std::ranges::find(roots, value) != roots.end();
      if (shares) value = value.Clone();
    }
    roots.push_back(value);
  }
  BEAMD_RETURN_IF_ERROR(runtime_->Realize(roots));
  uint64_t bytes = 0;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (handles[i] == 0) {
      std::vector<int64_t> shape;
      for (const SInt& size : roots[i].shape()) {
        if (!size.is_number()) return absl::InvalidArgumentError("a size that has a variable");
        shape.push_back(size.number());
      }
      handles[i] = Keep(roots[i].base().buffer(), shape);
    }
    *response->add_outputs()->mutable_buffer() = Find(handles[i])->info;
    bytes += Find(handles[i])->info.bytes();
  }
  for (int i = 0; bytes <= request.inline_bytes() && i < response->outputs_size(); ++i) {
    response->mutable_outputs(i)->set_data(Content(*Find(handles[i])));
  }
  response->mutable_statistics()->set_kernels(runtime_->last_kernel_count());
  return absl::OkStatus();
}

grpc::Status FakeExecutor::Run(grpc::ServerContext* /*context*/, const v1::RunRequest* request,
                               v1::RunResponse* response) {
  const std::lock_guard lock(mutex_);
  ++calls_.run;
  if (Takes(&faults_.unavailable_calls)) return kAway;
  last_request_ = *request;
  const absl::Status status = RunLocked(*request, response);
  return faults_.lose_run ? kAway : ToGrpc(status);
}

}  // namespace beamd::testing
