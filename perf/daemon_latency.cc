// How long it takes to put a small object on one node and get it on another, through both daemons
// and the directory. perf/latency_daemons runs it beside `lochos perf lat`.
//
//   daemon_latency SOCKET_A SOCKET_B [SIZE [ROUNDS]]
//
// Prints one line of JSON with microseconds.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "node/store.h"

namespace lochos {
namespace {

constexpr std::size_t kWarmUp = 50;

double microseconds(Duration duration) {
  return seconds(duration) * 1e6;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

struct Samples {
  std::vector<double> put, get, both;
};

Status measure(Store& a, Store& b, std::size_t size, std::size_t rounds, Samples& samples) {
  const std::vector<std::byte> bytes(size, std::byte{7});
  const SteadyClock clock;
  for (std::size_t round = 0; round < kWarmUp + rounds; ++round) {
    const std::string key = fmt::format("lochos/perf/daemon-latency/{}", round);
    const Instant start = clock.now();
    if (auto put = a.put(key, bytes); !put) return put;
    const Instant middle = clock.now();
    auto view = b.get(key);
    const Instant end = clock.now();
    if (!view) return fail(view.error());
    if (!std::equal(bytes.begin(), bytes.end(), view->bytes().begin(), view->bytes().end()))
      return fail(Errc::kSystem, "the object has wrong contents");
    if (auto erased = a.erase(key); !erased) return erased;
    if (round < kWarmUp) continue;
    samples.put.push_back(microseconds(middle - start));
    samples.get.push_back(microseconds(end - middle));
    samples.both.push_back(microseconds(end - start));
  }
  return {};
}

Status run(const std::string& socket_a, const std::string& socket_b, std::size_t size,
           std::size_t rounds) {
  auto a = Store::connect(socket_a);
  if (!a) return fail(a.error());
  auto b = Store::connect(socket_b);
  if (!b) return fail(b.error());
  Samples samples;
  if (auto measured = measure(*a, *b, size, rounds, samples); !measured) return measured;
  fmt::print(
      "{{\"size\": {}, \"rounds\": {}, \"put_median_us\": {:.2f}, \"get_median_us\": {:.2f}, "
      "\"both_median_us\": {:.2f}}}\n",
      size, rounds, median(samples.put), median(samples.get), median(samples.both));
  return {};
}

}  // namespace
}  // namespace lochos

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: daemon_latency SOCKET_A SOCKET_B [SIZE [ROUNDS]]\n");
    return 2;
  }
  const std::size_t size = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024;
  const std::size_t rounds = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1000;
  const lochos::Status done = lochos::run(argv[1], argv[2], size, std::max<std::size_t>(rounds, 1));
  if (done) return 0;
  fmt::print(stderr, "daemon_latency: {}\n", done.error().to_string());
  return 1;
}
