// What a thin client pays for a daemon between it and its kernels. A JSON line a figure, with the
// yardstick that it is over, taken in the same run.
//
//   exec_bench [--beamd PATH] [--only plan,matmul,transfer,train,killed,small] [--mb 1024]
//              [--tinygrad CHECKOUT --peer DIR]
//
// "plan": a captured run of many tiny kernels; what remains of a call when an echo of the same bytes
// and the kernels' own times are taken off, a kernel. "matmul": 256x256 f32 on resident buffers, over
// an echo plus the kernel. "transfer": an upload and a download, over a plain gRPC stream of the same
// messages, and as the client's library makes them, digest and all. "train": a step of the MLP, with
// the server's gradients, over tinygrad's with TinyJit. "killed": clients that hold memory and are
// killed. "small": small runs while another client uploads, over the same alone.
//
// The yardsticks' server is this program too, in a process of its own, on the cores that a daemon
// serves on (the last one is for timing): calls are echoed; a stream is swallowed, or as many
// messages sent as were asked for.
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "client/thin/session.h"
#include "engine/base/crc32c.h"
#include "engine/lazy/lazy_context.h"
#include "engine/tensor/graph.h"
#include "engine/tensor/tensor.h"
#include "engine/uop/wire.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "proto/beamd/v1/executor.grpc.pb.h"
#include "server/workers/spawn.h"
#include "tests/bench/server_process.h"
#include "tests/testing/executor_client.h"

ABSL_FLAG(std::string, beamd, "", "the daemon's binary; empty: the one built beside this program");
ABSL_FLAG(std::vector<std::string>, only, {}, "these figures; none named: all");
ABSL_FLAG(int, mb, 1024, "of a transfer");
ABSL_FLAG(int, kernels, 64, "of the run of tiny kernels");
ABSL_FLAG(int, clients, 20, "that are killed");
ABSL_FLAG(int, client_mb, 500, "that each of them holds");
ABSL_FLAG(std::string, tinygrad, "", "a checkout of tinygrad 0.10.0; empty: no comparison");
ABSL_FLAG(std::string, peer, "", "folder of peer_train.py");
ABSL_FLAG(std::string, client_of, "",
          "be another client of that address: started by the bench itself");
ABSL_FLAG(bool, client_holds, false, "and hold the memory until the end comes");
ABSL_FLAG(bool, yardstick_server, false, "be the yardsticks' server: started by the bench itself");

