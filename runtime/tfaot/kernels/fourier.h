// Discrete Fourier transforms.
//
// A transform works on vectors whose lanes are independent: lanes of different
// transforms, or parts of one transform whose length is a multiple of the
// lanes. So there are no shuffles but when values are read and written. The
// stages are Stockham's, which need no permutation of the result. Other lengths
// are convolutions with a chirp (Bluestein). The compile stage chooses, and
// writes all roots of unity as constants
// (py/tfaot/compile/program/thunks/fourier_plan.py).
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_FOURIER_H_
#define TFAOT_KERNELS_FOURIER_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/complex.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// Some lengths are whole vectors only of half the size.
template <typename T>
using Half =
    typename VectorOf<T, (kVectorBytes > 16 ? kVectorBytes / 2 : 16)>::Type;

struct Even {
  static constexpr int At(int lane, int) { return 2 * lane; }
};
struct Odd {
  static constexpr int At(int lane, int) { return 2 * lane + 1; }
};
struct Lower {
  static constexpr int At(int lane, int lanes) {
    return lane / 2 + lane % 2 * lanes;
  }
};
struct Upper {
  static constexpr int At(int lane, int lanes) {
    return lanes / 2 + lane / 2 + lane % 2 * lanes;
  }
};
struct Backward {
  static constexpr int At(int lane, int lanes) { return lanes - 1 - lane; }
};

// Reads as many adjacent complex values as there are lanes.
template <typename V>
TFAOT_INLINE Complex<V> Split(const Scalar<V>* from) {
  const V a = LoadAs<V>(from), b = LoadAs<V>(from + kCount<V>);
  return {Shuffled(a, b, Order<V, Even>()), Shuffled(a, b, Order<V, Odd>())};
}

template <typename V>
TFAOT_INLINE void Join(Complex<V> value, Scalar<V>* to) {
  Store(to, Shuffled(value.re, value.im, Order<V, Lower>()));
  Store(to + kCount<V>, Shuffled(value.re, value.im, Order<V, Upper>()));
}

// Reads the first `count` values. The others are zero.
template <typename V>
TFAOT_INLINE Complex<V> SplitSome(const Scalar<V>* from, std::int64_t count) {
  constexpr int kSize = kCount<V>;
  if (count >= kSize) return Split<V>(from);
  const std::int64_t rest = 2 * count - kSize;
  const V a = rest < 0 ? LoadSomeAs<V>(from, 2 * count) : LoadAs<V>(from);
  const V b = rest > 0 ? LoadSomeAs<V>(from + kSize, rest) : V{};
  return {Shuffled(a, b, Order<V, Even>()), Shuffled(a, b, Order<V, Odd>())};
}

template <typename V>
TFAOT_INLINE void JoinSome(Complex<V> value, Scalar<V>* to,
                           std::int64_t count) {
  constexpr int kSize = kCount<V>;
  if (count >= kSize) return Join(value, to);
  const V a = Shuffled(value.re, value.im, Order<V, Lower>());
  const std::int64_t rest = 2 * count - kSize;
  if (rest < 0) return StoreSome(to, a, 2 * count);
  Store(to, a);
  if (rest == 0) return;
  StoreSome(to + kSize, Shuffled(value.re, value.im, Order<V, Upper>()), rest);
}

template <typename V>
TFAOT_INLINE Complex<V> Reversed(Complex<V> value) {
  return {Shuffled(value.re, value.re, Order<V, Backward>()),
          Shuffled(value.im, value.im, Order<V, Backward>())};
}

// Transforms of kRadix values, in place.

template <int kRadix, typename V>
struct Butterfly;

template <typename V>
struct Butterfly<2, V> {
  static TFAOT_INLINE void Run(Complex<V>* a) {
    const Complex<V> sum = a[0] + a[1];
    a[1] = a[0] - a[1];
    a[0] = sum;
  }
};

template <typename V>
struct Butterfly<4, V> {
  static TFAOT_INLINE void Run(Complex<V>* a) {
    const Complex<V> even = a[0] + a[2], difference = a[0] - a[2];
    const Complex<V> odd = a[1] + a[3], turned = Turned(a[1] - a[3]);
    a[0] = even + odd;
    a[1] = difference + turned;
    a[2] = even - odd;
    a[3] = difference - turned;
  }
};

template <typename V>
struct Butterfly<8, V> {
  static TFAOT_INLINE void Run(Complex<V>* a) {
    const V half = All<V>(static_cast<Scalar<V>>(0.70710678118654752440));
    Complex<V> even[4] = {a[0], a[2], a[4], a[6]};
    Complex<V> odd[4] = {a[1], a[3], a[5], a[7]};
    Butterfly<4, V>::Run(even);
    Butterfly<4, V>::Run(odd);
    odd[1] = {half * (odd[1].re + odd[1].im), half * (odd[1].im - odd[1].re)};
    odd[2] = Turned(odd[2]);
    odd[3] = {half * (odd[3].im - odd[3].re), -half * (odd[3].re + odd[3].im)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      a[i] = even[i] + odd[i];
      a[i + 4] = even[i] - odd[i];
    }
  }
};

