// Who a node is: a number given by the directory at join, and the incarnation that tells this life
// of the process from an earlier one. A message of an old incarnation is refused. Value.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lochos {

struct NodeId {
  std::uint32_t number = 0;  // 0: no node
  std::uint64_t incarnation = 0;

  auto operator<=>(const NodeId&) const = default;
  explicit operator bool() const { return number != 0; }

  // "n3.17": number and incarnation.
  std::string to_string() const {
    return "n" + std::to_string(number) + "." + std::to_string(incarnation);
  }
};

struct NodeIdHash {
  std::size_t operator()(const NodeId& node) const {
    return static_cast<std::size_t>(node.number * 0x9E3779B97F4A7C15ULL ^ node.incarnation);
  }
};

}  // namespace lochos
