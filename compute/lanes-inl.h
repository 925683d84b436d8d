// How bytes in memory become elements in vector registers, and back; and what is done with them
// there. Included once for each instruction set, hence the unusual guard.
#if defined(LOCHOS_COMPUTE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCHOS_COMPUTE_LANES_INL_H_
#undef LOCHOS_COMPUTE_LANES_INL_H_
#else
#define LOCHOS_COMPUTE_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace lochos {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores at any address. Through bytes, since a pointer to an element promises alignment;
// the scalar target has vectors of one element, which a vector of one byte cannot become.
template <class D>
HWY_INLINE hn::Vec<D> load_at(D d, const std::uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof value);
  return hn::Set(d, value);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
#endif
}

template <class D>
HWY_INLINE void store_at(D, hn::Vec<D> vector, std::uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(vector);
  std::memcpy(to, &value, sizeof value);
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, vector), bytes, to);
#endif
}

struct Sum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (HWY_TARGET != HWY_SCALAR && sizeof(hn::TFromD<D>) == 1) {
      // No processor multiplies bytes: the even ones and the odd ones as 16-bit numbers.
      const hn::Repartition<std::uint16_t, D> wide;
      const auto a16 = hn::BitCast(wide, a), b16 = hn::BitCast(wide, b);
      const auto even = hn::And(hn::Mul(a16, b16), hn::Set(wide, 0x00FF));
      const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16));
      return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
    } else {
      (void)d;
      return hn::Mul(a, b);
    }
  }
};

// For floats: neither smaller nor larger means equal, where -0 must win over +0, or that one is a
// NaN; OR of the bits is right for both, since it keeps a sign, and a NaN's exponent and mantissa.
struct Minimum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b)));
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Maximum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V equal_or_nan = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), hn::Or(a, b));
      return hn::IfThenElse(hn::Lt(a, b), b, hn::IfThenElse(hn::Lt(b, a), a, equal_or_nan));
    } else {
      return hn::Max(a, b);
    }
  }
};

struct BitAnd {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Xor(a, b);
  }
};

// Elements that are computed with as they are stored.
template <class T>
struct Plain {
  using D = hn::ScalableTag<T>;
  using Vector = hn::Vec<D>;

  static HWY_INLINE std::size_t step() { return hn::Lanes(D()) * sizeof(T); }
  static HWY_INLINE Vector load(const std::uint8_t* from) { return load_at(D(), from); }
  static HWY_INLINE void store(Vector vector, std::uint8_t* to) { store_at(D(), vector, to); }
  template <class Op>
  static HWY_INLINE Vector combine(Vector a, Vector b) {
    return Op::apply(D(), a, b);
  }
  static HWY_INLINE Vector divide(Vector a, double divisor) {
    return hn::Div(a, hn::Set(D(), static_cast<T>(divisor)));
  }
};

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using FloatVector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;

// A word holds two 16-bit floats: the even one in its lower half, the odd one in its upper half.
struct Bf16 {
  static constexpr std::uint32_t kUpper = 0xFFFF0000;

  static HWY_INLINE FloatVector widen_even(WordVector both) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(both));
  }
  static HWY_INLINE FloatVector widen_odd(WordVector both) {
    return hn::BitCast(Floats(), hn::And(both, hn::Set(Words(), kUpper)));
  }
  static HWY_INLINE WordVector join(FloatVector even, FloatVector odd) {
    return hn::Or(hn::ShiftRight<16>(rounded(even)),
                  hn::And(rounded(odd), hn::Set(Words(), kUpper)));
  }

 private:
  // The bf16 in the upper half; the lower half is of no use.
  static HWY_INLINE WordVector rounded(FloatVector value) {
    const Words words;
    const WordVector bits = hn::BitCast(words, value);
    const WordVector last = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
    const WordVector up = hn::Add(hn::Add(bits, hn::Set(words, 0x7FFF)), last);
    // Rounding could carry a NaN's mantissa into the sign.
    const WordVector quiet = hn::Or(bits, hn::Set(words, 0x400000));
    return hn::IfThenElse(hn::RebindMask(words, hn::Ne(value, value)), quiet, up);
  }
};

// binary16 with integer instructions: exact where the processor has none for it, or has some that
// Highway does not use.
struct F16 {
  // A binary32's exponent is biased by 127, a binary16's by 15.
  static constexpr std::uint32_t kRebias = (127U - 15U) << 23;

  static HWY_INLINE FloatVector widen_even(WordVector both) {
    return widen(hn::And(both, hn::Set(Words(), 0xFFFF)));
  }
  static HWY_INLINE FloatVector widen_odd(WordVector both) {
    return widen(hn::ShiftRight<16>(both));
  }
  static HWY_INLINE WordVector join(FloatVector even, FloatVector odd) {
    return hn::Or(narrow(even), hn::ShiftLeft<16>(narrow(odd)));
  }

