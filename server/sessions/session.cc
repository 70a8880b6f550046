#include "server/sessions/session.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/base/error_detail.h"
#include "engine/base/status.h"
#include "engine/base/steady_clock.h"
#include "engine/dtype/dtype.h"
#include "server/workers/codec.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// How long a session that nobody calls keeps memory that it has no use for.
constexpr absl::Duration kSpareTime = absl::Seconds(2);

constexpr char kLostWithRunner[] = "lost when the session's runner ended, which alone had it";

// A run whose runner has forgotten its plan, or died before it began, is planned again so often.
constexpr int kAttempts = 3;

// What a kernel that nobody waits for any more may still take: a runner that is ended for it costs
// the session all that its device alone has.
constexpr absl::Duration kStopGrace = absl::Seconds(2);

// Runs that nobody waits for any more may stand in a session's queue too, up to so many of its limit
// together with the others.
constexpr int64_t kDroppedRuns = 16;

// Of contents the others are, and 0 is the device's turn.
constexpr uint64_t kPageAttachment = ~uint64_t{0};
constexpr uint64_t kGroupTurnAttachment = ~uint64_t{1};

// A plan whose kernels are being tuned is looked after so often at most, and with at most this share
// of its runs' time.
constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr int kLookShare = 20;

absl::Status NoHandle(uint64_t handle, std::optional<int64_t> node, const std::string& field) {
  return WithDetail(
      absl::NotFoundError(absl::StrCat(node ? absl::StrCat("node ", *node, ": ") : "", "no buffer ",
                                       handle, " in this session: it was freed, or never was")),
      {.reason = "HANDLE", .node = node, .field = field, .value = static_cast<int64_t>(handle)});
}

absl::Status NotThere(uint64_t handle, std::optional<int64_t> node, const std::string& reason,
                      const std::string& why) {
  return WithDetail(
      absl::FailedPreconditionError(absl::StrCat(node ? absl::StrCat("node ", *node, ": ") : "",
                                                 "buffer ", handle, ": ", why)),
      {.reason = reason, .node = node, .value = static_cast<int64_t>(handle)});
}

absl::Status Abandoned() { return absl::CancelledError("nobody waits for the run any more"); }

// Bytes of a dense value. InvalidArgument.
absl::StatusOr<int64_t> DenseBytes(v1::Scalar dtype,
                                   const google::protobuf::RepeatedField<int64_t>& shape) {
  if (dtype == v1::SCALAR_VOID || !v1::Scalar_IsValid(dtype)) {
    return InvalidArgument("a buffer has a dtype", {.reason = "DTYPE", .field = "dtype"});
  }
  constexpr int kMostAxes = 32;
  if (shape.size() > kMostAxes) {
    return InvalidArgument(
        absl::StrCat("a buffer has ", shape.size(), " axes, over ", kMostAxes),
        {.reason = "RANK", .field = "shape", .limit = kMostAxes, .value = shape.size()});
  }
  int64_t bytes = SizeBytes(static_cast<Scalar>(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return InvalidArgument("a buffer's sizes aren't negative",
                             {.reason = "SHAPE", .field = "shape", .value = size});
    }
    empty |= size == 0;
    // What is past every limit stays so.
    if (size != 0 && bytes > std::numeric_limits<int64_t>::max() / size) {
      bytes = std::numeric_limits<int64_t>::max();
    } else if (size != 0) {
      bytes *= size;
    }
  }
  if (empty) {
    return InvalidArgument("a buffer of no bytes",
                           {.reason = "EMPTY", .field = "shape", .value = 0});
  }
  return bytes;
}

// Of a RunPage or a DeviceTurn.
template <typename Shared>
std::shared_ptr<const Attachment> Attach(internal::Attach::Kind kind, uint64_t id,
                                         const std::shared_ptr<Shared>& shared) {
  auto attachment = std::make_shared<Attachment>();
  attachment->attach.set_id(id);
  attachment->attach.set_kind(kind);
  attachment->file = shared->file();
  attachment->owner = shared;
  return attachment;
}

// Of a runner's answer.
absl::Status OutcomeOf(const internal::Frame& reply) {
  if (reply.has_ran()) return FromFrame(reply.ran().outcome());
  if (reply.has_built()) return FromFrame(reply.built().outcome());
  return FromFrame(reply.has_fetched() ? reply.fetched().outcome() : reply.planned().outcome());
}

v1::OptsPolicy PolicyOf(const v1::RunRequest& request) {
  return request.opts() == v1::OPTS_POLICY_UNSPECIFIED ? v1::OPTS_POLICY_NOW : request.opts();
}

}  // namespace

absl::Status Session::Ended() const {
  if (host_.stopping) return absl::UnavailableError("the server is shutting down");
  return WithDetail(absl::NotFoundError(absl::StrCat("no session ", id_, ": it has ended")),
                    {.reason = "SESSION", .field = "session"});
}

struct Session::Buffer {
  v1::BufferInfo info;
  std::shared_ptr<Content> content;
  std::shared_ptr<UploadState> upload;  // null: the content is there
  std::string lost;                     // why it isn't any more
  std::weak_ptr<Task> writer;           // the last run that is to write it
};

// What is known of a structure.
struct Session::Plan {
  uint64_t id = 0;
  internal::PlanReply planned;
  std::vector<KernelChoice> choices;  // a kernel
  std::vector<std::string> names;     // likewise
  bool ready = false;                 // built
  // Of one that is to be tuned: the chooser's news when it was looked up last, and when it may be
  // again.
  uint64_t news = 0;
  absl::Time look_at;
  uint64_t used = 0;
};

// One Run call, or a read of what is on the device.
struct Session::Task {
  v1::RunRequest request;  // without its graph
  GraphUse use;
  Caller caller;
  std::shared_ptr<CancelToken> cancel;  // null: it can't be
  int64_t cancelling = 0;               // our callback there
  RunDone done;
  Digest key;
  uint64_t owner = 0;  // to the supervisor, and RunPage's number
  std::vector<BufferPtr> inputs;
  std::vector<uint64_t> gradients;  // places of inputs
  std::shared_ptr<Plan> plan;
  uint64_t replaces = 0;                           // a plan that the runner is to forget
  std::vector<std::shared_ptr<Content>> memories;  // of the run: inputs, then new ones
  // Readers that came behind it, of what it writes.
  std::vector<std::pair<BufferPtr, ReadDone>> readers;
  // Not a run: this buffer's content is brought here for them.
  BufferPtr fetched;
  bool captured = true;
  uint32_t compiled = 0;
  int attempts = 0;
  // Written under the session's lock.
  bool queued = false;
  bool dropped = false;  // of the session's count of those
  bool sent = false;     // to run
  double compile_s = 0;

