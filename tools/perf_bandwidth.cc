#include "tools/perf_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/units.h"
#include "tools/perf_pattern.h"

namespace lochos {
namespace {

// One side of one size. `sends`: this side moves messages (by writes, sends or reads). `receives`:
// the other side does, and says so with an end marker, a message of its own after all others.
class BandwidthRun {
 public:
  BandwidthRun(PerfLink& link, const PerfParameters& parameters, std::uint64_t size, bool sends,
               bool receives)
      : link_(link),
        parameters_(parameters),
        layout_(perf_layout(parameters, size)),
        sends_(sends),
        receives_(receives) {
    build_requests();
    if (sends_) completed_.reserve(parameters_.iterations);
  }

  // Before the other side may begin.
  void prepare() {
    if (!parameters_.verify) return;
    for (std::uint64_t slot = 0; slot < layout_.slots; ++slot) {
      fill_pattern(place(link_.outgoing(), slot), slot);
      const std::span<std::byte> target = place(link_.incoming(), slot);
      std::fill(target.begin(), target.end(), std::byte{0});
    }
  }

  Status run();
  // What has arrived by one-sided operations. Sent messages were checked as they came.
  void verify_places();

  BandwidthFigures figures(Instant end) const {
    return bandwidth_figures(completed_, start_, end, layout_.size,
                             bandwidth_window(completed_.size(), parameters_.depth));
  }
  Instant last_completion() const { return completed_.back(); }
  std::uint64_t wrong() const { return wrong_; }
  const std::string& first_wrong() const { return first_wrong_; }

 private:
  void build_requests();
  void post_burst();
  void take(std::span<const Completion> completions);
  void take_message(std::span<const std::byte> message);
  void check_contents(std::span<const std::byte> bytes, std::uint64_t slot, std::uint64_t offset);

  std::span<std::byte> place(std::span<std::byte> area, std::uint64_t slot) const {
    return area.subspan(slot * layout_.stride, layout_.size);
  }
  // The target of one-sided operations sees nothing of them.
  std::optional<std::uint64_t> progress() const {
    if (!sends_ && parameters_.op != PerfOp::kSend) return std::nullopt;
    return ended_ + arrived_;
  }
  bool sending_done() const { return !sends_ || completed_.size() == parameters_.iterations; }
  bool receiving_done() const { return !receives_ || marker_arrived_; }

  PerfLink& link_;
  const PerfParameters& parameters_;
  const PerfLayout layout_;
  const bool sends_;
  const bool receives_;

