// Functions of the vectors in lanes.h. All are pure. Nothing here allocates or
// has state.
#ifndef TFAOT_KERNELS_VECTOR_H_
#define TFAOT_KERNELS_VECTOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "tfaot/kernels/lanes.h"

// The linker merges what several translation units of a program instantiate, so
// everything here is in the namespace of the CPU level (isa.h).
namespace tfaot::kernels::TFAOT_ISA {

// Reads a V from any address.
template <typename V, typename T>
TFAOT_INLINE V LoadAs(const T* from) {
  V vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <typename T>
TFAOT_INLINE Vector<T> Load(const T* from) {
  return LoadAs<Vector<T>>(from);
}

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
// Selects the first `count` values of kSize bytes.
template <int kSize>
TFAOT_INLINE __m256i FirstMask(int64_t count) {
  if constexpr (kSize == 4) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  } else {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count),
                              _mm256_setr_epi64x(0, 1, 2, 3));
  }
}
#endif

// Returns the first values of a vector, as many as a V has. It takes no
// instruction: a narrow register is the lower part of a wide one.
template <typename V, typename Wide>
TFAOT_INLINE V First(const Wide& vector) {
  V first;
  std::memcpy(&first, &vector, sizeof(first));
  return first;
}

// Reads `count` values, at least one and fewer than a V has; the rest is zero.
// If kPermutes, it can also be all of them.
template <typename V, typename T>
TFAOT_INLINE V LoadSomeAs(const T* from, int64_t count) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  V vector = {};
#if defined(__AVX512F__)
  const unsigned mask = (1u << count) - 1;
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4) {
    const __m512 loaded =
        _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
    std::memcpy(&vector, &loaded, sizeof(vector));
  } else if constexpr (sizeof(V) == 64) {
    const __m512d loaded =
        _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), from);
    std::memcpy(&vector, &loaded, sizeof(vector));
  } else if constexpr (sizeof(T) == 4) {
    const __m256 loaded =
        _mm256_maskz_loadu_ps(static_cast<__mmask8>(mask), from);
    std::memcpy(&vector, &loaded, sizeof(vector));
  } else {
    const __m256d loaded =
        _mm256_maskz_loadu_pd(static_cast<__mmask8>(mask), from);
    std::memcpy(&vector, &loaded, sizeof(vector));
  }
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(T) == 4) {
    const __m256 loaded = _mm256_maskload_ps(
        reinterpret_cast<const float*>(from), FirstMask<4>(count));
    std::memcpy(&vector, &loaded, sizeof(vector));
  } else {
    const __m256d loaded = _mm256_maskload_pd(
        reinterpret_cast<const double*>(from), FirstMask<8>(count));
    std::memcpy(&vector, &loaded, sizeof(vector));
  }
#else
  // Calls with a constant size are inlined.
  static_assert(kLanes<T> <= 4);
  if (count == 1) {
    std::memcpy(&vector, from, sizeof(T));
  } else if constexpr (kLanes<T> == 4) {
    if (count == 2) {
      std::memcpy(&vector, from, 2 * sizeof(T));
    } else {
      std::memcpy(&vector, from, 3 * sizeof(T));
    }
  }
#endif
  return vector;
}

template <typename T>
TFAOT_INLINE Vector<T> LoadSome(const T* from, int64_t count) {
  return LoadSomeAs<Vector<T>>(from, count);
}

// Returns the first `count` values, at least one and fewer than a vector has,
// and `rest` in place of the others.
TFAOT_INLINE Vector<float> FirstOr(Vector<float> vector, int64_t count,
                                   float rest) {
  using Integers = typename VectorOf<int32_t, kVectorBytes>::Type;
  Integers lane;
  for (int i = 0; i < kLanes<float>; ++i) lane[i] = i;
  const Integers end = static_cast<int32_t>(count) - Integers{};
  return lane < end ? vector : All<Vector<float>>(rest);
}

// Writes to any address.
template <typename T, typename V>
TFAOT_INLINE void Store(T* to, V vector) {
  std::memcpy(to, &vector, sizeof(vector));
}

// Writes the first `count` values, at least one and fewer than a V has.
template <typename T, typename V>
TFAOT_INLINE void StoreSome(T* to, V vector, int64_t count) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if defined(__AVX512F__)
  const unsigned mask = (1u << count) - 1;
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4) {
    __m512 stored;
    std::memcpy(&stored, &vector, sizeof(vector));
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), stored);
  } else if constexpr (sizeof(V) == 64) {
    __m512d stored;
    std::memcpy(&stored, &vector, sizeof(vector));
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(mask), stored);
  } else if constexpr (sizeof(T) == 4) {
    __m256 stored;
    std::memcpy(&stored, &vector, sizeof(vector));
    _mm256_mask_storeu_ps(to, static_cast<__mmask8>(mask), stored);
  } else {
    __m256d stored;
    std::memcpy(&stored, &vector, sizeof(vector));
    _mm256_mask_storeu_pd(to, static_cast<__mmask8>(mask), stored);
  }
