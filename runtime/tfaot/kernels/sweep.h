// Elementwise formulas over arrays, each in one pass over memory.
//
// A compiled model's program has a struct for each of its formulas:
//
//   struct Formula {
//     using Value = float;                         // or double
//     static constexpr std::size_t kArrays = 2;
//     static constexpr std::size_t kScalars = 1;
//     static constexpr int kCost = 6;              // multiply-adds of a value
//     explicit Formula(const Places<kScalars>& scalars);
//     // Reads values at index i, and then writes some. V is Value or a vector.
//     template <typename V>
//     void At(const Places<kArrays>& arrays, std::int64_t i) const;
//   };
//   RunSweep<Formula>(count, {x, y}, {rate}, threads);
#ifndef TFAOT_KERNELS_SWEEP_H_
#define TFAOT_KERNELS_SWEEP_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tfaot/kernels/functions.h"
#include "tfaot/kernels/lanes.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/vector.h"
#include "tfaot/thread_pool.h"

namespace tfaot::kernels::TFAOT_ISA {

// Addresses of arrays or of single values.
template <std::size_t kCount>
using Places = std::array<unsigned char*, kCount>;

// Reads a V of T from index i on.
template <typename V, typename T>
TFAOT_INLINE V Get(const unsigned char* array, std::int64_t i) {
  V value;
  std::memcpy(&value, array + i * static_cast<std::int64_t>(sizeof(T)),
              sizeof(value));
  return value;
}

template <typename T, typename V>
TFAOT_INLINE void Put(unsigned char* array, std::int64_t i, V value) {
  std::memcpy(array + i * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(value));
}

// The index of the first kCount values, fewer than a vector has. The others
// are read as zeros, and aren't written.
template <int kCount>
struct Tail {
  std::int64_t i;
};

template <int kCount>
TFAOT_INLINE Tail<kCount> operator+(Tail<kCount> index, std::int64_t more) {
  return {index.i + more};
}

template <typename V, typename T, int kCount>
TFAOT_INLINE V Get(const unsigned char* array, Tail<kCount> index) {
  return LoadSomeAs<V>(reinterpret_cast<const T*>(array) + index.i, kCount);
}

template <typename T, int kCount, typename V>
TFAOT_INLINE void Put(unsigned char* array, Tail<kCount> index, V value) {
  StoreSome(reinterpret_cast<T*>(array) + index.i, value, kCount);
}

// Reads bytes from index i on, and returns which of them aren't zero: bits that
// select values of a V, or a bool for a float.
template <typename V>
TFAOT_INLINE auto GetMask(const unsigned char* array, std::int64_t i) {
  if constexpr (std::is_floating_point_v<V>) {
    return array[i] != 0;
  } else {
    constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(float));
    typename VectorOf<unsigned char, kCount>::Type bytes;
    std::memcpy(&bytes, array + i, sizeof(bytes));
    using Integers = typename VectorOf<std::int32_t, sizeof(V)>::Type;
    return __builtin_convertvector(bytes, Integers) != Integers{};
  }
}

template <typename V, int kCount>
TFAOT_INLINE auto GetMask(const unsigned char* array, Tail<kCount> index) {
  unsigned char bytes[sizeof(V) / sizeof(float)] = {};
  std::memcpy(bytes, array + index.i, kCount);
  return GetMask<V>(bytes, 0);
}

// Returns the numbers of the columns from j on.
template <typename V>
TFAOT_INLINE Bits<V> Numbers(std::int64_t j) {
  const auto first = static_cast<std::uint32_t>(j);
  if constexpr (std::is_floating_point_v<V>) {
    return first;
  } else {
    Bits<V> numbers;
    for (std::size_t i = 0; i < sizeof(V) / sizeof(float); ++i) {
      numbers[i] = static_cast<std::uint32_t>(i);
    }
    return numbers + first;
  }
}

template <typename V, int kCount>
TFAOT_INLINE Bits<V> Numbers(Tail<kCount> index) {
  return Numbers<V>(index.i);
}

// Returns integers with a sign, as which they are compared.
template <typename B>
TFAOT_INLINE auto Signed(B bits) {
  if constexpr (std::is_integral_v<B>) {
    return static_cast<std::int32_t>(bits);
  } else {
    return reinterpret_cast<typename VectorOf<std::int32_t, sizeof(B)>::Type>(
        bits);
  }
}

