// Complex values, and vectors of them. All functions are pure.
#ifndef TFAOT_KERNELS_COMPLEX_H_
#define TFAOT_KERNELS_COMPLEX_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/lanes.h"

namespace tfaot::kernels::TFAOT_ISA {

// The type of a vector's values, and their number.
template <typename V>
struct Values {
  using T = std::decay_t<decltype(std::declval<V&>()[0])>;
};
template <>
struct Values<float> {
  using T = float;
};
template <>
struct Values<double> {
  using T = double;
};
template <typename V>
using Scalar = typename Values<V>::T;
template <typename V>
constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(Scalar<V>));

// A complex value in each lane.
template <typename V>
struct Complex {
  V re;
  V im;
};

template <typename V>
TFAOT_INLINE Complex<V> operator+(Complex<V> a, Complex<V> b) {
  return {a.re + b.re, a.im + b.im};
}

template <typename V>
TFAOT_INLINE Complex<V> operator-(Complex<V> a, Complex<V> b) {
  return {a.re - b.re, a.im - b.im};
}

template <typename V>
TFAOT_INLINE Complex<V> operator*(Complex<V> a, Complex<V> b) {
  return {MultiplyAdd(a.re, b.re, -(a.im * b.im)),
          MultiplyAdd(a.re, b.im, a.im * b.re)};
}

// Returns -i * a.
template <typename V>
TFAOT_INLINE Complex<V> Turned(Complex<V> a) {
  return {a.im, -a.re};
}

template <typename V>
TFAOT_INLINE Complex<V> Swapped(Complex<V> a, bool swap) {
  return swap ? Complex<V>{a.im, a.re} : a;
}

// Returns the lanes of `a` and `b` with these numbers; those of `b` come after
// those of `a`.
template <int... kIndices, typename V>
TFAOT_INLINE V Shuffled(V a, V b, std::integer_sequence<int, kIndices...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, kIndices...);
#else
  using Index = typename VectorOf<
      std::conditional_t<sizeof(a[0]) == 4, std::int32_t, std::int64_t>,
      sizeof(V)>::Type;
  return __builtin_shuffle(a, b, Index{kIndices...});
#endif
}

template <typename Of, int... kLane>
constexpr auto Indices(std::integer_sequence<int, kLane...>) {
  return std::integer_sequence<int, Of::At(kLane, sizeof...(kLane))...>();
}

template <typename V, typename Of>
using Order =
    decltype(Indices<Of>(std::make_integer_sequence<int, kCount<V>>()));

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_COMPLEX_H_