 private:
  static HWY_INLINE FloatVector widen(WordVector low) {
    const Words words;
    const WordVector magnitude = hn::And(low, hn::Set(words, 0x7FFF));
    const WordVector sign = hn::ShiftLeft<16>(hn::Xor(low, magnitude));
    const WordVector moved = hn::ShiftLeft<13>(magnitude);
    const WordVector normal = hn::Add(moved, hn::Set(words, kRebias));
    // Infinities and NaNs: the exponent must become all ones.
    const WordVector special = hn::Add(normal, hn::Set(words, kRebias));
    // Subnormals: 2^-14 + value is a normal binary32 with the mantissa in place; take 2^-14 away.
    const FloatVector base = hn::BitCast(Floats(), hn::Set(words, kRebias + (1U << 23)));
    const WordVector subnormal = hn::BitCast(
        words, hn::Sub(hn::BitCast(Floats(), hn::Add(normal, hn::Set(words, 1U << 23))), base));
    WordVector bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 0x0400)), subnormal, normal);
    bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7BFF)), special, bits);
    return hn::BitCast(Floats(), hn::Or(bits, sign));
  }

  static HWY_INLINE WordVector narrow(FloatVector value) {
    const Words words;
    const WordVector bits = hn::BitCast(words, value);
    const WordVector magnitude = hn::And(bits, hn::Set(words, 0x7FFFFFFF));
    const WordVector sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
    // 13 bits of mantissa go; ties to even. A carry moves on into the exponent, up to infinity.
    const WordVector odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 1));
    const WordVector rounded =
        hn::Add(hn::Add(hn::Sub(magnitude, hn::Set(words, kRebias)), hn::Set(words, 0x0FFF)), odd);
    const WordVector normal = hn::Min(hn::ShiftRight<13>(rounded), hn::Set(words, 0x7C00));
    // Below 2^-14: added to 0.5, whose last mantissa bit is worth 2^-24, the processor rounds.
    const WordVector half = hn::Set(words, 126U << 23);
    const WordVector subnormal = hn::Sub(
        hn::BitCast(words, hn::Add(hn::BitCast(Floats(), magnitude), hn::BitCast(Floats(), half))),
        half);
    WordVector result =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, kRebias + (1U << 23))), subnormal, normal);
    const WordVector nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 0x7FFF)),
                                  hn::Set(words, 0x7E00));
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7F800000)), nan, result);
    return hn::Or(result, sign);
  }
};

// 16-bit floats, two to a word: the even ones and the odd ones as vectors of f32. No shuffles.
template <class Format>
struct Halves {
  struct Vector {
    FloatVector even, odd;
  };

  static HWY_INLINE std::size_t step() { return hn::Lanes(Words()) * sizeof(std::uint32_t); }
  static HWY_INLINE Vector load(const std::uint8_t* from) {
    const WordVector both = load_at(Words(), from);
    return {Format::widen_even(both), Format::widen_odd(both)};
  }
  static HWY_INLINE void store(Vector vector, std::uint8_t* to) {
    store_at(Words(), Format::join(vector.even, vector.odd), to);
  }
  template <class Op>
  static HWY_INLINE Vector combine(Vector a, Vector b) {
    return {Op::apply(Floats(), a.even, b.even), Op::apply(Floats(), a.odd, b.odd)};
  }
  static HWY_INLINE Vector divide(Vector a, double divisor) {
    const FloatVector by = hn::Set(Floats(), static_cast<float>(divisor));
    return {hn::Div(a.even, by), hn::Div(a.odd, by)};
  }
};

// With F16C (part of AVX2 for Highway) the processor converts; what it does is what F16 does.
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL) && \
    !defined(HWY_DISABLE_F16C)
struct Halves16 : Halves<F16> {
  using Packed = hn::Rebind<hwy::float16_t, Floats>;

  static HWY_INLINE Vector load(const std::uint8_t* from) {
    const Packed packed;
    return {hn::PromoteTo(Floats(), load_at(packed, from)),
            hn::PromoteTo(Floats(), load_at(packed, from + step() / 2))};
  }
  static HWY_INLINE void store(Vector vector, std::uint8_t* to) {
    const Packed packed;
    store_at(packed, hn::DemoteTo(packed, vector.even), to);
    store_at(packed, hn::DemoteTo(packed, vector.odd), to + step() / 2);
  }
};
#else
using Halves16 = Halves<F16>;
#endif
using HalvesBf16 = Halves<Bf16>;

}  // namespace HWY_NAMESPACE
}  // namespace lochos
HWY_AFTER_NAMESPACE();

#endif  // LOCHOS_COMPUTE_LANES_INL_H_
