// Draws the values that a generated test feeds where the model has none.
//
// The verify stage draws the same ones: py/tfaot/core/drawn.py has the formulas
// and their source.
#ifndef TFAOT_DRAWN_H_
#define TFAOT_DRAWN_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tfaot/half.h"

namespace tfaot {

// Whether a type is std::complex. Only classes that use it include <complex>,
// which takes compilers as long as the rest of a test.
template <typename T, typename = void>
struct IsComplex : std::false_type {};
template <typename T>
struct IsComplex<T, std::void_t<decltype(std::declval<T>().imag())>>
    : std::true_type {};

// Random bits: value i of SplitMix64, which starts from the seed's own output.
class DrawnBits {
 public:
  explicit DrawnBits(std::uint64_t seed) noexcept
      : state_(Mixed(seed + kGamma)) {}

  std::uint64_t operator[](std::uint64_t index) const noexcept {
    return Mixed(state_ + kGamma * (index + 1));
  }

 private:
  static constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15u;

  static std::uint64_t Mixed(std::uint64_t state) noexcept {
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
    state = (state ^ state >> 27) * 0x94D049BB133111EBu;
    return state ^ state >> 31;
  }

  std::uint64_t state_;
};

// A float with mean 0 and variance 1: the sum of four 16-bit numbers, centered
// and scaled with a single rounding.
template <typename T>
T DrawnFloat(std::uint64_t bits) noexcept {
  const std::int32_t sum =
      static_cast<std::int32_t>((bits & 0xffffu) + (bits >> 16 & 0xffffu) +
                                (bits >> 32 & 0xffffu) + (bits >> 48));
  return static_cast<T>(sum - 131070) * static_cast<T>(1 / 37837.22);
}

// Draws `size` values. Integers are below `limit`, and complex numbers are
// pairs of reals, as the standard guarantees.
template <typename T>
void Draw(std::uint64_t seed, std::uint64_t limit, T* values,
          std::size_t size) noexcept {
  if constexpr (IsComplex<T>::value) {
    using Real = typename T::value_type;
    Draw(seed, limit, reinterpret_cast<Real*>(values), 2 * size);
  } else {
    const DrawnBits bits(seed);
    for (std::size_t i = 0; i < size; ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        values[i] = DrawnFloat<T>(bits[i]);
      } else if constexpr (std::is_same_v<T, Float16> ||
                           std::is_same_v<T, BFloat16>) {
        values[i] = T(DrawnFloat<float>(bits[i]));
      } else {
        values[i] = static_cast<T>(bits[i] % limit);
      }
    }
  }
}

}  // namespace tfaot

#endif  // TFAOT_DRAWN_H_
