#include "tools/perf_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/units.h"
#include "tools/perf_pattern.h"

namespace lochos {
namespace {

constexpr std::uint64_t kWarmUp = 100;  // round trips

class LatencyRun {
 public:
  LatencyRun(PerfLink& link, const PerfParameters& parameters, std::uint64_t size)
      : link_(link), parameters_(parameters), layout_(perf_layout(parameters, size)) {
    link_.append_message(parameters.op, layout_, 0, Opcode::kWriteImmediate, requests_);
    // A write announces itself once, sends and reads in every piece.
    arrivals_ = parameters.op == PerfOp::kWrite ? 1 : requests_.size();
    if (!parameters.verify) return;
    fill_pattern(outgoing(), 0);
    const std::span<std::byte> target = link_.incoming().first(layout_.size);
    std::fill(target.begin(), target.end(), std::byte{0});
  }

  // The client's half: one round trip. The server's half: wait for a message, send one.
  Status ping() {
    const Status posted = post_message();
    return posted ? wait_for_message() : posted;
  }
  Status pong() {
    const Status arrived = wait_for_message();
    return arrived ? post_message() : arrived;
  }
  // The client's half of a read: all of it.
  Status read();
  // The server's half: nothing until the client has read enough and says so.
  Status serve_reads();
  Status end_reads();

  std::uint64_t wrong() const { return wrong_; }
  const std::string& first_wrong() const { return first_wrong_; }

 private:
  Status post_message();
  Status wait_for_completions(std::uint64_t count);
  Status wait_for_message();
  Status turn();
  void check_target();
  void check_contents(std::span<const std::byte> bytes, std::uint64_t offset);
  std::span<std::byte> outgoing() const { return link_.outgoing().first(layout_.size); }

  PerfLink& link_;
  const PerfParameters& parameters_;
  const PerfLayout layout_;
  std::vector<WorkRequest> requests_;
  std::uint64_t arrivals_ = 1;  // of one message

