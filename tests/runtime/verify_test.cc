// Protects the proof itself: values that the generated test accepts are equal,
// and no difference passes.
#include "tfaot/verify.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/expect.h"

using tfaot::Compare;
using tfaot::Errors;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename T>
Errors One(T got, T want, float tolerance = 0) {
  return Compare<T>(&got, &want, &tolerance, 1);
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

void TestSpecialValues() {
  // NaN equals NaN, whatever its bits. An infinity equals only itself.
  EXPECT(One(kNaN, -kNaN).tolerated);
  EXPECT(One(kInf, kInf).tolerated && One(-kInf, -kInf).tolerated);
  EXPECT(One(0.0f, -0.0f).tolerated);
  // Nothing else passes, however large the tolerance.
  for (const float tolerance : {0.0f, 1e38f}) {
    EXPECT(!One(kNaN, 1.0f, tolerance).tolerated);
    EXPECT(!One(1.0f, kNaN, tolerance).tolerated);
    EXPECT(!One(kInf, -kInf, tolerance).tolerated);
    EXPECT(!One(1.0f, kInf, tolerance).tolerated);
    EXPECT(!One(kInf, 1.0f, tolerance).tolerated);
    EXPECT(!One(kNaN, kInf, tolerance).tolerated);
  }
  // Where rounding decides whether there is a number, anything passes.
  EXPECT(One(kNaN, 1.0f, kInf).tolerated && One(1.0f, kNaN, kInf).tolerated);
}

void TestUlp() {
  const Errors next = One(std::nextafter(1.0f, 2.0f), 1.0f);
  EXPECT(Near(next.ulp, 1) && !next.tolerated);
  EXPECT(Near(next.absolute, std::ldexp(1.0, -23)));
  EXPECT(Near(One(std::nextafter(-3.0, -4.0), -3.0).ulp, 1));
  EXPECT(Near(One(1.0f + 5 * std::ldexp(1.0f, -23), 1.0f).ulp, 5));
  // Near zero, the smallest normal number is the unit, not infinity.
  const float tiny = std::numeric_limits<float>::min();
  EXPECT(std::isfinite(One(tiny, 0.0f).ulp));
}

void TestTolerance() {
  EXPECT(One(1.5f, 1.0f, 0.5).tolerated);
  EXPECT(!One(1.5f, 1.0f, std::nextafter(0.5f, 0.0f)).tolerated);
  EXPECT(One(0.5f, 1.0f, 0.5).tolerated);
  EXPECT(!One(std::nextafter(1.0f, 2.0f), 1.0f, 0).tolerated);
  EXPECT(!One(1.5f, 1.0f, kNaN).tolerated);
}

void TestMany() {
  const float want[] = {1, 2, 3, 4};
  const float got[] = {1, 2.25f, 2.5f, 4};
  const float tolerance[] = {0, 0.25f, 1, 0};
  const Errors errors = Compare(got, want, tolerance, 4);
  // The index is that of the largest share of a tolerance, not of an error.
  EXPECT(errors.tolerated && errors.at == 1 && Near(errors.share, 1));
  EXPECT(Near(errors.absolute, 0.5));
  // Each value has its own tolerance.
  const float swapped[] = {0, 1, 0.25f, 0};
  EXPECT(!Compare(got, want, swapped, 4).tolerated);
  const float broken[] = {1, kNaN, 3, 5};
  const float wide[] = {10, 10, 10, 10};
  const Errors worst = Compare(broken, want, wide, 4);
  EXPECT(!worst.tolerated && worst.at == 1 && std::isinf(worst.absolute));
  EXPECT(Compare(got, want, tolerance, 0).tolerated);
}

void TestIntegers() {
  EXPECT(One(3, 3).tolerated);
  const Errors off = One<std::int64_t>(3, 5, 1);
  EXPECT(!off.tolerated && off.absolute == 2 && One(3, 5, 2).tolerated);
  EXPECT(!One<std::uint8_t>(0, 255, 254).tolerated);
  EXPECT(One<std::uint8_t>(0, 255).absolute == 255);
  EXPECT(!One(true, false).tolerated && One(true, true).tolerated);
  EXPECT(!One(std::numeric_limits<std::int64_t>::max(),
              std::numeric_limits<std::int64_t>::max() - 1)
              .tolerated);
}

void TestChecksum() {
  // The check value of CRC-32/ISO-HDLC, which zlib also computes.
  EXPECT(tfaot::Crc32("123456789", 9) == 0xcbf43926u);
  EXPECT(tfaot::Crc32("", 0) == 0);
  std::vector<char> bytes(1000, 'x');
  const std::uint32_t sum = tfaot::Crc32(bytes.data(), bytes.size());
  for (std::size_t i = 0; i < bytes.size() * 8; i += 37) {
    bytes[i / 8] ^= static_cast<char>(1 << i % 8);
    EXPECT(tfaot::Crc32(bytes.data(), bytes.size()) != sum);
    bytes[i / 8] ^= static_cast<char>(1 << i % 8);
  }
}

void TestBlockSums() {
  // goldens_test.py has the same numbers.
  std::vector<float> values(130);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i / 8.0f;
  const std::vector<double> sums = tfaot::BlockSums(values.data(), 130);
  EXPECT(sums.size() == 3);
  EXPECT(sums[0] == -4.5 && sums[1] == 22.5 && sums[2] == -0.125);
}

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// One tolerance for `count` values, and the comparison's sight: by how many
// tolerances the median moves, and how many values are checked.
std::string Within(float tolerance, std::size_t count, double checked = 2) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += Bytes(tolerance);
  return bytes + Bytes(100.0) + Bytes(checked);
}