template <typename V>
struct Butterfly<16, V> {
  static TFAOT_INLINE void Run(Complex<V>* a) {
    // cos(i * pi / 8)
    constexpr double kCos[] = {1, 0.92387953251128675613,
                               0.70710678118654752440, 0.38268343236508977173,
                               0};
    Complex<V> parts[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Complex<V> part[4] = {a[i], a[i + 4], a[i + 8], a[i + 12]};
      Butterfly<4, V>::Run(part);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const int turn = i * j;  // of 16
        if (turn == 0) {
          parts[j][i] = part[j];
        } else if (turn == 4) {
          parts[j][i] = Turned(part[j]);
        } else {
          const int rest = turn % 4;
          const Complex<V> from = turn >= 4 ? Turned(part[j]) : part[j];
          parts[j][i] =
              (turn >= 8 ? Turned(from) : from) *
              Complex<V>{All<V>(static_cast<Scalar<V>>(kCos[rest])),
                         All<V>(static_cast<Scalar<V>>(-kCos[4 - rest]))};
        }
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      Butterfly<4, V>::Run(parts[j]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) a[j + 4 * i] = parts[j][i];
    }
  }
};

// cos(2 * pi * i / kRadix) and sin for i from 1 to (kRadix - 1) / 2.
template <int kRadix>
struct Roots;
template <>
struct Roots<3> {
  static constexpr double kCos[] = {-0.5};
  static constexpr double kSin[] = {0.86602540378443864676};
};
template <>
struct Roots<5> {
  static constexpr double kCos[] = {0.30901699437494742410,
                                    -0.80901699437494742410};
  static constexpr double kSin[] = {0.95105651629515357212,
                                    0.58778525229247312917};
};
template <>
struct Roots<7> {
  static constexpr double kCos[] = {
      0.62348980185873353053, -0.22252093395631440429, -0.90096886790241912624};
  static constexpr double kSin[] = {
      0.78183148246802980871, 0.97492791218182360702, 0.43388373911755812048};
};
template <>
struct Roots<9> {
  static constexpr double kCos[] = {0.76604444311897803520,
                                    0.17364817766693034885, -0.5,
                                    -0.93969262078590838405};
  static constexpr double kSin[] = {
      0.64278760968653932632, 0.98480775301220805937, 0.86602540378443864676,
      0.34202014332566873304};
};
template <>
struct Roots<11> {
  static constexpr double kCos[] = {
      0.84125353283118116886, 0.41541501300188642553, -0.14231483827328514044,
      -0.65486073394528506406, -0.95949297361449738989};
  static constexpr double kSin[] = {
      0.54064081745559758211, 0.90963199535451837141, 0.98982144188093273238,
      0.75574957435425828378, 0.28173255684142969772};
};
template <>
struct Roots<13> {
  static constexpr double kCos[] = {
      0.88545602565320989588,  0.56806474673115580252,
      0.12053668025532305335,  -0.35460488704253562597,
      -0.74851074817110109864, -0.97094181742605202716};
  static constexpr double kSin[] = {
      0.46472317204376854566, 0.82298386589365639458, 0.99270887409805399278,
      0.93501624268541482342, 0.66312265824079520238, 0.23931566428755776715};
};

// An odd radix: sums and differences of opposite values, each times a cosine or
// a sine.
template <int kRadix, typename V>
struct Butterfly {
  static TFAOT_INLINE void Run(Complex<V>* a) {
    constexpr int kHalf = (kRadix - 1) / 2;
    Complex<V> sums[kHalf], differences[kHalf];
    Complex<V> total = a[0];
#pragma GCC unroll 6
    for (int i = 0; i < kHalf; ++i) {
      sums[i] = a[i + 1] + a[kRadix - 1 - i];
      differences[i] = a[i + 1] - a[kRadix - 1 - i];
      total = total + sums[i];
    }
    const Complex<V> first = a[0];
    a[0] = total;
#pragma GCC unroll 6
    for (int j = 1; j <= kHalf; ++j) {
      Complex<V> even = first, odd = {V{}, V{}};
#pragma GCC unroll 6
      for (int i = 0; i < kHalf; ++i) {
        const int turn = (i + 1) * j % kRadix;
        const bool beyond = turn > kHalf;
        const int place = (beyond ? kRadix - turn : turn) - 1;
        const V cosine =
            All<V>(static_cast<Scalar<V>>(Roots<kRadix>::kCos[place]));
        const V sine = All<V>(static_cast<Scalar<V>>(
            beyond ? -Roots<kRadix>::kSin[place] : Roots<kRadix>::kSin[place]));
        even.re = MultiplyAdd(cosine, sums[i].re, even.re);
        even.im = MultiplyAdd(cosine, sums[i].im, even.im);
        odd.re = MultiplyAdd(sine, differences[i].re, odd.re);
        odd.im = MultiplyAdd(sine, differences[i].im, odd.im);
      }
      const Complex<V> turned = Turned(odd);
      a[j] = even + turned;
      a[kRadix - j] = even - turned;
    }
  }
};

template <typename V>
struct Butterfly<9, V> {
  static TFAOT_INLINE void Run(Complex<V>* a) {
    // exp(-2 * pi * i * turn / 9)
    constexpr double kCos[] = {1, 0.76604444311897803520,
                               0.17364817766693034885, 0,
                               -0.93969262078590838405};
    constexpr double kSin[] = {0, -0.64278760968653932632,
                               -0.98480775301220805937, 0,
                               -0.34202014332566873304};
    Complex<V> parts[3][3];
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      Complex<V> part[3] = {a[i], a[i + 3], a[i + 6]};
      Butterfly<3, V>::Run(part);
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        const int turn = i * j;
        parts[j][i] =
            turn == 0
                ? part[j]
                : part[j] *
                      Complex<V>{All<V>(static_cast<Scalar<V>>(kCos[turn])),
                                 All<V>(static_cast<Scalar<V>>(kSin[turn]))};
      }
    }
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      Butterfly<3, V>::Run(parts[j]);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) a[j + 3 * i] = parts[j][i];
    }
  }
};

