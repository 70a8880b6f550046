#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/gpu_target.h"
#include "engine/base/status.h"
#include "engine/llvm/compiler.h"
#include "tests/conformance/check.h"
#include "tests/conformance/code_object.h"
#include "tests/conformance/variants.h"

namespace beamd::conformance {
namespace {

// NotFound, saying where was looked.
absl::StatusOr<std::string> FindPtxas(const std::string& given) {
  if (!given.empty()) {
    if (access(given.c_str(), X_OK) == 0) return given;
    return absl::NotFoundError(absl::StrCat("no ptxas at ", given));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path != nullptr ? path : "", ':')) {
    const std::string file = absl::StrCat(folder, "/ptxas");
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return absl::NotFoundError("no ptxas in PATH");
}

// PTX assembled by ptxas, a process each: given many files at once, that of CUDA 13.0 at times never
// ends, or frees what it has freed.
class Assembler {
 public:
  Assembler(std::string ptxas, std::string arch)
      : ptxas_(std::move(ptxas)), arch_(std::move(arch)) {
    std::string folder = (std::filesystem::temp_directory_path() / "beamd-ptx.XXXXXX").string();
    if (mkdtemp(folder.data()) != nullptr) folder_ = folder;
  }
  ~Assembler() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;

  // What ptxas has against the text, in its first lines; empty if nothing. Internal where it can't
  // be run.
  absl::StatusOr<std::string> Faults(const std::string& text) const {
    if (folder_.empty()) return absl::InternalError("no temporary folder");
    const std::string in = folder_ + "/in.ptx", log = folder_ + "/log",
                      out = folder_ + "/out.cubin";
    std::ofstream(in) << text;
    std::vector<std::string> words = {ptxas_, absl::StrCat("-arch=", arch_), "-o", out, in};
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {1, 2}) {
      posix_spawn_file_actions_addopen(&actions, fd, log.c_str(),
                                       O_WRONLY | O_CREAT | (fd == 1 ? O_TRUNC : O_APPEND), 0600);
    }
    pid_t child = 0;
    const int failed =
        posix_spawn(&child, ptxas_.c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) return absl::ErrnoToStatus(failed, ptxas_);
    prlimit(child, RLIMIT_CPU, &kAssembling, nullptr);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
      if (errno != EINTR) return absl::ErrnoToStatus(errno, "waiting for ptxas");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::string();
    std::ostringstream said;
    said << std::ifstream(log).rdbuf();
    const std::string lines = said.str().substr(0, 400);
    return lines.empty() ? absl::StrCat("ptxas ended with ", status) : lines;
  }

 private:
  // Of the processor's time.
  static constexpr rlimit kAssembling = {.rlim_cur = 120, .rlim_max = 120};

  const std::string ptxas_;
  const std::string arch_;
  std::string folder_;
};

// What is wrong with the code of each list; empty if nothing is. Unimplemented where the engine
// refuses the kernel.
absl::StatusOr<std::string> Wrong(const std::string& id, const CheckInput& input,
                                  const TargetCaps& caps, KernelCompiler& compiler,
                                  const Assembler* assembler) {
  UOpGraph graph;
  BEAMD_ASSIGN_OR_RETURN(const Kernel kernel, MakeKernel(id, input, caps, graph));
  std::vector<Kernel> lists = {HandCodedOptimizations(kernel)};
  if (!input.heuristics_only) {
    lists = Variants(kernel, id);
    lists.erase(lists.begin());
  }
  std::string all;
  for (const Kernel& list : lists) {
    const absl::StatusOr<CompileResult> compiled = compiler.Compile(list, {});
    std::string why;
    if (!compiled.ok()) {
      why = std::string(compiled.status().message());
    } else if (assembler != nullptr) {
      BEAMD_ASSIGN_OR_RETURN(why, assembler->Faults(compiled->image.code));
    } else {
      why = CodeObjectFaults(compiled->image, caps);
    }
    if (why.empty()) continue;
    absl::StrAppend(&all, all.empty() ? "" : " | ", ToString(list.applied_opts()), ": ", why);
  }
  return all;
}

}  // namespace

absl::StatusOr<Tally> CheckBuild(const CheckInput& input) {
  if (input.target == TargetKind::kCpu) return absl::NotFoundError("numeric builds for the CPU");
  const std::string arch = input.arch.empty() ? CorpusTarget(input.target).arch : input.arch;
  BEAMD_ASSIGN_OR_RETURN(const TargetCaps caps, GpuByName(arch));
  std::unique_ptr<Assembler> assembler;
  if (caps.kind == TargetKind::kCuda) {
    BEAMD_ASSIGN_OR_RETURN(const std::string ptxas, FindPtxas(input.ptxas));
    assembler = std::make_unique<Assembler>(ptxas, arch);
  }
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<KernelCompiler> compiler,
                         KernelCompiler::Create(caps));

  Tally tally;
  for (const std::string& id : Sampled(input.recorded->Ids(), input)) {
    const absl::StatusOr<std::string> wrong = Wrong(id, input, caps, *compiler, assembler.get());
    if (absl::IsInternal(wrong.status())) return wrong.status();
    Count(id, wrong, input, tally);
  }
  return tally;
}

}  // namespace beamd::conformance
