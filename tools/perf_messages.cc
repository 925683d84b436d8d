#include "tools/perf_messages.h"

#include "base/aligned_bytes.h"
#include "perf_generated.h"

namespace lochos {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Error malformed() {
  return Error(Errc::kProtocol, "the other side sent something that is no message of lochos perf");
}

std::string text(const flatbuffers::String* string) {
  return string == nullptr ? std::string() : string->str();
}

template <class Table>
void finish(FlatBufferBuilder& builder, Offset<Table> body) {
  builder.Finish(
      perf_wire::CreateMessage(builder, perf_wire::BodyTraits<Table>::enum_value, body.Union()));
}

void write(FlatBufferBuilder& builder, const PerfOffer& offer) {
  const PerfParameters& p = offer.parameters;
  const auto sizes = builder.CreateVector(p.sizes);
  const auto why = builder.CreateString(offer.why_no_verbs);
  finish(builder,
         perf_wire::CreateOffer(builder, static_cast<std::uint8_t>(p.test),
                                static_cast<std::uint8_t>(p.op), sizes, p.iterations, p.depth,
                                p.events, p.bidirectional, p.verify, offer.verbs, offer.tcp, why));
}

void write(FlatBufferBuilder& builder, const PerfAnswer& answer) {
  const auto reason = builder.CreateString(answer.reason);
  const auto address = builder.CreateString(answer.address);
  finish(builder, perf_wire::CreateAnswer(builder, static_cast<std::uint8_t>(answer.transport),
                                          reason, address));
}

void write(FlatBufferBuilder& builder, const PerfMemory& memory) {
  finish(builder, perf_wire::CreateMemory(builder, memory.incoming, memory.outgoing, memory.key,
                                          memory.max_transfer, memory.max_message));
}

void write(FlatBufferBuilder& builder, const PerfBegin& begin) {
  finish(builder, perf_wire::CreateBegin(builder, begin.size));
}

void write(FlatBufferBuilder& builder, const PerfFinished& finished) {
  const auto first = builder.CreateString(finished.first_wrong);
  const BandwidthFigures& f = finished.figures;
  finish(builder, perf_wire::CreateFinished(builder, finished.wrong, first, f.peak_MBps,
                                            f.average_MBps, f.min_MBps, f.rate_Mpps));
}

void write(FlatBufferBuilder& builder, const PerfRow& row) {
  const auto figures = builder.CreateVector(row.figures);
  finish(builder, perf_wire::CreateRow(builder, row.size, row.iterations, figures));
}

void write(FlatBufferBuilder& builder, const PerfAbort& abort) {
  const auto reason = builder.CreateString(abort.reason.substr(0, 4096));
  finish(builder, perf_wire::CreateAbort(builder, reason));
}

void write(FlatBufferBuilder& builder, const PerfBye&) {
  finish(builder, perf_wire::CreateBye(builder));
}

Result<PerfMessage> read(const perf_wire::Offer& wire) {
  PerfOffer offer;
  PerfParameters& p = offer.parameters;
  if (wire.test() < 1 || wire.test() > 2 || wire.op() < 1 || wire.op() > 3)
    return fail(malformed());
  p.test = static_cast<PerfTest>(wire.test());
  p.op = static_cast<PerfOp>(wire.op());
  p.sizes.assign(wire.sizes()->begin(), wire.sizes()->end());
  p.iterations = wire.iterations();
  p.depth = wire.depth();
  p.events = wire.events();
  p.bidirectional = wire.bidirectional();
  p.verify = wire.verify();
  if (auto possible = check(p); !possible)
    return fail(Errc::kProtocol, "the client asks for " + possible.error().message());
  offer.verbs = wire.verbs();
  offer.tcp = wire.tcp();
  offer.why_no_verbs = text(wire.why_no_verbs());
  return offer;
}

Result<PerfMessage> read(const perf_wire::Answer& wire) {
  PerfAnswer answer;
  if (wire.transport() != static_cast<std::uint8_t>(TransportKind::kTcp) &&
      wire.transport() != static_cast<std::uint8_t>(TransportKind::kVerbs))
    return fail(malformed());
  answer.transport = static_cast<TransportKind>(wire.transport());
  answer.reason = text(wire.reason());
  answer.address = wire.address()->str();
  return answer;
}

Result<PerfMessage> read(const perf_wire::Memory& wire) {
  return PerfMemory{wire.incoming(), wire.outgoing(), wire.key(), wire.max_transfer(),
                    wire.max_message()};
}

Result<PerfMessage> read(const perf_wire::Begin& wire) {
  return PerfBegin{wire.size()};
}

Result<PerfMessage> read(const perf_wire::Finished& wire) {
  return PerfFinished{wire.wrong(),
                      text(wire.first_wrong()),
                      {wire.peak(), wire.average(), wire.minimum(), wire.rate()}};
}

Result<PerfMessage> read(const perf_wire::Row& wire) {
  if (wire.figures()->size() > 16) return fail(malformed());
  return PerfRow{wire.size(), wire.iterations(), {wire.figures()->begin(), wire.figures()->end()}};
}

Result<PerfMessage> read(const perf_wire::Abort& wire) {
  return PerfAbort{wire.reason()->str()};
}

}  // namespace

std::vector<std::byte> encode(const PerfMessage& message) {
  FlatBufferBuilder builder;
  std::visit([&](const auto& body) { write(builder, body); }, message);
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

Result<PerfMessage> decode_perf_message(std::span<const std::byte> bytes) {
  const AlignedBytes aligned(bytes);
  flatbuffers::Verifier verifier(aligned.data(), aligned.size());
  if (!verifier.VerifyBuffer<perf_wire::Message>(nullptr)) return fail(malformed());
  const auto* message = flatbuffers::GetRoot<perf_wire::Message>(aligned.data());
  switch (message->body_type()) {
    case perf_wire::Body::Offer:
      return read(*message->body_as_Offer());
    case perf_wire::Body::Answer:
      return read(*message->body_as_Answer());
    case perf_wire::Body::Memory:
      return read(*message->body_as_Memory());
    case perf_wire::Body::Begin:
      return read(*message->body_as_Begin());
    case perf_wire::Body::Finished:
      return read(*message->body_as_Finished());
    case perf_wire::Body::Row:
      return read(*message->body_as_Row());
    case perf_wire::Body::Abort:
      return read(*message->body_as_Abort());
    case perf_wire::Body::Bye:
      return PerfBye{};
    case perf_wire::Body::NONE:
      break;
  }
  return fail(malformed());
}

}  // namespace lochos
