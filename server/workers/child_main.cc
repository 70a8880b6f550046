#include "server/workers/child_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "server/workers/frame_channel.h"
#include "server/workers/sandbox.h"

namespace beamd {
namespace {

void OutOfMemory() { _exit(kExitOutOfMemory); }

absl::Status Serve(TaskHandler& handler, Sandbox sandbox) {
  FrameChannel channel(kChildChannelFd);
  internal::Frame hello;
  hello.mutable_hello()->set_build(BuildId());
  hello.mutable_hello()->set_protocol(kFrameProtocol);
  hello.mutable_hello()->set_pid(getpid());
  const absl::Status started = handler.Start(*hello.mutable_hello());
  hello.mutable_hello()->set_failed(std::string(started.message()));
  // Before the first frame of a client's kernel, after all that was opened to start.
  for (std::string& part : EnterSandbox(sandbox)) {
    *hello.mutable_hello()->add_sandbox() = std::move(part);
  }
  BEAMD_RETURN_IF_ERROR(channel.Write(hello));
  BEAMD_RETURN_IF_ERROR(started);
  while (true) {
    BEAMD_ASSIGN_OR_RETURN(const std::optional<internal::Frame> frame, channel.Read());
    if (!frame) return absl::OkStatus();
    if (frame->has_add_context()) {
      BEAMD_RETURN_IF_ERROR(handler.AddContext(frame->add_context()));
    } else if (frame->has_drop_context()) {
      handler.DropContext(frame->drop_context().id());
    } else if (frame->has_attach()) {
      BEAMD_RETURN_IF_ERROR(handler.Attach(frame->attach(), channel.TakeFile()));
    } else if (frame->has_detach()) {
      handler.Detach(frame->detach().id());
    } else {
      internal::Frame reply;
      reply.set_task(frame->task());
      reply.set_trace(frame->trace());
      BEAMD_RETURN_IF_ERROR(handler.Handle(*frame, reply));
      BEAMD_RETURN_IF_ERROR(channel.Write(reply));
    }
  }
}

}  // namespace

absl::Status TaskHandler::Attach(const internal::Attach&, int file) {
  close(file);
  return absl::OkStatus();
}

std::string BuildId() {
  struct stat st;
  if (stat("/proc/self/exe", &st) != 0) return "unknown";
  return absl::StrCat(st.st_dev, ":", st.st_ino, ":", st.st_size, ":", st.st_mtim.tv_sec, ".",
                      st.st_mtim.tv_nsec);
}

std::string ChildFlag(const std::vector<std::string>& args, const std::string& name,
                      const std::string& otherwise) {
  const std::string prefix = absl::StrCat("--", name, "=");
  for (const std::string& arg : args) {
    absl::string_view value = arg;
    if (absl::ConsumePrefix(&value, prefix)) return std::string(value);
  }
  return otherwise;
}

void BindToParent(const std::vector<std::string>& args) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int parent = 0;
  if (!absl::SimpleAtoi(ChildFlag(args, "parent_pid", "0"), &parent) || parent == 0) {
    std::fprintf(stderr, "started by hand: beamd starts its own workers and runners\n");
    _exit(2);
  }
  // The parent may have ended before the line above.
  if (getppid() != parent) _exit(0);
}

int RunChild(const std::vector<std::string>& args, TaskHandler& handler) {
  // ^C at a terminal reaches the whole group; the daemon decides what becomes of its children.
  signal(SIGINT, SIG_IGN);
  std::set_new_handler(OutOfMemory);
  const absl::Status status = Serve(handler, ParseSandbox(ChildFlag(args, "sandbox", "off")));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", ChildFlag(args, "name", "child").c_str(),
               status.ToString().c_str());
  return absl::IsResourceExhausted(status) ? kExitOutOfMemory : 1;
}

}  // namespace beamd