namespace beamd {
namespace {

using Clock = std::chrono::steady_clock;
using testing::ExecutorClient;
using testing::Matmul;

constexpr int64_t kMegabyte = int64_t{1} << 20;
// As the client library's, and as the daemon's.
constexpr int64_t kChunk = int64_t{256} << 10;
// Seconds, of the clients that are killed.
constexpr double kLease = 5;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double At(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(last * share)];
}
double Median(std::vector<double> values) { return At(std::move(values), 0.5); }

// --- the yardsticks ---

class Yardstick final : public grpc::CallbackGenericService {
  class EchoReactor final : public grpc::ServerGenericBidiReactor {
   public:
    EchoReactor() { StartRead(&bytes_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartWriteAndFinish(&bytes_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer bytes_;
  };
  // Reads to the end, then sends as many messages as the first one's number says.
  class StreamReactor final : public grpc::ServerGenericBidiReactor {
   public:
    StreamReactor() { StartRead(&bytes_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Send();
      if (first_) {
        grpc::Slice slice;
        if (bytes_.DumpToSingleSlice(&slice).ok() && slice.size() <= 16) {
          count_ = std::atoi(std::string(slice.begin(), slice.end()).c_str());
        }
        first_ = false;
      }
      StartRead(&bytes_);
    }
    void OnWriteDone(bool) override { Send(); }
    void OnDone() override { delete this; }

   private:
    // Each from its own place in memory, as what anybody wants to have comes.
    void Send() {
      if (sent_ == count_) return Finish(grpc::Status::OK);
      static std::string content;
      content.resize(std::max(content.size(), static_cast<size_t>(count_ * kChunk)), 'x');
      const grpc::Slice chunk(content.data() + sent_++ * kChunk, kChunk, grpc::Slice::STATIC_SLICE);
      bytes_ = grpc::ByteBuffer(&chunk, 1);
      StartWrite(&bytes_);
    }
    grpc::ByteBuffer bytes_;
    bool first_ = true;
    int64_t count_ = 0, sent_ = 0;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == "/echo") return new EchoReactor;
    return new StreamReactor;
  }
};

int ServeYardsticks() {
  std::vector<int> cores = AllowedCores();
  if (cores.size() > 1) cores.pop_back();
  if (!BindToCores(cores).ok()) Die("the yardsticks' server has no cores");
  Yardstick yardstick;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&yardstick);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::printf("ready 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return channel;
}

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return {&slice, 1};
}

// A unary call of raw bytes.
void Call(grpc::ChannelInterface* channel, const char* method, const grpc::ByteBuffer& request,
          grpc::ByteBuffer& response) {
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::ClientContext context;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall(channel, rpc, &context, request, &response);
  if (!status.ok()) Die(absl::StrCat(method, ": ", status.error_message()));
}

// Seconds of each of `count` calls, after some that aren't counted.
std::vector<double> TimeCalls(int count, const std::function<void()>& call) {
  for (int i = 0; i < count / 10 + 3; ++i) call();
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const Clock::time_point start = Clock::now();
    call();
    seconds.push_back(Since(start));
  }
  return seconds;
}

struct Daemon {
  explicit Daemon(std::vector<std::string> flags = {}) : directory(FastDirectory()) {
    const std::string beamd = absl::GetFlag(FLAGS_beamd);
    std::vector<std::string> argv = {beamd.empty() ? BuiltDaemon() : beamd,
                                     "serve",
                                     "--listen",
                                     "127.0.0.1:0",
                                     "--store",
                                     directory,
                                     "--calls_per_second=0",
                                     "--log_level=warn"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    process = std::make_unique<ServerProcess>(std::move(argv));
  }
  ~Daemon() {
    process = nullptr;
    std::filesystem::remove_all(directory);
  }
  const std::string directory;
  std::unique_ptr<ServerProcess> process;
};

ServerProcess StartYardsticks() {
  return ServerProcess(
      {std::filesystem::read_symlink("/proc/self/exe").string(), "--yardstick_server"});
}

void MustOpen(ExecutorClient& client) {
  if (!client.Open()) Die(client.status().error_message());
}

// A run's request and answer as bytes, its calls, and echoes of the same sizes.
struct RunTimes {
  double run_s = 0;  // medians
  double echo_s = 0;
  double kernels_s = 0;  // of all kernels of a run together
};

RunTimes TimeRuns(ExecutorClient& client, const std::string& address, const std::string& yardstick,
                  v1::RunRequest request, int count) {
  request.set_session(client.session());
  request.set_profile(true);
  std::vector<double> kernels;
  for (int i = 0; i < 20; ++i) {
    const std::optional<v1::RunResponse> ran = client.Run(request);
    if (!ran) Die(client.status().error_message());
    double sum = 0;
    for (const v1::KernelRun& kernel : ran->kernels()) sum += kernel.seconds();
    if (i >= 5) kernels.push_back(sum);
    std::vector<uint64_t> made;
    for (const v1::RunOutput& output : ran->outputs()) made.push_back(output.buffer().handle());
    if (!client.Free(made)) Die(client.status().error_message());
  }
  request.set_profile(false);
  const std::shared_ptr<grpc::Channel> channel = Connect(address);
  const grpc::ByteBuffer bytes = Bytes(request.SerializeAsString());
  grpc::ByteBuffer response;
  std::vector<double> run;
  std::vector<uint64_t> made;
  for (int i = 0; i < count; ++i) {
    const Clock::time_point start = Clock::now();
    Call(channel.get(), "/beamd.v1.Executor/Run", bytes, response);
    if (i >= count / 10) run.push_back(Since(start));
    grpc::Slice slice;
    v1::RunResponse answer;
    if (!response.DumpToSingleSlice(&slice).ok() ||
        !answer.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
      Die("an answer that is none");
    }
    for (const v1::RunOutput& output : answer.outputs()) made.push_back(output.buffer().handle());
    if (made.size() >= 64) {
      if (!client.Free(made)) Die(client.status().error_message());
      made.clear();
    }
  }
  if (!made.empty()) client.Free(made);
  const std::shared_ptr<grpc::Channel> echo = Connect(yardstick);
  const std::vector<double> echoes =
      TimeCalls(count, [&] { Call(echo.get(), "/echo", bytes, response); });
  return {.run_s = Median(run), .echo_s = Median(echoes), .kernels_s = Median(kernels)};
}

// x + 1, so many times, each in a kernel of its own.
std::string Chain(uint64_t x, int kernels) {
  std::string text = absl::Substitute(
      "%0 = BUFFER float32 slot $0 shape (4)\n%1 = CONST float32 1.0\n"
      "%2 = RESHAPE float32 (%1) ints (1)\n%3 = EXPAND float32 (%2) ints (4)\n",
      x);
  int last = 0, next = 4;
  for (int i = 0; i < kernels; ++i) {
    absl::StrAppend(&text, "%", next, " = ADD float32 (%", last, ", %3)\n%", next + 1,
                    " = CONTIGUOUS float32 (%", next, ")\n");
    last = next + 1;
    next += 2;
  }
  absl::StrAppend(&text, "%", next, " = SINK void (%", last, ")");
  return text;
}

void Plan() {
  const Daemon daemon;
  const ServerProcess yardstick = StartYardsticks();
  ExecutorClient client(daemon.process->address());
  MustOpen(client);
  v1::RunRequest request;
  const int kernels = absl::GetFlag(FLAGS_kernels);
  *request.mutable_graph() = testing::GraphOf(Chain(client.Upload({4}, {1, 2, 3, 4}), kernels));
  const RunTimes times =
      TimeRuns(client, daemon.process->address(), yardstick.address(), request, 2000);
  const double left = times.run_s - times.echo_s - times.kernels_s;
  std::printf(
      "{\"figure\":\"plan\",\"kernels\":%d,\"run_us\":%.1f,\"echo_us\":%.1f,\"kernels_us\":%.1f,"
      "\"overhead_a_kernel_us\":%.2f,\"bound\":20}\n",
      kernels, times.run_s * 1e6, times.echo_s * 1e6, times.kernels_s * 1e6, left / kernels * 1e6);
}

void MatmulRun() {
  const Daemon daemon;
  const ServerProcess yardstick = StartYardsticks();
  ExecutorClient client(daemon.process->address());
  MustOpen(client);
  constexpr int kSize = 256;
  std::vector<float> values(kSize * kSize);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) / 17;
  v1::RunRequest request;
  *request.mutable_graph() = testing::GraphOf(
      Matmul(client.Upload({kSize, kSize}, values), client.Upload({kSize, kSize}, values), kSize));
  const RunTimes times =
      TimeRuns(client, daemon.process->address(), yardstick.address(), request, 2000);
  std::printf(
      "{\"figure\":\"matmul\",\"run_us\":%.1f,\"echo_us\":%.1f,\"kernel_us\":%.1f,\"ratio\":%.3f,"
      "\"bound\":1.5}\n",
      times.run_s * 1e6, times.echo_s * 1e6, times.kernels_s * 1e6,
      times.run_s / (times.echo_s + times.kernels_s));
}

// Sends the same messages that an upload does.
double PlainUpload(grpc::Channel& channel, const std::vector<grpc::ByteBuffer>& messages) {
  const grpc::internal::RpcMethod rpc("/stream", grpc::internal::RpcMethod::CLIENT_STREAMING);
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          &channel, rpc, &context));
  for (const grpc::ByteBuffer& message : messages) {
    if (!stream->Write(message)) Die("the plain stream broke");
  }
  stream->WritesDone();
  if (!stream->Finish().ok()) Die("the plain stream failed");
  return Since(start);
}

