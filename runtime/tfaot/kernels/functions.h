// Functions of floats and of vectors of them. Pure.
#ifndef TFAOT_KERNELS_FUNCTIONS_H_
#define TFAOT_KERNELS_FUNCTIONS_H_

#include <limits>

#include "tfaot/kernels/lanes.h"

namespace tfaot::kernels::TFAOT_ISA {

// Returns exp(value) with a relative error of at most 1.5e-7. It is 0 where the
// result would be denormal, as in XLA, and NaN for NaN.
//
// The polynomial is that of Cephes' expf (Moshier): exp(r) for |r| <= ln(2) /
// 2, times 2^n. Its parts don't wait for each other, and neither do the checks
// of the range, because the chain of operations is what takes the time.
template <typename V>
TFAOT_INLINE V Exp(V value) {
  // Adding this moves an integer to the lowest bits.
  const V shift = All<V>(12582912.0f);
  const V shifted = MultiplyAdd(value, All<V>(1.44269504f), shift);
  const V n = shifted - shift;
  // ln(2) in two parts, the first of which has few bits.
  V r = MultiplyAdd(n, All<V>(-0.693359375f), value);
  r = MultiplyAdd(n, All<V>(2.12194440e-4f), r);
  const V square = r * r;
  const auto line = [&](V x, float a, float b) {
    return MultiplyAdd(All<V>(a), x, All<V>(b));
  };
  const V low = line(r, 1.6666665459e-1f, 5.0000001201e-1f);
  const V middle = line(r, 8.3334519073e-3f, 4.1665795894e-2f);
  const V high = line(r, 1.9875691500e-4f, 1.3981999507e-3f);
  const V sum = MultiplyAdd(MultiplyAdd(high, square, middle), square, low);
  const V power = MultiplyAdd(sum, square, r + All<V>(1.0f));
  // Adding n to the exponent multiplies by 2^n, where nothing overflows.
  V result =
      BitCast<V>(BitCast<Bits<V>>(power) + (BitCast<Bits<V>>(shifted) << 23));
  // Beyond the largest result, a product overflows, or is NaN for NaN.
  const V most = All<V>(88.7228317f), least = All<V>(-87.33654f);
  result = value <= most ? result : value * All<V>(3e38f);
  return value < least ? V{} : result;
}

// Returns the natural logarithm, with an error of at most 2e-7 of the result:
// -infinity for zeros, and NaN for what is less.
//
// The polynomial is that of Cephes' logf (Moshier), as in XLA: log(m) + n ln(2)
// for the value m 2^n, where m is between sqrt(1/2) and sqrt(2).
template <typename V>
TFAOT_INLINE V Log(V value) {
  const V least = All<V>(1.17549435e-38f), one = All<V>(1.0f);
  // A denormal as a normal value, times 2^25.
  const V normal = value < least ? value * All<V>(33554432.0f) : value;
  // The difference of the bits to those of sqrt(1/2), which begin n and m.
  const Bits<V> bits = BitCast<Bits<V>>(normal) - 0x3f3504f3u;
  const Bits<V> exponent = (bits + 0x3f800000u) >> 23;
  const V m = BitCast<V>((bits & 0x007fffffu) + 0x3f3504f3u);
  // An integer in the lowest bits is added to 2^23.
  V n = BitCast<V>(exponent | 0x4b000000u) - All<V>(8388608.0f + 127.0f);
  n = value < least ? n - All<V>(25.0f) : n;
  const V x = m - one, square = x * x;
  const auto next = [&](V sum, float constant) {
    return MultiplyAdd(sum, x, All<V>(constant));
  };
  V p = next(All<V>(7.0376836292e-2f), -1.1514610310e-1f);
  p = next(p, 1.1676998740e-1f);
  p = next(p, -1.2420140846e-1f);
  p = next(p, 1.4249322787e-1f);
  p = next(p, -1.6668057665e-1f);
  p = next(p, 2.0000714765e-1f);
  p = next(p, -2.4999993993e-1f);
  p = next(p, 3.3333331174e-1f);
  V y = p * x * square;
  // ln(2) in two parts, the first of which has few bits.
  y = MultiplyAdd(n, All<V>(-2.12194440e-4f), y);
  y = MultiplyAdd(square, All<V>(-0.5f), y);
  V result = MultiplyAdd(n, All<V>(0.693359375f), x + y);
  // Infinity and NaN stay.
  result = value <= All<V>(3.40282347e38f) ? result : value;
  const V nan = All<V>(std::numeric_limits<float>::quiet_NaN());
  result = value < V{} ? nan : result;
  return value == V{} ? All<V>(-std::numeric_limits<float>::infinity())
                      : result;
}

// Returns tanh(value) with a relative error of at most 5e-7, and NaN for NaN.
//
// The quotient of polynomials is Eigen's, and XLA's: x * p(x^2) / q(x^2).
// Beyond the range for which it was made, the result is 1 or -1.
template <typename V>
TFAOT_INLINE V Tanh(V value) {
  const V square = value * value;
  const auto next = [&](V sum, float constant) {
    return MultiplyAdd(sum, square, All<V>(constant));
  };
  V p = next(All<V>(-2.76076848e-16f), 2.00018790e-13f);
  p = next(p, -8.60467152e-11f);
  p = next(p, 5.12229709e-08f);
  p = next(p, 1.48572235e-05f);
  p = next(p, 6.37261929e-04f);
  p = next(p, 4.89352456e-03f);
  V q = next(All<V>(1.19825839e-06f), 1.18534705e-04f);
  q = next(q, 2.26843463e-03f);
  q = next(q, 4.89352518e-03f);
  V result = value * p / q;
  // Of a small value, the product with p could be denormal.
  result = square < All<V>(1.6e-7f) ? value : result;
  const V most = All<V>(7.90531111f);
  result = value > most ? All<V>(1.0f) : result;
  return value < -most ? All<V>(-1.0f) : result;
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_FUNCTIONS_H_
