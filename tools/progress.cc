#include "tools/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace lochos {
namespace {

using std::chrono::milliseconds;
constexpr Duration kFirstDraw = std::chrono::seconds(1);
constexpr Duration kRedraw = milliseconds(100);
constexpr std::size_t kBarCells = 24;

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string clock_text(double s) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(s, 0.0, 359999.0));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string format_rate(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
  if (bytes_per_second >= 1e6) return fmt::format("{:.0f} MB/s", bytes_per_second / 1e6);
  return fmt::format("{:.0f} kB/s", bytes_per_second / 1e3);
}

std::string progress_line(const std::string& label, std::uint64_t done, std::uint64_t total,
                          Duration elapsed, std::size_t columns) {
  const double passed = std::max(seconds(elapsed), 1e-9);
  const double rate = static_cast<double>(done) / passed;
  std::string line;
  if (total == 0) {
    line = fmt::format("{}  {}  {}  {}", label, format_size(done), format_rate(rate),
                       clock_text(passed));
  } else {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const auto cells = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
    const std::string left =
        done == 0 ? ""
                  : "  " + clock_text(static_cast<double>(total - std::min(done, total)) / rate) +
                        " left";
    line = fmt::format("{}  [{}{}] {:3.0f} %  {} of {}  {}{}", label, std::string(cells, '#'),
                       std::string(kBarCells - cells, '-'), share * 100, format_size(done),
                       format_size(total), format_rate(rate), left);
  }
  return line.substr(0, columns > 1 ? columns - 1 : 0);
}

ProgressBar::ProgressBar(std::string label, std::uint64_t total)
    : label_(std::move(label)),
      total_(total),
      started_(SteadyClock().now()),
      enabled_(::isatty(STDERR_FILENO) == 1),
      next_draw_(started_ + kFirstDraw) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(std::uint64_t done) {
  if (!enabled_) return;
  const Instant now = SteadyClock().now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedraw;
  draw(done, now);
}

void ProgressBar::draw(std::uint64_t done, Instant now) {
  const std::string line = progress_line(label_, done, total_, now - started_, terminal_columns());
  std::fputs(("\r\033[K" + line).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace lochos
