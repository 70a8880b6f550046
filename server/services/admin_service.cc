#include "server/services/admin_service.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "server/services/pull_stream.h"
#include "server/services/reply.h"

namespace beamd {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// Beside the store, on its file system, where a checkpoint shares its files.
std::string CheckpointPrefix(const Store& store) {
  return absl::StrCat(store.directory(), ".checkpoint-");
}

// A checkpoint, read piece by piece; it goes with this.
class BackupReader {
 public:
  explicit BackupReader(std::string directory) : directory_(std::move(directory)) {}
  ~BackupReader() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  absl::Status Open(Store& store) {
    BEAMD_RETURN_IF_ERROR(store.Checkpoint(directory_));
    std::error_code error;
    for (const auto& file : std::filesystem::directory_iterator(directory_, error)) {
      files_.push_back(file.path().filename().string());
    }
    if (error) return absl::InternalError(absl::StrCat("backup: ", error.message()));
    std::sort(files_.begin(), files_.end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Next() {
    if (next_ == files_.size()) return nullptr;
    auto piece = std::make_unique<v1::BackupPiece>();
    piece->set_file(files_[next_]);
    if (!in_.is_open()) {
      in_.open(directory_ + "/" + files_[next_], std::ios::binary);
      hasher_ = std::make_unique<Hasher>();
    }
    std::string& data = *piece->mutable_data();
    data.resize(kPieceBytes);
    in_.read(data.data(), static_cast<std::streamsize>(data.size()));
    if (in_.bad() || !in_.is_open()) {
      return absl::InternalError(absl::StrCat("backup: ", files_[next_], " can't be read"));
    }
    data.resize(static_cast<size_t>(in_.gcount()));
    hasher_->Add(data);
    if (in_.eof()) {
      piece->set_digest(hasher_->Finish().Hex());
      in_.close();
      in_.clear();
      ++next_;
    }
    return piece;
  }

  // Files that were read to their end.
  size_t sent() const { return next_; }

 private:
  const std::string directory_;
  std::vector<std::string> files_;
  size_t next_ = 0;
  std::ifstream in_;
  std::unique_ptr<Hasher> hasher_;
};

}  // namespace

AdminService::AdminService(Store& store, Desk& desk) : store_(store), desk_(desk) {
  const std::filesystem::path prefix = CheckpointPrefix(store);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(
           prefix.has_parent_path() ? prefix.parent_path() : ".", error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view when = name;
    // Others may have named a folder of theirs so.
    if (absl::ConsumePrefix(&when, prefix.filename().string()) && !when.empty() &&
        absl::c_all_of(when, [](char c) { return absl::ascii_isdigit(c); })) {
      std::filesystem::remove_all(entry.path(), error);
    }
  }
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* AdminService::Backup(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartPullStream(
      "Admin.Backup",
      [this](const grpc::ByteBuffer& bytes, AuditObject& object) -> absl::StatusOr<NextMessage> {
        v1::BackupRequest req;
        BEAMD_RETURN_IF_ERROR(ParseRequest(bytes, req));
        auto reader = std::make_shared<BackupReader>(
            absl::StrCat(CheckpointPrefix(store_), absl::ToUnixNanos(absl::Now())));
        BEAMD_RETURN_IF_ERROR(reader->Open(store_));
        SetNamed(object, "snapshot", absl::StrCat(store_.sequence()));
        return [reader, &object] {
          auto piece = reader->Next();
          SetNamed(object, "files", absl::StrCat(reader->sent()));
          return piece;
        };
      },
      desk_, context, request);
}

}  // namespace beamd