// The end of goldens: what isn't verified.
std::string Unverified(const std::string& lines) {
  return Bytes(std::uint64_t{lines.size()}) + lines;
}

// Returns the exit status of a test whose goldens have these bytes, for two
// floats that compute to {1, 2}, or for a large result.
int Verified(const std::string& data, bool ran = true, bool large = false) {
  const char* folder = std::getenv("TEST_TMPDIR");
  std::string path =
      std::string(folder ? folder : "/tmp") + "/verify.safetensors";
  std::ofstream(path, std::ios::binary)
      << Bytes(std::uint64_t{2}) << "{}" << data << Unverified("a\nb (3%)");
  char name[] = "test";
  char* argv[] = {name, path.data()};
  tfaot::Verifier verifier("a::B", "x86-64", 2, argv);
  float weight[] = {1, 2};
  const tfaot::View<float, 2> view(weight);
  const std::uint32_t sum = verifier.Initial("w", view);
  verifier.Ran(0, ran, ran ? "" : "no reason");
  verifier.Check(0, "w", view);
  if (large) {
    std::vector<float> values(20000, 1);
    verifier.Check(0, "large", tfaot::View<float, 20000>(values.data()));
  }
  verifier.Unchanged("w", view, sum);
  return verifier.Finish();
}

void TestVerifier() {
  const float weight[] = {1, 2};
  const std::string good = Bytes(tfaot::Crc32(weight, sizeof(weight)));
  const std::string expected = Bytes(1.0f) + Bytes(2.0f) + Within(0, 2);
  EXPECT(Verified(good + expected) == 0);
  EXPECT(Verified(good + expected, false) == 1);
  EXPECT(Verified(Bytes(std::uint32_t{1}) + expected) == 1);
  EXPECT(Verified(good + Bytes(1.0f) + Bytes(2.5f) + Within(0.25f, 2)) == 1);
  EXPECT(Verified(good + Bytes(1.0f) + Bytes(2.5f) + Within(0.5f, 2)) == 0);

  // A large result is compared by samples and by block sums.
  std::string samples;
  for (std::size_t i = 0; i < tfaot::kSamples; ++i) samples += Bytes(1.0f);
  samples += Within(0, tfaot::kSamples);
  std::vector<float> values(20000, 1);
  const auto whole = [&] {
    std::string text = good + expected + samples;
    for (const double sum : tfaot::BlockSums(values.data(), values.size())) {
      text += Bytes(sum);
    }
    return text + Within(0.5f, (values.size() + 63) / 64);
  };
  EXPECT(Verified(whole(), true, true) == 0);
  values[12345] = 2;  // not a sample
  EXPECT(Verified(whole(), true, true) == 1);
}