double PlainDownload(grpc::Channel& channel, int64_t bytes) {
  const grpc::internal::RpcMethod rpc("/stream", grpc::internal::RpcMethod::BIDI_STREAMING);
  grpc::ClientContext context;
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          &channel, rpc, &context));
  if (!stream->Write(Bytes(absl::StrCat(bytes / kChunk)))) Die("the plain stream broke");
  stream->WritesDone();
  grpc::ByteBuffer message;
  while (stream->Read(&message)) {
  }
  if (!stream->Finish().ok()) Die("the plain stream failed");
  return Since(start);
}

// An upload's messages. What is sent is the same chunk over and over.
std::vector<grpc::ByteBuffer> UploadMessages(const std::string& session, uint64_t handle,
                                             int64_t bytes) {
  std::string data(kChunk, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + i / 255);
  const uint32_t crc = Crc32c(0, std::as_bytes(std::span(data)));
  std::vector<grpc::ByteBuffer> messages;
  const grpc::Slice shared(data);
  for (int64_t i = 0; i < bytes / kChunk; ++i) {
    v1::UploadChunk head;
    if (i == 0) {
      head.set_session(session);
      head.set_handle(handle);
    }
    head.set_offset(static_cast<uint64_t>(i * kChunk));
    head.set_crc32c(crc);
    std::string bytes = head.SerializeAsString();
    // The field `data`, a slice that all messages share.
    bytes += '\x22';
    for (uint64_t left = kChunk; left > 0; left >>= 7) {
      bytes += static_cast<char>((left & 127) | (left > 127 ? 128 : 0));
    }
    const std::array<grpc::Slice, 2> slices = {grpc::Slice(bytes), shared};
    messages.emplace_back(slices.data(), slices.size());
  }
  return messages;
}