#else
  // AVX2's masked store is slow on many CPUs. Calls with a constant size are
  // inlined.
  const char* from = reinterpret_cast<const char*>(&vector);
  if constexpr (kVectorBytes == 32) {
    constexpr int kHalf = kLanes<T> / 2;
    if (count >= kHalf) {
      std::memcpy(to, from, 16);
      from += 16;
      to += kHalf;
      count -= kHalf;
    }
  }
  if (count == 1) {
    std::memcpy(to, from, sizeof(T));
  } else if constexpr (sizeof(T) == 4) {
    if (count == 2) {
      std::memcpy(to, from, 2 * sizeof(T));
    } else if (count == 3) {
      std::memcpy(to, from, 3 * sizeof(T));
    }
  }
#endif
}

// Returns the elementwise maximum, or `b` where either value is NaN.
template <typename V>
TFAOT_INLINE V Max(V a, V b) {
  return b < a ? a : b;
}

// Returns the elementwise minimum, or `b` where either value is NaN.
template <typename V>
TFAOT_INLINE V Min(V a, V b) {
  return a < b ? a : b;
}

// Whether Permute is an instruction.
#if defined(__AVX2__) && defined(__FMA__)
constexpr bool kPermutes = true;
#else
constexpr bool kPermutes = false;
#endif

// Returns the values at an index for each, which must be in the vector.
TFAOT_INLINE Vector<float> Permute(Vector<float> values,
                                   Vector<std::int32_t> index) {
#if defined(__AVX512F__)
  __m512i at;
  std::memcpy(&at, &index, sizeof(at));
  // GCC 12 warns of undefined values in the form without a mask.
  return _mm512_maskz_permutexvar_ps(static_cast<__mmask16>(-1), at, values);
#elif defined(__AVX2__) && defined(__FMA__)
  __m256i at;
  std::memcpy(&at, &index, sizeof(at));
  return _mm256_permutevar8x32_ps(values, at);
#else
  Vector<float> result = {};
  for (int i = 0; i < kLanes<float>; ++i) result[i] = values[index[i]];
  return result;
#endif
}

// Ways to combine values, and what changes nothing.
struct Add {
  template <typename V>
  TFAOT_INLINE V operator()(V a, V b) const {
    return a + b;
  }
  static constexpr float kNone = 0;
};

// The larger value. If one is NaN, it is any of the two.
struct Peak {
  template <typename V>
  TFAOT_INLINE V operator()(V a, V b) const {
    return Max(a, b);
  }
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
};

// The larger value, or NaN if either is.
struct Larger {
  template <typename V>
  TFAOT_INLINE V operator()(V a, V b) const {
    return a != a ? a : Max(a, b);
  }
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
};

// The smaller value, or NaN if either is.
struct Smaller {
  template <typename V>
  TFAOT_INLINE V operator()(V a, V b) const {
    return a != a ? a : Min(a, b);
  }
  static constexpr float kNone = std::numeric_limits<float>::infinity();
};

#if defined(__SSE2__)
// Returns four values for a part of the values each: the halves are combined,
// and their halves.
template <typename Combine, typename V>
TFAOT_INLINE __m128 Quarters(V vector) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    // GCC 12 warns of undefined values in the form without a mask.
    const __m256d upper =
        _mm512_maskz_extractf64x4_pd(0xff, First<__m512d>(vector), 1);
    return Quarters<Combine>(
        Combine()(First<__m256>(vector), _mm256_castpd_ps(upper)));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) {
    const __m128 upper = _mm256_extractf128_ps(First<__m256>(vector), 1);
    return Combine()(First<__m128>(vector), upper);
  }
#endif
  return First<__m128>(vector);
}
#endif

// Sets each of kCount totals to the sum of a vector's values, or to another
// combination of them, in an order that depends only on V.
template <typename T, int kCount, typename Combine = Add, typename V>
TFAOT_INLINE void Sums(const V* vectors, T* totals) {
#if defined(__SSE2__)
  if constexpr (std::is_same_v<T, float>) {
#pragma GCC unroll 4
    for (int done = 0; done < kCount; done += 4) {
      const int count = kCount - done < 4 ? kCount - done : 4;
      __m128 x[4] = {};
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) {
        x[i] = Quarters<Combine>(vectors[done + i]);
      }
      // Of each vector, (0) + (2) and (1) + (3), and their sum.
      const __m128 a =
          Combine()(_mm_unpacklo_ps(x[0], x[1]), _mm_unpackhi_ps(x[0], x[1]));
      const __m128 b =
          Combine()(_mm_unpacklo_ps(x[2], x[3]), _mm_unpackhi_ps(x[2], x[3]));
      const __m128 sums = Combine()(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
      std::memcpy(totals + done, &sums,
                  sizeof(T) * static_cast<std::size_t>(count));
    }
    return;
  }
#endif
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  for (int i = 0; i < kCount; ++i) {
    T values[kWidth];
    std::memcpy(values, &vectors[i], sizeof(V));
    for (std::size_t width = kWidth / 2; width > 0; width /= 2) {
      for (std::size_t j = 0; j < width; ++j) {
        values[j] = Combine()(values[j], values[j + width]);
      }
    }
    totals[i] = values[0];
  }
}