  bool abandoned() const { return cancel != nullptr && cancel->cancelled(); }

  const char* What() const {
    if (fetched != nullptr) return "a download";
    return sent ? "the run" : "planning the run";
  }
};

v1::Session Session::Describe() const {
  MutexLock lock(mutex_);
  v1::Session to;
  to.set_id(id_);
  to.set_device(device_.device->id);
  to.mutable_lease()->set_seconds(absl::ToInt64Seconds(lease_));
  to.mutable_lease()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(lease_) % 1000000000));
  to.set_bytes(static_cast<uint64_t>(bytes_ + scratch_bytes_));
  to.set_bytes_limit(static_cast<uint64_t>(host_.limits.bytes));
  to.set_buffers(buffers_.size());
  to.set_buffers_limit(static_cast<uint64_t>(host_.limits.buffers));
  to.set_chunk_bytes(static_cast<uint64_t>(host_.limits.chunk_bytes));
  return to;
}

bool Session::Touch(absl::Time now) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  used_ = now;
  return true;
}

absl::Time Session::expires() const {
  MutexLock lock(mutex_);
  if (closed_) return absl::InfinitePast();
  if (!queue_.empty()) return absl::InfiniteFuture();
  return used_ + lease_;
}

int64_t Session::Close() {
  std::optional<PoolId> pool;
  absl::flat_hash_map<uint64_t, BufferPtr> buffers;
  int64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    if (closed_) return 0;
    closed_ = true;
    pool = std::exchange(pool_, std::nullopt);
    buffers.swap(buffers_);
    bytes = std::exchange(bytes_, 0);
    spare_.clear();
    spare_bytes_ = 0;
    scratch_bytes_ = 0;
    plans_.clear();
  }
  for (const auto& [handle, buffer] : buffers) {
    if (buffer->upload != nullptr) buffer->upload->End();
  }
  {
    MutexLock lock(joined_mutex_);
    ended_ = true;
    for (const auto& [joined, end] : joined_) end();
    joined_.clear();
  }
  // Ends what runs; its end ends what waits.
  if (pool) host_.supervisor->ClosePool(*pool);
  return bytes;
}

absl::StatusOr<Session::BufferPtr> Session::FindBuffer(uint64_t handle) const {
  const auto it = buffers_.find(handle);
  if (it == buffers_.end()) return NoHandle(handle, std::nullopt, "handle");
  return it->second;
}

absl::Status Session::CheckRoom(int64_t buffers, int64_t bytes) const {
  const SessionLimits& limits = host_.limits;
  const auto held = static_cast<int64_t>(buffers_.size());
  if (buffers > limits.buffers - held) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat("the session holds ", held, " buffers of ",
                                                  limits.buffers, ": no room for ", buffers)),
        {.reason = "SESSION_BUFFERS", .limit = limits.buffers, .value = held + buffers});
  }
  const int64_t used = bytes_ + scratch_bytes_;
  if (bytes > limits.bytes - used) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat("the session holds ", used, " bytes of ",
                                                  limits.bytes, ": no room for ", bytes)),
        {.reason = "SESSION_BYTES", .limit = limits.bytes, .value = bytes});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Content>> Session::NewContent(int64_t size_bytes) {
  if (const auto it = spare_.find(size_bytes); it != spare_.end() && !it->second.empty()) {
    std::shared_ptr<Content> content = std::move(it->second.back());
    it->second.pop_back();
    spare_bytes_ -= size_bytes;
    return content;
  }
  const std::shared_ptr<Budget> budget(use_, &use_->memory);
  absl::StatusOr<std::shared_ptr<Content>> content = Content::Create(budget, size_bytes);
  if (content.ok() || !DropSpare()) return content;
  return Content::Create(budget, size_bytes);
}

absl::StatusOr<std::shared_ptr<Content>> Session::NewStagedContent(int64_t size_bytes) {
  BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<Content> content, NewContent(size_bytes));
  if (device_.own_memory) {
    // The device may have an old copy.
    content->Detach();
    content->set_staged(true);
  }
  return content;
}

bool Session::DropSpare() {
  if (spare_bytes_ == 0) return false;
  spare_.clear();
  spare_bytes_ = 0;
  return true;
}

void Session::Keep(std::shared_ptr<Content> content) {
  const int64_t size = content->size_bytes();
  if (content->fixed() || content.use_count() > 1) return;
  if (size > host_.limits.spare_bytes - spare_bytes_) return;
  spare_bytes_ += size;
  spare_[size].push_back(std::move(content));
}

void Session::Trim(absl::Time now) {
  absl::flat_hash_map<int64_t, std::vector<std::shared_ptr<Content>>> spare;
  MutexLock lock(mutex_);
  if (!queue_.empty() || now - used_ < kSpareTime) return;
  spare.swap(spare_);
  spare_bytes_ = 0;
}

absl::StatusOr<uint64_t> Session::AddBuffer(BufferPtr buffer) {
  const uint64_t handle = ++last_handle_;
  buffer->info.set_handle(handle);
  bytes_ += buffer->content->size_bytes();
  buffers_[handle] = std::move(buffer);
  return handle;
}

// --- uploads ---

