"""Compiler flags for C++ whose numbers and instructions we guarantee, whatever flags the user's build adds.

Bazel puts a target's own flags after those of `--copt` and `--cxxopt`, and the last one wins. Our flags can't undo some others,
such as those of `--per_file_copt`. For these, `runtime/tfaot/kernels/isa.h` ends the build with an error.
"""

visibility(["//rules/...", "//tests/...", "//runtime/..."])

# The language of our own sources, whatever the user's build sets. The headers that programs include are C++14, Bazel 7's default.
CXX = ["-std=c++17"]

# Symbols that only the program or the shared library that links them sees. So two libraries with models in one process never meet.
HIDDEN = ["-fvisibility=hidden"]

# Other compilers don't know the flag. By default, gcc makes some constants of the C++ library unique in the process, and then no
# library that has them can be unloaded.
GCC = ["-fno-gnu-unique"]

# What computes is as fast as possible. A model's class only calls it, at the same speed with half of the code.
FAST = ["-O3", "-DNDEBUG", "-w"]
SMALL = ["-Os", "-DNDEBUG", "-w"]

EXACT = [
    # Each flag separately, because -fno-fast-math doesn't undo them.
    "-fno-fast-math",
    "-fno-unsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fno-finite-math-only",
    "-fsigned-zeros",
    "-fno-rounding-math",
    "-ftrapping-math",
    # Kernels name each product that is fused with a sum (`MultiplyAdd`). Where compilers fuse others depends on the code around them,
    # so bits would depend on how threads share a call.
    "-ffp-contract=off",
]

# The features that each level of the x86-64 psABI adds to the levels before it, by their compiler names.
_FEATURES = {
    "x86-64": [],
    "x86-64-v2": ["cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"],
    "x86-64-v3": ["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"],
    "x86-64-v4": ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
}

# The features that each level of 64-bit ARM needs, by LLVM's names. A level's name is also the argument of compilers' -march.
_ARM_FEATURES = {
    "armv8-a": ["neon"],
    "armv8.2-a+dotprod+fp16": ["neon", "crc", "lse", "rdm", "fullfp16", "dotprod"],
}

# The levels of each architecture, lowest first.
X86_LEVELS = list(_FEATURES)
ARM_LEVELS = list(_ARM_FEATURES)
LEVELS = X86_LEVELS + ARM_LEVELS

# Stands for the levels that `PLATFORMS` names for the target platform.
DEFAULT_LEVEL = "default"

# Features in no level that compilers use on their own. All compilers that know the levels' names know these.
_NO_LEVEL = ["avx512bf16", "avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq", "fma4", "sse4a", "tbm", "xop"]

def level_copts(level):
    """Returns flags for code of a CPU level: compilers use all of its instructions, and no others.

    Numbers never depend on `errno`, for which a square root would be a call.

    `-march` replaces another `-march`, but neither adds nor removes features set by `-mavx512f` or `-mno-avx2`.

    Args:
      level: (str) its name, one of `LEVELS`

    Returns:
      (list of str) the flags
    """
    if level in ARM_LEVELS:
        return [
            "-march=" + level,
            "-mtune=generic",
            # Only on ARM does gcc schedule before it allocates registers. It then loads so early that sums of a tile go to the stack,
            # and products take 1.5 times as long (docs/guide/arm.md).
            "-fno-schedule-insns",
            "-fno-math-errno",
            "-DTFAOT_LEVEL={}".format(ARM_LEVELS.index(level) + 1),
        ]
    has = X86_LEVELS.index(level) + 1
    return (
        ["-march=" + level, "-mtune=generic"] +
        # The order matters: disabling AVX disables AVX2, and enabling AVX2 enables AVX.
        ["-mno-" + feature for feature in _NO_LEVEL] +
        ["-mno-" + feature for other in reversed(X86_LEVELS[has:]) for feature in _FEATURES[other]] +
        ["-m" + feature for other in X86_LEVELS[:has] for feature in _FEATURES[other]] +
        ["-fno-math-errno", "-DTFAOT_LEVEL={}".format(has)]
    )

def level_features(level):
    """Returns the features that every CPU of a level has, on x86-64 besides those of any x86-64 CPU.

    Args:
      level: (str) its name, one of `LEVELS`

    Returns:
      (list[str]) their compiler names
    """
    if level in ARM_LEVELS:
        return _ARM_FEATURES[level]
    return [feature for other in X86_LEVELS[:X86_LEVELS.index(level) + 1] for feature in _FEATURES[other]]

# The target platforms that models can be compiled for: what they are called, the constraints that make a platform one of them, their
# CPU levels, and the levels of models that name none: every CPU of the last ten years, and the wider vectors of those that have them.
# `tested` platforms run all tests. The others, whose triple is LLVM's name for them, only compile, if a flag allows it.
PLATFORMS = {
    "linux_x86_64": struct(
        title = "Linux on x86-64",
        constraints = ["@platforms//os:linux", "@platforms//cpu:x86_64"],
        levels = X86_LEVELS,
        defaults = ["x86-64-v3", "x86-64-v4"],
        tested = True,
        triple = "",
    ),
    "linux_aarch64": struct(
        title = "Linux on 64-bit ARM",
        constraints = ["@platforms//os:linux", "@platforms//cpu:aarch64"],
        levels = ARM_LEVELS,
        defaults = ["armv8-a"],
        tested = True,
        triple = "",
    ),
    "android_aarch64": struct(
        title = "Android on 64-bit ARM",
        constraints = ["@platforms//os:android", "@platforms//cpu:aarch64"],
        levels = ARM_LEVELS,
        defaults = ["armv8-a"],
        tested = False,
        triple = "aarch64-none-linux-android",
    ),
    "macos_aarch64": struct(
        title = "macOS on 64-bit ARM",
        constraints = ["@platforms//os:macos", "@platforms//cpu:aarch64"],
        levels = ARM_LEVELS,
        # All of these machines run it.
        defaults = ["armv8.2-a+dotprod+fp16"],
        tested = False,
        triple = "arm64-apple-macosx11.0.0",
    ),
    "macos_x86_64": struct(
        title = "macOS on x86-64",
        constraints = ["@platforms//os:macos", "@platforms//cpu:x86_64"],
        levels = X86_LEVELS,
        defaults = ["x86-64-v3"],
        tested = False,
        triple = "x86_64-apple-macosx11.0.0",
    ),
    "windows_x86_64": struct(
        title = "Windows on x86-64",
        constraints = ["@platforms//os:windows", "@platforms//cpu:x86_64"],
        levels = X86_LEVELS,
        defaults = ["x86-64-v3"],
        tested = False,
        triple = "x86_64-pc-windows-gnu",
    ),
}
