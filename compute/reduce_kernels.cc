#include "compute/reduce_kernels.h"

#include <cstring>

#include "base/check.h"

// The kernels keep vectors in classes (lanes-inl.h), and the compiler refuses a member of SVE's
// types: their size is known when the program runs. Every processor with SVE has NEON, which is
// used there.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// The fallback of a processor with none of them is plain scalar code. Highway's emulated vectors,
// which some compilers would get instead, take minutes to compile with sanitizers.
#define HWY_BROKEN_EMU128 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/reduce_kernels.cc"
#include <hwy/foreach_target.h>  // includes this file again for each instruction set

#include "compute/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lochos {
namespace HWY_NAMESPACE {

// Vectors in flight: enough to hide an addition's latency behind the loads.
constexpr std::size_t kUnroll = 4;

// The bytes behind the last whole vector, in a vector of their own: what is computed does not
// depend on where in the buffer an element lies.
template <class Lanes>
HWY_INLINE typename Lanes::Vector load_tail(const std::uint8_t* from, std::size_t bytes) {
  alignas(HWY_MAX_BYTES) std::uint8_t buffer[HWY_MAX_BYTES] = {};
  std::memcpy(buffer, from, bytes);
  return Lanes::load(buffer);
}

template <class Lanes>
HWY_INLINE void store_tail(typename Lanes::Vector vector, std::uint8_t* to, std::size_t bytes) {
  alignas(HWY_MAX_BYTES) std::uint8_t buffer[HWY_MAX_BYTES];
  Lanes::store(vector, buffer);
  std::memcpy(to, buffer, bytes);
}

struct Pair {
  std::uint8_t* destination;
  const std::uint8_t* a;
  const std::uint8_t* b;
  std::size_t bytes;

  template <class Lanes, class Op>
  static HWY_INLINE void one(std::uint8_t* to, const std::uint8_t* x, const std::uint8_t* y) {
    Lanes::store(Lanes::template combine<Op>(Lanes::load(x), Lanes::load(y)), to);
  }

  template <class Lanes, class Op>
  void run() const {
    const std::size_t step = Lanes::step();
    // Copies: a store of bytes could change any member.
    std::uint8_t* to = destination;
    const std::uint8_t *x = a, *y = b;
    std::size_t left = bytes;
    for (; left >= kUnroll * step; left -= kUnroll * step) {
      one<Lanes, Op>(to, x, y);
      one<Lanes, Op>(to + step, x + step, y + step);
      one<Lanes, Op>(to + 2 * step, x + 2 * step, y + 2 * step);
      one<Lanes, Op>(to + 3 * step, x + 3 * step, y + 3 * step);
      to += kUnroll * step;
      x += kUnroll * step;
      y += kUnroll * step;
    }
    for (; left >= step; left -= step) {
      one<Lanes, Op>(to, x, y);
      to += step;
      x += step;
      y += step;
    }
    if (left == 0) return;
    const auto sum =
        Lanes::template combine<Op>(load_tail<Lanes>(x, left), load_tail<Lanes>(y, left));
    store_tail<Lanes>(sum, to, left);
  }
};

struct Many {
  std::uint8_t* destination;
  const std::byte* const* inputs;
  std::size_t count;
  std::size_t bytes;

  static HWY_INLINE const std::uint8_t* raw(const std::byte* input) {
    return reinterpret_cast<const std::uint8_t*>(input);
  }

  template <class Lanes, class Op>
  static HWY_INLINE void four(std::uint8_t* to, const std::byte* const* first,
                              const std::byte* const* last, std::size_t at) {
    const std::size_t step = Lanes::step();
    const std::uint8_t* from = raw(*first) + at;
    auto v0 = Lanes::load(from), v1 = Lanes::load(from + step);
    auto v2 = Lanes::load(from + 2 * step), v3 = Lanes::load(from + 3 * step);
    while (++first != last) {
      from = raw(*first) + at;
      v0 = Lanes::template combine<Op>(v0, Lanes::load(from));
      v1 = Lanes::template combine<Op>(v1, Lanes::load(from + step));
      v2 = Lanes::template combine<Op>(v2, Lanes::load(from + 2 * step));
      v3 = Lanes::template combine<Op>(v3, Lanes::load(from + 3 * step));
    }
    Lanes::store(v0, to + at);
    Lanes::store(v1, to + at + step);
    Lanes::store(v2, to + at + 2 * step);
    Lanes::store(v3, to + at + 3 * step);
  }

