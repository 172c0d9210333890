"""Compiler flags for C++ whose numbers and instructions we promise, whatever flags the user's build adds.

Bazel puts a target's own flags behind those of `--copt` and `--cxxopt`, and the last one counts. For flags that no list of ours can
undo, such as those of `--per_file_copt`, `runtime/tfaot/kernels/isa.h` ends the build with an error.
"""

visibility(["//rules/...", "//tests/...", "//runtime/..."])

EXACT = [
    # Each by itself: -fno-fast-math does not undo them.
    "-fno-fast-math",
    "-fno-unsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fno-finite-math-only",
    "-fsigned-zeros",
    "-fno-rounding-math",
    "-ftrapping-math",
    # The compilers' own default, which tuning for a CPU decides on.
    "-ffp-contract=fast",
]

# What each level of the x86-64 psABI adds to those before it, as compilers call it.
_FEATURES = {
    "x86-64": [],
    "x86-64-v2": ["cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"],
    "x86-64-v3": ["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"],
    "x86-64-v4": ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
}

# Lowest first.
LEVELS = list(_FEATURES)

# What no level has, and compilers use by themselves. All compilers that know level names know these.
_NO_LEVEL = ["avx512bf16", "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq", "fma4", "sse4a", "tbm", "xop"]

def level_copts(level):
    """Flags with which a compiler uses the instructions of a CPU level, all of them and no others.

    `-march` replaces another `-march`, but neither adds nor takes away what `-mavx512f` or `-mno-avx2` ask for.

    Args:
      level: (str) as the psABI calls it

    Returns:
      (list of str) the flags
    """
    has = LEVELS.index(level) + 1
    return (
        ["-march=" + level, "-mtune=generic"] +
        # In this order: to forbid AVX forbids AVX2, and to ask for AVX2 asks for AVX.
        ["-mno-" + feature for feature in _NO_LEVEL] +
        ["-mno-" + feature for other in reversed(LEVELS[has:]) for feature in _FEATURES[other]] +
        ["-m" + feature for other in LEVELS[:has] for feature in _FEATURES[other]] +
        ["-DTFAOT_LEVEL={}".format(has)]
    )