uint64_t BeginUpload(ExecutorClient& client, int64_t bytes) {
  v1::BeginUploadRequest begin;
  begin.set_session(client.session());
  begin.set_dtype(v1::SCALAR_UINT8);
  begin.add_shape(bytes);
  const std::optional<v1::BeginUploadResponse> begun = client.Begin(begin);
  if (!begun) Die(client.status().error_message());
  return begun->handle();
}

double Upload(grpc::Channel& channel, const std::vector<grpc::ByteBuffer>& messages) {
  const grpc::internal::RpcMethod rpc("/beamd.v1.Executor/Upload",
                                      grpc::internal::RpcMethod::CLIENT_STREAMING);
  grpc::ClientContext context;
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          &channel, rpc, &context));
  for (const grpc::ByteBuffer& message : messages) {
    if (!stream->Write(message)) break;
  }
  stream->WritesDone();
  grpc::ByteBuffer answer;
  while (stream->Read(&answer)) {
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) Die(absl::StrCat("upload: ", status.error_message()));
  return Since(start);
}

double Download(grpc::Channel& channel, const std::string& session, uint64_t handle) {
  const grpc::internal::RpcMethod rpc("/beamd.v1.Executor/Download",
                                      grpc::internal::RpcMethod::SERVER_STREAMING);
  grpc::ClientContext context;
  v1::DownloadRequest request;
  request.set_session(session);
  request.set_handle(handle);
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
          &channel, rpc, &context, Bytes(request.SerializeAsString())));
  grpc::ByteBuffer message;
  while (stream->Read(&message)) {
  }
  if (const grpc::Status status = stream->Finish(); !status.ok()) {
    Die(absl::StrCat("download: ", status.error_message()));
  }
  return Since(start);
}

std::string SomeContent(int64_t bytes) {
  std::string content(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 255);
  return content;
}

