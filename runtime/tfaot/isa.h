// Chooses which of a model's compiled CPU levels runs. Generated code uses it.
//
// On x86-64, levels have their psABI names, "x86-64" to "x86-64-v4". On 64-bit
// ARM, they are "armv8-a" and "armv8.2-a+dotprod+fp16". Lists of levels end
// with nullptr. All functions are thread-safe.
#ifndef TFAOT_ISA_H_
#define TFAOT_ISA_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace tfaot {

#if defined(__x86_64__)
// The features that a CPU has or that code needs: registers of the CPUID
// instruction, and XCR0, which says what the operating system saves when it
// switches threads. The last two members say who made the CPU, and which family
// it is. Code doesn't need them.
struct CpuFeatures {
  std::uint32_t leaf1_ecx;
  std::uint32_t leaf7_ebx;
  std::uint32_t leaf80000001_ecx;
  std::uint32_t xcr0;
  std::uint32_t leaf0_ebx;
  std::uint32_t leaf1_eax;
};
#else
// The features that a CPU has or that code needs: the bits of AT_HWCAP, which
// Linux passes to programs.
struct CpuFeatures {
  std::uint32_t hwcap;
};
#endif

// Features of this machine, queried once.
const CpuFeatures& ThisCpu() noexcept;

// Whether a CPU runs code for a level. False if `isa` isn't a level's name.
bool CpuRuns(const char* isa, const CpuFeatures& cpu = ThisCpu()) noexcept;

struct IsaChoice {
  std::size_t index;  // of the level, or of the first one on error
  std::string error;  // why no level can run; empty on success
};

// Chooses the level that `asked` names. If it is nullptr, chooses the level in
// the environment variable TFAOT_ISA. If that is unset or empty, chooses the
// fastest level that the CPU runs. This is the highest one, except on CPUs that
// have double-pumped AVX-512 (AMD's Zen 4), where x86-64-v3 comes before
// x86-64-v4.
//
// `isas` are the model's levels, lowest first, and at least one. `model` is the
// name for errors. Throws std::bad_alloc.
IsaChoice ChooseIsa(const char* model, const char* const* isas,
                    const char* asked, const CpuFeatures& cpu = ThisCpu());

}  // namespace tfaot

#endif  // TFAOT_ISA_H_
