#include "node/reduce_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace lochos {
namespace {

// Bounds the names of all sources together. What else there is of a source (an id, offsets,
// padding) takes less than kSourceBytes in either protocol.
constexpr std::size_t kSourceNamesBytes = 512 * 1024;
constexpr std::size_t kSourceBytes = 64;
static_assert(kSourceNamesBytes + kMaxReduceSources * kSourceBytes + 2 * kMaxNameBytes <
              kMaxFrameBytes);

std::string shown(const Store::Key& key) {
  return key.name.empty() ? key.id->to_hex() : key.name;
}

// Before anything else looks at them: the values may come from another language.
Status check_kind(const ReduceOptions& options) {
  const auto op = static_cast<std::size_t>(options.op);
  const auto dtype = static_cast<std::size_t>(options.dtype);
  if (op >= kReduceOps.size() || dtype >= kDataTypes.size()) {
    return fail(Errc::kInvalidArgument,
                fmt::format("there is no operation {} or no element type {}", op, dtype));
  }
  if (!supported(options.op, options.dtype)) {
    return fail(Errc::kInvalidArgument,
                fmt::format("the operation {} is not for elements of type {}: it is for {} alone",
                            to_string(options.op), to_string(options.dtype),
                            is_float(options.dtype) ? "integers" : "floating-point numbers"));
  }
  return {};
}

Status check_count(std::size_t sources, std::size_t count) {
  if (sources == 0) return fail(Errc::kInvalidArgument, "a reduce of no sources");
  if (sources > kMaxReduceSources) {
    return fail(Errc::kInvalidArgument,
                fmt::format("a reduce of {} sources; the limit is {}", sources, kMaxReduceSources));
  }
  if (count > sources) {
    return fail(Errc::kInvalidArgument,
                fmt::format("a reduce of the first {} of only {} sources", count, sources));
  }
  return {};
}

Status check_different(const Store::Key& target, std::span<const Store::Key> sources) {
  std::unordered_map<ObjectId, std::size_t, ObjectIdHash> seen;
  seen.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].id) return fail(Error(sources[i].id.error()).with_object(sources[i].name));
    if (*sources[i].id == *target.id) {
      return fail(Errc::kInvalidArgument, fmt::format("the target is also source {}", i));
    }
    const auto [before, fresh] = seen.emplace(*sources[i].id, i);
    if (!fresh) {
      return fail(Errc::kInvalidArgument, fmt::format("'{}' is both source {} and source {}",
                                                      shown(sources[i]), before->second, i));
    }
  }
  return {};
}

// At most `limit` bytes, and no character cut in two.
std::string shortened(const std::string& name, std::size_t limit) {
  if (name.size() <= limit) return name;
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U)
    --end;
  return name.substr(0, end);
}

}  // namespace

Result<LocalReduce> make_reduce(const Store::Key& target, std::span<const Store::Key> sources,
                                const ReduceOptions& options) {
  if (!target.id) return fail(target.id.error());
  for (const Status& sound : {check_kind(options), check_count(sources.size(), options.count)}) {
    if (!sound) return fail(sound.error());
  }
  if (auto sound = check_different(target, sources); !sound) return fail(std::move(sound.error()));

  LocalReduce reduce;
  reduce.target = *target.id;
  reduce.name = target.name;
  reduce.count = static_cast<std::uint32_t>(options.count == 0 ? sources.size() : options.count);
  reduce.op = options.op;
  reduce.dtype = options.dtype;
  reduce.deterministic = options.deterministic;
  const std::size_t limit = std::min(kMaxNameBytes, kSourceNamesBytes / sources.size());
  reduce.sources.reserve(sources.size());
  for (const Store::Key& source : sources)
    reduce.sources.push_back({*source.id, shortened(source.name, limit)});
  return reduce;
}

Result<ReduceResult> reduce_result(const LocalReduced& reduced, std::size_t sources) {
  ReduceResult result;
  result.size = reduced.size;
  result.generation = reduced.generation;
  std::size_t next = 0;  // the first source that nothing is known of yet
  for (const std::size_t position : reduced.included) {
    if (position < next || position >= sources) {
      return fail(Errc::kProtocol, "the node named sources that were not asked for");
    }
    for (; next < position; ++next)
      result.left_out.push_back(next);
    result.included.push_back(next++);
  }
  for (; next < sources; ++next)
    result.left_out.push_back(next);
  return result;
}

}  // namespace lochos