// One of Stockham's stages: transforms of `length` become kRadix times as many
// of length / kRadix. `step` of them are interleaved. A complex vector is two
// adjacent vectors.
template <int kRadix, typename V, typename T>
TFAOT_NOINLINE void Stage(std::int64_t length, std::int64_t step,
                          const T* roots, const T* from, T* to) {
  constexpr int kSize = 2 * kCount<V>;
  const std::int64_t parts = length / kRadix;
  for (std::int64_t part = 0; part < parts; ++part) {
    const T* in = from + kSize * step * part;
    T* out = to + kSize * step * kRadix * part;
    for (std::int64_t i = 0; i < step; ++i, in += kSize, out += kSize) {
      Complex<V> values[kRadix];
#pragma GCC unroll 16
      for (int k = 0; k < kRadix; ++k) {
        const T* at = in + kSize * step * parts * k;
        values[k] = {LoadAs<V>(at), LoadAs<V>(at + kCount<V>)};
      }
      Butterfly<kRadix, V>::Run(values);
      if (part > 0) {
#pragma GCC unroll 16
        for (int k = 1; k < kRadix; ++k) {
          const T* root = roots + 2 * ((kRadix - 1) * part + k - 1);
          values[k] = values[k] * Complex<V>{All<V>(root[0]), All<V>(root[1])};
        }
      }
#pragma GCC unroll 16
      for (int k = 0; k < kRadix; ++k) {
        Store(out + kSize * step * k, values[k].re);
        Store(out + kSize * step * k + kCount<V>, values[k].im);
      }
    }
  }
}

// Like Stage, for one transform of values, real and imaginary parts apart:
// `apart` values lie between them. The first stage has as many parts as there
// are lanes.
template <int kRadix, typename V, typename T>
TFAOT_NOINLINE void LineStage(std::int64_t length, std::int64_t step,
                              std::int64_t apart, const T* roots, const T* from,
                              T* to) {
  const std::int64_t parts = length / kRadix;
  const auto run = [&](auto one, std::int64_t part, std::int64_t i) {
    using U = decltype(one);
    const T* in = from + step * part + i;
    T* out = to + step * kRadix * part + i;
    Complex<U> values[kRadix];
#pragma GCC unroll 16
    for (int k = 0; k < kRadix; ++k) {
      const T* at = in + step * parts * k;
      values[k] = {LoadAs<U>(at), LoadAs<U>(at + apart)};
    }
    Butterfly<kRadix, U>::Run(values);
    if (part > 0) {
#pragma GCC unroll 16
      for (int k = 1; k < kRadix; ++k) {
        const T* root = roots + 2 * ((kRadix - 1) * part + k - 1);
        values[k] = values[k] * Complex<U>{All<U>(root[0]), All<U>(root[1])};
      }
    }
#pragma GCC unroll 16
    for (int k = 0; k < kRadix; ++k) {
      Store(out + step * k, values[k].re);
      Store(out + step * k + apart, values[k].im);
    }
  };
  if (step == 1) {
    // Vectors of parts, whose results are kRadix values apart.
    for (std::int64_t i = 0; i < parts; i += kCount<V>) {
      const std::int64_t part = std::min(i, parts - kCount<V>);
      Complex<V> values[kRadix];
#pragma GCC unroll 16
      for (int k = 0; k < kRadix; ++k) {
        const T* at = from + parts * k + part;
        values[k] = {LoadAs<V>(at), LoadAs<V>(at + apart)};
      }
      Butterfly<kRadix, V>::Run(values);
      T block[2][kRadix * kCount<V>];
#pragma GCC unroll 16
      for (int k = 0; k < kRadix; ++k) {
        if (k > 0) {
          const T* root = roots + 2 * parts * (k - 1) + part;
          values[k] =
              values[k] * Complex<V>{LoadAs<V>(root), LoadAs<V>(root + parts)};
        }
        Store(block[0] + kCount<V> * k, values[k].re);
        Store(block[1] + kCount<V> * k, values[k].im);
      }
      for (int half = 0; half < 2; ++half) {
        Transpose(block[half], std::int64_t{kCount<V>}, std::int64_t{kRadix},
                  std::int64_t{kCount<V>}, to + kRadix * part + apart * half,
                  std::int64_t{kRadix});
      }
    }
    return;
  }
  for (std::int64_t part = 0; part < parts; ++part) {
    if (step < kCount<V>) {
      // What lanes write beyond the step is written again.
      if (step * (parts - part) >= kCount<V>) {
        run(V{}, part, 0);
      } else {
        for (std::int64_t i = 0; i < step; ++i) run(T{}, part, i);
      }
      continue;
    }
    std::int64_t i = 0;
    for (; i + kCount<V> <= step; i += kCount<V>) run(V{}, part, i);
    // The last vector can have values of the one before.
    if (i < step) run(V{}, part, step - kCount<V>);
  }
}

// Where a transform goes on: its next stage, the length that is left, and how
// many transforms of this length are interleaved.
struct Progress {
  int stage;
  std::int64_t left;
  std::int64_t step;
};

