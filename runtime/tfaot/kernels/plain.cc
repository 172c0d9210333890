// Products and convolutions of dtypes that are rare in models.
#include <complex>
#include <cstdint>
#include <type_traits>

#include "tfaot/half.h"
#include "tfaot/kernels/calls.h"

namespace tfaot::kernels {
namespace {

// The type in which values of T are accumulated.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, Float16>, float, T>;

template <typename T>
void Add(Sum<T>& sum, const T& a, const T& b) {
  if constexpr (std::is_same_v<T, Float16>) {
    sum += static_cast<float>(a) * static_cast<float>(b);
  } else {
    // Not std::complex's product, which checks every NaN for infinities.
    sum += T(a.real() * b.real() - a.imag() * b.imag(),
             a.real() * b.imag() + a.imag() * b.real());
  }
}

template <typename T>
void Multiply(const Products& p, const T* left, const T* right, T* out) {
  const std::int64_t left_row = p.transposed_left ? 1 : p.depth;
  const std::int64_t left_column = p.transposed_left ? p.rows : 1;
  const std::int64_t right_row = p.transposed_right ? 1 : p.columns;
  const std::int64_t right_column = p.transposed_right ? p.depth : 1;
  // Sum a few columns at a time, so that rows of `right` are read in order.
  constexpr std::int64_t kColumns = 16;
  for (std::int64_t i = 0; i < p.rows; ++i) {
    for (std::int64_t begin = 0; begin < p.columns; begin += kColumns) {
      const std::int64_t count =
          p.columns - begin < kColumns ? p.columns - begin : kColumns;
      Sum<T> sums[kColumns] = {};
      for (std::int64_t k = 0; k < p.depth; ++k) {
        const T value = left[i * left_row + k * left_column];
        const T* const row = right + k * right_row + begin * right_column;
        for (std::int64_t j = 0; j < count; ++j) {
          Add<T>(sums[j], value, row[j * right_column]);
        }
      }
      for (std::int64_t j = 0; j < count; ++j) {
        out[i * p.columns + begin + j] = T(sums[j]);
      }
    }
  }
}

// Returns the input that an output and a tap meet, or -1.
std::int64_t Met(const ImageAxis& axis, std::int64_t output, std::int64_t tap) {
  const std::int64_t at =
      output * axis.stride + tap * axis.kernel_dilation - axis.padding;
  if (at < 0 || at % axis.input_dilation != 0) return -1;
  return at / axis.input_dilation < axis.input ? at / axis.input_dilation : -1;
}

}  // namespace

template <typename T>
void RunPlainProducts(const Products& products, const void* left,
                      const void* right, void* out) {
  for (std::int64_t i = 0; i < products.batch; ++i) {
    Multiply(products, static_cast<const T*>(left) + i * products.left_step,
             static_cast<const T*>(right) + i * products.right_step,
             static_cast<T*>(out) + i * products.out_step);
  }
}

template <typename T>
void RunPlainConvolution(const Images& c, const void* input, const void* kernel,
                         void* out) {
  const T* const from = static_cast<const T*>(input);
  const T* const weights = static_cast<const T*>(kernel);
  T* to = static_cast<T*>(out);
  const std::int64_t group_filters = c.filters / c.groups;
  for (std::int64_t image = 0; image < c.batch; ++image) {
    for (std::int64_t ox = 0; ox < c.x.output; ++ox) {
      for (std::int64_t oy = 0; oy < c.y.output; ++oy) {
        for (std::int64_t f = 0; f < c.filters; ++f) {
          const std::int64_t first = f / group_filters * c.kernel_channels;
          Sum<T> sum = {};
          for (std::int64_t tx = 0; tx < c.x.kernel; ++tx) {
            const std::int64_t ix = Met(c.x, ox, tx);
            if (ix < 0) continue;
            for (std::int64_t ty = 0; ty < c.y.kernel; ++ty) {
              const std::int64_t iy = Met(c.y, oy, ty);
              if (iy < 0) continue;
              const T* const pixel =
                  from + ((image * c.x.input + ix) * c.y.input + iy) *
                             c.input_channels;
              const T* const tap = weights + (tx * c.y.kernel + ty) *
                                                 c.kernel_channels * c.filters;
              for (std::int64_t k = 0; k < c.kernel_channels; ++k) {
                Add<T>(sum, pixel[first + k], tap[k * c.filters + f]);
              }
            }
          }
          *to++ = T(sum);
        }
      }
    }
  }
}

template void RunPlainProducts<std::complex<float>>(const Products&,
                                                    const void*, const void*,
                                                    void*);
template void RunPlainProducts<std::complex<double>>(const Products&,
                                                     const void*, const void*,
                                                     void*);
template void RunPlainProducts<Float16>(const Products&, const void*,
                                        const void*, void*);
template void RunPlainConvolution<Float16>(const Images&, const void*,
                                           const void*, void*);

}  // namespace tfaot::kernels
