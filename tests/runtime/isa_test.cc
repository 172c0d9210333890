// Protects against code that a CPU can't run: which levels it has, which one is
// chosen, and the error if there is none.
#include "tfaot/isa.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/runtime/expect.h"

namespace {

using tfaot::ChooseIsa;
using tfaot::CpuFeatures;
using tfaot::CpuRuns;

// As reported by real CPUs, with bits other than those that levels need.
constexpr std::uint32_t kIntel = 0x756e6547;
constexpr std::uint32_t kAmd = 0x68747541;
constexpr CpuFeatures kOld = {0x0000e39d, 0, 1, 0, kIntel, 0x000006fb};
constexpr CpuFeatures kNehalem = {0x009ce3bd, 0, 1, 0, kIntel, 0x000106a5};
constexpr CpuFeatures kZen3 = {0xfffa3203, 0x219c07ab, 0x004003f3,
                               7,          kAmd,       0x00a00f11};
constexpr CpuFeatures kZen4 = {0xfffa3203, 0xf1bf97a9, 0x004003f3,
                               0x2e7,      kAmd,       0x00a10f11};
constexpr CpuFeatures kZen5 = {0xfffa3203, 0xf1bf97a9, 0x004003f3,
                               0x2e7,      kAmd,       0x00b00f21};
constexpr CpuFeatures kSkylakeX = {0x7ffefbff, 0xd39ffffb, 0x121,
                                   0x2ff,      kIntel,     0x00050654};

void ExpectError(const tfaot::IsaChoice& choice, const std::string& wanted) {
  EXPECT(choice.index == 0);
  if (choice.error == wanted) return;
  std::printf("FAILED: got:\n%s\nexpected:\n%s\n", choice.error.c_str(),
              wanted.c_str());
  ++failed;
}

void Highest(const CpuFeatures& cpu, int highest) {
  const char* const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3",
                                "x86-64-v4"};
  for (int i = 0; i < 4; ++i) EXPECT(CpuRuns(levels[i], cpu) == (i <= highest));
}

void TestLevels() {
  Highest(kOld, 0);
  Highest(kNehalem, 1);
  Highest(kZen3, 2);
  Highest(kZen4, 3);
  Highest(kZen5, 3);
  Highest(kSkylakeX, 3);
  // Registers that the operating system doesn't save must not be used.
  CpuFeatures cpu = kSkylakeX;
  cpu.xcr0 = 0x07;
  Highest(cpu, 2);
  cpu.xcr0 = 0x03;
  Highest(cpu, 1);
  // A level needs each of its features.
  for (int bit : {0, 9, 13, 19, 20, 23}) {
    cpu = kSkylakeX;
    cpu.leaf1_ecx &= ~(1u << bit);
    Highest(cpu, 0);
  }
  for (int bit : {12, 22, 27, 28, 29}) {
    cpu = kSkylakeX;
    cpu.leaf1_ecx &= ~(1u << bit);
    Highest(cpu, 1);
  }
  for (int bit : {3, 5, 8}) {
    cpu = kSkylakeX;
    cpu.leaf7_ebx &= ~(1u << bit);
    Highest(cpu, 1);
  }
  for (int bit : {16, 17, 28, 30, 31}) {
    cpu = kSkylakeX;
    cpu.leaf7_ebx &= ~(1u << bit);
    Highest(cpu, 2);
  }
  cpu = kSkylakeX;
  cpu.leaf80000001_ecx = 1;  // no LZCNT
  Highest(cpu, 1);
  EXPECT(!CpuRuns("x86-64-v5", kSkylakeX) && !CpuRuns("", kSkylakeX));
}