absl::StatusOr<v1::BeginUploadResponse> Session::BeginUpload(
    const v1::BeginUploadRequest& request) {
  v1::BeginUploadResponse response;
  MutexLock lock(mutex_);
  if (closed_) return Ended();
  if (request.handle() != 0) {
    BEAMD_ASSIGN_OR_RETURN(const BufferPtr buffer, FindBuffer(request.handle()));
    if (buffer->upload != nullptr && buffer->upload->sha256().empty()) {
      return NotThere(request.handle(), std::nullopt, "NO_DIGEST",
                      "an upload without a digest can't be gone on with");
    }
    if (buffer->upload != nullptr && buffer->upload->sha256() != request.sha256()) {
      return InvalidArgument("the upload that goes on has another digest",
                             {.reason = "SHA256", .field = "sha256"});
    }
    const v1::BufferInfo& info = buffer->info;
    const bool same_shape = std::equal(request.shape().begin(), request.shape().end(),
                                       info.shape().begin(), info.shape().end());
    if (request.dtype() != info.dtype() || !same_shape) {
      return InvalidArgument(
          absl::StrCat("the upload that goes on is of another dtype or shape than buffer ",
                       request.handle()),
          {.reason = "BUFFER", .field = same_shape ? "dtype" : "shape"});
    }
    response.set_handle(request.handle());
    response.set_offset(buffer->upload != nullptr ? static_cast<uint64_t>(buffer->upload->arrived())
                                                  : info.bytes());
    return response;
  }
  BEAMD_ASSIGN_OR_RETURN(const int64_t bytes, DenseBytes(request.dtype(), request.shape()));
  if (!request.sha256().empty() && request.sha256().size() != 32) {
    return InvalidArgument("a SHA-256 is 32 bytes",
                           {.reason = "SHA256",
                            .field = "sha256",
                            .limit = 32,
                            .value = static_cast<int64_t>(request.sha256().size())});
  }
  BEAMD_RETURN_IF_ERROR(CheckRoom(1, bytes));
  auto buffer = std::make_shared<Buffer>();
  buffer->info.set_dtype(request.dtype());
  *buffer->info.mutable_shape() = request.shape();
  buffer->info.set_bytes(static_cast<uint64_t>(bytes));
  if (!request.sha256().empty()) {
    buffer->content = host_.index->Find(principal_, request.sha256(), bytes);
  }
  const bool there = buffer->content != nullptr;
  if (!there) {
    BEAMD_ASSIGN_OR_RETURN(buffer->content, NewStagedContent(bytes));
    buffer->upload = std::make_shared<UploadState>(buffer->content, request.sha256());
  }
  BEAMD_ASSIGN_OR_RETURN(const uint64_t handle, AddBuffer(std::move(buffer)));
  response.set_handle(handle);
  response.set_offset(there ? static_cast<uint64_t>(bytes) : 0);
  return response;
}

absl::StatusOr<Session::Upload> Session::OpenUpload(uint64_t handle, int64_t offset) {
  MutexLock lock(mutex_);
  if (closed_) return Ended();
  BEAMD_ASSIGN_OR_RETURN(const BufferPtr buffer, FindBuffer(handle));
  if (buffer->upload == nullptr) {
    return NotThere(handle, std::nullopt, "UPLOADED", "its content is there");
  }
  BEAMD_ASSIGN_OR_RETURN(const uint64_t stream, buffer->upload->OpenStream(offset));
  return Upload{.state = buffer->upload, .stream = stream, .handle = handle};
}

void Session::CloseUpload(const Upload& upload) {
  if (!upload.state->complete()) return;
  MutexLock lock(mutex_);
  const auto it = buffers_.find(upload.handle);
  if (it == buffers_.end() || it->second->upload != upload.state) return;
  it->second->upload = nullptr;
  if (!upload.state->sha256().empty()) {
    host_.index->Add(principal_, upload.state->sha256(), it->second->content);
  }
}

// --- reading and freeing ---

absl::Duration Session::PauseAfter(int64_t bytes) const {
  return host_.pace->Spend(this, bytes, SteadyNow());
}

void Session::Read(uint64_t handle, ReadDone done) {
  TaskPtr fetch;
  bool first = false;
  absl::StatusOr<BufferSnapshot> now = [&]() -> absl::StatusOr<BufferSnapshot> {
    MutexLock lock(mutex_);
    if (closed_) return Ended();
    BEAMD_ASSIGN_OR_RETURN(const BufferPtr buffer, FindBuffer(handle));
    if (buffer->upload != nullptr) {
      return NotThere(handle, std::nullopt, "NOT_UPLOADED", "its content hasn't all come");
    }
    const TaskPtr writer = buffer->writer.lock();
    const bool away = buffer->lost.empty() && !buffer->content->staged();
    if (device_.own_memory && (away || writer != nullptr)) {
      fetch = std::make_shared<Task>();
      fetch->fetched = buffer;
      fetch->readers.emplace_back(buffer, std::move(done));
      fetch->done = [](const absl::StatusOr<v1::RunResponse>&) {};
      first = Enqueue(fetch);
      return BufferSnapshot();
    }
    if (writer != nullptr) {
      writer->readers.emplace_back(buffer, std::move(done));
      return BufferSnapshot();
    }
    if (!buffer->lost.empty()) return NotThere(handle, std::nullopt, "LOST", buffer->lost);
    return BufferSnapshot{buffer->info, buffer->content};
  }();
  if (!now.ok() || now->content != nullptr) return done(std::move(now));
  if (first) Advance(fetch);
}

uint64_t Session::Join(std::function<void()> end) {
  MutexLock lock(joined_mutex_);
  if (ended_) return 0;
  joined_[++last_joined_] = std::move(end);
  return last_joined_;
}

void Session::Quit(uint64_t joined) {
  MutexLock lock(joined_mutex_);
  joined_.erase(joined);
}

absl::StatusOr<int64_t> Session::Free(std::span<const uint64_t> handles) {
  std::vector<BufferPtr> freed;  // goes without the lock
  MutexLock lock(mutex_);
  if (closed_) return Ended();
  for (const uint64_t handle : handles) {
    if (!buffers_.contains(handle)) return NoHandle(handle, std::nullopt, "handles");
  }
  int64_t bytes = 0;
  for (const uint64_t handle : handles) {
    const auto it = buffers_.find(handle);
    if (it == buffers_.end()) continue;  // named twice
    bytes += it->second->content->size_bytes();
    if (it->second->upload != nullptr) it->second->upload->End();
    BufferPtr buffer = std::move(it->second);
    buffers_.erase(it);
    // A run that was taken before may still want it.
    if (buffer.use_count() == 1) {
      Keep(std::move(buffer->content));
    } else {
      freed.push_back(std::move(buffer));
    }
  }
  bytes_ -= bytes;
  return bytes;
}

// --- runs ---

