#include "client/beamctl/backup.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cc/local_file.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

namespace fs = std::filesystem;

constexpr char kDigests[] = "DIGESTS";
constexpr absl::string_view kMagic = "beamd-backup ";
constexpr int kFormat = 2;
constexpr absl::string_view kEnd = "end ";
// As BackupPiece says: digests are over pieces of this size.
constexpr size_t kPieceBytes = size_t{1} << 20;

// A daemon that isn't to be trusted could name a file elsewhere.
bool IsFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != kDigests &&
         !absl::StrContains(name, "/") && !absl::StrContains(name, "\n");
}

absl::StatusOr<std::string> DigestOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::DataLossError(absl::StrCat(path, " is missing"));
  Hasher hasher;
  std::string piece;
  while (!in.eof()) {
    piece.resize(kPieceBytes);
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (in.bad()) return absl::DataLossError(absl::StrCat(path, " can't be read"));
    piece.resize(static_cast<size_t>(in.gcount()));
    hasher.Add(piece);
  }
  return hasher.Finish().Hex();
}

struct Listed {
  std::string digest, file;
};

absl::Status CutShort(const std::string& backup, absl::string_view how) {
  return absl::DataLossError(
      absl::StrCat(backup, "/", kDigests, " was cut short or changed: ", how));
}

// Older backups only list their files: one that is there and isn't listed shows a list that was cut
// short.
absl::Status CheckAllListed(const std::string& backup, const std::vector<Listed>& files) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(backup, error)) {
    const std::string name = entry.path().filename().string();
    const bool listed = std::any_of(files.begin(), files.end(),
                                    [&](const Listed& one) { return one.file == name; });
    if (!listed && name != kDigests) return CutShort(backup, name + " isn't listed");
  }
  return error ? LocalError("read", backup, error.value()) : absl::OkStatus();
}

// What the backup holds, once its list is found to be whole.
absl::StatusOr<std::vector<Listed>> ReadList(const std::string& backup, std::string& warning) {
  std::ifstream in(absl::StrCat(backup, "/", kDigests), std::ios::binary);
  if (!in) {
    return absl::InvalidArgumentError(
        absl::StrCat(backup, " is no backup, or one that did not end: it has no ", kDigests));
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.empty() || text.back() != '\n') return CutShort(backup, "its last line has no end");
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // what is behind the last end
  absl::string_view version = lines.front();
  const bool old = !absl::ConsumePrefix(&version, kMagic);
  int format = 0;
  if (!old && (!absl::SimpleAtoi(version, &format) || format < kFormat)) {
    return CutShort(backup, absl::StrCat("there is no format \"", version, "\""));
  }
  if (format > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        backup, " is of a newer beamctl: its format is ", format, ", and this one knows ", kFormat,
        "; restore it with a beamctl as new as the one that wrote it"));
  }
  if (old) {
    warning = absl::StrCat(backup, " is of an older beamctl: its list can't be checked as a whole");
  } else {
    if (lines.size() < 2) return CutShort(backup, "its end isn't there");
    const size_t end = text.size() - lines.back().size() - 1;
    const std::string wanted = absl::StrCat(
        kEnd, lines.size() - 2, " ", HashBytes(absl::string_view(text).substr(0, end)).Hex());
    if (lines.back() != wanted) return CutShort(backup, "its end isn't there");
    lines.pop_back();
    lines.erase(lines.begin());
  }
  std::vector<Listed> files;
  for (const absl::string_view line : lines) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (!Digest::FromHex(pair.first).ok()) return CutShort(backup, "a line holds no digest");
    if (!IsFileName(pair.second)) {
      return absl::InvalidArgumentError(absl::StrCat("no file can be named ", pair.second));
    }
    files.push_back({pair.first, pair.second});
  }
  if (old) BEAMD_RETURN_IF_ERROR(CheckAllListed(backup, files));
  return files;
}

absl::Status RestoreFile(const std::string& backup, const std::string& directory,
                         const Listed& listed) {
  const std::string from = absl::StrCat(backup, "/", listed.file);
  const std::string to = absl::StrCat(directory, "/", listed.file);
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) return LocalError("copy", absl::StrCat(from, " to ", to), error.value());
  BEAMD_ASSIGN_OR_RETURN(const std::string now, DigestOf(to));
  if (now == listed.digest) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(from, " is not what was backed up"));
}

absl::Status MakeEmpty(const std::string& directory) {
  std::error_code error;
  if (fs::exists(directory, error) && !fs::is_empty(directory, error)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, " is not empty"));
  }
  fs::create_directories(directory, error);
  return error ? LocalError("make", directory, error.value()) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<Written> Backup(Client& client, const std::string& directory,
                               const CallOptions& options) {
  BEAMD_RETURN_IF_ERROR(MakeEmpty(directory));
  std::map<std::string, std::string> digests;
  Written written;
  std::ofstream out;
  const absl::Status status = client.Backup(
      [&](const v1::BackupPiece& piece) -> absl::Status {
        if (!IsFileName(piece.file())) {
          return absl::InvalidArgumentError(absl::StrCat("no file can be named ", piece.file()));
        }
        const std::string path = absl::StrCat(directory, "/", piece.file());
        if (!out.is_open()) out.open(path, std::ios::binary);
        out.write(piece.data().data(), static_cast<std::streamsize>(piece.data().size()));
        if (!out.good()) return LocalError("write", path, errno);
        written.bytes += piece.data().size();
        if (piece.digest().empty()) return absl::OkStatus();
        out.close();
        if (!out.good()) return LocalError("write", path, errno);
        digests[piece.file()] = piece.digest();
        return absl::OkStatus();
      },
      options);
  BEAMD_RETURN_IF_ERROR(status);
  // Last: a backup without it is none.
  std::string lines = absl::StrCat(kMagic, kFormat, "\n");
  for (const auto& [file, digest] : digests) absl::StrAppend(&lines, digest, " ", file, "\n");
  absl::StrAppend(&lines, kEnd, digests.size(), " ", HashBytes(lines).Hex(), "\n");
  BEAMD_RETURN_IF_ERROR(WriteLocalFile(absl::StrCat(directory, "/", kDigests), lines));
  written.count = digests.size() + 1;
  written.bytes += lines.size();
  return written;
}

absl::Status Restore(const std::string& backup, const std::string& directory,
                     std::string& warning) {
  BEAMD_ASSIGN_OR_RETURN(const std::vector<Listed> files, ReadList(backup, warning));
  BEAMD_RETURN_IF_ERROR(MakeEmpty(directory));
  absl::Status status;
  for (const Listed& listed : files) {
    status = RestoreFile(backup, directory, listed);
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
  return status;
}

}  // namespace beamd
