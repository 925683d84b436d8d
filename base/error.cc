#include "base/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace lochos {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return "invalid argument";
    case Errc::kAlreadyExists:
      return "already exists";
    case Errc::kNotFound:
      return "not found";
    case Errc::kDeleted:
      return "deleted";
    case Errc::kAborted:
      return "aborted by its producer";
    case Errc::kObjectLost:
      return "object lost";
    case Errc::kNoSpace:
      return "no space";
    case Errc::kTimedOut:
      return "timed out";
    case Errc::kCancelled:
      return "cancelled";
    case Errc::kUnreachable:
      return "unreachable";
    case Errc::kConnectionLost:
      return "connection lost";
    case Errc::kVersionMismatch:
      return "version mismatch";
    case Errc::kProtocol:
      return "protocol error";
    case Errc::kFenced:
      return "fenced";
    case Errc::kPermission:
      return "not permitted";
    case Errc::kAddressInUse:
      return "address in use";
    case Errc::kUnsupported:
      return "not supported";
    case Errc::kClosed:
      return "closed";
    case Errc::kSystem:
      return "system error";
  }
  return "unknown error";
}

std::string Error::to_string() const {
  std::string text;
  if (!operation_.empty()) text += operation_;
  if (!object_.empty()) text += fmt::format("{}'{}'", text.empty() ? "" : " of ", object_);
  if (!text.empty()) text += ": ";
  text += lochos::to_string(code_);
  if (!message_.empty()) text += fmt::format(": {}", message_);

  std::string context;
  auto add = [&context](std::string_view part) {
    if (!context.empty()) context += ", ";
    context += part;
  };
  if (!peer_.empty()) add(fmt::format("peer {}", peer_));
  if (!transport_.empty()) add(fmt::format("transport {}", transport_));
  if (!nic_.empty()) add(fmt::format("NIC {}", nic_));
  if (bytes_total_ > 0) add(fmt::format("{} of {} bytes done", bytes_done_, bytes_total_));
  if (!context.empty()) text += fmt::format(" ({})", context);
  if (!cause_.empty()) text += fmt::format("; likely cause: {}", cause_);
  if (!fix_.empty()) text += fmt::format("; to fix: {}", fix_);
  return text;
}

Error system_error(int errno_value, std::string_view what) {
  Errc code = Errc::kSystem;
  switch (errno_value) {
    case EADDRINUSE:
      code = Errc::kAddressInUse;
      break;
    case EACCES:
    case EPERM:
      code = Errc::kPermission;
      break;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
      code = Errc::kUnreachable;
      break;
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
    case ECONNABORTED:
      code = Errc::kConnectionLost;
      break;
    case ETIMEDOUT:
      code = Errc::kTimedOut;
      break;
    case EINVAL:
      code = Errc::kInvalidArgument;
      break;
    case EOPNOTSUPP:
    case ENOSYS:
      code = Errc::kUnsupported;
      break;
    case ENOENT:
      code = Errc::kNotFound;
      break;
    case ENOSPC:
      code = Errc::kNoSpace;
      break;
    default:
      break;
  }
  return Error(code, fmt::format("{}: {}", what, std::generic_category().message(errno_value)));
}

}  // namespace lochos
