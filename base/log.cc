#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

namespace lochos {
namespace {

std::atomic<LogLevel> current_level{LogLevel::kInfo};

// Leaked on purpose: threads may still log while static objects are being destroyed.
spdlog::logger& sink() {
  static auto* logger = [] {
    auto made =
        new spdlog::logger("lochos", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::trace);
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    return made;
  }();
  return *logger;
}

}  // namespace

void set_log_level(LogLevel level) {
  current_level.store(level, std::memory_order_relaxed);
}
LogLevel log_level() {
  return current_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view text) {
  switch (level) {
    case LogLevel::kDebug:
      sink().debug("{}", text);
      break;
    case LogLevel::kInfo:
      sink().info("{}", text);
      break;
    case LogLevel::kWarning:
      sink().warn("{}", text);
      break;
    case LogLevel::kError:
      sink().error("{}", text);
      break;
  }
}

}  // namespace lochos
