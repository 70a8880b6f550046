#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/llvm/compiler.h"
#include "tests/conformance/check.h"
#include "tests/conformance/code_object.h"
#include "tests/conformance/variants.h"

namespace beamd::conformance {
namespace {

// Files a ptxas: starting it costs as much as a small kernel.
constexpr size_t kBatch = 64;
// Of CUDA 13, whose ptxas checks what LLVM writes.
constexpr int kDriver = 13000;
constexpr int kHipRuntime = 6;

absl::StatusOr<TargetCaps> CapsOf(const std::string& arch) {
  int capability = 0;
  if (absl::StartsWith(arch, "sm_") && absl::SimpleAtoi(arch.substr(3), &capability)) {
    return CudaTarget(capability / 10, capability % 10, kDriver);
  }
  return HipTarget(arch, kHipRuntime);
}

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

// PTX assembled by ptxas, many files a process.
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

  // What ptxas has against each text, empty for those it takes. Internal where it can't be run.
  absl::StatusOr<std::vector<std::string>> Faults(const std::vector<std::string>& texts) const {
    if (folder_.empty()) return absl::InternalError("no temporary folder");
    std::vector<std::string> files;
    for (size_t i = 0; i < texts.size(); ++i) {
      files.push_back(absl::StrCat(folder_, "/", i, ".ptx"));
      // Entries of one process have names of their own; all else is a file's.
      std::ofstream(files.back()) << absl::StrReplaceAll(
          texts[i], {{".entry kernel(", absl::StrCat(".entry kernel_", i, "(")}});
    }
    BEAMD_ASSIGN_OR_RETURN(const std::string all, Run(files));
    std::vector<std::string> faults(texts.size());
    if (all.empty()) return faults;
    for (size_t i = 0; i < texts.size(); ++i) {
      BEAMD_ASSIGN_OR_RETURN(faults[i], Run({files[i]}));
    }
    return faults;
  }

 private:
  // Its first lines where it fails, else nothing.
  absl::StatusOr<std::string> Run(const std::vector<std::string>& files) const {
    const std::string log = folder_ + "/log", out = folder_ + "/out.cubin";
    std::vector<std::string> words = {ptxas_, absl::StrCat("-arch=", arch_), "-o", out};
    words.insert(words.end(), files.begin(), files.end());
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
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
      if (errno != EINTR) return absl::ErrnoToStatus(errno, "waiting for ptxas");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::string();
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    const std::string lines = text.str().substr(0, 400);
    return lines.empty() ? absl::StrCat("ptxas ended with ", status) : lines;
  }

  const std::string ptxas_;
  const std::string arch_;
  std::string folder_;
};

}  // namespace

absl::StatusOr<Tally> CheckBuild(const CheckInput& input) {
  if (input.target == TargetKind::kCpu) return absl::NotFoundError("numeric builds for the CPU");
  const std::string arch = input.arch.empty() ? CorpusTarget(input.target).arch : input.arch;
  BEAMD_ASSIGN_OR_RETURN(const TargetCaps caps, CapsOf(arch));
  std::unique_ptr<Assembler> assembler;
  if (caps.kind == TargetKind::kCuda) {
    BEAMD_ASSIGN_OR_RETURN(const std::string ptxas, FindPtxas(input.ptxas));
    assembler = std::make_unique<Assembler>(ptxas, arch);
  }
  BEAMD_ASSIGN_OR_RETURN(const std::unique_ptr<KernelCompiler> compiler,
                         KernelCompiler::Create(caps));

  Tally tally;
  // Of the kernels whose PTX waits for a batch: what is wrong, by id, and the lists in the batch.
  std::vector<std::pair<std::string, std::string>> waiting;  // id, opts
  std::vector<std::string> texts;
  std::vector<std::pair<std::string, absl::StatusOr<std::string>>> results;
  const auto add = [&](absl::StatusOr<std::string>& result, const std::string& opts,
                       const std::string& why) {
    if (result.ok() && !why.empty())
      absl::StrAppend(&*result, result->empty() ? "" : " | ", opts, ": ", why);
  };
  const auto flush = [&]() -> absl::Status {
    if (!texts.empty()) {
      BEAMD_ASSIGN_OR_RETURN(const std::vector<std::string> faults, assembler->Faults(texts));
      for (size_t i = 0; i < faults.size(); ++i) {
        const auto it = std::ranges::find(
            results, waiting[i].first, &std::pair<std::string, absl::StatusOr<std::string>>::first);
        add(it->second, waiting[i].second, faults[i]);
      }
    }
    for (const auto& [id, why] : results) Count(id, why, input, tally);
    waiting.clear();
    texts.clear();
    results.clear();
    return absl::OkStatus();
  };

  for (const std::string& id : Sampled(input.recorded->Ids(), input)) {
    UOpGraph graph;
    const absl::StatusOr<Kernel> kernel = MakeKernel(id, input, caps, graph);
    auto& result = results.emplace_back(id, std::string()).second;
    if (!kernel.ok()) {
      result = kernel.status();
      continue;
    }
    std::vector<Kernel> lists = {HandCodedOptimizations(*kernel)};
    if (!input.heuristics_only) {
      lists = Variants(*kernel, id);
      lists.erase(lists.begin());
    }
    for (const Kernel& list : lists) {
      const std::string opts = ToString(list.applied_opts());
      absl::StatusOr<CompileResult> compiled = compiler->Compile(list, {});
      if (!compiled.ok()) {
        add(result, opts, std::string(compiled.status().message()));
      } else if (assembler != nullptr) {
        waiting.emplace_back(id, opts);
        texts.push_back(std::move(compiled->image.code));
      } else {
        add(result, opts, CodeObjectFaults(compiled->image, caps));
      }
    }
    if (texts.size() >= kBatch || assembler == nullptr) BEAMD_RETURN_IF_ERROR(flush());
  }
  BEAMD_RETURN_IF_ERROR(flush());
  return tally;
}

}  // namespace beamd::conformance
