#include "transport/transport.h"

namespace lochos {

std::string_view to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::kTcp:
      return "tcp";
    case TransportKind::kVerbs:
      return "verbs";
    case TransportKind::kSim:
      return "sim";
  }
  return "unknown";
}

std::string_view to_string(TransportPolicy policy) {
  switch (policy) {
    case TransportPolicy::kAuto:
      return "auto";
    case TransportPolicy::kVerbs:
      return "verbs";
    case TransportPolicy::kTcp:
      return "tcp";
  }
  return "unknown";
}

}  // namespace lochos