absl::Status Session::Admit(const TaskPtr& task) {
  if (closed_) return Ended();
  // Those that were dropped take next to nothing, but not nothing.
  const auto queued = static_cast<int64_t>(queue_.size());
  if (queued - dropped_ >= host_.limits.queued_runs ||
      queued >= kDroppedRuns * host_.limits.queued_runs) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat(queued, " runs of this session wait, of ",
                                                  host_.limits.queued_runs, " that may")),
        {.reason = "QUEUED_RUNS", .limit = host_.limits.queued_runs, .value = queued + 1});
  }
  if (const int64_t bytes = host_.queued_bytes.load() + task->use.size_bytes;
      bytes > host_.limits.queued_bytes) {
    return WithDetail(
        absl::ResourceExhaustedError(absl::StrCat("the graphs of runs that wait would take ", bytes,
                                                  " bytes of memory, over ",
                                                  host_.limits.queued_bytes)),
        {.reason = "QUEUED_BYTES", .limit = host_.limits.queued_bytes, .value = bytes});
  }
  if (const int64_t bytes = use_->queued_bytes.load() + task->use.size_bytes;
      bytes > host_.limits.principal_queued_bytes) {
    return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                          "the graphs of your runs that wait would take ", bytes,
                          " bytes of memory, over ", host_.limits.principal_queued_bytes)),
                      {.reason = "PRINCIPAL_QUEUED_BYTES",
                       .limit = host_.limits.principal_queued_bytes,
                       .value = bytes});
  }
  absl::flat_hash_map<uint64_t, uint64_t> places;
  for (const GraphInput& input : task->use.inputs) {
    const auto it = buffers_.find(input.handle);
    if (it == buffers_.end()) return NoHandle(input.handle, input.node, "buffer_arg.id");
    const v1::BufferInfo& info = it->second->info;
    if (info.dtype() != input.dtype || !std::equal(info.shape().begin(), info.shape().end(),
                                                   input.shape.begin(), input.shape.end())) {
      return InvalidArgument(absl::StrCat("node ", input.node, ": buffer ", input.handle,
                                          " has another dtype or shape than its BUFFER says"),
                             {.reason = "BUFFER", .node = input.node, .field = "buffer_arg"});
    }
    if (it->second->upload != nullptr) {
      return NotThere(input.handle, input.node, "NOT_UPLOADED", "its content hasn't all come");
    }
    if (it->second->writer.expired() && !it->second->lost.empty()) {
      return NotThere(input.handle, input.node, "LOST", it->second->lost);
    }
    places[input.handle] = task->inputs.size();
    task->inputs.push_back(it->second);
  }
  for (int i = 0; i < task->request.gradients_size(); ++i) {
    const uint64_t handle = task->request.gradients(i);
    const auto fault = [&](const char* what, std::string reason, std::optional<int64_t> node) {
      return InvalidArgument(absl::StrCat(node ? absl::StrCat("node ", *node, ": ") : "",
                                          "gradients[", i, "]: buffer ", handle, what),
                             {.reason = std::move(reason),
                              .node = node,
                              .field = absl::StrCat("gradients[", i, "]"),
                              .value = static_cast<int64_t>(handle)});
    };
    const auto it = places.find(handle);
    if (it == places.end()) return fault(" isn't in the graph", "GRADIENT", std::nullopt);
    const GraphInput& input = task->use.inputs[it->second];
    if (!IsFloat(static_cast<Scalar>(input.dtype))) {
      return fault(" holds no floats, which alone have gradients", "BUFFER_DTYPE", input.node);
    }
    if (std::find(task->gradients.begin(), task->gradients.end(), it->second) !=
        task->gradients.end()) {
      return fault(" stands there twice", "DUPLICATE", std::nullopt);
    }
    task->gradients.push_back(it->second);
  }
  for (const auto& [name, value] : task->request.variables()) {
    const auto it = task->use.variables.find(name);
    if (it == task->use.variables.end()) {
      return InvalidArgument(
          absl::StrCat("the graph has no variable \"", name, "\""),
          {.reason = "VARIABLE", .field = absl::StrCat("variables[", name, "]")});
    }
    if (value < it->second.first || value > it->second.second) {
      return InvalidArgument(
          absl::StrCat("variable \"", name, "\" is ", it->second.first, " to ", it->second.second,
                       ", not ", value),
          {.reason = "VARIABLE_BOUNDS",
           .field = absl::StrCat("variables[", name, "]"),
           .limit = value < it->second.first ? it->second.first : it->second.second,
           .value = value});
    }
  }
  for (size_t i = 0; i < task->inputs.size(); ++i) {
    if (task->use.inputs[i].written) task->inputs[i]->writer = task;
  }
  return absl::OkStatus();
}

bool Session::Enqueue(const TaskPtr& task) {
  host_.pending.fetch_add(1);
  task->queued = true;
  queue_.push_back(task);
  return queue_.size() == 1;
}

void Session::Run(v1::RunRequest request, const Caller& caller, std::shared_ptr<CancelToken> cancel,
                  RunDone done) {
  absl::StatusOr<GraphUse> use =
      ReadGraphUse(std::move(*request.mutable_graph()), host_.limits.graph_nodes);
  if (!use.ok()) {
    host_.counts->Add("refused");
    return done(use.status());
  }
  auto task = std::make_shared<Task>();
  task->request = std::move(request);
  task->use = *std::move(use);
  task->caller = caller;
  task->owner = host_.supervisor->NewId();
  task->cancel = std::move(cancel);
  task->done = std::move(done);
  Hasher key;
  key.Add(task->use.structure)
      .Add(static_cast<uint64_t>(PolicyOf(task->request)))
      .Add(static_cast<uint64_t>(task->request.match()));
  if (task->cancel != nullptr) {
    task->cancelling =
        task->cancel->OnCancel([self = shared_from_this(), task] { self->Abandon(task); });
  }
  absl::Status status = host_.tuner->CheckServes(*device_.device);
  bool first = false;
  if (status.ok()) {
    MutexLock lock(mutex_);
    status = Admit(task);
    if (status.ok()) {
      for (const uint64_t place : task->gradients) key.Add(place);
      task->key = key.Finish();
      CountQueued(task->use.size_bytes);
      first = Enqueue(task);
    }
  }
  if (!status.ok()) {
    host_.counts->Add("refused");
    if (task->cancel != nullptr) task->cancel->Remove(task->cancelling);
    return task->done(status);
  }
  host_.pace->Ran(this, SteadyNow());
  if (first) Advance(task);
}

