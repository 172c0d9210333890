// Chooses, among the CPU levels that a model is compiled for, the one that
// runs; generated code uses it.
//
// Levels are named as in the x86-64 psABI, "x86-64" to "x86-64-v4", and lists
// of them end with nullptr. All functions may run at the same time in several
// threads.
#ifndef TFAOT_ISA_H_
#define TFAOT_ISA_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace tfaot {

// What a CPU has, or what code needs: registers of the instruction CPUID, and
// XCR0, which says what the operating system saves when threads take turns.
struct CpuFeatures {
  std::uint32_t leaf1_ecx;
  std::uint32_t leaf7_ebx;
  std::uint32_t leaf80000001_ecx;
  std::uint32_t xcr0;
};

// This machine's; it is asked once.
const CpuFeatures& ThisCpu() noexcept;

// Whether a CPU runs code for a level; false for what is no level's name.
bool CpuRuns(const char* isa, const CpuFeatures& cpu = ThisCpu()) noexcept;

struct IsaChoice {
  std::size_t index;  // of the level; of the first if there is an error
  std::string error;  // why none can run; empty if one can
};

// Chooses the level that `asked` names; if it is nullptr, the one that the
// environment variable TFAOT_ISA names; if there is none, or it is empty, the
// highest that the CPU runs.
//
// `isas` are the model's levels, lowest first, and at least one. `model` is
// named in errors. Throws std::bad_alloc.
IsaChoice ChooseIsa(const char* model, const char* const* isas,
                    const char* asked, const CpuFeatures& cpu = ThisCpu());

}  // namespace tfaot

#endif  // TFAOT_ISA_H_
