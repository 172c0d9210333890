// Compares products that a library computes with three plain loops, exactly, on
// random sizes around the library's minimum, on one thread and in parts.
#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/runtime/kernels/finishing.h"
#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/pools.h"
#include "tfaot/kernels/products_f32.cc"
#include "tfaot/kernels/products_f64.cc"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Finishing;
using fuzz::Random;
using fuzz::Require;

template <typename T>
Array<T> Reference(const Products& p, const Array<T>& left,
                   const Array<T>& right) {
  Array<T> out(p.batch * p.rows * p.columns, 0);
  std::fill(out.data(), out.data() + out.size(), T(0));
  const auto distance = [](int64_t stride, int64_t width) {
    return stride == 0 ? width : stride;
  };
  const int64_t left_stride =
      distance(p.left_stride, p.transposed_left ? p.rows : p.depth);
  const int64_t right_stride =
      distance(p.right_stride, p.transposed_right ? p.depth : p.columns);
  const int64_t out_stride = distance(p.out_stride, p.columns);
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    const T* const a = left.data() + batch * p.left_step;
    const T* const b = right.data() + batch * p.right_step;
    for (int64_t i = 0; i < p.rows; ++i) {
      T* const row = out.data() + batch * p.out_step + i * out_stride;
      for (int64_t k = 0; k < p.depth; ++k) {
        const T value =
            a[p.transposed_left ? k * left_stride + i : i * left_stride + k];
        for (int64_t j = 0; j < p.columns; ++j) {
          row[j] += value * b[p.transposed_right ? j * right_stride + k
                                                 : k * right_stride + j];
        }
      }
    }
  }
  return out;
}

template <typename T>
Epilogue EpilogueOf(const Finish<T>* finish) {
  if (finish == nullptr) return {};
  return {finish->bias, finish->addend, finish->addend_bias, finish->to,
          finish->low,  finish->high,   finish->scale,       finish->scratch};
}

template <typename T>
void Check(Random& random, bool may_be_small) {
  const auto size = [&] {
    const int64_t least = kLeastSizeForLibrary;
    return random.Between(may_be_small ? least - 8 : least, least + 40);
  };
  Products p = {};
  p.batch = random.OneIn(3) ? 2 : 1;
  p.rows = size();
  p.columns = size();
  p.depth = size();
  p.transposed_left = random.OneIn(2);
  p.transposed_right = random.OneIn(2);
  p.left_step = p.rows * p.depth;
  p.right_step = random.OneIn(4) ? 0 : p.depth * p.columns;
  p.out_step = p.rows * p.columns;
  if (random.OneIn(2)) {  // side by side
    p.left_step = p.transposed_left ? p.rows : p.depth;
    p.right_step = p.transposed_right ? p.depth : p.columns;
    p.out_step = p.columns;
    p.left_stride = p.batch * p.left_step;
    p.right_stride = p.batch * p.right_step;
    p.out_stride = p.batch * p.out_step;
  }
  const Array<T> left = Array<T>::Filled(random, p.batch * p.rows * p.depth);
  const Array<T> right =
      Array<T>::Filled(random, p.batch * p.depth * p.columns);
  Array<T> out = Array<T>::Poisoned(random, p.batch * p.rows * p.columns);
  const Finishing<T> finishing(random, out.data(), out.size(), p.columns);
  ShuffledPool pool(static_cast<int>(random.Between(2, 5)));
  TFAOT_ISA::RunProducts<T>(p, left.data(), right.data(), out.data(),
                            random.OneIn(2) ? nullptr : &pool,
                            EpilogueOf(finishing.get()));
  Require(finishing.IsRight(
      Reference(p, left, right), out,
      std::to_string(sizeof(T)) + " bytes, " + std::to_string(p.batch) +
          " times " + std::to_string(p.rows) + " x " + std::to_string(p.depth) +
          " x " + std::to_string(p.columns)));
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  tfaot::fuzz::Random random(20261121);
  for (int i = 0; i < 30; ++i) {
    tfaot::kernels::Check<float>(random, i % 3 == 0);
    tfaot::kernels::Check<double>(random, i % 3 == 0);
  }
  return 0;
}
