// How fast buffers are added up, beside what this core's memory gives: each iteration times a
// triad as STREAM has it (a = b + s·c) and then the kernel, on buffers of one size, and `ratio` is
// the kernel's bandwidth over the triad's. Both count what they read and write, not the lines that
// a cache fetches before it overwrites them. `triad` and `kernel` are in bytes per second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "compute/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "perf/reduce_kernels_bench.cc"
#include <hwy/foreach_target.h>  // the triad gets the same instructions as the kernels
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lochos {
namespace HWY_NAMESPACE {

void triad(float* a, const float* b, const float* c, std::size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, 3.0F);
  const auto step = [&](std::size_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, c + i), hn::LoadU(d, b + i)), d, a + i);
  };
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    step(i);
    step(i + lanes);
    step(i + 2 * lanes);
    step(i + 3 * lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lochos
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lochos {
namespace {

HWY_EXPORT(triad);

using Time = std::chrono::steady_clock;

double since(Time::time_point start) {
  return std::chrono::duration<double>(Time::now() - start).count();
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Buffers of `bytes` each, touched, full of ordinary numbers of any of the float types.
class Buffers {
 public:
  Buffers(std::size_t count, std::size_t bytes) {
    for (std::size_t i = 0; i < count; ++i) {
      storage_.emplace_back(bytes / sizeof(float), 1.0F + static_cast<float>(i));
      pointers_.push_back(reinterpret_cast<const std::byte*>(storage_.back().data()));
    }
  }
  float* floats(std::size_t index) { return storage_[index].data(); }
  std::byte* bytes(std::size_t index) { return reinterpret_cast<std::byte*>(floats(index)); }
  std::span<const std::byte* const> inputs(std::size_t count) const {
    return std::span(pointers_).first(count);
  }

 private:
  std::vector<std::vector<float>> storage_;
  std::vector<const std::byte*> pointers_;
};

// Times triad and `kernel` in turn; `streams`: buffers that the kernel reads or writes.
template <class Kernel>
void beside_triad(benchmark::State& state, Buffers& buffers, std::size_t bytes, std::size_t streams,
                  const Kernel& kernel) {
  std::vector<double> triad_s, kernel_s;
  // Small buffers several times, so that the clock's own time does not count.
  const std::size_t rounds = std::max<std::size_t>(1, (4 << 20) / bytes);
  for (auto _ : state) {
    auto start = Time::now();
    for (std::size_t i = 0; i < rounds; ++i)
      HWY_DYNAMIC_DISPATCH(triad)
    (buffers.floats(0), buffers.floats(1), buffers.floats(2), bytes / sizeof(float));
    triad_s.push_back(since(start));
    start = Time::now();
    for (std::size_t i = 0; i < rounds; ++i)
      kernel();
    kernel_s.push_back(since(start));
    state.SetIterationTime(kernel_s.back());
  }
  const double each = static_cast<double>(bytes) * static_cast<double>(rounds);
  const double triad_rate = 3 * each / median(triad_s);
  const double kernel_rate = static_cast<double>(streams) * each / median(kernel_s);
  using benchmark::Counter;
  const auto rate = [](double value) {
    return Counter(value, Counter::kDefaults, Counter::OneK::kIs1000);
  };
  state.counters["triad"] = rate(triad_rate);
  state.counters["kernel"] = rate(kernel_rate);
  state.counters["ratio"] = kernel_rate / triad_rate;
  state.SetLabel(reduce_instructions());
}

void sum_of_two(benchmark::State& state, DataType type) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(3, bytes);
  beside_triad(state, buffers, bytes, 3, [&] {
    reduce_into(ReduceOp::kSum, type, buffers.bytes(0), buffers.bytes(1), buffers.bytes(2), bytes);
  });
}

// A partial sum that is added to where it lies.
void sum_in_place(benchmark::State& state, DataType type) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(3, bytes);
  beside_triad(state, buffers, bytes, 3, [&] {
    reduce_into(ReduceOp::kSum, type, buffers.bytes(0), buffers.bytes(0), buffers.bytes(1), bytes);
  });
}

// As a node with three children does it.
void sum_of_four(benchmark::State& state, DataType type) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(5, bytes);
  const auto inputs = buffers.inputs(4);
  beside_triad(state, buffers, bytes, 5,
               [&] { reduce_many(ReduceOp::kSum, type, buffers.bytes(4), inputs, bytes); });
}

// 64 KiB to 64 MiB: from the second-level cache to memory.
void sizes(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t bytes = 64 << 10; bytes <= 64 << 20; bytes *= 4)
    benchmark->Arg(bytes);
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(sum_of_two, f32, DataType::kF32)->Apply(sizes);
BENCHMARK_CAPTURE(sum_of_two, bf16, DataType::kBf16)->Apply(sizes);
BENCHMARK_CAPTURE(sum_of_two, f16, DataType::kF16)->Apply(sizes);
BENCHMARK_CAPTURE(sum_in_place, f32, DataType::kF32)->Apply(sizes);
BENCHMARK_CAPTURE(sum_of_four, f32, DataType::kF32)->Apply(sizes);
BENCHMARK_CAPTURE(sum_of_four, bf16, DataType::kBf16)->Apply(sizes);

}  // namespace
}  // namespace lochos

BENCHMARK_MAIN();
#endif  // HWY_ONCE
