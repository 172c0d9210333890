// Random epilogues for the fuzz tests of the kernels.
#ifndef TFAOT_TESTS_RUNTIME_KERNELS_FINISHING_H_
#define TFAOT_TESTS_RUNTIME_KERNELS_FINISHING_H_

#include <cstdint>
#include <limits>
#include <string>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/tile.h"

namespace tfaot::fuzz {

// What a kernel does with its sums, and the expected result: nothing, or any
// mix of a bias, an addend, a factor, and bounds, in place or elsewhere.
template <typename T>
class Finishing {
 public:
  // For sums at `sums`, with a bias for each of `columns` columns.
  Finishing(Random& random, const T* sums, int64_t size, int64_t columns)
      : columns_(columns),
        bias_(Array<T>::Filled(random, columns)),
        addend_bias_(Array<T>::Filled(random, columns)),
        addend_(Array<T>::Filled(random, size)),
        before_(addend_),
        to_(Array<T>::Poisoned(random, size)) {
    if (random.OneIn(2)) return;
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    finish_.sums = sums;
    finish_.bias = random.OneIn(3) ? nullptr : bias_.data();
    finish_.addend = random.OneIn(2) ? nullptr : addend_.data();
    finish_.addend_bias = finish_.addend == nullptr || random.OneIn(2)
                              ? nullptr
                              : addend_bias_.data();
    finish_.low = random.OneIn(3) ? -kInfinity : T(random.Between(-4, 2));
    finish_.high = random.OneIn(2) ? kInfinity : T(random.Between(3, 9));
    finish_.to = random.OneIn(2)   ? const_cast<T*>(sums)
                 : random.OneIn(2) ? to_.data()
                                   : addend_.data();
    if (finish_.addend != nullptr && finish_.bias == nullptr &&
        finish_.addend_bias == nullptr && random.OneIn(2)) {
      finish_.scale = T(random.Between(-5, 5)) / T(4);
    }
    finish_.scratch = random.OneIn(3);
    given_ = true;
  }

  // Null in half the cases.
  const kernels::Finish<T>* get() const { return given_ ? &finish_ : nullptr; }

  // Compares the sums, if they are kept, and the final values.
  bool IsRight(const Array<T>& expected, const Array<T>& sums,
               const std::string& what) const {
    if (!given_) return Same(expected, sums, what);
    Array<T> finished(expected.size(), 0);
    for (int64_t i = 0; i < expected.size(); ++i) {
      T value = expected.data()[i] * finish_.scale;
      if (finish_.bias != nullptr) value += bias_.data()[i % columns_];
      if (finish_.addend != nullptr) value += before_.data()[i];
      if (finish_.addend_bias != nullptr) {
        value += addend_bias_.data()[i % columns_];
      }
      if (value < finish_.low) value = finish_.low;
      if (value > finish_.high) value = finish_.high;
      finished.data()[i] = value;
    }
    if (finish_.to == sums.data()) return Same(finished, sums, what);
    return (finish_.scratch || Same(expected, sums, what)) &&
           Same(finished, finish_.to == to_.data() ? to_ : addend_,
                what + ", finished");
  }

 private:
  int64_t columns_;
  Array<T> bias_;
  Array<T> addend_bias_;
  Array<T> addend_;
  Array<T> before_;
  Array<T> to_;
  kernels::Finish<T> finish_ = {};
  bool given_ = false;
};

}  // namespace tfaot::fuzz

#endif  // TFAOT_TESTS_RUNTIME_KERNELS_FINISHING_H_