void Session::Drop(const TaskPtr& task) {
  host_.counts->Add("cancelled");
  Finish(task, Abandoned());
}

void Session::Abandon(const TaskPtr& task) {
  {
    MutexLock lock(mutex_);
    if (!task->sent) {
      // What is planned ends at its next step, and what waits when it is its turn: a reader may wait
      // behind it for what was written before. Its place and its graph are free now.
      if (task->dropped || queue_.empty() || queue_.front() == task || !task->queued) return;
      task->dropped = true;
      ++dropped_;
      CountQueued(-std::exchange(task->use.size_bytes, 0));
      task->use.graph.Clear();
      return;
    }
    device_.page->Stop(task->owner);
  }
  host_.supervisor->Cancel(task->owner, kStopGrace, /*excuses=*/true);
}

// The task is the first of the queue: it is planned, or runs at once.
void Session::Advance(const TaskPtr& task) {
  if (task->fetched != nullptr) return Fetch(task);
  if (task->abandoned()) return Drop(task);
  absl::Status status;
  bool planned = false;
  {
    MutexLock lock(mutex_);
    if (closed_) status = Ended();
    for (size_t i = 0; i < task->inputs.size() && status.ok(); ++i) {
      const Buffer& buffer = *task->inputs[i];
      if (buffer.lost.empty()) continue;
      status = NotThere(buffer.info.handle(), task->use.inputs[i].node, "LOST", buffer.lost);
    }
    if (const auto it = plans_.find(task->key); it != plans_.end()) {
      task->plan = it->second;
      planned = true;
    }
  }
  if (!status.ok()) return Finish(task, status);
  if (planned && !IsOutdated(task)) return Start(task);
  if (planned) {
    task->replaces = task->plan->id;
    Forget(task);
  }
  task->captured = false;
  task->plan = std::make_shared<Plan>();
  task->plan->id = host_.supervisor->NewId();
  internal::Frame frame;
  internal::PlanRequest& request = *frame.mutable_plan();
  request.set_plan(task->plan->id);
  request.set_replaces(task->replaces);
  *request.mutable_graph() = task->use.graph;
  request.set_inputs(static_cast<uint32_t>(task->inputs.size()));
  request.mutable_gradients()->Add(task->gradients.begin(), task->gradients.end());
  Ask(task, std::move(frame), host_.limits.plan_time, {}, &Session::Planned);
}

bool Session::IsOutdated(const TaskPtr& task) {
  Plan& plan = *task->plan;
  const absl::Time start = SteadyNow();
  const uint64_t news = host_.chooser->news();
  if (PolicyOf(task->request) != v1::OPTS_POLICY_TUNE || news == plan.news ||
      start < plan.look_at) {
    return false;
  }
  plan.news = news;
  bool found = false;
  for (size_t i = 0; i < plan.choices.size() && !found; ++i) {
    found = plan.choices[i].match != v1::MATCH_STRICT &&
            plan.choices[i].match != v1::MATCH_SEARCHED &&
            host_.chooser->IsTuned(plan.planned.kernels(static_cast<int>(i)), device_.device->id);
  }
  const absl::Time end = SteadyNow();
  plan.look_at = end + std::max(kLookEvery, kLookShare * (end - start));
  return found;
}

void Session::Forget(const TaskPtr& task) {
  MutexLock lock(mutex_);
  const auto it = plans_.find(task->key);
  if (it == plans_.end() || it->second->id != task->plan->id) return;
  scratch_bytes_ -= it->second->planned.scratch_bytes();
  plans_.erase(it);
}

PoolId Session::Pool() {
  if (pool_) return *pool_;
  PoolOptions options{
      .name = "session",
      .children = 1,
      .args = host_.runner_args,
      .cores = host_.compile_cores,
      // What its runs may hold, and the process itself. What it has of the
      // daemon's memory counts, and an emulated device's own.
      .memory_limit_bytes = host_.limits.bytes * (device_.own_memory ? 2 : 1) + (int64_t{2} << 30),
      .attachments = {device_.turn,
                      Attach(internal::Attach::GROUP_TURN, kGroupTurnAttachment,
                             device_.group_turn),
                      Attach(internal::Attach::PAGE, kPageAttachment, device_.page)},
      .retry = false,
      .excused = [page = device_.page] { return page->Waited(); }};
  const auto list = [](const std::vector<int>& cores) {
    std::string text;
    for (const int core : cores) absl::StrAppend(&text, text.empty() ? "" : ",", core);
    return text;
  };
  options.args.push_back(device_.sandbox);
  options.args.push_back(absl::StrCat("--device=", device_.device->id));
  options.args.push_back(absl::StrCat("--compile_cores=", list(host_.compile_cores)));
  options.args.push_back(absl::StrCat("--device_cores=", list(device_.cores)));
  pool_ = host_.supervisor->AddPool(std::move(options));
  return *pool_;
}

