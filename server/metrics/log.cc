#include "server/metrics/log.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/rotating_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace beamd {
namespace {

// Flag %* of the pattern: the message on one line.
class OneLineFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& to) override {
    const absl::string_view text(message.payload.data(), message.payload.size());
    const bool plain = std::none_of(text.begin(), text.end(),
                                    [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (plain) {
      to.append(text.data(), text.data() + text.size());
    } else {
      const std::string line = OneLine(text);
      to.append(line.data(), line.data() + line.size());
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineFlag>();
  }
};

}  // namespace

std::string OneLine(absl::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&line, "\\u%04x", byte);
    } else {
      line += c;
    }
  }
  return line;
}

absl::Status SetLogLevel(absl::string_view level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off) {
    return absl::InvalidArgumentError(absl::StrCat("no log level ", level));
  }
  spdlog::set_level(parsed);
  return absl::OkStatus();
}

absl::Status StartLog(const LogOptions& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (options.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {
      sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
          options.file, static_cast<size_t>(options.file_bytes),
          static_cast<size_t>(options.files));
    } catch (const spdlog::spdlog_ex& error) {
      return absl::UnavailableError(absl::StrCat("the log: ", error.what()));
    }
  }
  auto logger = std::make_shared<spdlog::logger>("beamd", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLineFlag>('*').set_pattern("time=%Y-%m-%dT%H:%M:%S.%e%z level=%l %*");
  logger->set_formatter(std::move(formatter));
  // Whatever the level lets through is there to be read.
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return SetLogLevel(options.level);
}

}  // namespace beamd
