#include "server/preflight.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/services/acceptor.h"
#include "server/services/credentials.h"
#include "server/workers/fleet.h"
#include "server/workers/supervisor.h"

namespace beamd {
namespace {

using Faults = std::vector<std::string>;

// Why a file can't be made in `folder`; empty: it can. With `made`, folders that aren't there are
// made on the way.
std::string WhyNotIn(std::filesystem::path folder, bool made) {
  if (folder.empty()) folder = ".";
  std::error_code error;
  // The way up ends at the root, not at what the folder is relative to.
  if (made) folder = std::filesystem::absolute(folder, error);
  while (made && !std::filesystem::exists(folder, error) && folder.has_parent_path() &&
         folder != folder.parent_path()) {
    folder = folder.parent_path();
  }
  struct stat st {};
  if (stat(folder.c_str(), &st) != 0) return absl::StrCat(folder.string(), ": ", strerror(errno));
  if (!S_ISDIR(st.st_mode)) return absl::StrCat(folder.string(), " is no directory");
  if (faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return "";
  return absl::StrCat(folder.string(), ": ", strerror(errno));
}

// Whether what is there can be opened, or what isn't can be made in a folder that is.
void CheckAppends(absl::string_view flag, const std::string& path, Faults& faults) {
  if (path.empty()) return;
  // Without waiting for the reader of a pipe.
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) {
    close(fd);
    return;
  }
  const int why = errno;
  // A pipe that nobody reads as yet.
  if (why == ENXIO) return;
  const std::string fault = why == ENOENT
                                ? WhyNotIn(std::filesystem::path(path).parent_path(), false)
                                : absl::StrCat(path, ": ", strerror(why));
  if (!fault.empty()) {
    faults.push_back(absl::StrCat("--", flag, " can't be appended to: ", fault));
  }
}

std::string WhyNoSocket(const std::string& path) {
  constexpr size_t kRoom = sizeof(sockaddr_un::sun_path);
  if (path.size() >= kRoom) return absl::StrCat(path, " has over ", kRoom - 1, " bytes");
  struct stat st {};
  if (lstat(path.c_str(), &st) == 0 && !S_ISSOCK(st.st_mode)) {
    return absl::StrCat(path, " is there and is no socket");
  }
  return WhyNotIn(std::filesystem::path(path).parent_path(), false);
}

}  // namespace

std::vector<std::string> CheckPaths(const ServeConfig& config) {
  Faults faults;
  CheckAppends("audit_file", config.audit_file, faults);
  CheckAppends("spans_file", config.spans_file, faults);
  CheckAppends("log_file", config.log_file, faults);
  CheckAppends("capture", config.capture, faults);
  if (!config.unix_socket.empty()) {
    const std::string why = WhyNoSocket(config.unix_socket);
    if (!why.empty()) faults.push_back(absl::StrCat("--unix_socket can't be made: ", why));
  }
  return faults;
}

std::vector<std::string> CheckFiles(const ServeConfig& config) {
  Faults faults = CheckPaths(config);
  if (!config.store.empty()) {
    const std::string why = WhyNotIn(config.store, true);
    if (!why.empty()) faults.push_back(absl::StrCat("--store can't be written: ", why));
  }
  if (!config.tls_cert.empty() && !config.tls_key.empty()) {
    const absl::Status status =
        Certificates::Load(
            {.cert = config.tls_cert, .key = config.tls_key, .client_ca = config.tls_client_ca})
            .status();
    if (!status.ok()) faults.push_back(absl::StrCat("TLS: ", std::string(status.message())));
  }
  return faults;
}

int64_t DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT64_MAX;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_max, INT64_MAX));
}

std::string FitDescriptors(int64_t limit, ServeConfig& config) {
  const int64_t left = limit - ReservedDescriptors(limit);
  // The other half is for connections and the processes of sessions.
  const int64_t all = std::max<int64_t>(left / 2, 1);
  if (config.sessions_buffers <= all) return "";
  // One session leaves some to the others.
  const int64_t one = std::min(config.session_buffers, std::max<int64_t>(all / 2, 1));
  std::string line = absl::StrCat(
      "of ", limit, " descriptors sessions get ", all, " for their buffers, one session at most ",
      one, ", not the ", config.sessions_buffers, " of --sessions_buffers and the ",
      config.session_buffers, " of --session_buffers: those want a hard limit of ",
      2 * config.sessions_buffers + ReservedDescriptors(INT64_MAX),
      " (LimitNOFILE= of its unit, ulimit -Hn)");
  config.sessions_buffers = all;
  config.session_buffers = one;
  return line;
}

std::vector<std::string> CheckDevices(const ServeConfig& config) {
  const absl::StatusOr<FleetOptions> options = FleetOptionsOf(config);
  // Its cores are a fault of their own.
  if (!options.ok() || options->devices.empty()) return {};
  Supervisor supervisor;
  const std::vector<v1::Driver> drivers = ProbeDrivers(supervisor, *options);
  std::vector<std::string> all, whys;
  for (const v1::Driver& driver : drivers) {
    all.insert(all.end(), driver.devices().begin(), driver.devices().end());
    if (!driver.why().empty()) whys.push_back(absl::StrCat(driver.name(), ": ", driver.why()));
  }
  Faults faults;
  for (const std::string& device : options->devices) {
    // Emulated GPUs are never listed.
    if (std::find(all.begin(), all.end(), device) != all.end() ||
        absl::StartsWith(device, "emu:")) {
      continue;
    }
    faults.push_back(absl::StrCat("--devices: there is no ", device, " here, but ",
                                  absl::StrJoin(all, ", "), whys.empty() ? "" : "; ",
                                  absl::StrJoin(whys, "; ")));
  }
  return faults;
}

}  // namespace beamd