// Transforms complex vectors. Uses both arrays, and returns the one that has
// the result. Moves `roots` behind those that it uses.
template <typename V, bool kLine = false, typename T>
T* TransformLanes(const Fourier& fourier, Progress at, const T*& roots, T* from,
                  T* to) {
  auto& [next, left, step] = at;
  const std::int64_t length = left * step;
  const auto stage = [&](auto radix) {
    constexpr int kRadix = decltype(radix)::value;
    if constexpr (kLine) {
      LineStage<kRadix, V>(at.left, at.step, length, roots, from, to);
    } else {
      Stage<kRadix, V>(at.left, at.step, roots, from, to);
    }
  };
  for (; next < fourier.stages; ++next) {
    const int radix = fourier.radices[next];
    switch (radix) {
#define TFAOT_STAGE(kRadix)                       \
  case kRadix:                                    \
    stage(std::integral_constant<int, kRadix>()); \
    break;
      TFAOT_STAGE(2)
      TFAOT_STAGE(3)
      TFAOT_STAGE(4)
      TFAOT_STAGE(5)
      TFAOT_STAGE(7)
      TFAOT_STAGE(8)
      TFAOT_STAGE(9)
      TFAOT_STAGE(11)
      TFAOT_STAGE(13)
#undef TFAOT_STAGE
      default:
        break;
    }
    left /= radix;
    roots += 2 * (radix - 1) * left;
    step *= radix;
    std::swap(from, to);
  }
  return from;
}

// How values become others on the way in or out.
template <typename T>
struct Change {
  bool swap;  // real and imaginary parts, which makes a transform inverse
  T scale;
};

template <typename V, typename T>
TFAOT_INLINE Complex<V> Changed(Complex<V> value, const Change<T>& change) {
  const Complex<V> swapped = Swapped(value, change.swap);
  if (change.scale == 1) return swapped;
  const V scale = All<V>(change.scale);
  return {swapped.re * scale, swapped.im * scale};
}

// The first stage of TransformOne, from complex values.
template <int kRadix, typename V, typename T>
TFAOT_INLINE void FirstStage(std::int64_t length, const T* roots, const T* in,
                             const Change<T>& into, T* to) {
  constexpr int kSize = 2 * kCount<V>;
  const std::int64_t parts = length / kRadix;
  for (std::int64_t part = 0; part < parts; ++part, to += kSize * kRadix) {
    Complex<V> values[kRadix];
#pragma GCC unroll 8
    for (int k = 0; k < kRadix; ++k) {
      values[k] = Changed(Split<V>(in + kSize * (part + parts * k)), into);
    }
    Butterfly<kRadix, V>::Run(values);
#pragma GCC unroll 8
    for (int k = 0; k < kRadix; ++k) {
      if (part > 0 && k > 0) {
        const T* root = roots + 2 * ((kRadix - 1) * part + k - 1);
        values[k] = values[k] * Complex<V>{All<V>(root[0]), All<V>(root[1])};
      }
      Store(to + kSize * k, values[k].re);
      Store(to + kSize * k + kCount<V>, values[k].im);
    }
  }
}

// The first of TransformReal's stages. The parts of kRadix real values have
// conjugate results in pairs, of which it keeps one.
template <int kRadix, typename V, typename T>
TFAOT_NOINLINE void RealStage(std::int64_t length, const T* roots,
                              const T* from, T* to) {
  constexpr int kHalf = (kRadix - 1) / 2;
  const std::int64_t parts = length / kRadix;
  const std::int64_t apart = parts * (kHalf + 1);
  for (std::int64_t i = 0; i < parts; i += kCount<V>) {
    const std::int64_t part = std::min(i, parts - kCount<V>);
    V sums[kHalf], differences[kHalf];
    const V first = LoadAs<V>(from + part);
    V total = first;
#pragma GCC unroll 6
    for (int k = 0; k < kHalf; ++k) {
      const V a = LoadAs<V>(from + parts * (k + 1) + part);
      const V b = LoadAs<V>(from + parts * (kRadix - 1 - k) + part);
      sums[k] = a + b;
      differences[k] = b - a;
      total = total + sums[k];
    }
    T block[2][(kHalf + 1) * kCount<V>];
    Store(block[0], total);
    Store(block[1], V{});
#pragma GCC unroll 6
    for (int j = 1; j <= kHalf; ++j) {
      Complex<V> value = {first, V{}};
#pragma GCC unroll 6
      for (int k = 0; k < kHalf; ++k) {
        const int turn = (k + 1) * j % kRadix;
        if (turn == 0) {
          value.re = value.re + sums[k];
          continue;
        }
        const bool beyond = turn > kHalf;
        const int place = (beyond ? kRadix - turn : turn) - 1;
        const double sine = Roots<kRadix>::kSin[place];
        value.re =
            MultiplyAdd(All<V>(static_cast<T>(Roots<kRadix>::kCos[place])),
                        sums[k], value.re);
        value.im = MultiplyAdd(All<V>(static_cast<T>(beyond ? -sine : sine)),
                               differences[k], value.im);
      }
      const T* root = roots + 2 * parts * (j - 1) + part;
      value = value * Complex<V>{LoadAs<V>(root), LoadAs<V>(root + parts)};
      Store(block[0] + kCount<V> * j, value.re);
      Store(block[1] + kCount<V> * j, value.im);
    }
    for (int half = 0; half < 2; ++half) {
      Transpose(block[half], std::int64_t{kCount<V>}, std::int64_t{kHalf + 1},
                std::int64_t{kCount<V>}, to + (kHalf + 1) * part + apart * half,
                std::int64_t{kHalf + 1});
    }
  }
}

