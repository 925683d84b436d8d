#include "node/pool_slabs.h"

#include <bit>
#include <iterator>

#include "base/check.h"

namespace lochos {
namespace {

// A span is 64 KiB, so that its book-keeping is small next to it, or less where only less is left.
constexpr std::array<std::uint64_t, 3> kSpanPages = {16, 4, 1};
constexpr std::uint32_t kBitsPerWord = 64;

}  // namespace

std::uint32_t Slabs::Span::take() {
  std::uint32_t word = 0;
  while (taken[word] == ~std::uint64_t{0})
    ++word;
  const auto bit = static_cast<std::uint32_t>(std::countr_one(taken[word]));
  taken[word] |= std::uint64_t{1} << bit;
  ++used;
  return word * kBitsPerWord + bit;
}

void Slabs::Span::give_back(std::uint32_t slot) {
  LOCHOS_CHECK(slot < slots);
  std::uint64_t& word = taken[slot / kBitsPerWord];
  const std::uint64_t mask = std::uint64_t{1} << (slot % kBitsPerWord);
  LOCHOS_CHECK((word & mask) != 0);  // a double free
  word &= ~mask;
  --used;
}

Slabs::Spans::iterator Slabs::add_span(std::size_t size_class) {
  for (const std::uint64_t pages : kSpanPages) {
    const auto first = ranges_.allocate(pages);
    if (!first) continue;
    Span span;
    span.pages = pages;
    span.size_class = size_class;
    span.slots = static_cast<std::uint32_t>(pages * kPageBytes / kSizeClasses[size_class]);
    span.taken.assign((span.slots + kBitsPerWord - 1) / kBitsPerWord, 0);
    if (const std::uint32_t rest = span.slots % kBitsPerWord; rest != 0) {
      span.taken.back() = ~std::uint64_t{0} << rest;
    }
    return spans_.emplace(*first, std::move(span)).first;
  }
  return spans_.end();
}

std::optional<std::uint64_t> Slabs::allocate(std::size_t size_class,
                                             std::uint64_t& fresh_span_end) {
  std::set<std::uint64_t>& open = open_[size_class];
  fresh_span_end = 0;
  Spans::iterator at;
  if (open.empty()) {
    at = add_span(size_class);
    if (at == spans_.end()) return std::nullopt;
    open.insert(at->first);
    fresh_span_end = (at->first + at->second.pages) * kPageBytes;
  } else {
    at = spans_.find(*open.begin());
  }
  Span& span = at->second;
  const std::uint32_t slot = span.take();
  if (span.used == span.slots) open.erase(at->first);
  return at->first * kPageBytes + slot * kSizeClasses[size_class];
}

void Slabs::free(std::uint64_t offset, std::size_t size_class) {
  auto at = spans_.upper_bound(offset / kPageBytes);
  LOCHOS_CHECK(at != spans_.begin());
  at = std::prev(at);
  Span& span = at->second;
  const std::uint64_t within = offset - at->first * kPageBytes;
  LOCHOS_CHECK(span.size_class == size_class && within % kSizeClasses[size_class] == 0);
  if (span.used == span.slots) open_[size_class].insert(at->first);
  span.give_back(static_cast<std::uint32_t>(within / kSizeClasses[size_class]));
  if (span.used > 0) return;
  open_[size_class].erase(at->first);
  ranges_.free(at->first, span.pages);
  spans_.erase(at);
}

std::uint64_t Slabs::largest_free() const {
  std::uint64_t largest = 0;
  for (std::size_t index = 0; index < kSizeClasses.size() && !open_[index].empty(); ++index)
    largest = kSizeClasses[index];
  return largest;
}

}  // namespace lochos
