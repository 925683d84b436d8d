#include "node/local_link.h"

namespace lochos {

void set_request_number(LocalMessage& message, LocalRequestNumber number) {
  std::visit(
      [number](auto& m) {
        if constexpr (requires { m.request; }) m.request = number;
      },
      message);
}

Error no_answer_error(const LocalLink& link) {
  return Error(Errc::kTimedOut, "the node has not answered in time")
      .with_peer(link.describe())
      .with_cause("its process is stopped, or too busy to answer");
}

}  // namespace lochos