// Seconds of an upload and a download as programs make them: by the library, as it is set.
std::pair<double, double> LibraryTransfer(thin::Session& session, const std::string& content) {
  const Clock::time_point start = Clock::now();
  absl::StatusOr<std::shared_ptr<thin::Buffer>> buffer =
      session.Upload(content, v1::SCALAR_UINT8, {static_cast<int64_t>(content.size())});
  if (!buffer.ok()) Die(buffer.status().ToString());
  const double up = Since(start);
  const Clock::time_point middle = Clock::now();
  absl::StatusOr<std::string> back = session.Download(**buffer);
  const double down = Since(middle);
  if (!back.ok() || *back != content) Die("the library's transfer went wrong");
  // Gone, so that the next one's content isn't there already.
  *buffer = nullptr;
  if (const absl::Status freed = session.FreeUnused(); !freed.ok()) Die(freed.ToString());
  return {up, down};
}

void Transfer() {
  const int64_t bytes = absl::GetFlag(FLAGS_mb) * kMegabyte;
  const Daemon daemon({absl::StrCat("--session_mb=", 2 * absl::GetFlag(FLAGS_mb)),
                       absl::StrCat("--sessions_mb=", 2 * absl::GetFlag(FLAGS_mb))});
  const ServerProcess yardstick = StartYardsticks();
  ExecutorClient client(daemon.process->address());
  MustOpen(client);
  const std::shared_ptr<grpc::Channel> channel = Connect(daemon.process->address());
  const std::shared_ptr<grpc::Channel> plain = Connect(yardstick.address());
  absl::StatusOr<std::unique_ptr<thin::Session>> library =
      thin::Session::Open(daemon.process->address());
  if (!library.ok()) Die(library.status().ToString());
  const std::string content = SomeContent(bytes);
  std::vector<double> up, down, plain_up, plain_down, library_up, library_down;
  PlainDownload(*plain, bytes);  // it makes its content
  for (int i = 0; i < 3; ++i) {
    const uint64_t handle = BeginUpload(client, bytes);
    const std::vector<grpc::ByteBuffer> messages = UploadMessages(client.session(), handle, bytes);
    plain_up.push_back(PlainUpload(*plain, messages));
    up.push_back(Upload(*channel, messages));
    plain_down.push_back(PlainDownload(*plain, bytes));
    down.push_back(Download(*channel, client.session(), handle));
    if (!client.Free({handle})) Die(client.status().error_message());
    const auto [sent, received] = LibraryTransfer(**library, content);
    library_up.push_back(sent);
    library_down.push_back(received);
  }
  const auto rate = [&](const std::vector<double>& seconds) {
    return static_cast<double>(bytes) / Median(seconds) / 1e9;
  };
  std::printf(
      "{\"figure\":\"transfer\",\"mb\":%d,\"upload_gb_s\":%.3f,\"plain_upload_gb_s\":%.3f,"
      "\"upload_ratio\":%.3f,\"download_gb_s\":%.3f,\"plain_download_gb_s\":%.3f,"
      "\"download_ratio\":%.3f,\"library_upload_ratio\":%.3f,\"library_download_ratio\":%.3f,"
      "\"bound\":0.5}\n",
      absl::GetFlag(FLAGS_mb), rate(up), rate(plain_up), rate(up) / rate(plain_up), rate(down),
      rate(plain_down), rate(down) / rate(plain_down), rate(library_up) / rate(plain_up),
      rate(library_down) / rate(plain_down));
}

// Of what peer_train.py prints: "jit 0.0034".
std::optional<double> PeerTrain() {
  if (absl::GetFlag(FLAGS_tinygrad).empty()) return std::nullopt;
  const std::string command =
      absl::StrCat("CLANG=1 PYTHONPATH='", absl::GetFlag(FLAGS_tinygrad), "' python3 '",
                   absl::GetFlag(FLAGS_peer), "/peer_train.py'");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  char word[64];
  double value = 0;
  std::optional<double> jit;
  while (std::fscanf(pipe, "%63s %lf", word, &value) == 2) {
    if (std::string(word) == "jit") jit = value;
  }
  pclose(pipe);
  return jit;
}

