#include "tests/fault/fault_child.h"

#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/workers/child_main.h"
#include "server/workers/codec.h"

namespace beamd {
namespace {

void RunMachineCode(const unsigned char* code, size_t size) {
  void* page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memcpy(page, code, size);
  reinterpret_cast<void (*)()>(page)();
}

void Say(absl::string_view bytes) {
  [[maybe_unused]] const ssize_t n = write(kChildChannelFd, bytes.data(), bytes.size());
}

std::string OpenDescriptors() {
  std::set<int> open;
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != dirfd(dir)) {
      open.insert(std::atoi(entry->d_name));
    }
  }
  closedir(dir);
  return absl::StrJoin(open, " ");
}

// x86-64.
constexpr unsigned char kIdivByZero[] = {0x31, 0xc9, 0xb8, 1, 0, 0, 0, 0x99, 0xf7, 0xf9, 0xc3};
constexpr unsigned char kCallNull[] = {0x31, 0xc0, 0xff, 0xd0, 0xc3};
constexpr unsigned char kJumpToSelf[] = {0xeb, 0xfe};

// A length, and less than that.
constexpr absl::string_view kHalfFrame("\x40\0\0\0half", 8);

// Read by nobody, but the compiler can't know, so allocations stay.
void* volatile kept;

class FaultHandler final : public TaskHandler {
 public:
  explicit FaultHandler(bool refuses) : refuses_(refuses) {}

  absl::Status Start(internal::Hello& hello) override {
    if (refuses_) return absl::UnavailableError("there is no such device");
    hello.mutable_device()->set_id("fault:0");
    return absl::OkStatus();
  }
  absl::Status AddContext(const internal::AddContext& context) override {
    if (!contexts_.insert(context.id()).second) return absl::AlreadyExistsError("context");
    return absl::OkStatus();
  }
  void DropContext(uint64_t id) override { contexts_.erase(id); }

  absl::Status Handle(const internal::Frame& request, internal::Frame& reply) override {
    if (request.has_time()) return Time(request.time(), *reply.mutable_timed());
    const internal::CompileRequest& compile = request.compile();
    if (contexts_.count(compile.context()) == 0) return absl::NotFoundError("context");
    internal::CompileReply& compiled = *reply.mutable_compiled();
    compiled.mutable_image()->set_code(absl::StrCat(getpid()));
    compiled.set_detail("compiled");
    if (compile.opts().empty()) return absl::OkStatus();
    const v1::Opt& opt = compile.opts(0);
    const auto fault = static_cast<Fault>(opt.axis());
    if (fault == Fault::kWrongTask) reply.set_task(request.task() + 1);
    if (fault == Fault::kLast) reply.set_ends("device");
    if (fault == Fault::kListDescriptors) compiled.set_detail(OpenDescriptors());
    Commit(fault, opt.amount());
    return absl::OkStatus();
  }

 private:
  // An image's slices name the fault of its run, its uops the amount.
  absl::Status Time(const internal::TimeRequest& request, internal::TimeReply& reply) {
    reply.set_failed_image(-1);
    for (const internal::Image& image : request.images()) {
      const auto fault = static_cast<Fault>(image.slices());
      const auto amount = static_cast<int>(image.uop_count());
      Commit(fault, amount);
      internal::TimeReply::Series& series = *reply.add_images();
      series.add_seconds(1e-3);
      if (fault == Fault::kNoTime) series.add_seconds(kNoTimes[amount]);
    }
    return absl::OkStatus();
  }

  static void Commit(Fault fault, int amount) {
    switch (fault) {
      case Fault::kNone:
      case Fault::kNoTime:
      case Fault::kWrongTask:
      case Fault::kLast:
      case Fault::kListDescriptors:
        return;
      case Fault::kAbort:
        std::abort();
      case Fault::kDivideByZero:
        return RunMachineCode(kIdivByZero, sizeof(kIdivByZero));
      case Fault::kJumpToNull:
        return RunMachineCode(kCallNull, sizeof(kCallNull));
      case Fault::kLoop:
        return RunMachineCode(kJumpToSelf, sizeof(kJumpToSelf));
      case Fault::kAllocateTouched:
        while (true) {
          constexpr size_t kStep = size_t{8} << 20;
          auto* bytes = static_cast<char*>(std::malloc(kStep));
          std::memset(bytes, 1, kStep);
          absl::SleepFor(absl::Milliseconds(1));
        }
      case Fault::kAllocateReserved:
        while (true) {
          kept = ::operator new (size_t{1} << 30);
        }
      case Fault::kGarbageLength:
        return Say("\xff\xff\xff\xff");  // four gigabytes
      case Fault::kGarbageBytes:
        return Say(absl::string_view("\4\0\0\0\xff\xff\xff\xff", 8));
      case Fault::kHalfFrame:
        Say(kHalfFrame);
        while (true) pause();
      case Fault::kHalfFrameEnds:
        Say(kHalfFrame);
        _exit(0);
      case Fault::kSleep:
        return absl::SleepFor(absl::Milliseconds(amount));
    }
  }

  const bool refuses_;
  std::set<uint64_t> contexts_;
};

}  // namespace

std::vector<Opt> Faulty(Fault fault, int32_t amount) {
  return {Opt{.op = OptOp::kUpcast, .axis = static_cast<int32_t>(fault), .amount = amount}};
}

void MaybeRunFaultChild(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "fault-child") return;
  const std::vector<std::string> args(argv + 2, argv + argc);
  BindToParent(args);
  FaultHandler handler(ChildFlag(args, "device", "") == "none");
  std::exit(RunChild(args, handler));
}

}  // namespace beamd