  template <class Lanes, class Op>
  void run() const {
    const std::size_t step = Lanes::step(), end = bytes;
    std::uint8_t* to = destination;
    const std::byte *const *first = inputs, *const *last = inputs + count;
    std::size_t at = 0;
    for (; end - at >= kUnroll * step; at += kUnroll * step)
      four<Lanes, Op>(to, first, last, at);
    for (; at < end; at += step) {
      const std::size_t length = end - at < step ? end - at : step;
      auto sum = load_tail<Lanes>(raw(*first) + at, length);
      for (const std::byte* const* input = first + 1; input != last; ++input)
        sum = Lanes::template combine<Op>(sum, load_tail<Lanes>(raw(*input) + at, length));
      store_tail<Lanes>(sum, to + at, length);
    }
  }
};

template <class Op, class Work>
void compute_signless(DataType type, const Work& work) {
  switch (type) {
    case DataType::kF16:
      return work.template run<Halves16, Op>();
    case DataType::kBf16:
      return work.template run<HalvesBf16, Op>();
    case DataType::kF32:
      return work.template run<Plain<float>, Op>();
    case DataType::kF64:
      return work.template run<Plain<double>, Op>();
    case DataType::kI8:
    case DataType::kU8:
      return work.template run<Plain<std::uint8_t>, Op>();
    case DataType::kI16:
    case DataType::kU16:
      return work.template run<Plain<std::uint16_t>, Op>();
    case DataType::kI32:
    case DataType::kU32:
      return work.template run<Plain<std::uint32_t>, Op>();
    case DataType::kI64:
    case DataType::kU64:
      return work.template run<Plain<std::uint64_t>, Op>();
  }
}

template <class Op, class Work>
void compute_ordered(DataType type, const Work& work) {
  switch (type) {
    case DataType::kI8:
      return work.template run<Plain<std::int8_t>, Op>();
    case DataType::kI16:
      return work.template run<Plain<std::int16_t>, Op>();
    case DataType::kI32:
      return work.template run<Plain<std::int32_t>, Op>();
    case DataType::kI64:
      return work.template run<Plain<std::int64_t>, Op>();
    default:
      return compute_signless<Op>(type, work);
  }
}

// Two's complement adds, multiplies and masks alike with and without sign; bits have no size.
template <class Work>
void compute(ReduceOp op, DataType type, const Work& work) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return compute_signless<Sum>(type, work);
    case ReduceOp::kProd:
      return compute_signless<Product>(type, work);
    case ReduceOp::kMin:
      return compute_ordered<Minimum>(type, work);
    case ReduceOp::kMax:
      return compute_ordered<Maximum>(type, work);
    case ReduceOp::kBitAnd:
      return work.template run<Plain<std::uint8_t>, BitAnd>();
    case ReduceOp::kBitOr:
      return work.template run<Plain<std::uint8_t>, BitOr>();
    case ReduceOp::kBitXor:
      return work.template run<Plain<std::uint8_t>, BitXor>();
  }
}

void reduce_pair(ReduceOp op, DataType type, std::uint8_t* destination, const std::uint8_t* a,
                 const std::uint8_t* b, std::size_t bytes) {
  compute(op, type, Pair{destination, a, b, bytes});
}

void reduce_inputs(ReduceOp op, DataType type, std::uint8_t* destination,
                   const std::byte* const* inputs, std::size_t count, std::size_t bytes) {
  compute(op, type, Many{destination, inputs, count, bytes});
}

template <class Lanes>
void divide_all(std::uint8_t* values, std::size_t bytes, double divisor) {
  const std::size_t step = Lanes::step();
  std::size_t at = 0;
  for (; bytes - at >= step; at += step)
    Lanes::store(Lanes::divide(Lanes::load(values + at), divisor), values + at);
  if (at == bytes) return;
  const auto tail = load_tail<Lanes>(values + at, bytes - at);
  store_tail<Lanes>(Lanes::divide(tail, divisor), values + at, bytes - at);
}

void divide(DataType type, std::uint8_t* values, std::size_t bytes, double divisor) {
  if (type == DataType::kF16) divide_all<Halves16>(values, bytes, divisor);
  if (type == DataType::kBf16) divide_all<HalvesBf16>(values, bytes, divisor);
  if (type == DataType::kF32) divide_all<Plain<float>>(values, bytes, divisor);
  if (type == DataType::kF64) divide_all<Plain<double>>(values, bytes, divisor);
}

const char* instructions() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace HWY_NAMESPACE
}  // namespace lochos
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lochos {
namespace {

HWY_EXPORT(reduce_pair);
HWY_EXPORT(reduce_inputs);
HWY_EXPORT(divide);
HWY_EXPORT(instructions);

const std::uint8_t* raw(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}
std::uint8_t* raw(std::byte* bytes) {
  return reinterpret_cast<std::uint8_t*>(bytes);
}

}  // namespace

void reduce_into(ReduceOp op, DataType type, std::byte* destination, const std::byte* a,
                 const std::byte* b, std::size_t bytes) {
  LOCHOS_CHECK(supported(op, type) && bytes % element_size(type) == 0);
  if (bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(reduce_pair)(op, type, raw(destination), raw(a), raw(b), bytes);
}

void reduce_many(ReduceOp op, DataType type, std::byte* destination,
                 std::span<const std::byte* const> inputs, std::size_t bytes) {
  LOCHOS_CHECK(supported(op, type) && bytes % element_size(type) == 0 && !inputs.empty());
  if (bytes == 0) return;
  if (inputs.size() == 1) {
    if (destination != inputs[0]) std::memcpy(destination, inputs[0], bytes);
  } else if (inputs.size() == 2) {
    reduce_into(op, type, destination, inputs[0], inputs[1], bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(reduce_inputs)
    (op, type, raw(destination), inputs.data(), inputs.size(), bytes);
  }
}

void scale(DataType type, std::byte* values, std::size_t bytes, std::uint64_t divisor) {
  LOCHOS_CHECK(is_float(type) && bytes % element_size(type) == 0 && divisor > 0);
  if (bytes == 0) return;
  HWY_DYNAMIC_DISPATCH(divide)(type, raw(values), bytes, static_cast<double>(divisor));
}

const char* reduce_instructions() {
  return HWY_DYNAMIC_DISPATCH(instructions)();
}

}  // namespace lochos
#endif  // HWY_ONCE
