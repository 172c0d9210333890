// Compares results computed in parts with results computed at once, bit by bit,
// because a model must give the same numbers on any number of threads. Also
// compares packed right sides with unpacked ones.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/kernels/panels.h"
#include "tfaot/kernels/convolution.h"
#include "tfaot/kernels/matmul.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::InPanels;
using fuzz::Random;
using fuzz::Require;

// Values whose sums depend on the order. The other tests' small integers
// wouldn't reveal it.
template <typename T>
Array<T> Rough(Random& random, int64_t size) {
  Array<T> array(size, random.Between(0, 3));
  for (int64_t i = 0; i < size; ++i) {
    array.data()[i] = std::is_integral_v<T>
                          ? static_cast<T>(random.Between(0, 1 << 30))
                          : static_cast<T>(random.Between(-1000000, 1000000)) /
                                static_cast<T>(999983);
  }
  return array;
}

template <typename T>
bool SameBits(const Array<T>& whole, const Array<T>& parts,
              const std::string& what) {
  for (int64_t i = 0; i < whole.size(); ++i) {
    if (std::memcmp(whole.data() + i, parts.data() + i, sizeof(T)) != 0) {
      std::fprintf(stderr, "%s: value %lld differs in parts\n", what.c_str(),
                   static_cast<long long>(i));
      return false;
    }
  }
  return parts.MarginsAreIntact();
}

// Biases, an addend, a factor, and bounds, and sums replaced by their final
// values: everything that a kernel can do with each complete sum.
template <typename T>
class Finishing {
 public:
  Finishing(Random& random, int64_t size, int64_t columns)
      : bias_(Rough<T>(random, columns)), addend_(Rough<T>(random, size)) {
    if (std::is_integral_v<T> || random.OneIn(2)) return;
    finish_.bias = bias_.data();
    finish_.addend = random.OneIn(2) ? addend_.data() : nullptr;
    finish_.addend_bias = random.OneIn(2) ? bias_.data() : nullptr;
    if (finish_.addend != nullptr && random.OneIn(2)) {
      finish_.bias = finish_.addend_bias = nullptr;
      finish_.scale = T(0.3);
    }
    finish_.low = 0;
    finish_.high = 6;
    given_ = true;
  }

  const Finish<T>* For(Array<T>& sums) {
    finish_.sums = finish_.to = sums.data();
    return given_ ? &finish_ : nullptr;
  }

 private:
  Array<T> bias_;
  Array<T> addend_;
  Finish<T> finish_ = {};
  bool given_ = false;
};

// Calls run(part) for all parts of a random split, which sometimes has more
// parts than there are tiles.
template <typename Run>
void InRandomParts(Random& random, Run run) {
  const int64_t rows = random.Between(1, 5);
  const int64_t columns = random.OneIn(3) ? random.Between(1, 9) : 1;
  for (int64_t i = rows * columns; i-- > 0;) {
    run(Part{{}, {i / columns, rows}, {i % columns, columns}});
  }
}

int64_t AnySize(Random& random, int64_t large) {
  if (random.OneIn(30)) return 0;
  if (random.OneIn(3)) return random.Between(1, 3);
  return random.OneIn(3) ? random.Between(1, large) : random.Between(1, 60);
}

// Protects the product: the whole's sizes decide the order of sums, not a
// part's.
template <typename T>
void Products(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    MatrixProduct product;
    product.rows = AnySize(random, 400);
    product.columns = AnySize(random, random.OneIn(10) ? 5000 : 300);
    product.depth = AnySize(random, 900);
    if (product.rows * product.columns * product.depth > 2000000) continue;
    product.transposed_left = random.OneIn(2);
    product.transposed_right = random.OneIn(2);
    if (random.OneIn(4)) {
      // Most of these are computed by their transposes.
      product.rows = random.Between(1, 4) * kLanes<T>;
      product.columns = random.Between(50, 250);
      product.depth = random.Between(12, 20) * kLanes<T> + random.Between(0, 9);
      if (random.OneIn(8)) {
        // A part of so few rows would be read in place.
        product.rows = (kVectorBytes < 64 ? 4 : 1) * kLanes<T>;
        product.columns = random.Between(257, 300);
        product.depth = 1024;
      }
      product.transposed_left = false;
      product.transposed_right = true;
    }
    const Array<T> left = Rough<T>(random, product.rows * product.depth);
    const Array<T> unpacked = Rough<T>(random, product.depth * product.columns);
    product.packed_right = random.OneIn(3);
    const Array<T> right =
        product.packed_right
            ? InPanels(random, unpacked, product.depth, product.columns,
                       product.transposed_right)
            : unpacked;
    Finishing<T> finishing(random, product.rows * product.columns,
                           product.columns);
    Array<T> whole(product.rows * product.columns, 1);
    Multiply(product, left.data(), right.data(), whole.data(), {},
             finishing.For(whole));
    Array<T> parts = Array<T>::Poisoned(random, product.rows * product.columns);
    InRandomParts(random, [&](const Part& part) {
      Multiply(product, left.data(), right.data(), parts.data(), part,
               finishing.For(parts));
    });
    Require(SameBits(
        whole, parts,
        std::to_string(sizeof(T)) + " bytes, " + std::to_string(product.rows) +
            " x " + std::to_string(product.depth) + " x " +
            std::to_string(product.columns) +
            (product.transposed_left ? ", left transposed" : "") +
            (product.transposed_right ? ", right transposed" : "") +
            (product.packed_right ? ", right packed" : "")));
  }
}