// The MLP's loss over BUFFERs, and the step that takes gradients off weights.
void Train() {
  const Daemon daemon;
  ExecutorClient client(daemon.process->address());
  MustOpen(client);
  LazyContext context;
  context.training = true;
  const std::vector<std::vector<int64_t>> shapes = {{256, 784}, {256}, {10, 256}, {10}};
  const auto shape_of = [](const std::vector<int64_t>& sizes) {
    Shape shape;
    for (const int64_t size : sizes) shape.emplace_back(size);
    return shape;
  };
  std::vector<Tensor> weights;
  weights.reserve(shapes.size());
  for (const auto& shape : shapes) weights.push_back(Tensor::Empty(context, shape_of(shape)));
  const Tensor x = Tensor::Empty(context, {64, 784});
  const Tensor y = Tensor::Empty(context, {64}, {.dtype = Scalar::kInt32});
  const Tensor loss = x.Linear(weights[0].Transpose(), weights[1])
                          .Relu()
                          .Linear(weights[2].Transpose(), weights[3])
                          .SparseCategoricalCrossentropy(y);

  std::vector<uint64_t> handles;
  uint32_t state = 1;
  const auto random = [&](int64_t count, float scale) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
      state = state * 1664525 + 1013904223;
      value = (static_cast<float>(state >> 8) / 8388608.0f - 1) * scale;
    }
    return values;
  };
  for (const auto& shape : shapes) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    handles.push_back(client.Upload(shape, random(count, 0.05f)));
  }
  const uint64_t x_handle = client.Upload({64, 784}, random(64 * 784, 1));
  std::vector<int32_t> labels(64);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 10);
  const uint64_t y_handle = client.Upload(v1::SCALAR_INT32, {64}, std::as_bytes(std::span(labels)));

  // Handles in the place of the ids that the writer gave the buffers.
  const auto request_of = [&](const std::vector<Tensor>& outputs,
                              const std::vector<std::pair<Tensor, uint64_t>>& names) {
    UOpGraph graph;
    const absl::StatusOr<TensorGraph> written = GraphFromTensors(outputs, graph);
    if (!written.ok()) Die(written.status().ToString());
    v1::RunRequest request;
    request.set_session(client.session());
    *request.mutable_graph() = ToProto(written->root);
    for (v1::Node& node : *request.mutable_graph()->mutable_nodes()) {
      if (node.op() != v1::OP_BUFFER) continue;
      const LazyBuffer& buffer = written->buffers[node.buffer_arg().id()];
      for (const auto& [tensor, handle] : names) {
        if (tensor.lazydata().base() == buffer) node.mutable_buffer_arg()->set_id(handle);
      }
    }
    return request;
  };
  std::vector<std::pair<Tensor, uint64_t>> names = {{x, x_handle}, {y, y_handle}};
  for (size_t i = 0; i < weights.size(); ++i) names.emplace_back(weights[i], handles[i]);
  v1::RunRequest forward = request_of({loss}, names);
  for (const uint64_t handle : handles) forward.add_gradients(handle);
  forward.set_inline_bytes(0);

  // Gradients have other handles each step: they are put where these stand.
  constexpr uint64_t kFirstGradient = 1'000'000;
  std::vector<Tensor> updated;
  std::vector<std::pair<Tensor, uint64_t>> step_names;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Tensor gradient = Tensor::Empty(context, shape_of(shapes[i]));
    const LazyBuffer weight = weights[i].lazydata();
    updated.emplace_back(weight.Assign(weight + gradient.lazydata() * ConstValue(-0.01)));
    step_names.emplace_back(weights[i], handles[i]);
    step_names.emplace_back(gradient, kFirstGradient + i);
  }
  const v1::RunRequest step = request_of(updated, step_names);

  double first_loss = 0, last_loss = 0;
  std::vector<uint64_t> made;
  const auto train = [&](bool read) {
    const std::optional<v1::RunResponse> ran = client.Run(forward);
    if (!ran) Die(client.status().error_message());
    v1::RunRequest apply = step;
    for (v1::Node& node : *apply.mutable_graph()->mutable_nodes()) {
      if (node.op() != v1::OP_BUFFER || node.buffer_arg().id() < kFirstGradient) continue;
      const auto i = static_cast<int>(node.buffer_arg().id() - kFirstGradient);
      node.mutable_buffer_arg()->set_id(ran->outputs(1 + i).buffer().handle());
    }
    if (!client.Run(apply)) Die(client.status().error_message());
    if (read) {
      last_loss = client.Floats(ran->outputs(0).buffer().handle())[0];
      if (first_loss == 0) first_loss = last_loss;
    }
    made.clear();
    for (const v1::RunOutput& output : ran->outputs()) made.push_back(output.buffer().handle());
    if (!client.Free(made)) Die(client.status().error_message());
  };
  train(true);
  const double seconds = Median(TimeCalls(200, [&] { train(false); }));
  train(true);
  if (!(last_loss < first_loss)) Die("the loss doesn't fall");
  const std::optional<double> peer = PeerTrain();
  std::printf("{\"figure\":\"train\",\"step_ms\":%.3f,\"first_loss\":%.4f,\"last_loss\":%.4f",
              seconds * 1e3, first_loss, last_loss);
  if (peer) std::printf(",\"tinygrad_ms\":%.3f,\"ratio\":%.3f", *peer * 1e3, seconds / *peer);
  std::printf(",\"bound\":0.7}\n");
}

