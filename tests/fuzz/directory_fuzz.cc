// Bytes as they might come from the network: cut into frames, decoded, and applied to a table as
// the messages of a few nodes, some of which die on the way.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "directory/codec.h"
#include "directory/table.h"

namespace lochos {
namespace {

class Session {
 public:
  explicit Session(std::span<const std::byte> input) : input_(input) {
    for (int n = 0; n < 3; ++n)
      join(Join{});
  }

  void run() {
    while (input_.size() >= 3) {
      const auto what = std::to_integer<unsigned>(input_[0]);
      const std::size_t length =
          std::to_integer<std::size_t>(input_[1]) | std::to_integer<std::size_t>(input_[2]) << 8;
      input_ = input_.subspan(3);
      const auto payload = input_.first(std::min(length, input_.size()));
      input_ = input_.subspan(payload.size());
      step(what, payload);
    }
    for (const NodeId& node : nodes_)
      table_.disconnect(now_, node, out_);
    now_ += std::chrono::seconds(2);
    table_.tick(now_, out_);
    LOCHOS_CHECK(table_.stats().copies == 0);
    LOCHOS_CHECK(table_.stats().waits == 0);
  }

 private:
  void join(const Join& message) {
    if (auto node = table_.join(now_, message, out_)) nodes_.push_back(*node);
  }
  void step(unsigned what, std::span<const std::byte> payload) {
    (void)decode_directory_message(payload);
    const NodeId node = nodes_[what % nodes_.size()];
    if ((what & 0xf0) == 0xf0) table_.disconnect(now_, node, out_);
    if ((what & 0xf0) == 0xe0) now_ += std::chrono::milliseconds(300);
    if (const auto message = decode_node_message(payload)) {
      if (const auto* joining = std::get_if<Join>(&*message)) join(*joining);
      table_.apply(now_, node, *message, out_);
    }
    table_.tick(now_, out_);
    LOCHOS_CHECK(table_.next_deadline() > now_);
    Bytes bytes;
    for (const Outgoing& action : out_)
      encoder_.append(action.message, bytes);
    out_.clear();
  }

  std::span<const std::byte> input_;
  Table table_{TableOptions{}};
  Instant now_{std::chrono::hours(1)};
  Actions out_;
  std::vector<NodeId> nodes_;
  FrameEncoder encoder_;
};

}  // namespace
}  // namespace lochos

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lochos::Session(std::as_bytes(std::span(data, size))).run();
  return 0;
}
