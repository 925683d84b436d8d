// Shows that a local put and get copy nothing: the time to create, fill and seal an object beside
// that of filling plain memory, the time to get and read it beside that of reading plain memory,
// and the memory that this process and its node touch meanwhile.
//
//   local_copy SOCKET [SIZE [ROUNDS]]
//
// Prints one line of JSON with seconds (medians). "put_over_fill" and "get_over_read" are 1 for no
// copy; one more copy of the object makes them about 2.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "node/store.h"

namespace lochos {
namespace {

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// Reads everything, as a consumer would.
std::uint64_t sum(std::span<const std::byte> bytes) {
  std::uint64_t total = 0;
  for (std::size_t at = 0; at + sizeof total <= bytes.size(); at += sizeof total) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    total += word;
  }
  return total;
}

class Plain {
 public:
  explicit Plain(std::size_t size)
      : bytes_(static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
               size) {}
  Plain(const Plain&) = delete;
  ~Plain() { ::munmap(bytes_.data(), bytes_.size()); }
  bool ok() const { return bytes_.data() != MAP_FAILED; }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

struct Times {
  std::vector<double> fill, read, put, seal, get, get_read;
};

Status one_round(Store& store, std::span<std::byte> plain, int value, Times& times,
                 std::uint64_t& checks) {
  const SteadyClock clock;
  const std::string key = "lochos/perf/local-copy";
  const auto since = [&](Instant start) { return seconds(clock.now() - start); };

  Instant start = clock.now();
  std::memset(plain.data(), value, plain.size());
  times.fill.push_back(since(start));
  start = clock.now();
  const std::uint64_t expected = sum(plain);
  times.read.push_back(since(start));

  start = clock.now();
  auto writer = store.create(key, plain.size());
  if (!writer) return fail(writer.error());
  std::memset(writer->bytes().data(), value, plain.size());
  const Instant filled = clock.now();
  if (auto sealed = writer->seal(); !sealed) return sealed;
  times.seal.push_back(since(filled));
  times.put.push_back(since(start));

  start = clock.now();
  auto view = store.get(key);
  if (!view) return fail(view.error());
  times.get.push_back(since(start));
  const std::uint64_t got = sum(view->bytes());
  times.get_read.push_back(since(start));
  if (got != expected) return fail(Errc::kSystem, "the object has wrong contents");
  checks += got;
  return store.erase(key);
}

Status run(const std::string& socket, std::size_t size, int rounds) {
  auto store = Store::connect(socket);
  if (!store) return fail(store.error());
  const Plain plain(size);
  if (!plain.ok()) return fail(Errc::kNoSpace, "no memory for the comparison");
  Times times;
  std::uint64_t checks = 0;
  // The first round takes pages from the system on both sides and does not count.
  for (int round = 0; round <= rounds; ++round) {
    if (round == 1) times = {};
    if (auto done = one_round(*store, plain.bytes(), round + 1, times, checks); !done) return done;
  }
  const double fill = median(times.fill);
  const double read = median(times.read);
  fmt::print(
      "{{\"size\": {}, \"rounds\": {}, \"fill_s\": {:.4f}, \"put_s\": {:.4f}, \"seal_s\": {:.6f}, "
      "\"read_s\": {:.4f}, \"get_s\": {:.6f}, \"get_and_read_s\": {:.4f}, "
      "\"put_over_fill\": {:.3f}, \"get_over_read\": {:.3f}}}\n",
      size, rounds, fill, median(times.put), median(times.seal), read, median(times.get),
      median(times.get_read), median(times.put) / fill, median(times.get_read) / read);
  return {};
}

}  // namespace
}  // namespace lochos

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: local_copy SOCKET [SIZE [ROUNDS]]\n");
    return 2;
  }
  const std::size_t size = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1ULL << 30;
  const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5;
  const lochos::Status done = lochos::run(argv[1], std::max<std::size_t>(size, 8), rounds);
  if (done) return 0;
  fmt::print(stderr, "local_copy: {}\n", done.error().to_string());
  return 1;
}