// --- other clients, in processes of their own ---

// Uploads and says "x" on standard output when it begins, or when it holds what it uploaded.
int BeClient(const std::string& address) {
  // What this one does to the measured client is the daemon's to bound, but that both want the same
  // cores isn't: whoever waits for one gets it first.
  const sched_param param{};
  if (sched_setscheduler(0, SCHED_IDLE, &param) != 0) Die("no lower priority");
  const bool holds = absl::GetFlag(FLAGS_client_holds);
  const int64_t mb = absl::GetFlag(FLAGS_client_mb);
  ExecutorClient client(address);
  if (!client.Open(holds ? kLease : 0)) Die(client.status().error_message());
  const uint64_t handle = BeginUpload(client, mb * kMegabyte);
  const std::vector<grpc::ByteBuffer> messages =
      UploadMessages(client.session(), handle, mb * kMegabyte);
  const std::shared_ptr<grpc::Channel> channel = Connect(address);
  const auto tell = [] {
    std::printf("x");
    std::fflush(stdout);
  };
  if (!holds) tell();
  Upload(*channel, messages);
  if (!holds) return client.Close() ? 0 : 1;
  tell();
  while (client.KeepAlive()) std::this_thread::sleep_for(std::chrono::seconds(1));
  return 1;
}

// Returns once it has said "x".
pid_t StartClient(const std::string& address, int64_t mb, bool holds) {
  std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                   absl::StrCat("--client_of=", address),
                                   absl::StrCat("--client_mb=", mb),
                                   holds ? "--client_holds" : "--noclient_holds"};
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (std::string& arg : argv) args.push_back(arg.data());
  args.push_back(nullptr);
  int told[2];
  if (pipe(told) != 0) Die("no pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(told[1], STDOUT_FILENO);
    close(told[0]);
    close(told[1]);
    execv(args[0], args.data());
    _exit(127);
  }
  close(told[1]);
  char byte = 0;
  if (read(told[0], &byte, 1) != 1) Die("another client failed");
  close(told[0]);
  return pid;
}

