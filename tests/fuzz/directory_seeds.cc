// Writes one file a kind of message into a directory: a corpus for directory_fuzz to begin with.
#include <cstdio>
#include <fstream>
#include <string>

#include "directory/codec.h"

namespace lochos {
namespace {

ObjectId some_id() {
  ObjectId id;
  id.bytes[0] = 1;
  return id;
}

ObjectId other_id(std::uint8_t first = 2) {
  ObjectId id = some_id();
  id.bytes[0] = first;
  return id;
}

CollectiveJoin collective(RequestNumber request, std::uint32_t rank) {
  return {.request = request,
          .name = "group/0",
          .spec = {.kind = CollectiveKind::kAllreduce,
                   .members = 3,
                   .rank = rank,
                   .root = 0,
                   .size = 1 << 20,
                   .op = ReduceOp::kSum,
                   .dtype = DataType::kF32},
          .timeout = std::chrono::seconds(9)};
}

// In the order in which they make sense, so that together they are a session, too.
std::vector<NodeMessage> session() {
  const ObjectId id = some_id();
  const Bytes small(10, std::byte{1});
  return {Put{.request = 1, .id = id, .name = "x", .size = 1 << 20, .complete = false},
          Get{.request = 1, .id = id, .leaf = false},
          EdgeFailed{.request = 1, .edge = 1, .id = id, .generation = 2, .have_bytes = 5},
          EdgeDone{.edge = 2, .id = id, .generation = 2, .bytes = 1 << 20},
          Seal{.id = id, .generation = 2}, Stat{.request = 2, .id = id},
          List{.request = 3, .after = {}, .limit = 10}, Wait{.request = 4, .ids = {id}, .count = 1},
          CancelWait{.request = 4}, Barrier{.request = 5, .name = "b", .members = 2},
          Members{.request = 6}, Heartbeat{}, Drop{.id = id, .generation = 2},
          Erase{.request = 7, .id = id},
          Put{.request = 8, .id = id, .size = 10, .complete = true, .inline_bytes = small},
          Hold{.id = id, .generation = 9, .size = 10, .complete = true, .inline_bytes = small},
          CancelGet{.request = 9, .id = id}, Abandon{.id = id, .generation = 9},
          Reduce{.request = 10,
                 .target = other_id(),
                 .name = "sum",
                 .sources = {{id, "x"}, {other_id(7), ""}},
                 .count = 1},
          ReduceFailed{.reduce = 1, .attempt = 1, .input = id, .message = "gone"},
          ReduceDone{.reduce = 1, .attempt = 2},
          // By all three nodes, as their turns come.
          collective(11, 0), collective(12, 1), collective(13, 2),
          CollectiveDone{.collective = 1, .rank = 0}, CollectiveDone{.collective = 1, .rank = 1},
          CollectiveDone{.collective = 1, .rank = 2}, collective(14, 0), collective(15, 1),
          CollectiveFailed{.collective = 2, .rank = 0, .message = "no room"},
          Join{.name = "n", .rails = {{TransportKind::kTcp, "127.0.0.1:1"}}, .previous = {1, 2}},
          Leave{}};
}

void write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace
}  // namespace lochos

int main(int argc, char** argv) {
  using namespace lochos;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  FrameEncoder encoder;
  Bytes all;
  unsigned node = 0;
  for (const NodeMessage& message : session()) {
    Bytes frame;
    encoder.append(message, frame);
    // What directory_fuzz reads: node, length in 16 bits, payload.
    Bytes one = {static_cast<std::byte>(node++ % 3), frame[0], frame[1]};
    one.insert(one.end(), frame.begin() + kFrameHeaderBytes, frame.end());
    write(std::string(argv[1]) + "/" + std::to_string(message.index()), one);
    all.insert(all.end(), one.begin(), one.end());
  }
  write(std::string(argv[1]) + "/session", all);
  return 0;
}
