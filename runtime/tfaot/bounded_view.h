// A typed view of values whose shape has bounds at compile time and is known
// after the model has run.
//
//   tfaot::BoundedView<const std::int64_t, 100, 2> found = model.where();
//   for (std::int64_t i = 0; i < found.dim(0); ++i) Use(found(i, 0));
//
// The values are row-major in the true shape, without gaps. A view is a pointer
// and that shape: copying it doesn't copy values, and it is valid until the
// model runs again. Several threads can safely read the same values.
#ifndef TFAOT_BOUNDED_VIEW_H_
#define TFAOT_BOUNDED_VIEW_H_

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tfaot/unshared.h"

namespace tfaot {

template <typename T, std::int64_t... kBounds>
class BoundedView {
 public:
  using value_type = std::remove_const_t<T>;

  TFAOT_UNSHARED static constexpr std::size_t kRank = sizeof...(kBounds);
  static_assert(kRank > 0, "a scalar has no bound");

  // `dims` are the true sizes, kRank of them. They are copied.
  constexpr BoundedView(T* data, const std::int32_t* dims) noexcept
      : data_(data) {
    for (std::size_t axis = 0; axis < kRank; ++axis) {
      assert(dims[axis] >= 0 && dims[axis] <= bound(axis));
      dims_[axis] = dims[axis];
    }
  }

  // A view of mutable values converts to a view of const values.
  constexpr operator BoundedView<const T, kBounds...>() const noexcept {
    return BoundedView<const T, kBounds...>(data_, dims_.data());
  }

  constexpr T* data() const noexcept { return data_; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size(); }
  constexpr std::size_t size() const noexcept {
    std::size_t size = 1;
    for (const std::int32_t dim : dims_) size *= static_cast<std::size_t>(dim);
    return size;
  }
  constexpr bool empty() const noexcept { return size() == 0; }
  constexpr std::size_t size_bytes() const noexcept {
    return size() * sizeof(T);
  }
  constexpr std::int64_t dim(std::size_t axis) const noexcept {
    assert(axis < kRank);
    return dims_[axis];
  }
  static constexpr std::int64_t bound(std::size_t axis) noexcept {
    constexpr std::int64_t bounds[] = {kBounds...};
    return bounds[axis];
  }
  static constexpr std::size_t bound_bytes() noexcept {
    std::size_t size = sizeof(T);
    const int each[] = {(size *= static_cast<std::size_t>(kBounds), 0)...};
    return static_cast<void>(each), size;
  }

  // The value at a flat, row-major index.
  constexpr T& operator[](std::size_t index) const {
    assert(index < size());
    return data_[index];
  }

  // The value at one index for each dimension.
  template <typename... Index>
  constexpr T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == kRank, "one index for each dimension");
    std::size_t flat = 0;
    std::size_t axis = 0;
    const int each[] = {(assert(static_cast<std::int64_t>(index) >= 0 &&
                                static_cast<std::int64_t>(index) < dims_[axis]),
                         flat = flat * static_cast<std::size_t>(dims_[axis++]) +
                                static_cast<std::size_t>(index),
                         0)...};
    return static_cast<void>(each), data_[flat];
  }

 private:
  T* data_;
  std::array<std::int32_t, kRank> dims_{};
};

#if __cplusplus < 201703L  // later, this member is inline
template <typename T, std::int64_t... kBounds>
constexpr std::size_t BoundedView<T, kBounds...>::kRank;
#endif

}  // namespace tfaot

#endif  // TFAOT_BOUNDED_VIEW_H_