// Returns the exit status of a test that does `work`, whose goldens have these
// bytes. In a separate process, because a result of another size ends it.
template <typename Work>
int StatusOf(const std::string& data, Work work) {
  const char* folder = std::getenv("TEST_TMPDIR");
  std::string path =
      std::string(folder ? folder : "/tmp") + "/part.safetensors";
  std::ofstream(path, std::ios::binary)
      << Bytes(std::uint64_t{2}) << "{}" << data << Unverified("a\nb (3%)");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    char name[] = "test";
    char* argv[] = {name, path.data()};
    tfaot::Verifier verifier("a::B", "x86-64", 2, argv);
    work(verifier);
    const int status = verifier.Finish();
    std::fflush(nullptr);
    std::_Exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void TestRows() {
  // In a batch of at most four rows, two are passed and two are compared.
  float in[8] = {0, 0, 0, 0, -1, -1, -1, -1};
  const auto two = [&](float last) {
    return StatusOf(Bytes(std::uint64_t{0}) + Bytes(std::uint64_t{0}) +
                        Bytes(1.0f) + Bytes(2.0f) + Bytes(3.0f) + Bytes(4.0f) +
                        Bytes(1.0f) + Bytes(2.0f) + Bytes(3.0f) + Bytes(last) +
                        Within(0.5f, 4),
                    [&](tfaot::Verifier& verifier) {
                      const tfaot::View<float, 4, 2> batch(in);
                      verifier.Feed(batch, 2);
                      EXPECT(in[0] == 1 && in[3] == 4 && in[4] == -1);
                      verifier.Check(0, "batch", batch, 2);
                      if (failed != 0) std::_Exit(9);
                    });
  };
  EXPECT(two(4.0f) == 0 && two(4.5f) == 0);
  EXPECT(two(5.0f) == 1);
}

void TestBoundedSizes() {
  const std::int64_t values[] = {7, 8, 9, 10, 11, 12};
  const auto found = [&](std::int32_t rows, const std::string& data) {
    return StatusOf(data, [&](tfaot::Verifier& verifier) {
      const std::int32_t dims[] = {rows, 2};
      verifier.Check(
          0, "where",
          tfaot::BoundedView<const std::int64_t, 3, 2>(values, dims));
    });
  };
  const std::string size = Bytes(std::int32_t{1}) + Bytes(std::int32_t{2});
  const std::string one = Bytes(std::int64_t{7}) + Bytes(std::int64_t{8});
  EXPECT(found(1, size + one + Within(0, 2)) == 0);
  EXPECT(found(1, size + Bytes(std::int64_t{7}) + Bytes(std::int64_t{9}) +
                      Within(0, 2)) == 1);
  // Another size fails, whatever the values are.
  EXPECT(found(2, size + one + Within(0, 2)) == 1);
  EXPECT(found(0, size + one + Within(0, 2)) == 1);
  EXPECT(found(0, Bytes(std::int32_t{0}) + Bytes(std::int32_t{2}) +
                      Within(0, 0)) == 0);
}

template <typename Half>
void TestHalf() {
  const Half values[] = {Half(1.0f), Half(-2.5f)};
  const auto compared = [&](float last, float tolerance) {
    return StatusOf(
        Bytes(Half(1.0f)) + Bytes(Half(last)) + Within(tolerance, 2),
        [&](tfaot::Verifier& verifier) {
          verifier.Check(0, "half", tfaot::View<const Half, 2>(values));
        });
  };
  EXPECT(compared(-2.5f, 0.0f) == 0);
  EXPECT(compared(-2.75f, 0.25f) == 0);
  EXPECT(compared(-2.75f, 0.125f) == 1);
  EXPECT(compared(kNaN, 1e38f) == 1);
}

void TestComplex() {
  const std::complex<double> values[] = {{1, 2}, {-3, 0.5}};
  const auto compared = [&](double imaginary, float tolerance) {
    return StatusOf(Bytes(1.0) + Bytes(2.0) + Bytes(-3.0) + Bytes(imaginary) +
                        Within(tolerance, 4),
                    [&](tfaot::Verifier& verifier) {
                      verifier.Check(
                          0, "wave",
                          tfaot::View<const std::complex<double>, 2>(values));
                    });
  };
  EXPECT(compared(0.5, 0.0f) == 0);
  EXPECT(compared(0.75, 0.25f) == 0);
  EXPECT(compared(0.75, 0.125f) == 1);
}

// A blind comparison is counted separately, but still fails.
void TestBlind() {
  const float values[] = {1, 2};
  const auto compared = [&](float last, double checked) {
    return StatusOf(
        Bytes(1.0f) + Bytes(last) + Within(0, 2, checked),
        [&](tfaot::Verifier& verifier) {
          verifier.Check(0, "y", tfaot::View<const float, 2>(values));
          verifier.Ran(0, verifier.blind() == (checked == 0 && last == 2), "");
        });
  };
  EXPECT(compared(2, 0) == 0 && compared(2, 1) == 0);
  EXPECT(compared(3, 0) == 1);
}

// The first failed comparison is named.
void TestFirst() {
  const float values[] = {1, 2};
  EXPECT(StatusOf(Bytes(1.0f) + Bytes(2.0f) + Within(0, 2) + Bytes(1.0f) +
                      Bytes(3.0f) + Within(0, 2) + Bytes(0.0f) + Bytes(3.0f) +
                      Within(0, 2),
                  [&](tfaot::Verifier& verifier) {
                    const tfaot::View<const float, 2> view(values);
                    EXPECT(verifier.first().empty());
                    verifier.Check(0, "a", view);
                    EXPECT(verifier.first().empty());
                    verifier.Check(1, "b", view);
                    verifier.Check(2, "c", view);
                    EXPECT(verifier.first() == "b, step 1");
                    if (failed != 0) std::_Exit(9);
                  }) == 1);
}

// Rounded weights may change an output as much as the target tolerates, and the
// first output beyond it is named.
void TestDeviation() {
  const auto status = [&](double largest, double tolerance) {
    return StatusOf(
        Bytes(largest) + Bytes(tolerance), [&](tfaot::Verifier& verifier) {
          verifier.Deviation("Run/y", "int8");
          EXPECT(verifier.first().empty() == (largest <= tolerance));
          if (failed != 0) std::_Exit(9);
        });
  };
  EXPECT(status(0, 0.05) == 0 && status(0.05, 0.05) == 0);
  EXPECT(status(0.06, 0.05) == 1);
  EXPECT(status(std::numeric_limits<double>::infinity(), 0.05) == 1);
  EXPECT(status(std::numeric_limits<double>::quiet_NaN(), 0.05) == 1);
}

// Every level that the machine runs is verified, others aren't, and verifying
// none is a failure.
void TestIsas() {
#if defined(__aarch64__)
  const char* const isas[] = {"armv8-a", "armv9-z", nullptr};
#else
  const char* const isas[] = {"x86-64", "x86-64-v9", nullptr};
#endif
  int calls = 0;
  const auto verified = [&](const char* const* of, int status) {
    return tfaot::VerifyIsas("a::B", of, [&](const char* isa) {
      ++calls;
      EXPECT(isa == isas[0]);
      return status;
    });
  };
  EXPECT(verified(isas, 0) == 0 && calls == 1);
  EXPECT(verified(isas, 1) == 1 && calls == 2);
  EXPECT(verified(isas + 1, 0) == 1 && calls == 2);
}

}  // namespace

int main() {
  TestSpecialValues();
  TestUlp();
  TestTolerance();
  TestMany();
  TestIntegers();
  TestChecksum();
  TestBlockSums();
  TestVerifier();
  TestRows();
  TestBoundedSizes();
  TestHalf<tfaot::Float16>();
  TestHalf<tfaot::BFloat16>();
  TestComplex();
  TestBlind();
  TestFirst();
  TestDeviation();
  TestIsas();
  return failed == 0 ? 0 : 1;
}
