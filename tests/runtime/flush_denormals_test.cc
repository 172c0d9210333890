// Protects speed near convergence, and the caller's floating-point mode.
#include "tfaot/flush_denormals.h"

#include <cfenv>
#include <limits>
#include <thread>

#include "tests/runtime/expect.h"

namespace {

// Opaque to the compiler, so that the value is computed here and now.
volatile float smallest = std::numeric_limits<float>::min();
volatile double smallest_double = std::numeric_limits<double>::min();
volatile float denormal = std::numeric_limits<float>::denorm_min();
volatile float half = 0.5f;

bool Flushed() { return smallest * half == 0; }

}  // namespace

int main() {
  EXPECT(!Flushed());
  {
    tfaot::ScopedFlushDenormals flush;
    EXPECT(Flushed());
    EXPECT(smallest_double * static_cast<double>(half) == 0);
#if defined(__x86_64__)
    EXPECT(denormal * 1e30f == 0);  // read as zero, too
#endif
    EXPECT(smallest * 2.0f > 0);
    {
      tfaot::ScopedFlushDenormals again;
      EXPECT(Flushed());
    }
    EXPECT(Flushed());

    // One thread's mode doesn't affect another's.
    bool elsewhere = true;
    std::thread([&elsewhere] {
      tfaot::ScopedFlushDenormals own;
      elsewhere = Flushed();
    }).join();
    EXPECT(elsewhere && Flushed());
  }
  EXPECT(!Flushed());
  EXPECT(denormal * 1e30f > 0);

  // Preserves the caller's rounding and exception flags.
  std::fesetround(FE_UPWARD);
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_DIVBYZERO);
  {
    tfaot::ScopedFlushDenormals flush;
    EXPECT(std::fegetround() == FE_UPWARD);
    const volatile float lost = smallest * half;
    static_cast<void>(lost);
  }
  EXPECT(std::fegetround() == FE_UPWARD);
  EXPECT(std::fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);

  // An exception leaves the scope, too.
  try {
    tfaot::ScopedFlushDenormals flush;
    throw 1;
  } catch (int) {
  }
  EXPECT(!Flushed());
  return failed == 0 ? 0 : 1;
}
