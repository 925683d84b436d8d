// What one thread of the directory can answer: the table alone, and with the wire format around it.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "directory/codec.h"
#include "directory/table.h"

namespace lochos {
namespace {

constexpr std::uint32_t kObjects = 100'000;
constexpr std::uint32_t kNodes = 64;
constexpr std::uint64_t kLarge = 1 << 30;

ObjectId id_of(std::uint32_t n) {
  return *ObjectId::from_name("object-" + std::to_string(n));
}

// A table with kNodes nodes, and objects of which every fourth is large, the others inline.
class Filled {
 public:
  Filled() : table(TableOptions{}) {
    for (std::uint32_t n = 0; n < kNodes; ++n) {
      Join join;
      join.name = "node-" + std::to_string(n);
      join.rails = {{TransportKind::kTcp, "192.168.100.200:40123"}};
      nodes.push_back(*table.join(now, join, out));
    }
    for (std::uint32_t n = 0; n < kObjects; ++n) {
      ids.push_back(id_of(n));
      Put put{.request = n, .id = ids[n], .name = "object-" + std::to_string(n), .size = 100};
      put.complete = true;
      if (large(n)) {
        put.size = kLarge;
      } else {
        put.inline_bytes = Bytes(put.size);
      }
      table.apply(now, nodes[n % kNodes], put, out);
      out.clear();
    }
  }
  static bool large(std::uint32_t n) { return n % 4 == 0; }
  // Visits objects and nodes in an order that no cache foresees.
  std::uint32_t next(std::uint32_t limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state >> 33) % limit);
  }

  Table table;
  Instant now{std::chrono::hours(1)};
  Actions out;
  std::vector<NodeId> nodes;
  std::vector<ObjectId> ids;
  std::uint64_t state = 1;
};

void get_inline(benchmark::State& state) {
  Filled f;
  RequestNumber request = 0;
  for (auto _ : state) {
    std::uint32_t n = f.next(kObjects);
    if (Filled::large(n)) ++n;
    f.table.apply(f.now, f.nodes[f.next(kNodes)], Get{.request = ++request, .id = f.ids[n]}, f.out);
    benchmark::DoNotOptimize(f.out.data());
    f.out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(get_inline);

void stat(benchmark::State& state) {
  Filled f;
  RequestNumber request = 0;
  for (auto _ : state) {
    f.table.apply(f.now, f.nodes[f.next(kNodes)],
                  Stat{.request = ++request, .id = f.ids[f.next(kObjects)]}, f.out);
    benchmark::DoNotOptimize(f.out.data());
    f.out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(stat);

// A get of a large object, its assignment, and its end: two messages in, one out.
void get_assign_done(benchmark::State& state) {
  Filled f;
  RequestNumber request = 0;
  for (auto _ : state) {
    const std::uint32_t n = f.next(kObjects) & ~3U;
    const NodeId node = f.nodes[f.next(kNodes)];
    f.table.apply(f.now, node, Get{.request = ++request, .id = f.ids[n]}, f.out);
    for (const Outgoing& action : f.out) {
      const auto* assign = std::get_if<Assign>(&action.message);
      if (assign == nullptr) continue;
      const EdgeDone done{.edge = assign->edge,
                          .id = f.ids[n],
                          .generation = assign->generation,
                          .bytes = kLarge,
                          .elapsed = std::chrono::milliseconds(100),
                          .round_trip = std::chrono::microseconds(20)};
      f.out.clear();
      f.table.apply(f.now, node, done, f.out);
      break;
    }
    f.out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(get_assign_done);

// The figure to quote: look-ups as a cluster makes them, half inline gets, a quarter stats and a
// quarter assignments.
void look_up(benchmark::State& state) {
  Filled f;
  RequestNumber request = 0;
  for (auto _ : state) {
    const std::uint32_t n = f.next(kObjects);
    const NodeId node = f.nodes[f.next(kNodes)];
    if (n % 4 == 1) {
      f.table.apply(f.now, node, Stat{.request = ++request, .id = f.ids[n]}, f.out);
    } else {
      f.table.apply(f.now, node, Get{.request = ++request, .id = f.ids[n], .leaf = n % 8 == 0},
                    f.out);
    }
    benchmark::DoNotOptimize(f.out.data());
    f.out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(look_up);

// The cost of one more receiver must not depend on how many there are.
void get_with_many_holders(benchmark::State& state) {
  const auto holders = static_cast<std::uint32_t>(state.range(0));
  Table table{TableOptions{}};
  const Instant now{std::chrono::hours(1)};
  Actions out;
  std::vector<NodeId> nodes;
  for (std::uint32_t n = 0; n < holders + 2; ++n)
    nodes.push_back(*table.join(now, Join{}, out));
  const ObjectId id = id_of(1);
  table.apply(now, nodes[0],
              Put{.request = 1, .id = id, .name = {}, .size = kLarge, .complete = true}, out);
  for (std::uint32_t n = 1; n <= holders; ++n) {
    table.apply(now, nodes[n], Get{.request = 1, .id = id}, out);
    out.clear();
  }
  const NodeId reader = nodes.back();
  RequestNumber request = 1;
  for (auto _ : state) {
    table.apply(now, reader, Get{.request = ++request, .id = id}, out);
    table.apply(now, reader, CancelGet{.request = request, .id = id}, out);
    out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(get_with_many_holders)->Arg(1)->Arg(100)->Arg(10'000);

void put_and_erase(benchmark::State& state) {
  Filled f;
  const ObjectId id = id_of(kObjects + 1);
  RequestNumber request = 0;
  Put put{.id = id, .name = "x", .size = 100, .complete = true, .inline_bytes = Bytes(100)};
  for (auto _ : state) {
    put.request = ++request;
    f.table.apply(f.now, f.nodes[0], put, f.out);
    f.table.apply(f.now, f.nodes[1], Erase{.request = request, .id = id}, f.out);
    f.out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(put_and_erase);

// As the server does it: decode the request, look up, encode the answer.
void look_up_on_the_wire(benchmark::State& state) {
  Filled f;
  FrameEncoder encoder;
  Bytes request, answer;
  for (auto _ : state) {
    std::uint32_t n = f.next(kObjects);
    if (Filled::large(n)) ++n;
    request.clear();
    encoder.append(NodeMessage(Get{.request = 1, .id = f.ids[n]}), request);
    const auto message = decode_node_message(std::span(request).subspan(kFrameHeaderBytes));
    f.table.apply(f.now, f.nodes[f.next(kNodes)], *message, f.out);
    answer.clear();
    for (const Outgoing& action : f.out)
      encoder.append(action.message, answer);
    benchmark::DoNotOptimize(answer.data());
    f.out.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(look_up_on_the_wire);

}  // namespace
}  // namespace lochos

BENCHMARK_MAIN();
