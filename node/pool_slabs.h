// Small blocks: spans of pages cut into equal slots, one size class a span. A span whose last slot
// is freed goes back to the page ranges at once, so that a pool that was emptied is one free range
// again. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "node/pool_ranges.h"
#include "node/pool_size_classes.h"

namespace lochos {

class Slabs {
 public:
  // `ranges` must outlive this.
  explicit Slabs(PageRanges& ranges) : ranges_(ranges) {}

  // The offset of a slot, in bytes; nothing if there is no room. `fresh_span_end` becomes the end
  // of the span if a new one was made, else 0.
  std::optional<std::uint64_t> allocate(std::size_t size_class, std::uint64_t& fresh_span_end);
  // REQUIRES: `offset` came from allocate(size_class) and was not freed since.
  void free(std::uint64_t offset, std::size_t size_class);

  // The largest class such that it and all smaller ones have a free slot, in bytes; 0 if the
  // smallest has none. A slot serves its own class only: one of a large class says nothing about
  // smaller sizes.
  std::uint64_t largest_free() const;

 private:
  struct Span {
    std::uint64_t pages = 0;
    std::size_t size_class = 0;
    std::uint32_t slots = 0;
    std::uint32_t used = 0;
    std::vector<std::uint64_t> taken;  // a bit a slot; bits beyond `slots` are set

    std::uint32_t take();
    void give_back(std::uint32_t slot);
  };
  using Spans = std::map<std::uint64_t, Span>;  // by first page

  Spans::iterator add_span(std::size_t size_class);

  PageRanges& ranges_;
  Spans spans_;
  // Spans with a free slot, by first page: filling the lowest first lets the higher ones empty.
  std::array<std::set<std::uint64_t>, kSizeClasses.size()> open_;
};

}  // namespace lochos
