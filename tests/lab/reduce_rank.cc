// One rank of a test of reduces and allreduces between machines: every type with every operation
// that it has, against a serial reference that each rank computes for itself. Prints a line for
// each result with its hash, the same on all ranks; after a wrong one it goes on, and ends with 1.
//
//   reduce_rank SOCKET RANK RANKS SIZE…
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "node/group.h"
#include "node/store.h"
#include "tests/compute/exact_numbers.h"

namespace lochos {
namespace {

using test::Buffer;

// An emulated machine is slow, and others may still start.
constexpr Duration kTimeout = std::chrono::seconds(120);

// Rounding of one operation, relative.
double unit_of(DataType type) {
  switch (type) {
    case DataType::kF16:
      return 0x1p-11;
    case DataType::kBf16:
      return 0x1p-8;
    case DataType::kF32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

// Floats whose sum must be rounded, and depends on the order.
Buffer rough_numbers(DataType type, std::uint64_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Buffer buffer(bytes);
  const std::uint64_t width = element_size(type);
  for (std::uint64_t at = 0; at + width <= bytes; at += width) {
    const float single = std::ldexp(static_cast<float>(random() % 4096) - 2048.F,
                                    static_cast<int>(random() % 12) - 12);
    const double wide = single / 3.0;
    if (type == DataType::kF64) {
      std::memcpy(&buffer[at], &wide, width);
    } else if (type == DataType::kF32) {
      std::memcpy(&buffer[at], &single, width);
    } else {
      const std::uint16_t half = test::round_to_half(type, single);
      std::memcpy(&buffer[at], &half, width);
    }
  }
  return buffer;
}

std::uint64_t hash(std::span<const std::byte> bytes) {
  std::uint64_t value = 0xcbf29ce484222325U;  // as FNV-1a, by words
  for (std::size_t at = 0; at < bytes.size(); at += sizeof value) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[at], std::min(sizeof word, bytes.size() - at));
    value = (value ^ word) * 0x100000001b3U;
    value ^= value >> 32;
  }
  return value;
}

struct Case {
  DataType type;
  ReduceOp op;
  std::uint64_t bytes;
  bool exact;  // else a sum of rough numbers, to be right within the bound

  std::string name() const {
    return std::string(to_string(type)) + "-" + std::string(to_string(op)) + "-" +
           std::to_string(bytes) + (exact ? "" : "-rough");
  }
};

class Rank {
 public:
  Rank(Store store, Group group)
      : store_(std::move(store)), group_(std::move(group)), ranks_(group_.members()) {}

  // All operations of the type.
  Status run(DataType type, std::uint64_t bytes, bool exact) {
    inputs_.clear();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const unsigned seed = ++seed_;
      inputs_.push_back(exact ? test::numbers(type, bytes, seed)
                              : rough_numbers(type, bytes, seed));
    }
    for (const ReduceOp op : kReduceOps) {
      if (!supported(op, type) || (!exact && op != ReduceOp::kSum)) continue;
      const Case one{type, op, bytes, exact};
      if (Status done = reduce(one); !done) return done;
      if (Status done = allreduce(one); !done) return done;
    }
    return {};
  }

  unsigned wrong() const { return wrong_; }

 private:
  // Every rank in turn asks for the result, and all of them get it.
  Status reduce(const Case& one) {
    const std::string target = one.name();
    const auto source = [&](std::uint32_t rank) { return target + "/" + std::to_string(rank); };
    const std::uint32_t caller = cases_++ % ranks_;
    if (group_.rank() == caller) {
      std::vector<Store::Key> sources;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        sources.emplace_back(source(rank));
      auto reduced =
          store_.reduce_async(target, sources, {.op = one.op, .dtype = one.type}, kTimeout);
      if (Status put = store_.put(source(caller), inputs_[caller], kTimeout); !put) return put;
      if (auto result = reduced.take(); !result) return fail(result.error());
    } else if (Status put = store_.put(source(group_.rank()), inputs_[group_.rank()], kTimeout);
               !put) {
      return put;
    }
    auto view = store_.get(target, kTimeout);
    if (!view) return fail(view.error());
    judge("reduce", one, view->bytes());
    return {};
  }

  Status allreduce(const Case& one) {
    Buffer result(one.bytes);
    if (Status done = group_.allreduce(inputs_[group_.rank()], result, one.op, one.type, kTimeout);
        !done)
      return done;
    judge("allreduce", one, result);
    return {};
  }

  void judge(std::string_view what, const Case& one, std::span<const std::byte> bytes) {
    const Buffer result(bytes.begin(), bytes.end());
    const std::ptrdiff_t at =
        one.exact ? first_wrong(one, result) : first_beyond_bound(one, result);
    std::cout << what << ' ' << one.name() << ' ' << hash(result) << '\n';
    if (at < 0) return;
    ++wrong_;
    std::cerr << "rank " << group_.rank() << ": " << what << ' ' << one.name() << ": element " << at
              << " is wrong\n";
  }

  std::ptrdiff_t first_wrong(const Case& one, const Buffer& result) const {
    if (result.size() != one.bytes) return 0;
    return test::first_difference(one.type, result, test::reduced(one.op, one.type, inputs_));
  }

  // A sum of n numbers with n-1 roundings in any order: off by less than n·u·(|x1| + … + |xn|)
  // (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). 16-bit floats are added in f32
  // and then stored; the product of both roundings is within one more u.
  std::ptrdiff_t first_beyond_bound(const Case& one, const Buffer& result) const {
    if (result.size() != one.bytes) return 0;
    for (std::size_t i = 0; i < result.size() / element_size(one.type); ++i) {
      double sum = 0;
      double magnitude = 0;
      for (const Buffer& input : inputs_) {
        const double value = test::value_at(one.type, input, i);
        sum += value;
        magnitude += std::abs(value);
      }
      const double bound = (ranks_ + 1) * unit_of(one.type) * magnitude;
      if (!(std::abs(test::value_at(one.type, result, i) - sum) <= bound))
        return static_cast<std::ptrdiff_t>(i);
    }
    return -1;
  }

  Store store_;
  Group group_;
  const std::uint32_t ranks_;
  std::vector<Buffer> inputs_;  // by rank
  unsigned seed_ = 0;
  std::uint32_t cases_ = 0;
  unsigned wrong_ = 0;
};

int fail_with(const Error& error) {
  std::cerr << error.to_string() << '\n';
  return 1;
}

int run(const char* socket, std::uint32_t rank, std::uint32_t ranks,
        const std::vector<std::uint64_t>& sizes) {
  auto store = Store::connect(socket);
  if (!store) return fail_with(store.error());
  auto group = Group::open(*store, "ranks", rank, ranks);
  if (!group) return fail_with(group.error());
  Rank self(std::move(*store), std::move(*group));
  for (const std::uint64_t size : sizes) {
    for (const DataType type : kDataTypes) {
      for (const bool exact : {true, false}) {
        if (!exact && !is_float(type)) continue;
        if (Status done = self.run(type, size, exact); !done) return fail_with(done.error());
      }
    }
  }
  return self.wrong() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lochos

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: reduce_rank SOCKET RANK RANKS SIZE…\n";
    return 2;
  }
  std::vector<std::uint64_t> sizes;
  for (int i = 4; i < argc; ++i)
    sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  const auto number = [&](int i) {
    return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  return lochos::run(argv[1], number(2), number(3), sizes);
}
