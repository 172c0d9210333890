// A typed, shaped view of values that it doesn't own.
//
//   tfaot::View<float, 64, 784> x = model.x();
//   std::copy(batch.begin(), batch.end(), x.begin());   // row-major
//   x(3, 5) = 1.0f;
//   float loss = *model.loss();                         // a scalar
//
// A view is a pointer: copying it doesn't copy values, and it is valid as long
// as the memory it points to. Several threads can safely read the same values.
#ifndef TFAOT_VIEW_H_
#define TFAOT_VIEW_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tfaot/unshared.h"

namespace tfaot {

namespace internal {

// The number of values in a shape.
template <typename... Dim>
constexpr std::size_t Size(Dim... dims) noexcept {
  std::size_t size = 1;
  const int each[] = {0, (size *= static_cast<std::size_t>(dims), 0)...};
  return static_cast<void>(each), size;
}

}  // namespace internal

template <typename T, std::int64_t... kDims>
class View {
 public:
  using value_type = std::remove_const_t<T>;

  TFAOT_UNSHARED static constexpr std::size_t kRank = sizeof...(kDims);
  TFAOT_UNSHARED static constexpr std::size_t kSize = internal::Size(kDims...);

  constexpr explicit View(T* data) noexcept : data_(data) {}

  // A view of mutable values converts to a view of const values.
  constexpr operator View<const T, kDims...>() const noexcept {
    return View<const T, kDims...>(data_);
  }

  constexpr T* data() const noexcept { return data_; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + kSize; }
  static constexpr std::size_t size() noexcept { return kSize; }
  static constexpr std::size_t size_bytes() noexcept {
    return kSize * sizeof(T);
  }
  static constexpr std::int64_t dim(std::size_t axis) noexcept {
    constexpr std::int64_t dims[] = {kDims..., 0};
    return dims[axis];
  }

  // The value at a flat, row-major index.
  constexpr T& operator[](std::size_t index) const {
    assert(index < kSize);
    return data_[index];
  }

  // The value at one index for each dimension.
  template <typename... Index>
  constexpr T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == kRank, "one index for each dimension");
    std::size_t flat = 0;
    const int each[] = {0, (assert(static_cast<std::int64_t>(index) >= 0 &&
                                   static_cast<std::int64_t>(index) < kDims),
                            flat = flat * static_cast<std::size_t>(kDims) +
                                   static_cast<std::size_t>(index),
                            0)...};
    return static_cast<void>(each), data_[flat];
  }

  // The value of a scalar.
  constexpr T& operator*() const {
    static_assert(kSize == 1, "only a single value can be dereferenced");
    return *data_;
  }

 private:
  T* data_;
};

#if __cplusplus < 201703L  // later, these members are inline
template <typename T, std::int64_t... kDims>
constexpr std::size_t View<T, kDims...>::kRank;
template <typename T, std::int64_t... kDims>
constexpr std::size_t View<T, kDims...>::kSize;
#endif

}  // namespace tfaot

#endif  // TFAOT_VIEW_H_