void Session::Ask(const TaskPtr& task, internal::Frame request, absl::Duration limit,
                  std::vector<std::shared_ptr<const Attachment>> attachments,
                  void (Session::*then)(const TaskPtr&, internal::Frame&)) {
  request.set_trace(task->caller.trace);
  const bool plans = request.has_plan() || request.has_build();
  PoolTask asked{.owner = task->owner,
                 .claim = {.principal = principal_},
                 .attachments = std::move(attachments),
                 .request = std::move(request),
                 .limit = limit,
                 .growth_limit_bytes = plans ? host_.limits.plan_bytes : 0};
  asked.done = [self = shared_from_this(), task, then, limit](TaskEnd end) {
    const bool answered = end.outcome == TaskOutcome::kDone;
    if (answered && end.reply.ends().empty()) return ((*self).*then)(task, end.reply);
    // The runner is gone, and what it wrote may be half done.
    const std::string why =
        answered ? std::string(OutcomeOf(end.reply).message()) : std::move(end.detail);
    const char* const what = task->What();
    absl::Status status;
    const char* outcome = "crash";
    switch (end.outcome) {
      case TaskOutcome::kTimeout:
        outcome = "timeout";
        status = WithDetail(
            absl::DeadlineExceededError(absl::StrCat(
                what, " took longer than ", absl::FormatDuration(limit), ": its runner was ended")),
            {.reason = "RUN_TIMEOUT", .limit = absl::ToInt64Milliseconds(limit)});
        break;
      case TaskOutcome::kMemory:
        outcome = "memory";
        status = WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                                what, " ran out of memory, and its runner was ended: ", why)),
                            {.reason = "RUN_MEMORY"});
        break;
      case TaskOutcome::kCancelled:
        outcome = "cancelled";
        status = self->is_closed() ? self->Ended() : Abandoned();
        break;
      case TaskOutcome::kUnavailable:
        outcome = "unavailable";
        status = WithDetail(
            absl::UnavailableError(absl::StrCat("the session's runner doesn't start: ", why)),
            {.reason = "RUNNER"});
        break;
      default:
        status = WithDetail(absl::AbortedError(absl::StrCat(what, " ended its runner: ", why)),
                            {.reason = "RUN_CRASHED"});
    }
    self->host_.counts->Add(outcome);
    const bool began = answered ? end.reply.ran().began() : end.given && task->sent;
    if (began) self->Lose(task, std::string(status.message()));
    // One that talks nonsense may live on, and so does one that had no part in it.
    const bool lives = end.outcome == TaskOutcome::kGarbage ||
                       (end.outcome == TaskOutcome::kCancelled && !end.given);
    if (!lives) self->LoseRunner(std::string(status.message()));
    self->Finish(task, status);
  };
  PoolId pool = 0;
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      pool = Pool();
    } else {
      asked.limit = absl::ZeroDuration();
    }
  }
  if (asked.limit == absl::ZeroDuration()) return Finish(task, Ended());
  host_.supervisor->Submit(pool, std::move(asked));
}

void Session::Planned(const TaskPtr& task, internal::Frame& reply) {
  if (const absl::Status status = FromFrame(reply.planned().outcome()); !status.ok()) {
    host_.counts->Add("refused");
    return Finish(task, status);
  }
  if (task->abandoned()) return Drop(task);
  task->plan->planned = std::move(*reply.mutable_planned());
  // It looks into the store.
  host_.executor->Post([self = shared_from_this(), task] { self->Choose(task); });
}

void Session::Choose(const TaskPtr& task) {
  Plan& plan = *task->plan;
  internal::Frame frame;
  internal::BuildRequest& build = *frame.mutable_build();
  build.set_plan(plan.id);
  plan.news = host_.chooser->news();
  for (const internal::PlanKernel& kernel : plan.planned.kernels()) {
    absl::StatusOr<KernelChoice> choice = host_.chooser->Choose(
        kernel, device_.device->id, PolicyOf(task->request), task->request.match(), task->caller);
    if (!choice.ok()) {
      host_.counts->Add("refused");
      return Finish(task, choice.status());
    }
    internal::BuildRequest::Choice& to = *build.add_kernels();
    *to.mutable_opts() = choice->opts;
    if (std::optional<internal::Image> image =
            host_.chooser->FindImage(kernel, choice->opts, *device_.device)) {
      *to.mutable_image() = *std::move(image);
    }
    plan.choices.push_back(*std::move(choice));
  }
  absl::Status room;
  {
    MutexLock lock(mutex_);
    room = CheckRoom(0, plan.planned.scratch_bytes());
  }
  if (!room.ok()) {
    host_.counts->Add("refused");
    return Finish(task, room);
  }
  Ask(task, std::move(frame), host_.limits.plan_time, {}, &Session::BuiltPlan);
}

void Session::BuiltPlan(const TaskPtr& task, internal::Frame& reply) {
  const internal::BuildReply& built = reply.built();
  if (built.unknown()) return Again(task);
  if (const absl::Status status = FromFrame(built.outcome()); !status.ok()) {
    host_.counts->Add("refused");
    return Finish(task, status);
  }
  Plan& plan = *task->plan;
  task->compile_s = absl::ToDoubleSeconds(absl::Nanoseconds(built.compile_ns()));
  plan.look_at =
      SteadyNow() + std::max(kLookEvery, kLookShare * absl::Nanoseconds(plan.planned.schedule_ns() +
                                                                        built.compile_ns()));
  std::vector<int> fresh;
  for (int i = 0; i < built.kernels_size(); ++i) {
    const internal::BuildReply::Built& kernel = built.kernels(i);
    KernelChoice& choice = plan.choices[static_cast<size_t>(i)];
    const bool applied = kernel.opts().size() == choice.opts.size();
    if (!applied) choice.match = v1::MATCH_HEURISTIC;
    choice.opts = kernel.opts();
    plan.names.push_back(kernel.name());
    if (!kernel.has_image()) continue;
    ++task->compiled;
    fresh.push_back(i);
  }
  if (!fresh.empty()) {
    host_.executor->Post([self = shared_from_this(), kept = task->plan, fresh,
                          images = std::move(*reply.mutable_built())] {
      for (const int i : fresh) {
        self->host_.chooser->PutImage(kept->planned.kernels(i), images.kernels(i).opts(),
                                      *self->device_.device, images.kernels(i).image());
      }
    });
  }
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      plan.ready = true;
      scratch_bytes_ += plan.planned.scratch_bytes();
      plans_[task->key] = task->plan;
      if (static_cast<int64_t>(plans_.size()) > host_.limits.plans) {
        const auto oldest = std::min_element(
            plans_.begin(), plans_.end(),
            [](const auto& a, const auto& b) { return a.second->used < b.second->used; });
        // The runner lets the same one go, or has it a while longer.
        if (oldest->second != task->plan) {
          scratch_bytes_ -= oldest->second->planned.scratch_bytes();
          plans_.erase(oldest);
        }
      }
    }
  }
  // It may copy.
  host_.executor->Post([self = shared_from_this(), task] { self->Start(task); });
}

// Forgets what was planned, for the runner doesn't know of it, and plans anew.
void Session::Again(const TaskPtr& task) {
  Forget(task);
  {
    MutexLock lock(mutex_);
    task->sent = false;
  }
  task->memories.clear();
  if (++task->attempts >= kAttempts) {
    return Finish(task, WithDetail(absl::UnavailableError("the session's runner was replaced"),
                                   {.reason = "RUNNER"}));
  }
  host_.executor->Post([self = shared_from_this(), task] { self->Advance(task); });
}

