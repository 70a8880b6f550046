#include "server/services/exporter.h"

#include <utility>

#include "engine/base/status.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// Records that are read at once.
constexpr int kPage = 64;
// Of the records that are left out, so many are named.
constexpr int64_t kNamed = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<v1::ExportedRecord>> Exporter::Next() {
  while (true) {
    if (page_.empty() && !last_) BEAMD_RETURN_IF_ERROR(Read());
    if (page_.empty()) {
      if (left_out_ > 0) spdlog::warn("export: {} records were left out", left_out_);
      return nullptr;
    }
    auto message = std::make_unique<v1::ExportedRecord>();
    *message->mutable_record() = std::move(page_.front());
    page_.pop_front();
    BEAMD_ASSIGN_OR_RETURN(const Digest kernel, Digest::FromHex(message->record().kernel_hash()));
    absl::StatusOr<std::optional<v1::Graph>> graph = store_.FindGraph(kernel);
    if (absl::IsDataLoss(graph.status())) {
      if (left_out_++ < kNamed) {
        spdlog::warn("export: key {} is left out, its graph can't be read: {}",
                     message->record().key(), graph.status().ToString());
      }
      continue;
    }
    if (!graph.ok()) return graph.status();
    if (*graph) *message->mutable_graph() = **std::move(graph);
    return message;
  }
}

absl::Status Exporter::Read() {
  absl::StatusOr<std::vector<v1::Record>> records =
      kernel_ ? store_.RecordsOf(*kernel_) : store_.ListRecords(after_, kPage);
  BEAMD_RETURN_IF_ERROR(records.status());
  last_ = kernel_ || records->size() < kPage;
  page_.assign(records->begin(), records->end());
  if (!page_.empty()) {
    BEAMD_ASSIGN_OR_RETURN(after_, Digest::FromHex(page_.back().key()));
  }
  return absl::OkStatus();
}

}  // namespace beamd
