// Protects functions of formulas: their error over all floats, and what they
// make of special values.
#include "tfaot/kernels/functions.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels {
namespace {

int failed = 0;

void Expect(bool holds, const char* what, float value, float got) {
  if (holds) return;
  std::printf("FAILED: %s: %a gives %a\n", what, double{value}, double{got});
  ++failed;
}

struct OfExp {
  template <typename V>
  static V Run(V value) {
    return Exp(value);
  }
  static void Check(float value, float got) {
    const double want = std::exp(double{value});
    if (std::isnan(value)) {
      Expect(std::isnan(got), "exp of NaN", value, got);
    } else if (std::isinf(static_cast<float>(want))) {
      Expect(std::isinf(got) && got > 0, "an infinite exp", value, got);
    } else if (want < double{std::numeric_limits<float>::min()}) {
      Expect(got == 0 && !std::signbit(got), "zero, not denormal", value, got);
    } else {
      Expect(std::fabs(double{got} - want) <= 1.5e-7 * want, "the error of exp",
             value, got);
    }
  }
};

struct OfLog {
  template <typename V>
  static V Run(V value) {
    return Log(value);
  }
  static void Check(float value, float got) {
    const double want = std::log(double{value});
    if (std::isnan(want)) {
      Expect(std::isnan(got), "log of NaN or a negative value", value, got);
    } else if (std::isinf(want)) {
      Expect(double{got} == want, "an infinite log", value, got);
    } else {
      Expect(std::fabs(double{got} - want) <= 2e-7 * std::fabs(want),
             "the error of log", value, got);
    }
  }
};

struct OfTanh {
  template <typename V>
  static V Run(V value) {
    return Tanh(value);
  }
  static void Check(float value, float got) {
    const double want = std::tanh(double{value});
    if (std::isnan(value)) {
      Expect(std::isnan(got), "tanh of NaN", value, got);
    } else {
      Expect(std::fabs(got) <= 1, "at most 1", value, got);
      Expect(std::fabs(value) < 10 || std::fabs(got) == 1, "exactly 1 far out",
             value, got);
      Expect(std::signbit(got) == std::signbit(value), "the sign", value, got);
      Expect(std::fabs(double{got} - want) <= 5e-7 * std::fabs(want),
             "the error of tanh", value, got);
    }
  }
};

// Computes the values that some bits stand for, in each lane of a vector.
template <typename Function, typename V>
void CheckBits(std::uint32_t bits) {
  constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(float));
  float values[kCount], results[kCount];
  for (int i = 0; i < kCount; ++i) {
    const std::uint32_t one = bits + static_cast<std::uint32_t>(i) * 31u;
    std::memcpy(&values[i], &one, sizeof(one));
  }
  V value;
  std::memcpy(&value, values, sizeof(value));
  const V result = Function::Run(value);
  std::memcpy(results, &result, sizeof(result));
  for (int i = 0; i < kCount; ++i) Function::Check(values[i], results[i]);
}

// Floats of all signs and exponents, so most are far out; and the range where
// results of exp are neither zero nor infinite.
template <typename Function, typename V>
void TestFloats() {
  for (std::uint64_t bits = 0; bits < 0xffffffffu; bits += 5003) {
    CheckBits<Function, V>(static_cast<std::uint32_t>(bits));
  }
  const int steps = fuzz::Cases(200000);
  for (int i = 0; i < steps; ++i) {
    const float value =
        -105.0f + 195.0f * static_cast<float>(i) / static_cast<float>(steps);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    CheckBits<Function, V>(bits);
  }
}

// Returns a function of a value, as the first lane of a vector.
template <typename Function, typename V>
float First(float value) {
  // The compiler must not compute the result by itself.
  volatile float at_run_time = value;
  const V result = Function::Run(at_run_time - V{});
  float first;
  std::memcpy(&first, &result, sizeof(first));
  return first;
}

// Results that have to be exact, and those on both sides of a limit.
template <typename V>
void TestSpecialValues() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value :
       {0.0f, -0.0f, -kInfinity, kInfinity, -1e30f, 1e30f, 88.72283f, 88.72284f,
        -87.33654f, -87.33655f, -100.0f, 1e-45f, 1.17549421e-38f, 1.0f,
        0.99999994f, 1.00000012f, 3.40282347e38f, std::nanf("")}) {
    OfExp::Check(value, First<OfExp, V>(value));
    OfLog::Check(value, First<OfLog, V>(value));
    OfTanh::Check(value, First<OfTanh, V>(value));
  }
  for (const float zero : {0.0f, -0.0f}) {
    const float got = First<OfExp, V>(zero);
    Expect(got == 1, "exactly 1", zero, got);
  }
  const float got = First<OfLog, V>(1.0f);
  Expect(got == 0 && !std::signbit(got), "exactly 0", 1.0f, got);
}

template <typename V>
void Test() {
  TestFloats<OfExp, V>();
  TestFloats<OfLog, V>();
  TestFloats<OfTanh, V>();
  TestSpecialValues<V>();
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::Test<float>();
  tfaot::kernels::Test<tfaot::kernels::Vector<float>>();
  return tfaot::kernels::failed != 0;
}