// Transforms an odd number of real values, for which TransformLine has stages.
// `out` can be `in`. `work` has room for twice as many complex values.
template <typename V, typename T>
void TransformReal(const Fourier& fourier, const T* roots, const T* in, T* out,
                   T scale, T* work) {
  const std::int64_t length = fourier.size;
  const int radix = fourier.radices[0], kept = (radix + 1) / 2;
  const std::int64_t parts = length / radix, apart = parts * kept;
  switch (radix) {
#define TFAOT_STAGE(kRadix)                        \
  case kRadix:                                     \
    RealStage<kRadix, V>(length, roots, in, work); \
    break;
    TFAOT_STAGE(3)
    TFAOT_STAGE(5)
    TFAOT_STAGE(7)
    TFAOT_STAGE(9)
    TFAOT_STAGE(11)
    TFAOT_STAGE(13)
#undef TFAOT_STAGE
    default:
      break;
  }
  roots += 2 * (radix - 1) * parts;
  const T* const re = TransformLanes<V, true>(fourier, {1, parts, kept}, roots,
                                              work, work + 2 * length);
  const T* const im = re + apart;
  // Result radix * i + j is value i of transform j, and the others are
  // conjugates.
  const auto put = [&](std::int64_t to, std::int64_t from, T sign) {
    out[2 * to] = re[from] * scale;
    out[2 * to + 1] = im[from] * sign;
  };
  for (std::int64_t i = 0; radix * i <= length / 2; ++i) {
    const std::int64_t left = length / 2 - radix * i;
    for (int j = 0; j < std::min<std::int64_t>(kept, left + 1); ++j) {
      put(radix * i + j, kept * i + j, scale);
    }
    for (int j = kept; j < std::min<std::int64_t>(radix, left + 1); ++j) {
      put(radix * i + j, kept * (parts - 1 - i) + radix - j, -scale);
    }
  }
  out[1] = 0;
}

// Transforms one array of `length` complex values, a multiple of the lanes.
// Lane l has the values l, l + lanes, and so on. `out` can be `in`. `work` has
// room for twice as many complex values.
template <typename V, typename T>
void TransformOne(const Fourier& fourier, std::int64_t length, const T* roots,
                  const T* in, T* out, const Change<T>& into,
                  const Change<T>& outof, T* work) {
  constexpr int kSize = kCount<V>;
  const std::int64_t parts = length / kSize;
  const int radix = fourier.radices[0];
  Progress at = {0, parts, 1};
  if (radix == 8 || radix == 4) {
    const auto stage = radix == 8 ? FirstStage<8, V, T> : FirstStage<4, V, T>;
    stage(parts, roots, in, into, work);
    at = {1, parts / radix, radix};
    roots += 2 * (radix - 1) * at.left;
  } else {
    for (std::int64_t i = 0; i < parts; ++i) {
      const Complex<V> value = Changed(Split<V>(in + 2 * kSize * i), into);
      Store(work + 2 * kSize * i, value.re);
      Store(work + 2 * kSize * i + kSize, value.im);
    }
  }
  const T* result =
      TransformLanes<V>(fourier, at, roots, work, work + 2 * length);
  // A transform over lanes for each part of the result, for as many as there
  // are lanes.
  for (std::int64_t first = 0; first < parts; first += kSize) {
    const std::int64_t count = std::min<std::int64_t>(kSize, parts - first);
    T block[2][kSize * kSize];
    if (count < kSize) std::memset(block, 0, sizeof(block));
    for (int part = 0; part < 2; ++part) {
      Transpose(result + 2 * kSize * first + part * kSize, 2 * kSize, count,
                std::int64_t{kSize}, block[part], std::int64_t{kSize});
    }
    Complex<V> values[kSize];
#pragma GCC unroll 16
    for (int lane = 0; lane < kSize; ++lane) {
      values[lane] = {LoadAs<V>(block[0] + kSize * lane),
                      LoadAs<V>(block[1] + kSize * lane)};
      if (lane > 0) {
        values[lane] = values[lane] *
                       Complex<V>{LoadAs<V>(roots), LoadAs<V>(roots + kSize)};
        roots += 2 * kSize;
      }
    }
    Butterfly<kSize, V>::Run(values);
#pragma GCC unroll 16
    for (int lane = 0; lane < kSize; ++lane) {
      JoinSome(Changed(values[lane], outof), out + 2 * (parts * lane + first),
               count);
    }
  }
}

// Like TransformOne, for any length, as a convolution with a chirp of
// fourier.padded values. `work` has room for three times as many.
template <typename V, typename T>
void TransformChirp(const Fourier& fourier, const T* roots, const T* in, T* out,
                    const Change<T>& into, const Change<T>& outof, T* work) {
  constexpr int kSize = kCount<V>;
  const std::int64_t length = fourier.size, padded = fourier.padded;
  const std::int64_t rounded = (length + kSize - 1) / kSize * kSize;
  const T* chirp = roots;
  const T* spectrum = chirp + 2 * rounded;
  roots = spectrum + 2 * padded;
  T* values = work;
  work += 2 * padded;
  for (std::int64_t i = 0; i < length; i += kSize) {
    const auto value = Changed(
        SplitSome<V>(in + 2 * i, std::min(length - i, std::int64_t{kSize})),
        into);
    Join(value * Split<V>(chirp + 2 * i), values + 2 * i);
  }
  std::fill(values + 2 * rounded, values + 2 * padded, T{0});
  TransformOne<V>(fourier, padded, roots, values, values, {false, 1},
                  {false, 1}, work);
  for (std::int64_t i = 0; i < padded; i += kSize) {
    Join(Split<V>(values + 2 * i) * Split<V>(spectrum + 2 * i), values + 2 * i);
  }
  TransformOne<V>(fourier, padded, roots, values, values, {true, 1}, {true, 1},
                  work);
  for (std::int64_t i = 0; i < length; i += kSize) {
    const auto value = Split<V>(values + 2 * i) * Split<V>(chirp + 2 * i);
    JoinSome(Changed(value, outof), out + 2 * i,
             std::min(length - i, std::int64_t{kSize}));
  }
}