absl::Status Session::GatherMemories(const TaskPtr& task) {
  if (closed_) return Ended();
  const Plan& plan = *task->plan;
  const size_t inputs = task->inputs.size();
  task->memories.clear();
  for (size_t i = 0; i < inputs; ++i) {
    Buffer& buffer = *task->inputs[i];
    // What is the device's alone nobody else has.
    if (task->use.inputs[i].written && buffer.content->staged() &&
        (buffer.content->fixed() || buffer.content.use_count() > 1)) {
      // Others hold what it holds, or may come to.
      BEAMD_ASSIGN_OR_RETURN(std::shared_ptr<Content> own,
                             NewStagedContent(buffer.content->size_bytes()));
      std::memcpy(own->data(), buffer.content->data(),
                  static_cast<size_t>(buffer.content->size_bytes()));
      buffer.content = std::move(own);
    }
  }
  // No more than now is held while it runs.
  for (size_t i = 0; i < inputs; ++i) task->memories.push_back(task->inputs[i]->content);
  int64_t bytes = 0;
  std::vector<int64_t> sizes;  // of new memory
  for (const internal::PlanOutput& output : plan.planned.outputs()) {
    if (output.memory() < inputs) continue;
    const size_t place = output.memory() - inputs;
    if (sizes.size() <= place) sizes.resize(place + 1, 0);
    sizes[place] = output.bytes();
    bytes += output.bytes();
  }
  BEAMD_RETURN_IF_ERROR(CheckRoom(plan.planned.outputs_size(), bytes));
  for (const int64_t size : sizes) {
    BEAMD_ASSIGN_OR_RETURN(task->memories.emplace_back(), NewContent(size));
    if (device_.own_memory) task->memories.back()->set_staged(false);
  }
  return absl::OkStatus();
}

uint64_t Session::MostInline(const Task& task) const {
  return std::min(static_cast<uint64_t>(host_.limits.inline_bytes), task.request.inline_bytes());
}

void Session::AddStates(const Task& task, internal::RunPlanRequest& run) {
  const size_t inputs = task.inputs.size();
  std::vector<bool> fetched(task.memories.size(), false);
  for (size_t i = 0; i < task.memories.size(); ++i) {
    const bool staged = task.memories[i]->staged();
    run.add_states(i >= inputs ? internal::NEW : staged ? internal::STAGED : internal::HELD);
    // What it writes, or is the device's alone.
    fetched[i] = !staged || (i < inputs && task.use.inputs[i].written);
  }
  run.set_fetch_most(MostInline(task));
  if (run.fetch_most() == 0) return;
  for (const internal::PlanOutput& output : task.plan->planned.outputs()) {
    if (!fetched[output.memory()]) continue;
    run.add_fetch(task.memories[output.memory()]->id());
    fetched[output.memory()] = false;  // once
  }
}

void Session::Fetch(const TaskPtr& task) {
  internal::Frame frame;
  {
    MutexLock lock(mutex_);
    const Buffer& buffer = *task->fetched;
    if (!closed_ && buffer.lost.empty() && !buffer.content->staged()) {
      frame.mutable_fetch()->set_memory(buffer.content->id());
    }
  }
  // What is here already, or nowhere, Finish tells.
  if (!frame.has_fetch()) return Finish(task, v1::RunResponse());
  Ask(task, std::move(frame), host_.limits.run_time, {}, &Session::Fetched);
}

void Session::Fetched(const TaskPtr& task, internal::Frame& reply) {
  const absl::Status status = FromFrame(reply.fetched().outcome());
  {
    MutexLock lock(mutex_);
    if (reply.fetched().lost()) {
      task->fetched->lost = kLostWithRunner;
    } else if (status.ok()) {
      task->fetched->content->set_staged(true);
    }
  }
  if (!status.ok()) return Finish(task, status);
  Finish(task, v1::RunResponse());
}

void Session::Start(const TaskPtr& task) {
  if (task->abandoned()) return Drop(task);
  internal::Frame frame;
  internal::RunPlanRequest& run = *frame.mutable_run();
  std::vector<std::shared_ptr<const Attachment>> attachments;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = GatherMemories(task);
    if (status.ok()) {
      task->sent = true;
      task->plan->used = ++plan_uses_;
      const PoolId pool = Pool();
      for (const std::shared_ptr<Content>& content : task->memories) {
        run.add_memories(content->id());
        attachments.push_back(content->AttachTo(*host_.supervisor, pool));
      }
      if (device_.own_memory) AddStates(*task, run);
    }
  }
  if (!status.ok()) {
    host_.counts->Add("refused");
    return Finish(task, status);
  }
  run.set_plan(task->plan->id);
  *run.mutable_variables() = task->request.variables();
  run.set_profile(task->request.profile());
  run.set_run(task->owner);
  Ask(task, std::move(frame), host_.limits.run_time, std::move(attachments), &Session::Ran);
}

void Session::Ran(const TaskPtr& task, internal::Frame& reply) {
  const internal::RunPlanReply& ran = reply.ran();
  if (ran.unknown()) return Again(task);
  absl::Status status = FromFrame(ran.outcome());
  if (!status.ok() && ran.began()) Lose(task, std::string(status.message()));
  if (absl::IsResourceExhausted(status) && !ran.began()) {
    MutexLock lock(mutex_);
    // With what the device has of those.
    if (DropSpare()) {
      host_.executor->Post([self = shared_from_this(), task] { self->Start(task); });
      return;
    }
  }
  if (ran.lost_size() > 0) {
    MutexLock lock(mutex_);
    const std::set<uint64_t> lost(ran.lost().begin(), ran.lost().end());
    for (size_t i = 0; i < task->inputs.size(); ++i) {
      if (!lost.contains(task->memories[i]->id())) continue;
      Buffer& buffer = *task->inputs[i];
      buffer.lost = kLostWithRunner;
      status = NotThere(buffer.info.handle(), task->use.inputs[i].node, "LOST", buffer.lost);
    }
  }
  if (!status.ok()) {
    host_.counts->Add(absl::IsResourceExhausted(status) ? "memory"
                      : absl::IsCancelled(status)       ? "cancelled"
                                                        : "refused");
    return Finish(task, status);
  }
  const bool abandoned = task->abandoned();  // not under our lock: Abandon comes with its own
  absl::StatusOr<v1::RunResponse> answer = [&]() -> absl::StatusOr<v1::RunResponse> {
    MutexLock lock(mutex_);
    if (closed_) return Ended();
    for (size_t i = 0; i < task->inputs.size(); ++i) {
      if (device_.own_memory && task->use.inputs[i].written) task->memories[i]->set_staged(false);
    }
    // Nobody would learn the handles of what is new.
    if (abandoned) return Abandoned();
    return Answer(task, ran);
  }();
  host_.counts->Add(abandoned ? "cancelled" : task->captured ? "captured" : "ok");
  Finish(task, std::move(answer));
}

