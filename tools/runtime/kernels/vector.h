// SIMD vectors as wide as the translation unit's own target allows.
//
// Written with the vector extensions that GCC and Clang share, so that one
// source serves SSE2, AVX2, AVX-512, and any other target. All functions are
// pure; nothing here allocates or has state.
#ifndef TFAOT_KERNELS_VECTOR_H_
#define TFAOT_KERNELS_VECTOR_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define TFAOT_INLINE inline __attribute__((always_inline))
#define TFAOT_NOINLINE __attribute__((noinline))

// Each translation unit that includes these headers has kernels of its own,
// hence no external names: several of a program may be compiled for different
// CPUs, and the linker must not merge what only one of them can run.
namespace tfaot::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};

// A vector of as many T as the target computes with at once.
template <typename T>
using Vector = typename VectorOf<T>::Type;

// The number of T in a vector.
template <typename T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Reads from any address.
template <typename T>
TFAOT_INLINE Vector<T> Load(const T* from) {
  Vector<T> vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

// Reads `count` values, fewer than a vector; the rest is zero.
template <typename T>
TFAOT_INLINE Vector<T> LoadSome(const T* from, int64_t count) {
  Vector<T> vector = {};
  std::memcpy(&vector, from, static_cast<std::size_t>(count) * sizeof(T));
  return vector;
}

// Writes to any address.
template <typename T>
TFAOT_INLINE void Store(T* to, Vector<T> vector) {
  std::memcpy(to, &vector, sizeof(vector));
}

// Writes the first `count` values, fewer than a vector.
template <typename T>
TFAOT_INLINE void StoreSome(T* to, Vector<T> vector, int64_t count) {
  std::memcpy(to, &vector, static_cast<std::size_t>(count) * sizeof(T));
}

// The sum of all values, in an order that depends on the target alone.
template <typename T>
TFAOT_INLINE T Sum(Vector<T> vector) {
  T values[kLanes<T>];
  std::memcpy(values, &vector, sizeof(vector));
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) values[i] += values[i + width];
  }
  return values[0];
}

// to[c * to_stride + r] = from[r * from_stride + c] for all r < rows, c <
// columns. The two must not overlap.
template <typename T>
void Transpose(const T* from, int64_t from_stride, int64_t rows,
               int64_t columns, T* to, int64_t to_stride) {
  int64_t r = 0;
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

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_VECTOR_H_