// Like TransformOne, for a short array, by the definition. `work` has room for
// fourier.size complex values.
template <typename V, typename T>
void TransformDirectly(const Fourier& fourier, const T* roots, const T* in,
                       T* out, const Change<T>& into, const Change<T>& outof,
                       T* work) {
  constexpr int kSize = kCount<V>;
  const std::int64_t length = fourier.size;
  const std::int64_t vectors = (length + kSize - 1) / kSize;
  std::memcpy(work, in, static_cast<std::size_t>(2 * length) * sizeof(T));
  for (std::int64_t first = 0; first < vectors; ++first) {
    Complex<V> sum = {V{}, V{}};
    for (std::int64_t i = 0; i < length; ++i) {
      const T* root = roots + 2 * kSize * (vectors * i + first);
      const Complex<V> value = Swapped(
          Complex<V>{All<V>(work[2 * i]), All<V>(work[2 * i + 1])}, into.swap);
      const V re = LoadAs<V>(root), im = LoadAs<V>(root + kSize);
      sum.re = MultiplyAdd(value.re, re, MultiplyAdd(-value.im, im, sum.re));
      sum.im = MultiplyAdd(value.re, im, MultiplyAdd(value.im, re, sum.im));
    }
    JoinSome(Changed(sum, outof), out + 2 * kSize * first,
             std::min(length - kSize * first, std::int64_t{kSize}));
  }
}

// Like TransformOne, for any length that the stages divide. `work` has room for
// twice as many.
template <typename V, typename T>
void TransformLine(const Fourier& fourier, const T* roots, const T* in, T* out,
                   const Change<T>& into, const Change<T>& outof, T* work) {
  constexpr int kSize = kCount<V>;
  const std::int64_t length = fourier.size;
  std::int64_t i = 0;
  for (; i + kSize <= length; i += kSize) {
    const Complex<V> value = Changed(Split<V>(in + 2 * i), into);
    Store(work + i, value.re);
    Store(work + length + i, value.im);
  }
  for (; i < length; ++i) {
    const Complex<T> value =
        Changed(Complex<T>{in[2 * i], in[2 * i + 1]}, into);
    work[i] = value.re;
    work[length + i] = value.im;
  }
  const T* result = TransformLanes<V, true>(fourier, {0, length, 1}, roots,
                                            work, work + 2 * length);
  for (i = 0; i + kSize <= length; i += kSize) {
    const Complex<V> value = {LoadAs<V>(result + i),
                              LoadAs<V>(result + length + i)};
    Join(Changed(value, outof), out + 2 * i);
  }
  for (; i < length; ++i) {
    const Complex<T> value =
        Changed(Complex<T>{result[i], result[length + i]}, outof);
    out[2 * i] = value.re;
    out[2 * i + 1] = value.im;
  }
}

// Transforms complex vectors in work[0], one transform for each lane, and
// returns where the result is. `work` has room for twice as many, or for those
// of the convolution.
template <typename V, typename T>
T* TransformAcross(const Fourier& fourier, const T* roots, T* work) {
  constexpr int kSize = kCount<V>;
  const std::int64_t length = fourier.size, padded = fourier.padded;
  if (fourier.method == Fourier::Method::kAcross) {
    return TransformLanes<V>(fourier, {0, length, 1}, roots, work,
                             work + 2 * kSize * length);
  }
  const T* chirp = roots;
  const T* spectrum = chirp + 2 * length;
  roots = spectrum + 2 * padded;
  const auto multiply = [](T* values, const T* factors, std::int64_t count,
                           bool swap) {
    for (std::int64_t i = 0; i < count; ++i) {
      T* at = values + 2 * kSize * i;
      const Complex<V> factor = {All<V>(factors[2 * i]),
                                 All<V>(factors[2 * i + 1])};
      const Complex<V> product = Swapped(
          Complex<V>{LoadAs<V>(at), LoadAs<V>(at + kSize)} * factor, swap);
      Store(at, product.re);
      Store(at + kSize, product.im);
    }
  };
  multiply(work, chirp, length, false);
  std::fill(work + 2 * kSize * length, work + 2 * kSize * padded, T{0});
  T* other = work + 2 * kSize * padded;
  const T* stages = roots;
  T* result = TransformLanes<V>(fourier, {0, padded, 1}, stages, work, other);
  multiply(result, spectrum, padded, true);
  stages = roots;
  result = TransformLanes<V>(fourier, {0, padded, 1}, stages, result,
                             result == work ? other : work);
  // The inverse transform's result has its parts swapped.
  for (std::int64_t i = 0; i < length; ++i) {
    T* at = result + 2 * kSize * i;
    const V re = LoadAs<V>(at + kSize);
    Store(at + kSize, LoadAs<V>(at));
    Store(at, re);
  }
  multiply(result, chirp, length, false);
  return result;
}