absl::StatusOr<v1::RunResponse> Session::Answer(const TaskPtr& task,
                                                const internal::RunPlanReply& reply) {
  const Plan& plan = *task->plan;
  v1::RunResponse response;
  uint64_t bytes = 0;
  for (int i = 0; i < plan.planned.outputs_size(); ++i) {
    const internal::PlanOutput& output = plan.planned.outputs(i);
    Content& content = *task->memories[output.memory()];
    if (reply.fetched() && !content.staged()) content.set_staged(true);
    v1::RunOutput& to = *response.add_outputs();
    if (output.memory() < task->inputs.size()) {
      *to.mutable_buffer() = task->inputs[output.memory()]->info;
    } else {
      auto buffer = std::make_shared<Buffer>();
      buffer->content = task->memories[output.memory()];
      buffer->info.set_dtype(static_cast<v1::Scalar>(output.scalar()));
      *buffer->info.mutable_shape() =
          reply.shapes_size() > i ? reply.shapes(i).sizes() : output.shape();
      BEAMD_ASSIGN_OR_RETURN(const int64_t size,
                             DenseBytes(buffer->info.dtype(), buffer->info.shape()));
      // Its memory is for the largest values of its variables.
      if (size > content.size_bytes()) return absl::InternalError("an output without its memory");
      buffer->info.set_bytes(static_cast<uint64_t>(size));
      BEAMD_RETURN_IF_ERROR(AddBuffer(buffer).status());
      *to.mutable_buffer() = buffer->info;
    }
    bytes += to.buffer().bytes();
  }
  for (int i = 0; bytes <= MostInline(*task) && i < response.outputs_size(); ++i) {
    const Content& content = *task->memories[plan.planned.outputs(i).memory()];
    response.mutable_outputs(i)->set_data(content.data(), response.outputs(i).buffer().bytes());
  }
  for (const internal::RunPlanReply::Launch& launch : reply.launches()) {
    const auto k = static_cast<int>(launch.kernel());
    const internal::PlanKernel& kernel = plan.planned.kernels(k);
    v1::KernelRun& to = *response.add_kernels();
    to.set_name(plan.names[static_cast<size_t>(k)]);
    to.set_kernel_hash(kernel.hash());
    *to.mutable_opts() = plan.choices[static_cast<size_t>(k)].opts;
    to.set_match(plan.choices[static_cast<size_t>(k)].match);
    to.set_seconds(launch.seconds());
    to.set_flops(kernel.flops());
    to.set_bytes(kernel.bytes());
  }
  v1::RunStatistics& statistics = *response.mutable_statistics();
  statistics.set_captured(task->captured);
  statistics.set_kernels(plan.planned.launches());
  statistics.set_compiled(task->compiled);
  if (!task->captured) {
    statistics.set_schedule_s(absl::ToDoubleSeconds(absl::Nanoseconds(plan.planned.schedule_ns())));
    statistics.set_compile_s(task->compile_s);
  }
  statistics.set_run_s(reply.run_s());
  statistics.set_wait_s(reply.wait_s());
  statistics.set_scratch_bytes(static_cast<uint64_t>(plan.planned.scratch_bytes()));
  return response;
}

void Session::LoseRunner(const std::string& why) {
  MutexLock lock(mutex_);
  plans_.clear();
  scratch_bytes_ = 0;
  for (const auto& [handle, buffer] : buffers_) {
    if (buffer->content->staged() || !buffer->lost.empty()) continue;
    buffer->lost = absl::StrCat(kLostWithRunner, ": ", why);
  }
}

// What the task was to write may be half written.
void Session::Lose(const TaskPtr& task, const std::string& why) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < task->inputs.size(); ++i) {
    if (task->use.inputs[i].written) {
      task->inputs[i]->lost = absl::StrCat("lost when a run that assigns to it failed: ", why);
    }
  }
}

void Session::Finish(const TaskPtr& task, absl::StatusOr<v1::RunResponse> answer) {
  if (task->cancel != nullptr) task->cancel->Remove(task->cancelling);
  std::vector<std::pair<ReadDone, absl::StatusOr<BufferSnapshot>>> reads;
  TaskPtr next;
  {
    MutexLock lock(mutex_);
    used_ = SteadyNow();
    if (task->fetched == nullptr) host_.pace->Ran(this, used_);
    CountQueued(-task->use.size_bytes);
    if (task->dropped) --dropped_;
    task->memories.clear();
    for (const BufferPtr& buffer : task->inputs) {
      if (buffer->writer.lock() == task) buffer->writer.reset();
    }
    for (auto& [buffer, done] : task->readers) {
      if (closed_) {
        reads.emplace_back(std::move(done), Ended());
      } else if (!buffer->lost.empty()) {
        reads.emplace_back(std::move(done),
                           NotThere(buffer->info.handle(), std::nullopt, "LOST", buffer->lost));
      } else if (task->fetched != nullptr && !answer.ok()) {
        reads.emplace_back(std::move(done), answer.status());
      } else {
        reads.emplace_back(std::move(done), BufferSnapshot{buffer->info, buffer->content});
      }
    }
    task->readers.clear();
    task->inputs.clear();
    queue_.pop_front();
    if (!queue_.empty()) next = queue_.front();
  }
  task->done(std::move(answer));
  for (auto& [done, snapshot] : reads) done(std::move(snapshot));
  // Not here: a run may end on the supervisor's thread, and the next may copy or look things up.
  if (next != nullptr) {
    host_.executor->Post([self = shared_from_this(), next] { self->Advance(next); });
  }
  host_.pending.fetch_sub(1);
}

}  // namespace beamd
