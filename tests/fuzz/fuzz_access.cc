// libFuzzer: bytes as an access file, as a traceparent, as a peer's name, and as a configuration.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "server/auth/access.h"
#include "server/config/config_file.h"
#include "server/config/serve_config.h"
#include "server/services/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<beamd::Access> access = beamd::Access::Parse(text);
  if (access.ok()) {
    access->Find({.token = std::string(text)}).status().IgnoreError();
  }
  const beamd::Trace trace = beamd::TraceFromHeader(text);
  BEAMD_CHECK(beamd::TraceFromHeader(trace.Header()).id == trace.id, "a trace of ours isn't one");
  beamd::HostOfPeer(text);
  beamd::ServeConfig config;
  beamd::ApplyConfig("fuzz", text, beamd::ServeCommandLine(config)).IgnoreError();
  beamd::IsLoopback(std::string(text));
  return 0;
}
