// Protects numerics tests of models with large inputs: the test draws the
// values that TensorFlow computed with. tests/core/drawn_test.py reads these
// checksums.
#include "tfaot/drawn.h"

#include <complex>
#include <cstdint>
#include <memory>

#include "tests/runtime/expect.h"
#include "tfaot/verify.h"

namespace {

constexpr std::uint64_t kSeed = 4294967303;

// Compares the checksum of 1,000 values.
template <typename T>
void Drawn(std::uint32_t want, std::uint64_t limit) {
  constexpr std::size_t kSize = 1000;
  const auto values = std::make_unique<T[]>(kSize);
  tfaot::Draw(kSeed, limit, values.get(), kSize);
  EXPECT(tfaot::Crc32(values.get(), kSize * sizeof(T)) == want);
}

}  // namespace

int main() {
  Drawn<float>(0x50a9c47a, 100);
  Drawn<double>(0x0328ab20, 100);
  Drawn<tfaot::BFloat16>(0x232f1a71, 100);
  Drawn<tfaot::Float16>(0x60f4d411, 100);
  Drawn<std::complex<float>>(0x0a51551a, 100);
  Drawn<std::complex<double>>(0x567f9334, 100);
  Drawn<std::int8_t>(0x3db0be03, 100);
  Drawn<std::uint8_t>(0x3db0be03, 100);
  Drawn<std::int16_t>(0xd8d7b836, 100);
  Drawn<std::uint16_t>(0xd8d7b836, 100);
  Drawn<std::int32_t>(0x60f6c0b7, 100);
  Drawn<std::uint32_t>(0x60f6c0b7, 100);
  Drawn<std::int64_t>(0x403da0f0, 100);
  Drawn<std::uint64_t>(0x403da0f0, 100);
  Drawn<bool>(0xea159e16, 2);
  return failed == 0 ? 0 : 1;
}