// The compiler's own answer for this machine.
void TestThisCpu() {
  EXPECT(CpuRuns("x86-64"));
  EXPECT(CpuRuns("x86-64-v2") == (__builtin_cpu_supports("sse4.2") &&
                                  __builtin_cpu_supports("popcnt")));
  EXPECT(CpuRuns("x86-64-v3") ==
         (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
          __builtin_cpu_supports("bmi2")));
  EXPECT(CpuRuns("x86-64-v4") ==
         (CpuRuns("x86-64-v3") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl")));
}

constexpr const char* kLevels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4",
                                   nullptr};
constexpr const char* kLast[] = {"x86-64-v4", nullptr};

void TestChoice() {
  unsetenv("TFAOT_ISA");
  const auto chosen = [](const char* const* isas, const char* asked,
                         const CpuFeatures& cpu) {
    const tfaot::IsaChoice choice = ChooseIsa("a::B", isas, asked, cpu);
    return choice.error.empty() ? isas[choice.index] : "";
  };
  EXPECT(chosen(kLevels, nullptr, kSkylakeX) == kLevels[2]);
  EXPECT(chosen(kLevels, nullptr, kZen3) == kLevels[1]);
  EXPECT(chosen(kLevels, nullptr, kNehalem) == kLevels[0]);
  EXPECT(chosen(kLast, nullptr, kSkylakeX) == kLast[0]);
  // Zen 4 runs x86-64-v4, but not faster than x86-64-v3.
  EXPECT(chosen(kLevels, nullptr, kZen4) == kLevels[1]);
  EXPECT(chosen(kLevels, nullptr, kZen5) == kLevels[2]);
  EXPECT(chosen(kLast, nullptr, kZen4) == kLast[0]);
  EXPECT(chosen(kLevels, "x86-64-v4", kZen4) == kLevels[2]);
  EXPECT(chosen(kLevels, "x86-64-v2", kSkylakeX) == kLevels[0]);
  setenv("TFAOT_ISA", "x86-64-v3", 1);
  EXPECT(chosen(kLevels, nullptr, kSkylakeX) == kLevels[1]);
  EXPECT(chosen(kLevels, "x86-64-v2", kSkylakeX) == kLevels[0]);
  setenv("TFAOT_ISA", "", 1);
  EXPECT(chosen(kLevels, nullptr, kSkylakeX) == kLevels[2]);
}

void TestErrors() {
  unsetenv("TFAOT_ISA");
  ExpectError(
      ChooseIsa("a::B", kLevels, nullptr, kOld),
      R"(a::B: this CPU can't run any level that the model is compiled for
  found: code for x86-64-v2, x86-64-v3, x86-64-v4; this CPU and its operating system run x86-64
  to do: add a lower level to the target's isa, or use a newer CPU)");
  ExpectError(
      ChooseIsa("a::B", kLevels, "x86-64-v4", kZen3),
      R"(a::B: the caller asked for "x86-64-v4", which this CPU can't run
  found: code for x86-64-v2, x86-64-v3, x86-64-v4; this CPU and its operating system run x86-64-v3
  to do: pass a level that this CPU can run, or no level)");
  ExpectError(ChooseIsa("a::B", kLast, "avx2", kZen3),
              R"(a::B: the caller asked for "avx2"
  found: code for x86-64-v4
  to do: pass one of these, or no level)");
  setenv("TFAOT_ISA", "x86-64-v4", 1);
  ExpectError(
      ChooseIsa("a::B", kLevels, nullptr, kZen3),
      R"(a::B: the environment variable TFAOT_ISA asks for "x86-64-v4", which this CPU can't run
  found: code for x86-64-v2, x86-64-v3, x86-64-v4; this CPU and its operating system run x86-64-v3
  to do: set it to a level that this CPU can run, or unset it)");
  setenv("TFAOT_ISA", "v3", 1);
  ExpectError(ChooseIsa("a::B", kLevels, nullptr, kZen3),
              R"(a::B: the environment variable TFAOT_ISA asks for "v3"
  found: code for x86-64-v2, x86-64-v3, x86-64-v4
  to do: set it to one of these, or unset it)");
}

}  // namespace

int main() {
  TestLevels();
  TestThisCpu();
  TestChoice();
  TestErrors();
  return failed == 0 ? 0 : 1;
}