  std::array<Completion, 16> completions_;
  std::uint64_t ended_ = 0;     // our requests, all
  std::uint64_t arrived_ = 0;   // since the last message was taken
  std::uint64_t progress_ = 0;  // everything that ever came
  bool serves_reads_ = false;   // and sees nothing of them
  std::uint64_t wrong_ = 0;
  std::string first_wrong_;
};

Status LatencyRun::post_message() {
  std::size_t posted = link_.endpoint().post(requests_);
  while (posted < requests_.size()) {  // the queue is full of requests that are about to end
    if (auto turned = turn(); !turned) return turned;
    posted += link_.endpoint().post(std::span(requests_).subspan(posted));
  }
  return {};
}

Status LatencyRun::turn() {
  const std::size_t count = link_.transport().poll(completions_);
  if (count == 0) return link_.idle(serves_reads_ ? std::nullopt : std::optional(progress_));
  progress_ += count;
  for (const Completion& completion : std::span(completions_).first(count)) {
    if (completion.kind == Completion::Kind::kRequest) {
      if (completion.status == Completion::Status::kDone) ++ended_;
      continue;
    }
    if (parameters_.verify && completion.kind == Completion::Kind::kMessage &&
        parameters_.op == PerfOp::kSend)
      check_contents(completion.message, arrived_ * link_.max_piece(PerfOp::kSend));
    ++arrived_;
  }
  return {};
}

Status LatencyRun::wait_for_message() {
  while (arrived_ < arrivals_) {
    if (auto turned = turn(); !turned) return turned;
  }
  arrived_ -= arrivals_;
  if (parameters_.verify && parameters_.op == PerfOp::kWrite) check_target();
  return {};
}

Status LatencyRun::wait_for_completions(std::uint64_t count) {
  while (ended_ < count) {
    if (auto turned = turn(); !turned) return turned;
  }
  return {};
}

Status LatencyRun::read() {
  const std::uint64_t all = ended_ + requests_.size();
  if (auto posted = post_message(); !posted) return posted;
  if (auto done = wait_for_completions(all); !done) return done;
  if (parameters_.verify) check_target();
  return {};
}

Status LatencyRun::serve_reads() {
  serves_reads_ = true;
  while (arrived_ == 0) {
    if (auto turned = turn(); !turned) return turned;
  }
  return {};
}

Status LatencyRun::end_reads() {
  const std::uint64_t all = ended_ + 1;
  while (!post_end_marker(link_.endpoint())) {
    if (auto turned = turn(); !turned) return turned;
  }
  return wait_for_completions(all);
}

// What one-sided operations left here. Cleared, so that the next message must come too.
void LatencyRun::check_target() {
  const std::span<std::byte> target = link_.incoming().first(layout_.size);
  check_contents(target, 0);
  std::fill(target.begin(), target.end(), std::byte{0});
}

// Both sides have the same pattern in `outgoing`.
void LatencyRun::check_contents(std::span<const std::byte> bytes, std::uint64_t offset) {
  const std::span<std::byte> whole = outgoing();
  const bool fits = offset <= whole.size() && bytes.size() <= whole.size() - offset;
  if (fits && std::memcmp(bytes.data(), whole.data() + offset, bytes.size()) == 0) return;
  if (wrong_++ > 0) return;
  std::size_t at = 0;
  while (fits && bytes[at] == whole[offset + at])
    ++at;
  first_wrong_ = fmt::format("byte {} of a message of {}", offset + at, format_size(layout_.size));
}

Status serve(LatencyRun& run, const PerfParameters& parameters) {
  if (parameters.op == PerfOp::kRead) return run.serve_reads();
  for (std::uint64_t i = 0; i < kWarmUp + parameters.iterations; ++i) {
    if (auto done = run.pong(); !done) return done;
  }
  return {};
}

Result<std::vector<double>> drive(LatencyRun& run, const PerfParameters& parameters) {
  const bool reads = parameters.op == PerfOp::kRead;
  const double share = reads ? 1.0 : 0.5;
  std::vector<double> samples;
  samples.reserve(parameters.iterations);
  Instant before = SteadyClock().now();
  for (std::uint64_t i = 0; i < kWarmUp + parameters.iterations; ++i) {
    if (auto done = reads ? run.read() : run.ping(); !done) return fail(done.error());
    const Instant after = SteadyClock().now();
    if (i >= kWarmUp) samples.push_back(seconds(after - before) * 1e6 * share);
    before = after;
  }
  if (reads) {
    if (auto ended = run.end_reads(); !ended) return fail(ended.error());
  }
  return samples;
}

std::vector<double> columns(const LatencyFigures& f) {
  return {f.min_us, f.median_us, f.average_us, f.stdev_us, f.p99_us, f.p999_us, f.max_us};
}

}  // namespace

Result<PerfOutcome> measure_latency(PerfLink& link, const PerfParameters& parameters,
                                    std::uint64_t size, PerfSide side) {
  LatencyRun run(link, parameters, size);
  PerfControl& control = link.control();
  if (auto sent = control.send(PerfBegin{size}); !sent) return fail(sent.error());
  auto begin = control.receive_a<PerfBegin>(SteadyClock().now() + kBeginTimeout);
  if (!begin) return fail(begin.error());

  std::vector<double> samples;
  if (side == PerfSide::kServer) {
    const bool passive = parameters.op == PerfOp::kRead;
    link.sleep_when_idle(parameters.events ||
                         (passive && link.transport().kind() == TransportKind::kVerbs));
    if (auto served = serve(run, parameters); !served) return fail(served.error());
    link.sleep_when_idle(parameters.events);
  } else {
    auto driven = drive(run, parameters);
    if (!driven) return fail(driven.error());
    samples = std::move(*driven);
  }

  if (auto sent = control.send(PerfFinished{run.wrong(), run.first_wrong(), {}}); !sent)
    return fail(sent.error());
  auto theirs = link.receive_a<PerfFinished>();
  if (!theirs) return fail(theirs.error());
  PerfOutcome outcome;
  outcome.wrong = run.wrong() + theirs->wrong;
  outcome.first_wrong = run.wrong() > 0 ? run.first_wrong() : theirs->first_wrong;
  if (side == PerfSide::kServer) return receive_row(link, std::move(outcome));
  outcome.row = PerfRow{size, parameters.iterations, columns(latency_figures(samples))};
  if (auto sent = control.send(outcome.row); !sent) return fail(sent.error());
  return outcome;
}

}  // namespace lochos
