#include "directory/table.h"

#include <algorithm>

#include "directory/table_state.h"

namespace lochos {

Table::Table(const TableOptions& options) : state_(std::make_unique<TableState>(options)) {}
Table::~Table() = default;

Result<NodeId> Table::join(Instant now, const Join& join, Actions& out) {
  const Turn turn{now, out};
  auto joined = state_->join(join, turn);
  state_->settle_reduces(turn);
  return joined;
}

void Table::apply(Instant now, NodeId from, const NodeMessage& message, Actions& out) {
  Member* member = state_->find_member(from);
  if (member == nullptr) {
    out.push_back({from, Fenced{}});
    return;
  }
  member->last_heard = now;
  const Turn turn{now, out};
  if (std::holds_alternative<Leave>(message)) {
    state_->remove_member(*member, true, turn);
  } else {
    std::visit([&](const auto& m) { state_->on(*member, m, turn); }, message);
  }
  state_->settle_reduces(turn);
}

void Table::disconnect(Instant now, NodeId node, Actions& out) {
  if (Member* member = state_->find_member(node)) {
    const Turn turn{now, out};
    state_->remove_member(*member, false, turn);
    state_->settle_reduces(turn);
  }
}

void Table::tick(Instant now, Actions& out) {
  const Turn turn{now, out};
  state_->check_liveness(turn);
  state_->run_timers(turn);
  state_->settle_reduces(turn);
}

Instant Table::next_deadline() const {
  return state_->next_deadline();
}

bool Table::alive(NodeId node) const {
  return state_->find_member(node) != nullptr;
}

TableStats Table::stats() const {
  return state_->stats();
}

TableState::TableState(const TableOptions& options)
    : options_(options),
      last_collective_(options.epoch),
      last_generation_(options.epoch),
      last_incarnation_(options.epoch) {}

void TableState::run_timers(const Turn& turn) {
  while (!losses_.empty() && losses_.begin()->first <= turn.now)
    lose(*losses_.begin()->second, turn);
  while (!retries_.empty() && retries_.begin()->first <= turn.now) {
    Copy& copy = *retries_.begin()->second;
    set_retry_at(copy, kNever);
    if (copy.entry->has_source()) assign(copy, Patience::kNone, turn);
  }
  expire_reduces(turn);
  expire_collectives(turn);
  forget_failed_collectives(turn.now);
  forget_erased(turn.now);
}

Instant TableState::next_deadline() const {
  Instant next = liveness_at_;
  if (!losses_.empty()) next = std::min(next, losses_.begin()->first);
  if (!retries_.empty()) next = std::min(next, retries_.begin()->first);
  if (!reduce_deadlines_.empty()) next = std::min(next, reduce_deadlines_.begin()->first);
  if (!collective_deadlines_.empty())
    next = std::min(next, std::get<Instant>(*collective_deadlines_.begin()));
  if (!failed_queue_.empty()) next = std::min(next, failed_queue_.front().first);
  if (!erased_queue_.empty()) next = std::min(next, erased_queue_.front().until);
  return next;
}

TableStats TableState::stats() const {
  TableStats stats;
  stats.members = members_.size();
  stats.objects = ordered_.size();
  stats.entries = entries_.size();
  stats.copies = copies_;
  stats.edges = edges_;
  stats.waits = waits_;
  stats.barriers = barriers_.size();
  stats.reduces = reduces_.size();
  stats.collectives = collectives_.size();
  stats.timers = losses_.size() + retries_.size() + reduce_deadlines_.size() +
                 collective_deadlines_.size() + failed_queue_.size() + erased_queue_.size();
  stats.inline_bytes = inline_bytes_;
  return stats;
}

}  // namespace lochos