// Transforms up to as many rows as there are lanes. Rows are `in_step` and
// `out_step` values apart. `out` can be `in`.
template <typename V, typename T>
void TransformRows(const Fourier& fourier, const T* roots, std::int64_t rows,
                   const T* in, std::int64_t in_step, T* out,
                   std::int64_t out_step, const Change<T>& into,
                   const Change<T>& outof, T* work) {
  constexpr int kSize = kCount<V>;
  const std::int64_t length = fourier.size;
  switch (fourier.method) {
    case Fourier::Method::kDirect:
      for (std::int64_t r = 0; r < rows; ++r) {
        TransformDirectly<V>(fourier, roots, in + r * in_step,
                             out + r * out_step, into, outof, work);
      }
      return;
    case Fourier::Method::kOne:
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto transform = fourier.lanes == kSize
                                   ? TransformOne<V, T>
                                   : TransformOne<Half<T>, T>;
        transform(fourier, length, roots, in + r * in_step, out + r * out_step,
                  into, outof, work);
      }
      return;
    case Fourier::Method::kLine:
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto transform = fourier.lanes == kSize
                                   ? TransformLine<V, T>
                                   : TransformLine<Half<T>, T>;
        transform(fourier, roots, in + r * in_step, out + r * out_step, into,
                  outof, work);
      }
      return;
    case Fourier::Method::kChirp:
      for (std::int64_t r = 0; r < rows; ++r) {
        TransformChirp<V>(fourier, roots, in + r * in_step, out + r * out_step,
                          into, outof, work);
      }
      return;
    case Fourier::Method::kAcross:
    case Fourier::Method::kChirpAcross:
      break;
  }
  if (rows < kSize) {
    std::fill(work, work + 2 * kSize * length, T{0});
  }
  Transpose(in, in_step, rows, 2 * length, work, std::int64_t{kSize});
  const auto change = [&](T* values, const Change<T>& how) {
    if (!how.swap && how.scale == 1) return;
    for (std::int64_t i = 0; i < length; ++i) {
      T* at = values + 2 * kSize * i;
      const Complex<V> value =
          Changed(Complex<V>{LoadAs<V>(at), LoadAs<V>(at + kSize)}, how);
      Store(at, value.re);
      Store(at + kSize, value.im);
    }
  };
  change(work, into);
  T* result = TransformAcross<V>(fourier, roots, work);
  change(result, outof);
  Transpose(result, std::int64_t{kSize}, 2 * length, rows, out, out_step);
}

// Replaces the values k and half - k of a row, for all k from 1 on, by those
// that pair(value, other, root, low, high) makes of them. The last vectors can
// overlap.
template <typename V, typename T, typename Pair>
void InPairs(std::int64_t half, const T* roots, T* row, const Pair& pair) {
  std::int64_t k = 1;
  const auto vectors = [&](auto zero) {
    using U = decltype(zero);
    constexpr int kSize = kCount<U>;
    for (; k + kSize <= half - k + 1; k += kSize) {
      T* end = row + 2 * (half - k - kSize + 1);
      Complex<U> low, high;
      pair(Split<U>(row + 2 * k), Reversed<U>(Split<U>(end)),
           Split<U>(roots + 2 * k), low, high);
      Join(low, row + 2 * k);
      Join(Reversed<U>(high), end);
    }
  };
  vectors(V{});
  if constexpr (kCount<Half<T>> < kCount<V>) vectors(Half<T>{});
  for (; k <= half - k; ++k) {
    T *a = row + 2 * k, *b = row + 2 * (half - k);
    Complex<T> low, high;
    pair(Complex<T>{a[0], a[1]}, Complex<T>{b[0], b[1]},
         Complex<T>{roots[2 * k], roots[2 * k + 1]}, low, high);
    a[0] = low.re;
    a[1] = low.im;
    b[0] = high.re;
    b[1] = high.im;
  }
}

// Turns the transform of half the length, of pairs of real values, into the
// transform of these values.
template <typename V, typename T>
void AfterPairs(std::int64_t half, const T* roots, T* row) {
  const T first = row[0], second = row[1];
  row[0] = first + second;
  row[1] = 0;
  row[2 * half] = first - second;
  row[2 * half + 1] = 0;
  InPairs<V>(
      half, roots, row, [](auto a, auto b, auto root, auto& low, auto& high) {
        const auto one_half =
            All<decltype(a.re)>(static_cast<Scalar<decltype(a.re)>>(0.5));
        const decltype(a) even = {one_half * (a.re + b.re),
                                  one_half * (a.im - b.im)};
        const decltype(a) odd = {one_half * (a.im + b.im),
                                 one_half * (b.re - a.re)};
        const decltype(a) turned = odd * root;
        low = even + turned;
        high = {even.re - turned.re, turned.im - even.im};
      });
}

// The inverse of AfterPairs, times two.
template <typename V, typename T>
void BeforePairs(std::int64_t half, const T* roots, T* row) {
  const T first = row[0], last = row[2 * half];
  row[0] = first + last;
  row[1] = first - last;
  InPairs<V>(half, roots, row,
             [](auto a, auto b, auto root, auto& low, auto& high) {
               const decltype(a) even = {a.re + b.re, a.im - b.im};
               const decltype(a) odd = decltype(a){a.re - b.re, a.im + b.im} *
                                       decltype(a){root.re, -root.im};
               low = {even.re - odd.im, even.im + odd.re};
               high = {even.re + odd.im, odd.re - even.im};
             });
}

