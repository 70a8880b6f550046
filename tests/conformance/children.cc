#include "tests/conformance/children.h"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace beamd::conformance {
namespace {

// Pieces of work a child process.
constexpr size_t kBatch = 64;

// In a child: pieces [begin, end), a line each on `out`.
[[noreturn]] void RunBatch(const std::function<std::function<std::string(size_t)>()>& start,
                           size_t begin, size_t end, unsigned seconds, int out) {
  FILE* lines = fdopen(out, "w");
  const std::function<std::string(size_t)> work = start();
  for (size_t i = begin; i < end; ++i) {
    // Of the processor's time: a busy machine mustn't decide. Ten times as long for what sleeps.
    const itimerval limit = {.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    alarm(10 * seconds);
    std::string text = work(i);
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::fprintf(lines, "%s\n", text.c_str());
    std::fflush(lines);
  }
  _exit(0);
}

}  // namespace

absl::Status InChildren(size_t count, unsigned seconds,
                        const std::function<std::function<std::string(size_t)>()>& start,
                        const std::function<void(size_t, const std::string&)>& done) {
  size_t next = 0;
  while (next < count) {
    int ends[2];
    if (pipe(ends) != 0) return absl::InternalError("no pipe");
    const size_t end = std::min(count, next + kBatch);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child < 0) return absl::InternalError("no process");
    if (child == 0) {
      close(ends[0]);
      RunBatch(start, next, end, seconds, ends[1]);
    }
    close(ends[1]);
    FILE* lines = fdopen(ends[0], "r");
    char* line = nullptr;
    size_t capacity = 0;
    while (next < end && getline(&line, &capacity, lines) > 0) {
      std::string text(line);
      text.pop_back();
      done(next++, text);
    }
    free(line);
    fclose(lines);
    int status = 0;
    waitpid(child, &status, 0);
    if (next == end) continue;
    // The child died over this one.
    done(next++, WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM)
                     ? absl::StrCat("took over ", seconds, " s")
                 : WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                       : absl::StrCat("exit ", WEXITSTATUS(status)));
  }
  return absl::OkStatus();
}

}  // namespace beamd::conformance
