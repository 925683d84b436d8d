#include "node/local_requests.h"

#include <utility>

namespace lochos {

std::shared_ptr<LocalRequest> RequestTable::add(Instant deadline) {
  const Instant give_up = saturating_add(deadline, kAnswerGrace);
  auto request = std::make_shared<LocalRequest>(++last_number_, give_up);
  entries_.emplace(request->number, Entry{request, give_up, 0});
  return request;
}

void RequestTable::drop(LocalRequestNumber number) {
  const auto at = entries_.find(number);
  if (at == entries_.end()) return;
  watched_.erase({at->second.give_up, number});
  if (!at->second.request) --orphans_;
  entries_.erase(at);
}

void RequestTable::set_result(LocalRequest& request, Result<LocalPayload> result) {
  watched_.erase({request.give_up, request.number});
  request.result = std::move(result);
  if (request.event) request.event->signal();
  request.changed.notify_all();
}

void RequestTable::undo(const LocalPayload& payload, std::vector<LocalMessage>& follow_ups) {
  if (const auto* view = std::get_if<LocalView>(&payload)) {
    if (view->pin != 0) follow_ups.push_back(LocalRelease{view->pin});
  } else if (const auto* created = std::get_if<LocalCreated>(&payload)) {
    follow_ups.push_back(LocalAbandon{created->writer});
  }
}

void RequestTable::deliver(LocalReply reply, std::vector<LocalMessage>& follow_ups) {
  const auto at = entries_.find(reply.request);
  if (at == entries_.end()) {  // of a request that was never made: do not keep what it brings
    if (reply.result) undo(*reply.result, follow_ups);
    return;
  }
  Entry& entry = at->second;
  if (reply.result) {
    if (const auto* progress = std::get_if<LocalProgress>(&*reply.result)) {
      entry.open_pin = progress->pin;
      if (!entry.request) return;
      entry.request->progress = *progress;
      entry.request->changed.notify_all();
      return;
    }
  }
  // A view takes over the pin that its progress opened; a failed get leaves it to us.
  const bool is_view = reply.result && std::holds_alternative<LocalView>(*reply.result);
  if (entry.open_pin != 0 && !is_view) follow_ups.push_back(LocalRelease{entry.open_pin});
  if (entry.request) {
    set_result(*entry.request, std::move(reply.result));
  } else if (reply.result) {
    undo(*reply.result, follow_ups);
  }
  drop(reply.request);
}

void RequestTable::give_up(LocalRequest& request, Error error,
                           std::vector<LocalMessage>& follow_ups) {
  if (request.result) return;
  set_result(request, fail(std::move(error)));
  const auto at = entries_.find(request.number);
  if (at == entries_.end()) return;
  at->second.request = nullptr;
  ++orphans_;
  follow_ups.push_back(LocalCancel{request.number});
  // A pin may be released twice (again when a view is on its way already); the engine knows each
  // number only once.
  if (const PinNumber pin = std::exchange(at->second.open_pin, 0); pin != 0) {
    follow_ups.push_back(LocalRelease{pin});
  }
}

void RequestTable::abandon(LocalRequest& request, std::vector<LocalMessage>& follow_ups) {
  if (!request.result) {
    give_up(request, Error(Errc::kCancelled, "nobody waits for it"), follow_ups);
  } else if (*request.result) {
    undo(**request.result, follow_ups);
  }
}

void RequestTable::fail_all(const Error& error) {
  for (auto& [number, entry] : entries_) {
    if (entry.request) set_result(*entry.request, fail(error));
  }
  entries_.clear();
  orphans_ = 0;
}

Result<int> RequestTable::watch(LocalRequest& request) {
  if (!request.event) {
    auto event = EventFd::open();
    if (!event) return fail(std::move(event.error()));
    request.event.emplace(std::move(*event));
    if (request.result) {
      request.event->signal();
    } else {
      watched_.emplace(request.give_up, request.number);
    }
  }
  return request.event->fd();
}

std::vector<std::shared_ptr<LocalRequest>> RequestTable::overdue(Instant now) const {
  std::vector<std::shared_ptr<LocalRequest>> due;
  for (const auto& [when, number] : watched_) {
    if (when > now) break;
    const auto at = entries_.find(number);
    if (at != entries_.end() && at->second.request) due.push_back(at->second.request);
  }
  return due;
}

}  // namespace lochos
