// Who gets in, by what, and what is told of it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cc/client.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "proto/beamd/v1/admin.pb.h"
#include "proto/beamd/v1/batch.pb.h"
#include "proto/beamd/v1/executor.pb.h"
#include "proto/beamd/v1/jobs.pb.h"
#include "proto/beamd/v1/tuning.pb.h"
#include "tests/testing/daemon.h"

namespace beamd {
namespace {

using ::beamd::testing::AddKernel;
using ::beamd::testing::Daemon;
using ::beamd::testing::FreshDirectory;
using ::beamd::testing::Ran;
using ::beamd::testing::RunProcess;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = grpc::StatusCode;

constexpr char kBeamd[] = "server/beamd";
constexpr char kList[] = "/beamd.v1.Records/List";
constexpr char kShow[] = "/beamd.v1.Inspector/Show";

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void WriteFile(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class SecurityTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  void Start(std::vector<std::string> flags) {
    flags.push_back("--log_file=" + Path("log"));
    daemon_ = std::make_unique<Daemon>(kBeamd, Path("store"), flags);
  }

  // Certificates below `folder`, signed by an authority of that folder's own.
  void MakeCertificates(const std::string& folder,
                        const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv = {"deploy/make_certs.sh", Path(folder)};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const Ran ran = RunProcess(argv);
    ASSERT_EQ(ran.status, 0) << ran.err;
  }

  std::string MakeToken(const std::string& name, const std::string& role) {
    const Ran ran = RunProcess({kBeamd, "token", name, role});
    EXPECT_EQ(ran.status, 0) << ran.err;
    access_ += ran.err.substr(ran.err.find('\n') + 1);
    return ran.out.substr(0, ran.out.find('\n'));
  }

  static std::shared_ptr<grpc::Channel> Plain(const std::string& address) {
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  }
  std::shared_ptr<grpc::Channel> Tls(const std::string& folder,
                                     const std::string& client = "") const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ReadFile(Path(folder) + "/ca.crt");
    if (!client.empty()) {
      options.pem_cert_chain = ReadFile(Path(folder) + "/" + client + ".crt");
      options.pem_private_key = ReadFile(Path(folder) + "/" + client + ".key");
    }
    // A session that is resumed would show nobody's new certificate.
    grpc::ChannelArguments arguments;
    arguments.SetInt("beamd.test.channel", ++channels_);
    return grpc::CreateCustomChannel(daemon_->address(), grpc::SslCredentials(options), arguments);
  }

  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                           const std::string& token = "", const std::string& bytes = "",
                           google::protobuf::Message* answer = nullptr) {
    const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC, channel);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall(channel.get(), rpc, &context, request, &response);
    grpc::Slice whole;
    if (answer != nullptr && response.DumpToSingleSlice(&whole).ok()) {
      answer->ParseFromArray(whole.begin(), static_cast<int>(whole.size()));
    }
    return status;
  }

  static v1::ErrorDetail DetailOf(const grpc::Status& status) {
    v1::StatusDetails details;
    v1::ErrorDetail detail;
    EXPECT_TRUE(details.ParseFromString(status.error_details()) && details.details_size() == 1 &&
                details.details(0).UnpackTo(&detail))
        << status.error_message();
    return detail;
  }

  // Asks until it is answered like that, for ten seconds.
  static bool Becomes(const std::function<bool()>& so) {
    for (int i = 0; i < 200; ++i) {
      if (so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  std::string Get(const std::string& path) const {
    std::smatch found;
    const std::string log = ReadFile(Path("log"));
    if (!std::regex_search(log, found, std::regex("http=127.0.0.1:([0-9]+)"))) return "no http";
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(found[1].str(), &port));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::string answer;
    char chunk[4096];
    ssize_t n = 0;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0) answer.append(chunk, static_cast<size_t>(n));
    close(fd);
    return answer;
  }

  const std::string directory_ = FreshDirectory();
  std::string access_;
  std::unique_ptr<Daemon> daemon_;
  mutable int channels_ = 0;
};

