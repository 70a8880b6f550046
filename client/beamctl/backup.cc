#include "client/beamctl/backup.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace beamd {
namespace {

namespace fs = std::filesystem;

constexpr char kDigests[] = "DIGESTS";
// As BackupPiece says: digests are over pieces of this size.
constexpr size_t kPieceBytes = size_t{1} << 20;

absl::Status IoError(const std::string& path, const std::error_code& error) {
  return absl::UnknownError(absl::StrCat(path, ": ", error ? error.message() : "can't be used"));
}

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

absl::Status MakeEmpty(const std::string& directory) {
  std::error_code error;
  if (fs::exists(directory, error) && !fs::is_empty(directory, error)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, " is not empty"));
  }
  fs::create_directories(directory, error);
  return error ? IoError(directory, error) : absl::OkStatus();
}

}  // namespace

absl::Status Backup(Client& client, const std::string& directory, const CallOptions& options) {
  BEAMD_RETURN_IF_ERROR(MakeEmpty(directory));
  std::map<std::string, std::string> digests;
  std::ofstream out;
  const absl::Status status = client.Backup(
      [&](const v1::BackupPiece& piece) -> absl::Status {
        if (!IsFileName(piece.file())) {
          return absl::InvalidArgumentError(absl::StrCat("no file can be named ", piece.file()));
        }
        const std::string path = absl::StrCat(directory, "/", piece.file());
        if (!out.is_open()) out.open(path, std::ios::binary);
        out.write(piece.data().data(), static_cast<std::streamsize>(piece.data().size()));
        if (!out.good()) return IoError(path, std::error_code(errno, std::generic_category()));
        if (piece.digest().empty()) return absl::OkStatus();
        out.close();
        digests[piece.file()] = piece.digest();
        return absl::OkStatus();
      },
      options);
  BEAMD_RETURN_IF_ERROR(status);
  // Last: a backup without it is none.
  std::ofstream list(absl::StrCat(directory, "/", kDigests));
  for (const auto& [file, digest] : digests) list << digest << " " << file << "\n";
  list.close();
  return list.good() ? absl::OkStatus() : IoError(directory, {});
}

absl::Status Restore(const std::string& backup, const std::string& directory) {
  std::ifstream list(absl::StrCat(backup, "/", kDigests));
  if (!list) {
    return absl::InvalidArgumentError(
        absl::StrCat(backup, " is no backup, or one that did not end: it has no ", kDigests));
  }
  BEAMD_RETURN_IF_ERROR(MakeEmpty(directory));
  std::string digest, file;
  absl::Status status;
  while (status.ok() && list >> digest && list.get() == ' ' && std::getline(list, file)) {
    if (!IsFileName(file)) {
      status = absl::InvalidArgumentError(absl::StrCat("no file can be named ", file));
      break;
    }
    const std::string from = absl::StrCat(backup, "/", file);
    const std::string to = absl::StrCat(directory, "/", file);
    std::error_code error;
    fs::copy_file(from, to, error);
    if (error) {
      status = IoError(from, error);
      break;
    }
    const absl::StatusOr<std::string> now = DigestOf(to);
    if (!now.ok()) {
      status = now.status();
    } else if (*now != digest) {
      status = absl::DataLossError(absl::StrCat(from, " is not what was backed up"));
    }
  }
  if (!status.ok()) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
  return status;
}

}  // namespace beamd