template <typename Mask>
TFAOT_INLINE auto Not(Mask mask) {
  if constexpr (std::is_integral_v<Mask>) {
    return !mask;
  } else {
    return ~mask;
  }
}

// Returns floats with the values of integers, whose bits are those of an int32.
template <typename V>
TFAOT_INLINE V FromInteger(Bits<V> bits) {
  if constexpr (std::is_same_v<V, float>) {
    return static_cast<float>(static_cast<std::int32_t>(bits));
  } else {
    using Integers = typename VectorOf<std::int32_t, sizeof(V)>::Type;
    return __builtin_convertvector(reinterpret_cast<Integers>(bits), V);
  }
}

template <typename V>
TFAOT_INLINE V Sqrt(V value) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::sqrt(value);
  } else {
    // GCC and Clang make one instruction of this.
    using T = std::remove_reference_t<decltype(value[0])>;
    for (std::size_t i = 0; i < sizeof(V) / sizeof(T); ++i) {
      value[i] = std::sqrt(value[i]);
    }
    return value;
  }
}

// Combines the bits of values of the same type.
template <typename V, typename Combine>
TFAOT_INLINE V OfBits(V a, V b, const Combine& combine) {
  if constexpr (std::is_floating_point_v<V>) {
    std::conditional_t<sizeof(V) == 4, std::int32_t, std::int64_t> x, y;
    std::memcpy(&x, &a, sizeof(a));
    std::memcpy(&y, &b, sizeof(b));
    x = combine(x, y);
    std::memcpy(&a, &x, sizeof(a));
    return a;
  } else {
    using Bits = decltype(a < b);
    return reinterpret_cast<V>(
        combine(reinterpret_cast<Bits>(a), reinterpret_cast<Bits>(b)));
  }
}

template <typename V>
TFAOT_INLINE V Abs(V value) {
  return OfBits(value, -V{}, [](auto x, auto sign) { return x & ~sign; });
}

// As IEEE 754 has them: NaN if either is NaN, and +0 is more than -0.
template <typename V>
TFAOT_INLINE V Maximum(V a, V b) {
  const V zeros = OfBits(a, b, [](auto x, auto y) { return x & y; });
  const V larger = a == b ? zeros : b < a ? a : b;
  return a != a ? a : larger;
}

template <typename V>
TFAOT_INLINE V Minimum(V a, V b) {
  const V zeros = OfBits(a, b, [](auto x, auto y) { return x | y; });
  const V smaller = a == b ? zeros : a < b ? a : b;
  return a != a ? a : smaller;
}

// Applies a formula to a part of the arrays. An array that is written can be
// the same as another one. They must not overlap otherwise.
template <typename Formula>
TFAOT_NOINLINE void SweepSpan(Places<Formula::kArrays> arrays,
                              const Places<Formula::kScalars>& scalars,
                              Span span) {
  using T = typename Formula::Value;
  const Formula formula(scalars);
  std::int64_t i = span.begin;
  for (; i + kLanes<T> <= span.end; i += kLanes<T>) {
    formula.template At<Vector<T>>(arrays, i);
  }
  for (; i < span.end; ++i) formula.template At<T>(arrays, i);
}

// Applies a formula to arrays of `count` values, in parts if there is a pool
// and enough work. Concurrent calls are safe if what they write is disjoint.
template <typename Formula>
void RunSweep(std::int64_t count, const Places<Formula::kArrays>& arrays,
              const Places<Formula::kScalars>& scalars, ThreadPool* threads) {
  if (threads == nullptr) {
    return SweepSpan<Formula>(arrays, scalars, {0, count});
  }
  // Parts share no page.
  constexpr std::int64_t kGrain = 4096 / sizeof(typename Formula::Value);
  const double operations = static_cast<double>(count) * Formula::kCost;
  InParts(*threads, {1, count, 1, kGrain, 1, operations}, [&](Part part) {
    SweepSpan<Formula>(arrays, scalars, part.rows.Of(count, kGrain));
  });
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_SWEEP_H_
