#include "tests/testing/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/uop/wire.h"
#include "gtest/gtest.h"

namespace beamd::testing {
namespace {

pid_t Start(const std::vector<std::string>& argv, int out, int err) {
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  execv(args[0], args.data());
  _exit(127);
}

std::string ReadAll(FILE* file) {
  std::rewind(file);
  std::string text;
  char chunk[4096];
  size_t n = 0;
  while ((n = std::fread(chunk, 1, sizeof(chunk), file)) > 0) text.append(chunk, n);
  return text;
}

v1::Graph FromJson(const std::string& nodes) {
  absl::StatusOr<v1::Graph> graph = GraphFromJson(absl::StrCat("{\"nodes\":[", nodes, "]}"));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

constexpr char kBuffer[] =
    R"({"op":"OP_DEFINE_GLOBAL","dtype":{"scalar":"SCALAR_FLOAT32","pointer":"ADDRESS_SPACE_GLOBAL"},"intArg":"$"})";
constexpr char kLoad[] = R"({"op":"OP_LOAD","dtype":{"scalar":"SCALAR_FLOAT32"},"src":[$]})";

std::string Buffer(int slot) { return absl::StrReplaceAll(kBuffer, {{"$", absl::StrCat(slot)}}); }
std::string Load(absl::string_view src) { return absl::StrReplaceAll(kLoad, {{"$", src}}); }
std::string View(absl::string_view shape, absl::string_view strides) {
  return absl::StrCat(R"({"op":"OP_VIEW","viewArg":{"views":[{"shape":[)", shape,
                      R"(],"strides":[)", strides, "]}]}}");
}

}  // namespace

Ran RunProcess(const std::vector<std::string>& argv) {
  FILE* out = std::tmpfile();
  FILE* err = std::tmpfile();
  const pid_t pid = Start(argv, fileno(out), fileno(err));
  int status = 0;
  waitpid(pid, &status, 0);
  Ran ran{.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .out = ReadAll(out),
          .err = ReadAll(err)};
  std::fclose(out);
  std::fclose(err);
  return ran;
}

Daemon::Daemon(const std::string& binary, const std::string& store,
               const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {binary, "serve", "--listen", "127.0.0.1:0", "--store", store};
  argv.insert(argv.end(), flags.begin(), flags.end());
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return;
  pid_ = Start(argv, out[1], -1);
  close(out[1]);
  FILE* lines = fdopen(out[0], "r");
  char address[128] = {};
  EXPECT_EQ(std::fscanf(lines, "ready %127s", address), 1) << binary << " did not become ready";
  std::fclose(lines);
  address_ = address;
}

Daemon::~Daemon() {
  if (pid_ <= 0) return;
  Signal(SIGKILL);
  Wait();
}

void Daemon::Signal(int signal) const { kill(pid_, signal); }

std::vector<pid_t> Daemon::Children(const std::string& kind) const {
  std::vector<pid_t> found;
  // Children belong to the thread that forked them.
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid_, "/task"), error)) {
    std::ifstream children(task.path() / "children");
    pid_t child = 0;
    while (children >> child) {
      std::ifstream command(absl::StrCat("/proc/", child, "/cmdline"));
      const std::string text((std::istreambuf_iterator<char>(command)),
                             std::istreambuf_iterator<char>());
      const std::vector<std::string> argv = absl::StrSplit(text, '\0');
      if (argv.size() > 1 && argv[1] == kind) found.push_back(child);
    }
  }
  return found;
}

int Daemon::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string MakeToken(const std::string& binary, const std::string& name, const std::string& role,
                      const std::string& access_file) {
  const Ran made = RunProcess({binary, "token", name, role});
  EXPECT_EQ(made.status, 0) << made.err;
  std::ofstream(access_file, std::ios::app) << made.err.substr(made.err.find('\n') + 1);
  return made.out.substr(0, made.out.find('\n'));
}

std::string FreshDirectory() {
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  std::string directory =
      absl::StrCat(::testing::TempDir(), tests.current_test_suite()->name(), ".",
                   tests.current_test_info() != nullptr ? tests.current_test_info()->name() : "");
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  return directory;
}

v1::Graph AddKernel(int n) {
  const std::string view = View(absl::StrCat(n), "1");
  return FromJson(absl::StrCat(
      Buffer(0), ",", view, ",", Buffer(1), ",", Load("2,1"), ",", Buffer(2), ",", Load("4,1"),
      R"(,{"op":"OP_ADD","dtype":{"scalar":"SCALAR_FLOAT32"},"src":[3,5]})",
      R"(,{"op":"OP_STORE","src":[0,1,6]},{"op":"OP_SINK","src":[7]})"));
}

v1::Graph MatmulKernel(int n) {
  const std::string s = absl::StrCat(n);
  const std::string cube = absl::StrCat(s, ",", s, ",", s);
  return FromJson(absl::StrCat(
      Buffer(0), ",", View(absl::StrCat(s, ",", s, ",1"), absl::StrCat(s, ",1,0")), ",", Buffer(1),
      ",", View(cube, absl::StrCat(s, ",0,1")), ",", Load("2,3"), ",", Buffer(2), ",",
      View(cube, absl::StrCat("0,1,", s)), ",", Load("5,6"),
      R"(,{"op":"OP_MUL","dtype":{"scalar":"SCALAR_FLOAT32"},"src":[4,7]})",
      R"(,{"op":"OP_REDUCE_AXIS","dtype":{"scalar":"SCALAR_FLOAT32"},"src":[8],"reduceArg":{"op":"OP_ADD","axes":[2]}})",
      R"(,{"op":"OP_STORE","src":[0,1,9]},{"op":"OP_SINK","src":[10]})"));
}

}  // namespace beamd::testing
