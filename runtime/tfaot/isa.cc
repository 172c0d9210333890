// First, because a compiler's headers for other targets can be missing.
#if !defined(__x86_64__) && !defined(__AARCH64EL__)
#error \
    "models are compiled for x86-64 and for little-endian 64-bit ARM: choose \
another platform, or a toolchain for it without -mbig-endian and -m32"
#endif

#include "tfaot/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#else
#error "models are compiled for 64-bit ARM only with Linux, Android, or macOS"
#endif

#include <cstdlib>
#include <cstring>

namespace tfaot {
namespace {

struct Level {
  const char* name;
  CpuFeatures needs;
};

constexpr std::uint32_t Bits() { return 0; }
template <typename... Rest>
constexpr std::uint32_t Bits(int first, Rest... rest) {
  return std::uint32_t{1} << first | Bits(rest...);
}

#if defined(__x86_64__)

// Source: x86-64 psABI 1.0, table 3.1. CPUID bits are from Intel's Software
// Developer's Manual, volume 2A.
//
// Leaf 1: SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT. Leaf 80000001:
// LAHF.
constexpr std::uint32_t kV2Leaf1 = Bits(0, 9, 13, 19, 20, 23);
constexpr std::uint32_t kV2Leaf80000001 = Bits(0);
// Leaf 1: FMA, MOVBE, OSXSAVE, AVX, F16C. Leaf 7: BMI1, AVX2, BMI2. Leaf
// 80000001: LZCNT. XCR0: XMM and YMM registers.
constexpr std::uint32_t kV3Leaf1 = kV2Leaf1 | Bits(12, 22, 27, 28, 29);
constexpr std::uint32_t kV3Leaf7 = Bits(3, 5, 8);
constexpr std::uint32_t kV3Leaf80000001 = kV2Leaf80000001 | Bits(5);
constexpr std::uint32_t kV3Xcr0 = Bits(1, 2);
// Leaf 7: AVX512F, DQ, CD, BW, VL. XCR0: masks and ZMM registers, two parts.
constexpr std::uint32_t kV4Leaf7 = kV3Leaf7 | Bits(16, 17, 28, 30, 31);
constexpr std::uint32_t kV4Xcr0 = kV3Xcr0 | Bits(5, 6, 7);

// Lowest first. Each level needs everything that the levels before it need.
constexpr Level kLevels[] = {
    {"x86-64", {}},
    {"x86-64-v2", {kV2Leaf1, 0, kV2Leaf80000001, 0, 0, 0}},
    {"x86-64-v3", {kV3Leaf1, kV3Leaf7, kV3Leaf80000001, kV3Xcr0, 0, 0}},
    {"x86-64-v4", {kV3Leaf1, kV4Leaf7, kV3Leaf80000001, kV4Xcr0, 0, 0}},
};

// CPUID takes microseconds in a virtual machine, so this queries each leaf only
// once. Any x86-64 CPU has these leaves except 7. Leaf 0's EAX is the last
// leaf.
CpuFeatures Ask() {
  CpuFeatures cpu = {};
  unsigned a, b, c, d, last;
  __cpuid(0, last, cpu.leaf0_ebx, c, d);
  __cpuid(1, cpu.leaf1_eax, b, cpu.leaf1_ecx, d);
  if (last >= 7) __cpuid_count(7, 0, a, cpu.leaf7_ebx, c, d);
  __cpuid(0x80000001, a, b, cpu.leaf80000001_ecx, d);
  if (cpu.leaf1_ecx & Bits(27)) {  // OSXSAVE, without which XGETBV is illegal
    asm("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    cpu.xcr0 = a;
  }
  return cpu;
}

bool Has(const CpuFeatures& cpu, const CpuFeatures& needs) {
  return (needs.leaf1_ecx & ~cpu.leaf1_ecx) == 0 &&
         (needs.leaf7_ebx & ~cpu.leaf7_ebx) == 0 &&
         (needs.leaf80000001_ecx & ~cpu.leaf80000001_ecx) == 0 &&
         (needs.xcr0 & ~cpu.xcr0) == 0;
}

// Returns whether a level is slower on a CPU than the one below it. Zen 4 has
// double-pumped AVX-512, so longer vectors gain nothing, and rows are split
// over cache lines more often. In AMD's family 19h, only Zen 4 has
// AVX-512 (AMD's CPUID specification: family = base + extended family).
bool Slower(const char* level, const CpuFeatures& cpu) {
  constexpr std::uint32_t kAuth = 0x68747541;  // of "AuthenticAMD"
  const std::uint32_t family =
      (cpu.leaf1_eax >> 8 & 0xf) + (cpu.leaf1_eax >> 20 & 0xff);
  return cpu.leaf0_ebx == kAuth && family == 0x19 &&
         std::strcmp(level, "x86-64-v4") == 0;
}

#else

// Source: Linux's Documentation/arch/arm64/elf_hwcaps.rst. CRC32, ATOMICS,
// FPHP, ASIMDHP, ASIMDRDM, ASIMDDP. Any ARMv8-A CPU under Linux has FP and
// ASIMD.
constexpr std::uint32_t kDotProductAndHalf = Bits(7, 8, 9, 10, 12, 20);

// Lowest first. Each level needs everything that the levels before it need.
constexpr Level kLevels[] = {
    {"armv8-a", {}},
    {"armv8.2-a+dotprod+fp16", {kDotProductAndHalf}},
};

#if defined(__APPLE__)
// Source: Apple's "Determining instruction set characteristics". The bits are
// those that Linux has for the same features.
CpuFeatures Ask() {
  constexpr struct {
    const char* name;
    std::uint32_t bits;
  } kFeatures[] = {
      {"hw.optional.armv8_crc32", Bits(7)},
      {"hw.optional.arm.FEAT_LSE", Bits(8)},
      {"hw.optional.arm.FEAT_FP16", Bits(9, 10)},
      {"hw.optional.arm.FEAT_RDM", Bits(12)},
      {"hw.optional.arm.FEAT_DotProd", Bits(20)},
  };
  CpuFeatures cpu = {};
  for (const auto& feature : kFeatures) {
    int has = 0;
    std::size_t bytes = sizeof(has);
    if (sysctlbyname(feature.name, &has, &bytes, nullptr, 0) == 0 && has != 0) {
      cpu.hwcap |= feature.bits;
    }
  }
  return cpu;
}
#else
CpuFeatures Ask() { return {static_cast<std::uint32_t>(getauxval(AT_HWCAP))}; }
#endif

bool Has(const CpuFeatures& cpu, const CpuFeatures& needs) {
  return (needs.hwcap & ~cpu.hwcap) == 0;
}

bool Slower(const char*, const CpuFeatures&) { return false; }

#endif

const char* Highest(const CpuFeatures& cpu) {
  const char* found = nullptr;
  for (const Level& level : kLevels) {
    if (Has(cpu, level.needs)) found = level.name;
  }
  return found;
}

std::string Listed(const char* const* isas) {
  std::string list = *isas;
  while (*++isas != nullptr) list += std::string(", ") + *isas;
  return list;
}

}  // namespace

const CpuFeatures& ThisCpu() noexcept {
  static const CpuFeatures cpu = Ask();
  return cpu;
}

bool CpuRuns(const char* isa, const CpuFeatures& cpu) noexcept {
  for (const Level& level : kLevels) {
    if (std::strcmp(level.name, isa) == 0) return Has(cpu, level.needs);
  }
  return false;
}

IsaChoice ChooseIsa(const char* model, const char* const* isas,
                    const char* asked, const CpuFeatures& cpu) {
  const bool by_caller = asked != nullptr;
  if (!by_caller) asked = std::getenv("TFAOT_ISA");
  const bool any = asked == nullptr || *asked == '\0';
  bool found = false;
  std::size_t index = 0;
  for (std::size_t i = 0; isas[i] != nullptr; ++i) {
    if (any ? !CpuRuns(isas[i], cpu) : std::strcmp(isas[i], asked) != 0) {
      continue;
    }
    if (any && found && Slower(isas[i], cpu)) continue;
    found = true;
    index = i;
  }
  if (found && CpuRuns(isas[index], cpu)) return {index, ""};

  std::string error = model;
  std::string advice;
  if (any) {
    error += ": this CPU can't run any level that the model is compiled for";
    advice = "add a lower level to the target's isa, or use a newer CPU";
  } else {
    error += by_caller ? ": the caller asked for \""
                       : ": the environment variable TFAOT_ISA asks for \"";
    error += asked;
    error += found ? "\", which this CPU can't run" : "\"";
    advice = by_caller ? "pass " : "set it to ";
    advice += found ? "a level that this CPU can run" : "one of these";
    advice += by_caller ? ", or no level" : ", or unset it";
  }
  error += "\n  found: code for " + Listed(isas);
  if (any || found) {
    error += "; this CPU and its operating system run ";
    error += Highest(cpu);
  }
  return {0, error + "\n  to do: " + advice};
}

}  // namespace tfaot
