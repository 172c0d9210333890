// A namespace for the instruction set that a translation unit is compiled for.
//
//   namespace tfaot::kernels::TFAOT_ISA { ... }
//
// A program can contain models that are compiled for different CPUs. The linker
// keeps only one of several functions with the same name, so a function with
// code for one level needs a name that is unique to the level. The name follows
// from the compiler's flags, so it can't contradict them.
#ifndef TFAOT_KERNELS_ISA_H_
#define TFAOT_KERNELS_ISA_H_

// If such compiler flags get here, compilation fails. Otherwise, numbers would
// differ from the verified ones, or the CPU would lack instructions.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) ||      \
    defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error \
    "models must be compiled without fast math: remove -ffast-math and similar \
flags for these files, for example from --per_file_copt"
#endif

// Instructions in no level that compilers use on their own.
#if defined(TFAOT_LEVEL) && defined(__aarch64__)
#if defined(__ARM_FEATURE_SVE) || defined(__ARM_FEATURE_BF16) ||          \
    defined(__ARM_FEATURE_MATMUL_INT8) ||                                 \
    (TFAOT_LEVEL < 2 &&                                                   \
     (defined(__ARM_FEATURE_DOTPROD) || defined(__ARM_FEATURE_ATOMICS) || \
      defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)))
#error \
    "a model's code for a CPU level is compiled with more instructions than \
the level has: remove flags such as -mcpu=native from --copt, or compile the \
model for a higher level"
#endif
#elif defined(TFAOT_LEVEL) &&                                                \
    (defined(__AVX512FP16__) || defined(__AVX512VNNI__) ||                   \
     defined(__AVX512BF16__) || defined(__AVX512VBMI__) ||                   \
     defined(__AVX512IFMA__) || defined(__AVX512VPOPCNTDQ__) ||              \
     defined(__AVX10_1__) || defined(__AVXVNNI__) || defined(__AVXIFMA__) || \
     defined(__APX_F__) || defined(__FMA4__) || defined(__XOP__) ||          \
     (TFAOT_LEVEL < 4 && defined(__AVX512F__)) ||                            \
     (TFAOT_LEVEL < 3 && (defined(__AVX__) || defined(__BMI__) ||            \
                          defined(__LZCNT__) || defined(__MOVBE__))) ||      \
     (TFAOT_LEVEL < 2 && (defined(__SSE3__) || defined(__POPCNT__))))
#error \
    "a model's code for a CPU level is compiled with more instructions than \
the level has: remove flags such as -mavx512fp16 from --copt, or compile the \
model for a higher level"
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define TFAOT_ISA x86_64_v4
#elif defined(__AVX2__) && defined(__FMA__) && defined(__BMI2__)
#define TFAOT_ISA x86_64_v3
#elif defined(__SSE4_2__)
#define TFAOT_ISA x86_64_v2
#elif defined(__x86_64__)
#define TFAOT_ISA x86_64
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) && \
    defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define TFAOT_ISA armv8_2_a_dotprod_fp16
#elif defined(__aarch64__)
#define TFAOT_ISA armv8_a
#else
#define TFAOT_ISA generic
#endif

namespace tfaot::kernels {
inline namespace TFAOT_ISA {}
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_ISA_H_