// Protects numbers: if an inner dimension is processed at once, packing its
// right side doesn't change a bit.
template <typename T>
void PackedProducts(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    MatrixProduct product;
    product.rows = random.Between(2 * kTileRows, 60);
    product.columns = random.Between(2, 100);
    product.depth = random.Between(1, std::min(kDepth<T>, kPanelDepth<T>));
    product.transposed_left = random.OneIn(2);
    product.transposed_right = random.OneIn(2);
    if (IsNarrow<T>(product.columns, product.depth, product.depth) ||
        (product.transposed_right &&
         IsFlat<T>(product.rows, product.columns, product.depth))) {
      continue;
    }
    const Array<T> left = Rough<T>(random, product.rows * product.depth);
    const Array<T> right = Rough<T>(random, product.depth * product.columns);
    const Array<T> panels = InPanels(random, right, product.depth,
                                     product.columns, product.transposed_right);
    Array<T> expected(product.rows * product.columns, 1);
    Multiply(product, left.data(), right.data(), expected.data());
    Array<T> out(product.rows * product.columns, 2);
    product.packed_right = true;
    Multiply(product, left.data(), panels.data(), out.data());
    Require(SameBits(expected, out, "packed product"));
  }
}

Axis AnyAxis(Random& random) {
  Axis axis;
  axis.input = random.Between(1, 20);
  axis.kernel = random.Between(1, random.OneIn(4) ? 9 : 4);
  axis.stride = random.OneIn(2) ? 1 : random.Between(1, 3);
  axis.padding = random.OneIn(3) ? 0 : random.Between(0, axis.kernel);
  axis.input_dilation = random.OneIn(4) ? random.Between(1, 3) : 1;
  axis.kernel_dilation = random.OneIn(4) ? random.Between(1, 3) : 1;
  const int64_t room = (axis.input - 1) * axis.input_dilation + axis.padding +
                       random.Between(0, axis.kernel) -
                       (axis.kernel - 1) * axis.kernel_dilation;
  axis.output = room < 0 ? 0 : room / axis.stride + 1;
  return axis;
}

// Protects convolutions, depthwise, grouped, and dense, forward and gradients:
// outputs and filters can be split anywhere.
void Convolutions(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    Convolution c;
    c.batch = random.Between(1, 3);
    c.groups = random.OneIn(2) ? 1 : random.Between(1, 90);
    c.kernel_channels = random.OneIn(3) ? random.Between(1, 70) : 1;
    c.input_channels = c.groups * c.kernel_channels;
    c.filters = c.groups * (random.OneIn(2) ? random.Between(1, 90) : 1);
    c.x = AnyAxis(random);
    c.y = AnyAxis(random);
    const int64_t outputs = c.batch * c.x.output * c.y.output * c.filters;
    if (outputs * c.x.kernel * c.y.kernel * c.kernel_channels > 2000000) {
      continue;
    }
    const Array<float> input = Rough<float>(
        random, c.batch * c.x.input * c.y.input * c.input_channels);
    const int64_t depth = c.x.kernel * c.y.kernel * c.kernel_channels;
    const Array<float> unpacked = Rough<float>(random, depth * c.filters);
    c.packed_kernel = c.groups == 1 && c.x.input_dilation == 1 &&
                      c.y.input_dilation == 1 && random.OneIn(2);
    const Array<float> kernel =
        c.packed_kernel ? InPanels(random, unpacked, depth, c.filters)
                        : unpacked;
    Finishing<float> finishing(random, outputs, c.filters);
    Array<float> whole(outputs, 1);
    Convolve(c, input.data(), kernel.data(), whole.data(), {},
             finishing.For(whole));
    Array<float> parts = Array<float>::Poisoned(random, outputs);
    InRandomParts(random, [&](const Part& part) {
      Convolve(c, input.data(), kernel.data(), parts.data(), part,
               finishing.For(parts));
    });
    Require(SameBits(
        whole, parts,
        "batch " + std::to_string(c.batch) + ", " + std::to_string(c.x.output) +
            " x " + std::to_string(c.y.output) + " outputs, " +
            std::to_string(c.x.kernel) + " x " + std::to_string(c.y.kernel) +
            " taps, " + std::to_string(c.kernel_channels) + " channels and " +
            std::to_string(c.filters) + " filters in " +
            std::to_string(c.groups) + " groups" +
            (c.packed_kernel ? ", packed" : "")));
    if (!c.packed_kernel ||
        depth > std::min(kDepth<float>, kPanelDepth<float>) ||
        IsNarrow<float>(c.filters, depth, depth)) {
      continue;
    }
    c.packed_kernel = false;
    Array<float> expected(outputs, 2);
    Convolve(c, input.data(), unpacked.data(), expected.data(), {},
             finishing.For(expected));
    Require(SameBits(expected, whole, "packed convolution"));
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::fuzz::Random random(20261121);
  tfaot::kernels::Products<float>(random, 3000);
  tfaot::kernels::Products<double>(random, 1000);
  tfaot::kernels::Products<std::uint32_t>(random, 300);
  tfaot::kernels::PackedProducts<float>(random, 1000);
  tfaot::kernels::PackedProducts<double>(random, 300);
  tfaot::kernels::Convolutions(random, 3000);
  return 0;
}