  std::vector<WorkRequest> requests_;  // one turn through the places, as often as the depth needs
  std::uint64_t pieces_ = 1;           // requests of one message
  std::uint64_t posted_ = 0;           // requests
  std::uint64_t ended_ = 0;            // requests
  std::uint64_t arrived_ = 0;          // sends of the other side
  bool marker_posted_ = false;
  bool marker_done_ = false;
  bool marker_arrived_ = false;
  std::vector<Instant> completed_;  // by message
  Instant start_;
  std::uint64_t wrong_ = 0;
  std::string first_wrong_;
};

void BandwidthRun::build_requests() {
  const std::uint64_t messages =
      (parameters_.depth + layout_.slots - 1) / layout_.slots * layout_.slots;
  for (std::uint64_t i = 0; i < messages; ++i)
    link_.append_message(parameters_.op, layout_, i % layout_.slots, Opcode::kWrite, requests_);
  pieces_ = requests_.size() / messages;
}

Status BandwidthRun::run() {
  std::array<Completion, 64> completions;
  start_ = SteadyClock().now();
  while (!sending_done() || !receiving_done() || (sends_ && !marker_done_)) {
    post_burst();
    const std::size_t count = link_.transport().poll(completions);
    if (count == 0) {
      if (auto well = link_.idle(progress()); !well) return well;
      continue;
    }
    take(std::span(completions).first(count));
  }
  return {};
}

void BandwidthRun::post_burst() {
  if (!sends_) return;
  const std::uint64_t total = parameters_.iterations * pieces_;
  if (posted_ < total) {
    const std::uint64_t room = parameters_.depth * pieces_ - (posted_ - ended_);
    const std::uint64_t first = posted_ % requests_.size();
    const std::uint64_t count = std::min({room, total - posted_, requests_.size() - first});
    if (count > 0) posted_ += link_.endpoint().post(std::span(requests_).subspan(first, count));
  } else if (!marker_posted_ && ended_ == total) {
    marker_posted_ = post_end_marker(link_.endpoint());
  }
}

void BandwidthRun::take(std::span<const Completion> completions) {
  const Instant now = SteadyClock().now();
  for (const Completion& completion : completions) {
    if (completion.kind == Completion::Kind::kMessage) {
      take_message(completion.message);
    } else if (completion.kind == Completion::Kind::kRequest &&
               completion.status == Completion::Status::kDone) {
      // Requests of one endpoint end in the order of posting; the marker was posted last. A
      // flushed request does not count: the endpoint is dead, and idle() will say why.
      if (sending_done()) {
        marker_done_ = true;
      } else if (++ended_ % pieces_ == 0) {
        completed_.push_back(now);
      }
    }
  }
}

void BandwidthRun::take_message(std::span<const std::byte> message) {
  const bool data = parameters_.op == PerfOp::kSend && arrived_ < parameters_.iterations * pieces_;
  if (!data) {
    marker_arrived_ = true;
    return;
  }
  if (parameters_.verify) {
    const std::uint64_t number = arrived_ / pieces_;
    check_contents(message, number % layout_.slots,
                   arrived_ % pieces_ * link_.max_piece(PerfOp::kSend));
  }
  ++arrived_;
}

void BandwidthRun::check_contents(std::span<const std::byte> bytes, std::uint64_t slot,
                                  std::uint64_t offset) {
  // A piece starts at a multiple of the word that the pattern is made of, unless it is the only
  // one.
  const std::span<std::byte> expected = place(link_.outgoing(), slot).subspan(offset);
  const bool fits = bytes.size() <= expected.size();
  if (fits && std::equal(bytes.begin(), bytes.end(), expected.begin())) return;
  if (wrong_++ == 0) {
    const auto at =
        fits ? std::mismatch(bytes.begin(), bytes.end(), expected.begin()).first : bytes.end();
    first_wrong_ = fmt::format("byte {} of a message of {}",
                               offset + static_cast<std::uint64_t>(at - bytes.begin()),
                               format_size(layout_.size));
  }
}

void BandwidthRun::verify_places() {
  if (!parameters_.verify || parameters_.op == PerfOp::kSend) return;
  // Reads arrive where the reader is, writes at the other side.
  if (parameters_.op == PerfOp::kRead ? !sends_ : !receives_) return;
  for (std::uint64_t slot = 0; slot < layout_.slots; ++slot) {
    const auto mismatch = find_mismatch(place(link_.incoming(), slot), slot);
    if (!mismatch) continue;
    if (wrong_++ == 0)
      first_wrong_ =
          fmt::format("byte {} of a message of {}", *mismatch, format_size(layout_.size));
  }
}

std::vector<double> columns(const BandwidthFigures& figures) {
  return {figures.peak_MBps, figures.average_MBps, figures.min_MBps, figures.rate_Mpps};
}

}  // namespace

bool post_end_marker(Endpoint& endpoint) {
  static std::byte nothing{};
  WorkRequest marker;
  marker.opcode = Opcode::kSend;
  marker.local = &nothing;
  marker.length = 1;
  return endpoint.post(std::span(&marker, 1)) == 1;
}

Result<PerfOutcome> receive_row(PerfLink& link, PerfOutcome own) {
  auto row = link.receive_a<PerfRow>();
  if (!row) return fail(row.error());
  own.row = std::move(*row);
  return own;
}

Result<PerfOutcome> measure_bandwidth(PerfLink& link, const PerfParameters& parameters,
                                      std::uint64_t size, PerfSide side) {
  const bool client = side == PerfSide::kClient;
  const bool sends = client || parameters.bidirectional;
  const bool receives = !client || parameters.bidirectional;
  BandwidthRun run(link, parameters, size, sends, receives);
  run.prepare();
  PerfControl& control = link.control();
  if (auto sent = control.send(PerfBegin{size}); !sent) return fail(sent.error());
  auto begin = control.receive_a<PerfBegin>(SteadyClock().now() + kBeginTimeout);
  if (!begin) return fail(begin.error());

  // Who only lets the other side write or read has nothing to measure, and sleeps.
  const bool passive = !sends && parameters.op != PerfOp::kSend;
  link.sleep_when_idle(parameters.events || passive);
  const Status ran = run.run();
  link.sleep_when_idle(parameters.events);
  if (!ran) return fail(ran.error());

  run.verify_places();
  PerfFinished ours{run.wrong(), run.first_wrong(), {}};
  if (!client && sends) ours.figures = run.figures(run.last_completion());
  if (auto sent = control.send(ours); !sent) return fail(sent.error());
  auto theirs = link.receive_a<PerfFinished>();
  if (!theirs) return fail(theirs.error());
  // A completion of TCP says that the bytes were handed on, not that they have arrived; there the
  // clock runs until the other side has said so.
  const bool arrived = link.transport().kind() == TransportKind::kVerbs ||
                       parameters.op == PerfOp::kRead || parameters.verify;
  const Instant end = arrived && sends ? run.last_completion() : SteadyClock().now();

  PerfOutcome outcome;
  outcome.wrong = ours.wrong + theirs->wrong;
  outcome.first_wrong = ours.wrong > 0 ? ours.first_wrong : theirs->first_wrong;
  if (!client) return receive_row(link, std::move(outcome));
  outcome.row = PerfRow{size, parameters.iterations, columns(run.figures(end) + theirs->figures)};
  if (auto sent = control.send(outcome.row); !sent) return fail(sent.error());
  return outcome;
}

}  // namespace lochos
