// The capture file (CAPTURE_BEAM): every candidate of every search, for replay.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/search/beam.h"
#include "proto/beamd/v1/ast.pb.h"

namespace beamd {

// Lines of JSON, appended. A search writes its kernel first, then a line a candidate:
//
//   {"kernel":HASH,"graph":{...}}
//   {"kernel":HASH,"opts":"...","failure":"none","seconds":S,"detail":"..."}
//
// Thread-safe: a line is one write.
class CaptureFile {
 public:
  static absl::StatusOr<std::unique_ptr<CaptureFile>> Open(const std::string& path);
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  void Kernel(const std::string& hash, const v1::Graph& graph);
  void Candidate(const std::string& hash, const CandidateReport& report);

 private:
  explicit CaptureFile(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace beamd