void Killed() {
  const int clients = absl::GetFlag(FLAGS_clients);
  const int64_t mb = absl::GetFlag(FLAGS_client_mb);
  // Room for them, and for less than one more.
  const Daemon daemon(
      {absl::StrCat("--session_mb=", mb), absl::StrCat("--sessions_mb=", clients * mb + mb / 2)});
  std::vector<pid_t> children;
  children.reserve(static_cast<size_t>(clients));
  for (int i = 0; i < clients; ++i) {
    children.push_back(StartClient(daemon.process->address(), mb, /*holds=*/true));
  }
  ExecutorClient next(daemon.process->address());
  MustOpen(next);
  v1::BeginUploadRequest begin;
  begin.set_session(next.session());
  begin.set_dtype(v1::SCALAR_UINT8);
  begin.add_shape(mb * kMegabyte);
  const bool refused = !next.Begin(begin);
  for (const pid_t child : children) kill(child, SIGKILL);
  const Clock::time_point killed = Clock::now();
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::optional<v1::BeginUploadResponse> begun;
  while (!(begun = next.Begin(begin)) && Since(killed) < 60) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const double first_s = Since(killed);
  if (begun) {
    const std::shared_ptr<grpc::Channel> channel = Connect(daemon.process->address());
    Upload(*channel, UploadMessages(next.session(), begun->handle(), mb * kMegabyte));
  }
  // All leases have ended by then; what is left is the one that succeeded.
  std::this_thread::sleep_for(std::chrono::milliseconds(
      std::max(0, static_cast<int>((kLease + 1 - Since(killed)) * 1000))));
  std::printf(
      "{\"figure\":\"killed\",\"clients\":%d,\"client_mb\":%lld,\"refused_while_held\":%s,"
      "\"lease_s\":%.0f,\"next_s\":%.2f,\"next_succeeds\":%s,\"resident_mb\":%.0f}\n",
      clients, static_cast<long long>(mb), refused ? "true" : "false", kLease, first_s,
      begun ? "true" : "false", daemon.process->resident_bytes() / 1e6);
}

void Small() {
  const int64_t mb = absl::GetFlag(FLAGS_mb);
  const Daemon daemon({absl::StrCat("--session_mb=", 2 * absl::GetFlag(FLAGS_mb)),
                       absl::StrCat("--sessions_mb=", 4 * absl::GetFlag(FLAGS_mb))});
  ExecutorClient client(daemon.process->address());
  MustOpen(client);
  v1::RunRequest request;
  *request.mutable_graph() = testing::GraphOf(Chain(client.Upload({4}, {1, 2, 3, 4}), 1));
  const auto run = [&] {
    const std::optional<v1::RunResponse> ran = client.Run(request);
    if (!ran) Die(client.status().error_message());
    if (!client.Free({ran->outputs(0).buffer().handle()})) Die(client.status().error_message());
  };
  std::vector<double> alone, beside;
  for (int round = 0; round < 3; ++round) {
    const std::vector<double> now = TimeCalls(1000, run);
    alone.insert(alone.end(), now.begin(), now.end());
    const pid_t child = StartClient(daemon.process->address(), mb, /*holds=*/false);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      const Clock::time_point start = Clock::now();
      run();
      beside.push_back(Since(start));
    }
    if (status != 0) Die("the other client failed");
  }
  std::printf(
      "{\"figure\":\"small\",\"alone_p50_us\":%.0f,\"alone_p99_us\":%.0f,\"beside_p50_us\":%.0f,"
      "\"beside_p99_us\":%.0f,\"runs_beside\":%zu,\"ratio\":%.3f,\"bound\":2}\n",
      Median(alone) * 1e6, At(alone, 0.99) * 1e6, Median(beside) * 1e6, At(beside, 0.99) * 1e6,
      beside.size(), At(beside, 0.99) / At(alone, 0.99));
}

int Main() {
  const std::vector<std::string> only = absl::GetFlag(FLAGS_only);
  const std::vector<std::pair<std::string, void (*)()>> figures = {
      {"killed", Killed},     {"plan", Plan},   {"matmul", MatmulRun},
      {"transfer", Transfer}, {"train", Train}, {"small", Small}};
  for (const auto& [name, figure] : figures) {
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
    figure();
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace beamd

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_yardstick_server)) return beamd::ServeYardsticks();
  if (const std::string address = absl::GetFlag(FLAGS_client_of); !address.empty()) {
    return beamd::BeClient(address);
  }
  return beamd::Main();
}
