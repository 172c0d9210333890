// Protects formulas of compiled models: every value of an array, and special
// values.
#include "tfaot/kernels/sweep.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/runtime/expect.h"
#include "tests/runtime/kernels/fuzz.h"

namespace tfaot::kernels {
namespace {

// As compiled models have it: x += rate * (y * y), and z = sqrt(x) as stored.
template <typename T>
struct Update {
  using Value = T;
  static constexpr std::size_t kArrays = 3;
  static constexpr std::size_t kScalars = 1;
  static constexpr int kCost = 100;
  explicit Update(const Places<kScalars>& scalars)
      : rate(Get<T, T>(scalars[0], 0)) {}
  T rate;
  template <typename V>
  TFAOT_INLINE void At(const Places<kArrays>& arrays, std::int64_t i) const {
    const auto x = Get<V, T>(arrays[0], i);
    const auto y = Get<V, T>(arrays[1], i);
    const auto step = All<V>(rate) * (y * y);
    const auto sum = x + step;
    Put<T>(arrays[0], i, sum);
    Put<T>(arrays[2], i, Sqrt(sum));
  }
};

// The functions that treat special values in their own way.
template <typename T>
struct Special {
  using Value = T;
  static constexpr std::size_t kArrays = 5;
  static constexpr std::size_t kScalars = 0;
  static constexpr int kCost = 1;
  explicit Special(const Places<kScalars>&) {}
  template <typename V>
  TFAOT_INLINE void At(const Places<kArrays>& arrays, std::int64_t i) const {
    const auto x = Get<V, T>(arrays[0], i);
    const auto y = Get<V, T>(arrays[1], i);
    Put<T>(arrays[2], i, Maximum(x, y));
    Put<T>(arrays[3], i, Minimum(x, y));
    Put<T>(arrays[4], i, Abs(x));
  }
};

template <typename T>
unsigned char* At(std::vector<T>& values) {
  return reinterpret_cast<unsigned char*>(values.data());
}

template <typename T>
std::vector<T> Values(std::int64_t size, std::uint32_t state) {
  std::vector<T> values(static_cast<std::size_t>(size));
  for (T& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<T>(state >> 8) / 16777216;
  }
  return values;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Whole vectors, the values after them, and nothing beyond the end.
template <typename T>
void TestCounts() {
  for (std::int64_t count = 0; count < 70; ++count) {
    std::vector<T> x = Values<T>(count + 1, 1), y = Values<T>(count + 1, 2);
    std::vector<T> z(static_cast<std::size_t>(count) + 1, T(7)), rate = {T(3)};
    std::vector<T> want = x, roots = z;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      want[i] = x[i] + rate[0] * (y[i] * y[i]);
      roots[i] = std::sqrt(want[i]);
    }
    RunSweep<Update<T>>(count, {At(x), At(y), At(z)}, {At(rate)}, nullptr);
    Expect(SameBits(x, want), "what is written in place");
    Expect(SameBits(z, roots), "what is written elsewhere");
  }
}

template <typename T>
void TestSpecialValues() {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T values[] = {T(0), -T(0),      T(1),      -T(2),
                      T(5), -kInfinity, kInfinity, std::nan("")};
  std::vector<T> x, y;
  for (const T a : values) {
    for (const T b : values) x.push_back(a), y.push_back(b);
  }
  std::vector<T> most(x.size()), least(x.size()), size(x.size());
  // The last values aren't in a vector.
  for (const std::size_t skip : {0, 5}) {
    RunSweep<Special<T>>(static_cast<std::int64_t>(x.size() - skip),
                         {At(x) + skip * sizeof(T), At(y) + skip * sizeof(T),
                          At(most), At(least), At(size)},
                         {}, nullptr);
    for (std::size_t i = 0; i + skip < x.size(); ++i) {
      const T a = x[i + skip], b = y[i + skip];
      const auto same = [](T got, T want) {
        return std::memcmp(&got, &want, sizeof(T)) == 0;
      };
      if (std::isnan(a) || std::isnan(b)) {
        Expect(std::isnan(most[i]) && std::isnan(least[i]), "NaN stays NaN");
      } else {
        const bool a_first = a < b || (a == b && std::signbit(a));
        Expect(same(most[i], a_first ? b : a), "the maximum");
        Expect(same(least[i], a_first ? a : b), "the minimum");
      }
      Expect(same(size[i], std::fabs(a)), "the absolute value");
    }
  }
}

// Integers in the place of floats: their values, and their bits.
template <typename V>
void TestIntegers() {
  constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(float));
  for (const std::int32_t first : {-0x7fffffff, -126, -1, 0, 23, 1 << 30}) {
    std::int32_t integers[kCount];
    float values[kCount];
    std::uint32_t shifted[kCount];
    for (int i = 0; i < kCount; ++i) integers[i] = first + i;
    Bits<V> bits;
    std::memcpy(&bits, integers, sizeof(bits));
    const V floats = FromInteger<V>(bits);
    std::memcpy(values, &floats, sizeof(values));
    const V moved =
        BitCast<V>((bits & All<Bits<V>>(0xffu)) << All<Bits<V>>(23u));
    std::memcpy(shifted, &moved, sizeof(shifted));
    for (int i = 0; i < kCount; ++i) {
      Expect(values[i] == static_cast<float>(integers[i]), "a value");
      Expect(shifted[i] == (static_cast<std::uint32_t>(integers[i]) & 0xffu)
                               << 23,
             "bits");
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestCounts<float>();
  tfaot::kernels::TestCounts<double>();
  tfaot::kernels::TestSpecialValues<float>();
  tfaot::kernels::TestSpecialValues<double>();
  tfaot::kernels::TestIntegers<float>();
  tfaot::kernels::TestIntegers<tfaot::kernels::Vector<float>>();
  return failed != 0;
}