#if defined(__AVX2__)
// Transposes 8 x 8 values of 4 bytes.
template <typename T>
TFAOT_INLINE void TransposeBlock(const T* from, int64_t from_stride, T* to,
                                 int64_t to_stride) {
  // Row i of each half of the columns, and row i + 4 next to it. Half of the
  // shuffling is then a part of the loads.
  __m256 left[4], right[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto* upper = reinterpret_cast<const float*>(from + i * from_stride);
    const auto* lower =
        reinterpret_cast<const float*>(from + (i + 4) * from_stride);
    left[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(upper)),
                                   _mm_loadu_ps(lower), 1);
    right[i] =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(upper + 4)),
                             _mm_loadu_ps(lower + 4), 1);
  }
  const auto store = [&](const __m256* row, T* block) {
    const __m256 a = _mm256_unpacklo_ps(row[0], row[1]);
    const __m256 b = _mm256_unpackhi_ps(row[0], row[1]);
    const __m256 c = _mm256_unpacklo_ps(row[2], row[3]);
    const __m256 d = _mm256_unpackhi_ps(row[2], row[3]);
    Store(block, _mm256_shuffle_ps(a, c, 0x44));
    Store(block + to_stride, _mm256_shuffle_ps(a, c, 0xee));
    Store(block + 2 * to_stride, _mm256_shuffle_ps(b, d, 0x44));
    Store(block + 3 * to_stride, _mm256_shuffle_ps(b, d, 0xee));
  };
  store(left, to);
  store(right, to + 4 * to_stride);
}
#endif

// Sets to[c * to_stride + r] = from[r * from_stride + c] for all r < rows, c <
// columns. The two must not overlap.
template <typename T>
void Transpose(const T* from, int64_t from_stride, int64_t rows,
               int64_t columns, T* to, int64_t to_stride) {
  int64_t r = 0;
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    for (; r + 8 <= rows; r += 8) {
      const T* in = from + r * from_stride;
      T* out = to + r;
      int64_t c = 0;
      for (; c + 8 <= columns; c += 8) {
        TransposeBlock(in + c, from_stride, out + c * to_stride, to_stride);
      }
      for (; c < columns; ++c) {
        for (int i = 0; i < 8; ++i) {
          out[c * to_stride + i] = in[i * from_stride + c];
        }
      }
    }
  }
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(T) == 4) {
    for (; r + 4 <= rows; r += 4) {
      const T* in = from + r * from_stride;
      T* out = to + r;
      int64_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        __m128 row0, row1, row2, row3;
        std::memcpy(&row0, in + c, 16);
        std::memcpy(&row1, in + from_stride + c, 16);
        std::memcpy(&row2, in + 2 * from_stride + c, 16);
        std::memcpy(&row3, in + 3 * from_stride + c, 16);
        _MM_TRANSPOSE4_PS(row0, row1, row2, row3);
        T* block = out + c * to_stride;
        std::memcpy(block, &row0, 16);
        std::memcpy(block + to_stride, &row1, 16);
        std::memcpy(block + 2 * to_stride, &row2, 16);
        std::memcpy(block + 3 * to_stride, &row3, 16);
      }
      for (; c < columns; ++c) {
        for (int i = 0; i < 4; ++i) {
          out[c * to_stride + i] = in[i * from_stride + c];
        }
      }
    }
  } else if constexpr (sizeof(T) == 8) {
    for (; r + 2 <= rows; r += 2) {
      const T* in = from + r * from_stride;
      T* out = to + r;
      int64_t c = 0;
      for (; c + 2 <= columns; c += 2) {
        __m128d row0, row1;
        std::memcpy(&row0, in + c, 16);
        std::memcpy(&row1, in + from_stride + c, 16);
        const __m128d low = _mm_unpacklo_pd(row0, row1);
        const __m128d high = _mm_unpackhi_pd(row0, row1);
        std::memcpy(out + c * to_stride, &low, 16);
        std::memcpy(out + (c + 1) * to_stride, &high, 16);
      }
      if (c < columns) {
        out[c * to_stride] = in[c];
        out[c * to_stride + 1] = in[from_stride + c];
      }
    }
  }
#endif
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_VECTOR_H_
