// Protects against code that an ARM CPU can't run: which levels it has, and
// which one is chosen.
#include <cstdlib>
#include <string>

#include "tests/runtime/expect.h"
#include "tfaot/isa.h"

namespace {

using tfaot::ChooseIsa;
using tfaot::CpuFeatures;
using tfaot::CpuRuns;

// As reported by Linux on real CPUs.
constexpr CpuFeatures kCortexA72 = {0x000000ff};
constexpr CpuFeatures kNeoverseN1 = {0x1001ffff | 1u << 20};
constexpr const char* kLow = "armv8-a";
constexpr const char* kHigh = "armv8.2-a+dotprod+fp16";
constexpr const char* kLevels[] = {kLow, kHigh, nullptr};

void TestLevels() {
  EXPECT(CpuRuns(kLow, kCortexA72) && !CpuRuns(kHigh, kCortexA72));
  EXPECT(CpuRuns(kLow, kNeoverseN1) && CpuRuns(kHigh, kNeoverseN1));
  // A level needs each of its features.
  for (int bit : {7, 8, 9, 10, 12, 20}) {
    CpuFeatures cpu = kNeoverseN1;
    cpu.hwcap &= ~(1u << bit);
    EXPECT(!CpuRuns(kHigh, cpu));
  }
  EXPECT(CpuRuns(kLow) && !CpuRuns("x86-64", kNeoverseN1));
}

void TestChoice() {
  unsetenv("TFAOT_ISA");
  EXPECT(ChooseIsa("a::B", kLevels, nullptr, kCortexA72).index == 0);
  EXPECT(ChooseIsa("a::B", kLevels, nullptr, kNeoverseN1).index == 1);
  EXPECT(ChooseIsa("a::B", kLevels, kLow, kNeoverseN1).index == 0);
  EXPECT(
      ChooseIsa("a::B", kLevels, kHigh, kCortexA72).error ==
      R"(a::B: the caller asked for "armv8.2-a+dotprod+fp16", which this CPU can't run
  found: code for armv8-a, armv8.2-a+dotprod+fp16; this CPU and its operating system run armv8-a
  to do: pass a level that this CPU can run, or no level)");
}

}  // namespace

int main() {
  TestLevels();
  TestChoice();
  return failed == 0 ? 0 : 1;
}