// Transforms along the last axis: `rows` rows, up to as many as there are
// lanes.
template <typename V, typename T>
void TransformLast(const Fourier& fourier, const T* roots, std::int64_t rows,
                   T* data, T* work) {
  using Kind = Fourier::Kind;
  const std::int64_t length = fourier.length;
  const Change<T> into = {fourier.inverse, 1};
  const Change<T> outof = {fourier.inverse, static_cast<T>(fourier.scale)};
  if (fourier.kind == Kind::kComplex) {
    return TransformRows<V>(fourier, roots, rows, data, 2 * length, data,
                            2 * length, into, outof, work);
  }
  const std::int64_t step = 2 * (length / 2 + 1);
  const bool forward = fourier.kind == Kind::kRealToComplex;
  if (length % 2 == 0) {
    const std::int64_t half = length / 2;
    const T* pairs = roots;
    roots += 2 * (half / 2 + kCount<V>);
    for (std::int64_t r = 0; r < rows && !forward; ++r) {
      BeforePairs<V>(half, pairs, data + r * step);
    }
    TransformRows<V>(fourier, roots, rows, data, step, data, step, into, outof,
                     work);
    for (std::int64_t r = 0; r < rows && forward; ++r) {
      AfterPairs<V>(half, pairs, data + r * step);
    }
    return;
  }
  if (forward && fourier.method == Fourier::Method::kLine) {
    const auto transform = fourier.lanes == kCount<V>
                               ? TransformReal<V, T>
                               : TransformReal<Half<T>, T>;
    for (std::int64_t r = 0; r < rows; ++r) {
      T* const row = data + r * step;
      transform(fourier, roots, row, row, outof.scale, work);
    }
    return;
  }
  // Rows of complex values.
  T* wide = work;
  work += (2 * length * rows + kCount<V> - 1) / kCount<V> * kCount<V>;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = data + r * step;
    T* to = wide + 2 * length * r;
    if (forward) {
      for (std::int64_t i = 0; i < length; ++i) {
        to[2 * i] = row[i];
        to[2 * i + 1] = 0;
      }
    } else {
      to[0] = row[0];
      to[1] = 0;
      for (std::int64_t i = 1; i <= length / 2; ++i) {
        to[2 * i] = to[2 * (length - i)] = row[2 * i];
        to[2 * i + 1] = row[2 * i + 1];
        to[2 * (length - i) + 1] = -row[2 * i + 1];
      }
    }
  }
  TransformRows<V>(fourier, roots, rows, wide, 2 * length, wide, 2 * length,
                   into, outof, work);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = wide + 2 * length * r;
    T* row = data + r * step;
    if (forward) {
      std::memcpy(row, from, static_cast<std::size_t>(step) * sizeof(T));
      row[1] = 0;
    } else {
      for (std::int64_t i = 0; i < length; ++i) row[i] = from[2 * i];
    }
  }
}

// Transforms along another axis, whose values are `inner` complex values apart:
// those from `first` on, up to as many as there are lanes.
template <typename V, typename T>
void TransformInner(const Fourier& fourier, const T* roots, std::int64_t first,
                    T* data, T* work) {
  constexpr int kSize = kCount<V>;
  const Change<T> into = {fourier.inverse, 1};
  const Change<T> outof = {fourier.inverse, static_cast<T>(fourier.scale)};
  const std::int64_t count =
      std::min<std::int64_t>(kSize, fourier.inner - first);
  for (std::int64_t i = 0; i < fourier.length; ++i) {
    const Complex<V> value = Changed(
        SplitSome<V>(data + 2 * (fourier.inner * i + first), count), into);
    Store(work + 2 * kSize * i, value.re);
    Store(work + 2 * kSize * i + kSize, value.im);
  }
  const T* result = TransformAcross<V>(fourier, roots, work);
  for (std::int64_t i = 0; i < fourier.length; ++i) {
    const Complex<V> value = {LoadAs<V>(result + 2 * kSize * i),
                              LoadAs<V>(result + 2 * kSize * i + kSize)};
    JoinSome(Changed(value, outof), data + 2 * (fourier.inner * i + first),
             count);
  }
}

// Runs a call. Parts of it have rows, or vectors of them where a lane is one.
template <typename T>
void RunFourierOn(const Fourier& fourier, const T* roots, T* scratch, T* data,
                  ThreadPool* threads) {
  using V = Vector<T>;
  using Method = Fourier::Method;
  constexpr std::int64_t kWidth = kCount<V>;
  const bool is_inner = fourier.inner > 1;
  const std::int64_t groups = (fourier.inner + kWidth - 1) / kWidth;
  const std::int64_t units = fourier.outer * (is_inner ? groups : 1);
  const std::int64_t grain =
      !is_inner && (fourier.method == Method::kAcross ||
                    fourier.method == Method::kChirpAcross)
          ? kWidth
          : 1;
  const std::int64_t row =
      2 * (fourier.kind == Fourier::Kind::kComplex ? fourier.length
                                                   : fourier.length / 2 + 1);
  const auto run = [&](const Part& part) {
    T* const work = scratch + part.batch.index * fourier.scratch;
    const Span span = part.batch.Of(units, grain);
    for (std::int64_t o = span.begin; o < span.end;
         o += is_inner ? 1 : kWidth) {
      if (is_inner) {
        TransformInner<V>(
            fourier, roots, o % groups * kWidth,
            data + 2 * fourier.length * fourier.inner * (o / groups), work);
      } else {
        TransformLast<V>(fourier, roots, std::min(kWidth, span.end - o),
                         data + row * o, work);
      }
    }
  };
  if (threads == nullptr || fourier.slots == 1) return run(Part{});
  Work work = {fourier.slots, 1, 1, 1, 1, 0};
  work.operations = 2.5 * static_cast<double>(fourier.outer * fourier.inner) *
                    static_cast<double>(fourier.padded) *
                    std::log2(static_cast<double>(fourier.padded));
  InParts(*threads, work, run);
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_FOURIER_H_
