// Functions of floats and of vectors of them. Pure.
#ifndef TFAOT_KERNELS_FUNCTIONS_H_
#define TFAOT_KERNELS_FUNCTIONS_H_

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
  // Subtracting +0 keeps bits.
  const auto all = [](float one) { return one - V{}; };
  // Adding this moves an integer to the lowest bits.
  const V shift = all(12582912.0f);
  const V shifted = value * all(1.44269504f) + shift;
  const V n = shifted - shift;
  // ln(2) in two parts, the first of which has few bits.
  V r = value - n * all(0.693359375f);
  r = r - n * all(-2.12194440e-4f);
  const V square = r * r;
  const V low = all(1.6666665459e-1f) * r + all(5.0000001201e-1f);
  const V middle = all(8.3334519073e-3f) * r + all(4.1665795894e-2f);
  const V high = all(1.9875691500e-4f) * r + all(1.3981999507e-3f);
  const V sum = (high * square + middle) * square + low;
  const V power = sum * square + (r + all(1.0f));
  // Adding n to the exponent multiplies by 2^n, where nothing overflows.
  V result =
      BitCast<V>(BitCast<Bits<V>>(power) + (BitCast<Bits<V>>(shifted) << 23));
  // Beyond the largest result, a product overflows, or is NaN for NaN.
  const V most = all(88.7228317f), least = all(-87.33654f);
  result = value <= most ? result : value * all(3e38f);
  return value < least ? V{} : result;
}

// Returns tanh(value) with a relative error of at most 5e-7, and NaN for NaN.
//
// The quotient of polynomials is Eigen's, and XLA's: x * p(x^2) / q(x^2), where
// tanh isn't 1.
template <typename V>
TFAOT_INLINE V Tanh(V value) {
  const auto all = [](float one) { return one - V{}; };
  const V most = all(7.90531111f);
  V x = value > most ? most : value;
  x = x < -most ? -most : x;
  const V square = x * x;
  V p = all(-2.76076848e-16f) * square + all(2.00018790e-13f);
  p = p * square + all(-8.60467152e-11f);
  p = p * square + all(5.12229709e-08f);
  p = p * square + all(1.48572235e-05f);
  p = p * square + all(6.37261929e-04f);
  p = p * square + all(4.89352456e-03f);
  V q = all(1.19825839e-06f) * square + all(1.18534705e-04f);
  q = q * square + all(2.26843463e-03f);
  q = q * square + all(4.89352518e-03f);
  // The product with p could be denormal.
  return square < all(1.6e-7f) ? value : x * p / q;
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_FUNCTIONS_H_