TEST_F(SecurityTest, AnOpenListenerWantsProtection) {
  const Ran ran = RunProcess({kBeamd, "serve", "--store", Path("store"), "--listen", "0.0.0.0:0"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("--insecure"));
}

TEST_F(SecurityTest, CheckConfigSaysAllThatIsWrongAndStartsNothing) {
  WriteFile(Path("config"), absl::StrCat("jobs: 0\nwhat: 1\nqueue: \"x\"\naudit_file: \"",
                                         Path("none/audit"), "\"\ndevices: \"cpu:0,cuda:77\"\n"));
  const Ran wrong = RunProcess({kBeamd, "serve", "--config", Path("config"), "--check_config"});
  EXPECT_EQ(wrong.status, 2);
  for (const char* fault :
       {"config:2:", "config:3:", "--jobs must be 1 to 64, not 0", "--store DIR",
        "--audit_file can't be appended to: ", "--devices: there is no cuda:77 here, but cpu:0"}) {
    EXPECT_THAT(wrong.err, HasSubstr(fault));
  }
  WriteFile(Path("config"),
            absl::StrCat("store: \"", Path("store"), "\"\ndevices: \"cpu:0\"\naudit_file: \"",
                         Path("audit"), "\"\n"));
  const Ran right = RunProcess({kBeamd, "serve", "--config", Path("config"), "--check_config"});
  EXPECT_EQ(right.status, 0) << right.err;
  // It serves with fewer than it was told, and says so.
  const Ran few = RunProcess({"/bin/sh", "-c",
                              absl::StrCat("ulimit -n 1024 && exec ", kBeamd, " serve --config ",
                                           Path("config"), " --check_config")});
  EXPECT_EQ(few.status, 0) << few.err;
  EXPECT_THAT(few.err, HasSubstr("beamd: warning: of 1024 descriptors sessions get 384"));
  EXPECT_NE(access(Path("store").c_str(), F_OK), 0);
  EXPECT_NE(access(Path("audit").c_str(), F_OK), 0);
}

// By serve itself as by --check_config: none of them is made silently.
TEST_F(SecurityTest, AFolderThatIsntThereIsAFaultOfItsFlag) {
  for (const char* flag : {"log_file", "audit_file", "spans_file", "capture", "unix_socket"}) {
    for (const bool check : {false, true}) {
      std::vector<std::string> words = {kBeamd, "serve", "--listen=127.0.0.1:0",
                                        "--store=" + Path("store"),
                                        absl::StrCat("--", flag, "=none/x")};
      if (check) words.emplace_back("--check_config");
      const Ran ran = RunProcess(words);
      EXPECT_EQ(ran.status, 2) << flag;
      EXPECT_THAT(ran.err, HasSubstr(absl::StrCat("--", flag, " can't be "))) << flag;
      EXPECT_THAT(ran.err, HasSubstr(": none: No such file or directory")) << flag;
      EXPECT_NE(access("none", F_OK), 0) << flag;
    }
  }
  EXPECT_NE(access(Path("store").c_str(), F_OK), 0);
}

TEST_F(SecurityTest, TokensMayDoWhatTheirRolesMay) {
  const std::string reader = MakeToken("ci", "reader");
  const std::string submitter = MakeToken("alice", "submitter");
  WriteFile(Path("access"), access_);
  Start({"--access_file=" + Path("access"), "--audit_file=" + Path("audit")});
  const auto channel = Plain(daemon_->address());

  EXPECT_EQ(Call(channel, kList).error_code(), Code::UNAUTHENTICATED);
  const grpc::Status guess = Call(channel, kList, "guess");
  EXPECT_EQ(guess.error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(DetailOf(guess).reason(), "BAD_TOKEN");
  EXPECT_TRUE(Call(channel, kList, reader).ok());
  EXPECT_EQ(Call(channel, kShow, reader).error_code(), Code::PERMISSION_DENIED);
  // Let in, and then told that its request is none.
  EXPECT_EQ(Call(channel, kShow, submitter).error_code(), Code::INVALID_ARGUMENT);

  // Whom the file names now, and nobody else.
  access_.clear();
  const std::string late = MakeToken("bob", "reader");
  WriteFile(Path("access"), access_);
  EXPECT_EQ(Call(channel, kList, late).error_code(), Code::UNAUTHENTICATED);
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] { return Call(channel, kList, late).ok(); }));
  EXPECT_EQ(Call(channel, kList, reader).error_code(), Code::UNAUTHENTICATED);
  // A file with a fault changes nothing.
  WriteFile(Path("access"), "somebody king\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] { return ReadFile(Path("log")).find("reload:") != std::string::npos; }));
  EXPECT_TRUE(Call(channel, kList, late).ok());

  std::string audit = ReadFile(Path("audit"));
  EXPECT_THAT(audit, HasSubstr(R"("principal":"ci","host":"127.0.0.1","method":"Inspector.Show",)"
                               R"("code":"PERMISSION_DENIED","trace":"0af7651916cd43dd)"));
  EXPECT_THAT(audit, HasSubstr(R"("principal":"alice")"));
  EXPECT_THAT(audit, Not(HasSubstr(R"("method":"Records.List","code":"OK")")));
  EXPECT_THAT(audit, HasSubstr(R"("principal":"","host":"127.0.0.1","method":"Records.List",)"
                               R"("code":"UNAUTHENTICATED","trace":"0af7651916cd43dd)"));
  EXPECT_THAT(audit, HasSubstr(R"("reason":"BAD_TOKEN","object":{"peer":"ipv4:127.0.0.1:)"));
  EXPECT_THAT(audit, HasSubstr(R"("reason":"NO_CREDENTIALS")"));

  // Strangers can't fill the disk with it; what was left out is counted.
  for (int i = 0; i < 200; ++i) Call(channel, kList, "guess");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  Call(channel, kList, "guess");
  audit = ReadFile(Path("audit"));
  EXPECT_LT(Count(audit, "BAD_TOKEN"), 150);
  EXPECT_THAT(audit, HasSubstr(R"("left_out":")"));
}

// Whoever reads the audit learns what was done to what.
TEST_F(SecurityTest, TheAuditNamesWhatWasActedOn) {
  const std::string reader = MakeToken("ci", "reader");
  const std::string admin = MakeToken("root", "admin");
  WriteFile(Path("access"), access_);
  WriteFile(Path("token"), admin);
  Start({"--access_file=" + Path("access"), "--audit_file=" + Path("audit")});
  const auto channel = Plain(daemon_->address());
  const auto beamctl = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"client/beamctl/beamctl", "--server=" + daemon_->address(),
                                 "--token_file=" + Path("token")});
    const Ran ran = RunProcess(words);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  };
  const auto member = [](const std::string& line, const std::string& name) {
    std::smatch found;
    return std::regex_search(line, found, std::regex("\"" + name + "\":\"([^\"]*)\""))
               ? found[1].str()
               : "no " + name;
  };
  // The lines of a method with a code.
  const auto lines = [&](const std::string& method, const std::string& code) {
    const std::string wanted = "\"method\":\"" + method + "\",\"code\":\"" + code + "\"";
    std::istringstream in(ReadFile(Path("audit")));
    std::string found;
    for (std::string line; std::getline(in, line);) {
      if (line.find(wanted) != std::string::npos) found += line + "\n";
    }
    return found;
  };

  v1::CancelJobRequest cancel;
  cancel.set_id("4711");
  Call(channel, "/beamd.v1.Jobs/Cancel", reader, cancel.SerializeAsString());
  EXPECT_THAT(lines("Jobs.Cancel", "PERMISSION_DENIED"),
              HasSubstr(R"("reason":"ROLE","object":{"job":"4711"})"));
  v1::TuneRequest refused;
  refused.set_label("mine");
  Call(channel, "/beamd.v1.Tuner/Tune", reader, refused.SerializeAsString());
  EXPECT_THAT(lines("Tuner.Tune", "PERMISSION_DENIED"), HasSubstr(R"("object":{"label":"mine"})"));

  std::ofstream(Path("add.pb"), std::ios::binary) << AddKernel(4096).SerializeAsString();
  const std::string tuned = beamctl({"tune", Path("add.pb"), "--width=1", "--json"});
  const std::string job = member(tuned, "job"), key = member(tuned, "key");
  const std::string named = R"("object":{"job":")" + job + R"(","key":")" + key + R"(",)";
  const std::string began = lines("Tuner.Tune", "ACCEPTED");
  EXPECT_THAT(began, HasSubstr(named));
  EXPECT_THAT(began, HasSubstr(R"("device":"cpu:0")"));
  EXPECT_THAT(lines("Tuner.Tune", "OK"), HasSubstr(named));
  EXPECT_THAT(lines("Tuner.Tune", "OK"), HasSubstr(R"("generation":"1")"));

  v1::ReleaseDeviceRequest release;
  release.set_id("cpu:0");
  Call(channel, "/beamd.v1.Devices/Release", admin, release.SerializeAsString());
  EXPECT_THAT(lines("Devices.Release", "FAILED_PRECONDITION"),
              HasSubstr(R"("object":{"device":"cpu:0"})"));
  beamctl({"backup", Path("backup")});
  EXPECT_THAT(lines("Admin.Backup", "OK"), HasSubstr(R"("object":{"snapshot":"1","files":")"));
  beamctl({"export", Path("exported")});
  beamctl({"import", Path("exported")});
  EXPECT_THAT(lines("Records.Import", "OK"), HasSubstr(R"("kept":"1")"));
  v1::ShowRequest show;
  show.set_pass("ast");
  *show.mutable_graph() = AddKernel(64);
  Call(channel, kShow, admin, show.SerializeAsString());
  EXPECT_THAT(lines("Inspector.Show", "OK"), HasSubstr(R"("pass":"ast","kernel":")"));

  // A session has a line where it begins and one where it ends, not one for each of its steps.
  v1::OpenSessionRequest open;
  open.mutable_device()->set_kind("cpu");
  v1::Session session;
  Call(channel, "/beamd.v1.Executor/OpenSession", admin, open.SerializeAsString(), &session);
  v1::KeepAliveRequest alive;
  alive.set_session(session.id());
  EXPECT_TRUE(Call(channel, "/beamd.v1.Executor/KeepAlive", admin, alive.SerializeAsString()).ok());
  EXPECT_EQ(lines("Executor.KeepAlive", "OK"), "");
  v1::CloseSessionRequest close;
  close.set_session(session.id());
  Call(channel, "/beamd.v1.Executor/CloseSession", admin, close.SerializeAsString());
  EXPECT_NE(lines("Executor.OpenSession", "OK"), "");
  EXPECT_THAT(lines("Executor.CloseSession", "OK"), HasSubstr(session.id().substr(0, 4)));
  Call(channel, "/beamd.v1.Executor/KeepAlive", admin, alive.SerializeAsString());
  EXPECT_NE(lines("Executor.KeepAlive", "NOT_FOUND"), "");
}

// Whichever check it was that a request did not pass.
TEST_F(SecurityTest, TheAuditNamesWhatRefusedRequestsWanted) {
  const std::string reader = MakeToken("ci", "reader");
  const std::string submitter = MakeToken("alice", "submitter");
  WriteFile(Path("access"), access_);
  Start({"--access_file=" + Path("access"), "--audit_file=" + Path("audit")});
  const auto channel = Plain(daemon_->address());
  // The object of the line that the call leaves.
  const auto object = [&](const char* method, const std::string& token, const std::string& bytes,
                          Code code) {
    EXPECT_EQ(Call(channel, method, token, bytes).error_code(), code) << method;
    const std::string audit = ReadFile(Path("audit"));
    const size_t line = audit.rfind('\n', audit.size() - 2);
    const size_t at = audit.find("\"object\":", line == std::string::npos ? 0 : line);
    return at == std::string::npos ? audit : audit.substr(at + 9, audit.size() - at - 11);
  };
  constexpr char kTune[] = "/beamd.v1.Tuner/Tune";
  constexpr char kBatch[] = "/beamd.v1.Batches/Tune";
  const auto is_kernel = [](const std::string& named, const std::string& before = "") {
    EXPECT_TRUE(
        std::regex_match(named, std::regex("\\{" + before + "\"kernel\":\"[0-9a-f]{64}\"\\}")))
        << named;
  };
  // By its role, by an option, by an enumerator, by a graph that is none, by its bytes.
  v1::TuneRequest tune;
  *tune.mutable_graph() = AddKernel(64);
  is_kernel(object(kTune, reader, tune.SerializeAsString(), Code::PERMISSION_DENIED));
  tune.mutable_search()->set_tc(99);
  is_kernel(object(kTune, submitter, tune.SerializeAsString(), Code::INVALID_ARGUMENT));
  tune.clear_search();
  tune.set_priority(static_cast<v1::Priority>(99));
  is_kernel(object(kTune, submitter, tune.SerializeAsString(), Code::INVALID_ARGUMENT));
  tune.clear_priority();
  tune.mutable_device()->set_kind("cuda");
  is_kernel(object(kTune, submitter, tune.SerializeAsString(), Code::INVALID_ARGUMENT),
            "\"kind\":\"cuda\",");
  tune.mutable_graph()->mutable_nodes(8)->add_src(99);
  EXPECT_EQ(object(kTune, submitter, tune.SerializeAsString(), Code::INVALID_ARGUMENT),
            R"({"kind":"cuda","graph_nodes":"9"})");
  EXPECT_EQ(object(kTune, submitter, tune.SerializeAsString() + "\x07", Code::INVALID_ARGUMENT),
            R"({"kind":"cuda"})");
  v1::ShowRequest show;
  *show.mutable_graph() = AddKernel(64);
  show.set_pass("ast");
  show.mutable_search()->set_tc(99);
  is_kernel(object(kShow, submitter, show.SerializeAsString(), Code::INVALID_ARGUMENT),
            "\"pass\":\"ast\",");
  v1::RunRequest run;
  run.set_session("4711");
  run.set_opts(static_cast<v1::OptsPolicy>(99));
  EXPECT_EQ(
      object("/beamd.v1.Executor/Run", submitter, run.SerializeAsString(), Code::INVALID_ARGUMENT),
      R"({"session":"4711"})");
  v1::BeginUploadRequest upload;
  upload.set_session("4711");
  upload.set_dtype(static_cast<v1::Scalar>(99));
  EXPECT_EQ(object("/beamd.v1.Executor/BeginUpload", submitter, upload.SerializeAsString(),
                   Code::INVALID_ARGUMENT),
            R"({"session":"4711"})");
  // Items of a batch, those that end it and those that don't.
  v1::TuneBatchRequest batch;
  batch.mutable_item()->set_id("seven");
  *batch.mutable_item()->mutable_request()->mutable_graph() = AddKernel(64);
  is_kernel(object(kBatch, reader, batch.SerializeAsString(), Code::PERMISSION_DENIED),
            "\"item\":\"seven\",");
  const std::string unbegun =
      object(kBatch, submitter, batch.SerializeAsString(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(unbegun, HasSubstr(R"({"item":"seven","kernel":")"));
  EXPECT_THAT(unbegun, HasSubstr(R"("items":"0","accepted":"0","failed":"0"})"));
  WriteFile(Path("token"), submitter);
  const auto client = Client::Create(daemon_->address(), {.token_file = Path("token")});
  ASSERT_TRUE(client.ok()) << client.status();
  batch.mutable_item()->mutable_request()->set_mode(v1::TUNE_MODE_LOOKUP_ONLY);
  EXPECT_TRUE((*client)
                  ->TuneBatch(v1::TuneBatchBegin(), {batch.item()},
                              [](const v1::TuneBatchEvent&) { return true; })
                  .ok());
  const std::string audit = ReadFile(Path("audit"));
  EXPECT_TRUE(std::regex_search(
      audit, std::regex("\"method\":\"Batches.Tune\",\"code\":\"NOT_FOUND\",[^\n]*\"object\":"
                        "\\{\"item\":\"seven\",\"mode\":\"TUNE_MODE_LOOKUP_ONLY\",\"kernel\":\"")))
      << audit;
  EXPECT_THAT(audit, HasSubstr(R"("object":{"items":"1","accepted":"0","failed":"1"})"));
}

TEST_F(SecurityTest, TlsShowsTheNewCertificateAfterSighup) {
  MakeCertificates("old", {"server", "127.0.0.1"});
  MakeCertificates("new", {"server", "127.0.0.1"});
  MakeCertificates("now", {"server", "127.0.0.1"});
  Start({"--tls_cert=" + Path("now/server.crt"), "--tls_key=" + Path("now/server.key")});
  EXPECT_FALSE(Call(Plain(daemon_->address()), kList).ok());
  EXPECT_TRUE(Call(Tls("now"), kList).ok());
  EXPECT_EQ(Call(Tls("new"), kList).error_code(), Code::UNAVAILABLE);
  // Half of a pair isn't taken.
  WriteFile(Path("now/server.crt"), ReadFile(Path("new/server.crt")));
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(
      Becomes([&] { return ReadFile(Path("log")).find("isn't the key") != std::string::npos; }));
  EXPECT_TRUE(Call(Tls("now"), kList).ok());
  WriteFile(Path("now/server.key"), ReadFile(Path("new/server.key")));
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] { return Call(Tls("new"), kList).ok(); }));
}

TEST_F(SecurityTest, WhoSpeaksTlsToAPlainPortIsToldSoAndTheOtherWayRound) {
  MakeCertificates("lab", {"server", "127.0.0.1"});
  const auto devices = [&](const std::string& address, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"client/beamctl/beamctl", "--server", address, "devices"};
    words.insert(words.end(), flags.begin(), flags.end());
    return RunProcess(words);
  };
  Start({"--tls_cert=" + Path("lab/server.crt"), "--tls_key=" + Path("lab/server.key")});
  const Ran plain = devices(daemon_->address(), {});
  EXPECT_EQ(plain.status, 4);
  EXPECT_THAT(plain.err, HasSubstr("speaks TLS: --tls_ca FILE"));
  EXPECT_EQ(devices(daemon_->address(), {"--tls_ca", Path("lab/ca.crt")}).status, 0);
  MakeCertificates("other", {"server", "127.0.0.1"});
  EXPECT_THAT(devices(daemon_->address(), {"--tls_ca", Path("other/ca.crt")}).err,
              HasSubstr("--tls_ca must have signed its certificate"));
  daemon_ = nullptr;
  Start({});
  const Ran tls = devices(daemon_->address(), {"--tls_ca", Path("lab/ca.crt")});
  EXPECT_EQ(tls.status, 4);
  EXPECT_THAT(tls.err, HasSubstr("doesn't speak TLS"));
  const std::string address = daemon_->address();
  daemon_ = nullptr;
  EXPECT_THAT(devices(address, {}).err, HasSubstr("Is a daemon there?"));
}

TEST_F(SecurityTest, MutualTlsKnowsClientsByTheirCertificates) {
  MakeCertificates("lab", {"server", "127.0.0.1"});
  for (const char* name : {"alice", "eve"}) MakeCertificates("lab", {"client", name});
  MakeCertificates("other", {"client", "alice"});
  const std::string token = MakeToken("ci", "reader");
  WriteFile(Path("access"), access_ + "cert:alice submitter\n");
  Start({"--tls_cert=" + Path("lab/server.crt"), "--tls_key=" + Path("lab/server.key"),
         "--tls_client_ca=" + Path("lab/ca.crt"), "--access_file=" + Path("access")});
  EXPECT_EQ(Call(Tls("lab", "alice"), kShow).error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Call(Tls("lab", "eve"), kList).error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(Call(Tls("lab"), kList).error_code(), Code::UNAUTHENTICATED);
  EXPECT_TRUE(Call(Tls("lab"), kList, token).ok());
  // Alice's name, signed by somebody else.
  WriteFile(Path("lab/mallory.crt"), ReadFile(Path("other/alice.crt")));
  WriteFile(Path("lab/mallory.key"), ReadFile(Path("other/alice.key")));
  EXPECT_EQ(Call(Tls("lab", "mallory"), kList).error_code(), Code::UNAVAILABLE);
}

TEST_F(SecurityTest, TheUnixSocketKnowsLocalUsers) {
  // An address has room for 107 bytes, less than a test's own folder may take.
  std::string folder = "/tmp/beamd-socket-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string socket = folder + "/s";
  WriteFile(Path("access"), absl::StrCat("uid:", getuid(), " submitter\n"));
  Start({"--unix_socket=" + socket, "--access_file=" + Path("access"),
         "--audit_file=" + Path("audit")});
  EXPECT_EQ(Call(Plain(daemon_->address()), kList).error_code(), Code::UNAUTHENTICATED);
  EXPECT_TRUE(Call(Plain("unix:" + socket), kList).ok());
  EXPECT_EQ(Call(Plain("unix:" + socket), kShow).error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(ReadFile(Path("audit")),
              HasSubstr(absl::StrCat(R"("principal":"uid:)", getuid(), R"(","host":"local")")));
  // The socket of a daemon that was killed is taken over, that of a living one isn't.
  EXPECT_EQ(RunProcess({kBeamd, "serve", "--listen=127.0.0.1:0", "--store", Path("second"),
                        "--unix_socket=" + socket})
                .status,
            1);
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
  Start({"--unix_socket=" + socket});
  EXPECT_TRUE(Call(Plain("unix:" + socket), kList).ok());
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0);
  EXPECT_EQ(rmdir(folder.c_str()), 0);  // the socket is gone with it
}

TEST_F(SecurityTest, RefusalsNameTheLimitAndTheValue) {
  Start({"--message_bytes=4096", "--calls_per_second=5", "--graph_nodes=4", "--graph_rank=2",
         "--graph_elements=1000", "--buffer_bytes=100"});
  const auto channel = Plain(daemon_->address());
  const grpc::Status large = Call(channel, kList, "", std::string(5000, 'x'));
  EXPECT_EQ(large.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(large.error_message(), HasSubstr("5000 vs. 4096"));
  v1::ShowRequest show;
  show.set_pass("ast");
  *show.mutable_graph() = AddKernel(64);
  const v1::ErrorDetail nodes = DetailOf(Call(channel, kShow, "", show.SerializeAsString()));
  EXPECT_EQ(nodes.limit(), 4);
  EXPECT_EQ(nodes.value(), 9);
  grpc::Status last;
  for (int i = 0; i < 50 && last.error_code() != Code::RESOURCE_EXHAUSTED; ++i) {
    last = Call(channel, kList);
  }
  EXPECT_EQ(last.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailOf(last).reason(), "RATE");
  EXPECT_EQ(DetailOf(last).limit(), 5);
}

TEST_F(SecurityTest, BuffersAreBoundedTogether) {
  Start({"--buffer_bytes=767"});
  v1::ShowRequest show;
  show.set_pass("ast");
  *show.mutable_graph() = AddKernel(64);  // three of 256 bytes
  const auto channel = Plain(daemon_->address());
  const grpc::Status status = Call(channel, kShow, "", show.SerializeAsString());
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(DetailOf(status).reason(), "BUFFER_BYTES");
  EXPECT_EQ(DetailOf(status).limit(), 767);
  EXPECT_EQ(DetailOf(status).value(), 768);
}

TEST_F(SecurityTest, ItSaysHowItFares) {
  Start({"--http_listen=127.0.0.1:0", "--spans_file=" + Path("spans"), "--audit_file=/dev/full"});
  const auto channel = Plain(daemon_->address());
  EXPECT_TRUE(Call(channel, kList).ok());
  EXPECT_FALSE(Call(channel, kShow).ok());
  EXPECT_THAT(Get("/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(Get("/readyz"), HasSubstr("ready"));
  const std::string metrics = Get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("beamd_requests_total{code=\"OK\",method=\"Records.List\"} 1"));
  EXPECT_THAT(
      metrics,
      HasSubstr("beamd_requests_total{code=\"INVALID_ARGUMENT\",method=\"Inspector.Show\"}"));
  for (const char* line :
       {"beamd_children{pool=\"worker\"}", "beamd_queue_length 0", "beamd_queue_age_seconds 0",
        "\nbeamd_store_bytes ", "\nbeamd_audit_failed_writes_total 1\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(ReadFile(Path("spans")),
              HasSubstr(R"({"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":")"));
  EXPECT_THAT(ReadFile(Path("spans")), HasSubstr(R"("parentSpanId":"b7ad6b7169203331")"));
}

TEST_F(SecurityTest, TheLogLevelFollowsTheFile) {
  WriteFile(Path("config"), "log_level: \"info\"\n");
  Start({"--config=" + Path("config")});
  const auto channel = Plain(daemon_->address());
  EXPECT_TRUE(Call(channel, kList).ok());
  EXPECT_THAT(ReadFile(Path("log")), Not(HasSubstr("method=Records.List")));
  WriteFile(Path("config"), "log_level: \"debug\"\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] {
    return Call(channel, kList).ok() &&
           ReadFile(Path("log")).find("method=Records.List") != std::string::npos;
  }));
}

TEST_F(SecurityTest, AFaultElsewhereKeepsNoRevokedTokenValid) {
  MakeCertificates("now", {"server", "127.0.0.1"});
  const std::string revoked = MakeToken("eve", "reader");
  WriteFile(Path("access"), access_);
  WriteFile(Path("config"), absl::StrCat("access_file: \"", Path("access"), "\"\n"));
  Start({"--config=" + Path("config"), "--tls_cert=" + Path("now/server.crt"),
         "--tls_key=" + Path("now/server.key")});
  EXPECT_TRUE(Call(Tls("now"), kList, revoked).ok());
  access_.clear();
  const std::string late = MakeToken("bob", "reader");
  WriteFile(Path("access"), access_);
  WriteFile(Path("now/server.crt"), "no certificate");
  WriteFile(Path("config"),
            absl::StrCat("access_file: \"", Path("access"), "\"\nlog_level: \"debug\"\njobs: 0\n"));
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] { return Call(Tls("now"), kList, late).ok(); }));
  EXPECT_EQ(Call(Tls("now"), kList, revoked).error_code(), Code::UNAUTHENTICATED);
  EXPECT_TRUE(Becomes([&] {
    return Call(Tls("now"), kList, late).ok() &&
           ReadFile(Path("log")).find("method=Records.List") != std::string::npos;
  }));
  EXPECT_THAT(ReadFile(Path("log")), HasSubstr("server.crt is no PEM file"));
  EXPECT_THAT(ReadFile(Path("log")), HasSubstr("--jobs must be"));

  // A config that can't be read names no access file: the one that was counts.
  access_.clear();
  const std::string last = MakeToken("carol", "reader");
  WriteFile(Path("access"), access_);
  unlink(Path("config").c_str());
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] { return Call(Tls("now"), kList, last).ok(); }));
  EXPECT_FALSE(Call(Tls("now"), kList, late).ok());
}

TEST_F(SecurityTest, BeamctlSaysWhoItIsAndWhatIsInForce) {
  constexpr char kBeamctl[] = "client/beamctl/beamctl";
  WriteFile(Path("token"), MakeToken("ci", "reader") + "\n");
  WriteFile(Path("access"), access_);
  Start({"--access_file=" + Path("access")});
  EXPECT_EQ(RunProcess({kBeamctl, "doctor", "--server", daemon_->address()}).status, 1);
  const Ran doctor = RunProcess(
      {kBeamctl, "doctor", "--server", daemon_->address(), "--token_file", Path("token")});
  EXPECT_THAT(doctor.out, HasSubstr("protection: access_file\n"));
  EXPECT_THAT(doctor.out, HasSubstr("workers: "));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_THAT(doctor.out, HasSubstr("seccomp"));
#endif
  // It isn't sent where others could read it.
  const Ran open =
      RunProcess({kBeamctl, "doctor", "--server", "192.0.2.1:7070", "--token_file", Path("token")});
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.err, HasSubstr("wants TLS"));
}

}  // namespace
}  // namespace beamd
