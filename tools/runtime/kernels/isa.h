// The name of the instruction set that a translation unit is compiled for.
//
//   namespace tfaot::kernels::TFAOT_ISA { ... }
//
// A program may hold models that are compiled for different CPUs. Of functions
// that have the same name the linker keeps one, so that a function with code
// for one level must have a name of its own there. It follows from what the
// compiler was told, and cannot contradict it.
#ifndef TFAOT_KERNELS_ISA_H_
#define TFAOT_KERNELS_ISA_H_

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define TFAOT_ISA x86_64_v4
#elif defined(__AVX2__) && defined(__FMA__) && defined(__BMI2__)
#define TFAOT_ISA x86_64_v3
#elif defined(__SSE4_2__)
#define TFAOT_ISA x86_64_v2
#elif defined(__x86_64__)
#define TFAOT_ISA x86_64
#else
#define TFAOT_ISA generic
#endif

#endif  // TFAOT_KERNELS_ISA_H_
