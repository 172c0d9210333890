"""TensorFlow's own `tf_library`, with its parameters and their meaning, on top of `tf_aot_library` (docs/guide/tf_library.md)."""

load("//runtime:copts.bzl", "ARM_LEVELS", "PLATFORMS", "X86_LEVELS", "level_features")
load(":common.bzl", "refusal", "refusal_test")
load(":library.bzl", "tf_aot_library")
load(":model.bzl", "tf_model")

visibility(["//rules/..."])

# The levels that LLVM's CPUs have.
_CPUS = {
    "x86-64": "amdfam10 athlon64 athlon64-sse3 barcelona bonnell core2 generic k8 k8-sse3 nocona opteron opteron-sse3 penryn",
    "x86-64-v2": "bdver1 bdver2 bdver3 btver2 core-avx-i corei7 corei7-avx goldmont goldmont-plus ivybridge nehalem " +
                 "sandybridge silvermont slm tremont westmere",
    "x86-64-v3": "alderlake arrowlake bdver4 broadwell core-avx2 gracemont haswell lunarlake meteorlake raptorlake skylake " +
                 "znver1 znver2 znver3",
    "x86-64-v4": "cannonlake cascadelake cooperlake emeraldrapids graniterapids icelake-client icelake-server rocketlake " +
                 "sapphirerapids skx skylake-avx512 tigerlake znver4 znver5",
    "armv8-a": "a64fx apple-a10 apple-a11 apple-a12 apple-a7 apple-a8 apple-a9 apple-s4 apple-s5 " +
               "cortex-a34 cortex-a35 cortex-a53 cortex-a57 cortex-a72 cortex-a73 cyclone exynos-m3 falkor " +
               "generic kryo saphira thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88",
    "armv8.2-a+dotprod+fp16": "ampere1 ampere1a ampere1b apple-a13 apple-a14 apple-a15 apple-a16 apple-a17 apple-m1 apple-m2 " +
                              "apple-m3 apple-m4 cortex-a510 cortex-a520 cortex-a520ae cortex-a55 cortex-a65 cortex-a65ae " +
                              "cortex-a710 cortex-a715 cortex-a720 cortex-a720ae cortex-a725 cortex-a75 cortex-a76 " +
                              "cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-a78c cortex-x1 cortex-x1c cortex-x2 " +
                              "cortex-x3 cortex-x4 cortex-x925 exynos-m4 exynos-m5 neoverse-512tvb neoverse-e1 neoverse-n1 " +
                              "neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae oryon-1 tsv110",
}

# LLVM's names of features that every CPU of an architecture has.
_BASELINE = ["64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87"]
_ARM_BASELINE = ["fp-armv8", "v8a"]

# The levels that a triple's architecture has, lowest first.
_ARCHITECTURES = {"x86_64": X86_LEVELS, "aarch64": ARM_LEVELS}

# Flags of the program `tfcompile` that change nothing here. docs/guide/tf_library.md says why.
_NO_EFFECT = ["debug_info_path_begin_marker", "entry_point", "gen_name_to_index", "gen_program_shape", "use_xla_nanort_runtime"]

# Its flags for what the macro itself sets, and what to use instead.
_INSTEAD = {
    "config": "the attribute config",
    "cpp_class": "the attribute cpp_class",
    "debug_info": "the attribute debug_info",
    "dump_fetch_nodes": "the output group config, which lists the fetches",
    "graph": "the attribute graph",
    "mlir_components": "the attribute mlir_components",
    "out_constant_buffers_object": "the output group object",
    "out_function_object": "the output group object",
    "out_header": "the output group header",
    "out_metadata_object": "the output group object",
    "out_session_module": "the output group hlo",
}

_MLIR_COMPONENTS = ["Bridge", "None"]

def _refused(asked, exists, do):
    """Formats an error like all others of the rules."""
    return "{}; {}. To do: {}.".format(asked, exists, do)

def _is_select(value):
    return type(value) == "select"

def _split(text):
    """Splits flags like a shell: white space separates them, and quotes keep it."""
    words, word, quote = [], None, ""
    for char in text.elems():
        if quote:
            if char == quote:
                quote = ""
            else:
                word += char
        elif char in "'\"":
            quote, word = char, word or ""
        elif char in " \t\r\n":
            if word != None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
    return words + ([word] if word != None else [])

def _flags(value):
    """Returns flags as a list, however the target writes them."""
    if not value:
        return []
    return _split(value) if type(value) == "string" else value

def _has(level):
    """Returns the features that every CPU of a level has, by LLVM's names."""
    return level_features(level) + (_ARM_BASELINE if level in ARM_LEVELS else _BASELINE)

def _level(levels, cpu, features):
    """Returns the lowest of an architecture's levels that a CPU has, with and without features, or None."""
    of_cpu = [level for level in levels if cpu in [level] + _CPUS[level].split(" ")]
    if cpu and not of_cpu:
        return None
    wanted = [feature[1:] for feature in features if feature.startswith("+")]
    without = [feature[1:] for feature in features if feature.startswith("-")]
    for candidate in levels[levels.index(of_cpu[0]) if cpu else 0:]:
        has = _has(candidate)
        if not [feature for feature in wanted if feature not in has]:
            return None if [feature for feature in without if feature in has] else candidate
    return None

def _cpu(cpu, features, architectures, problems):
    """Returns the CPU level that flags ask for, or None for the default.

    Args:
      cpu: (str) LLVM's name of a CPU, a level, or None
      features: (list[str]) such as `+avx2`
      architectures: (list[str]) keys of `_ARCHITECTURES` that the flags can mean
      problems: (list[str]) gets an error if no level fits

    Returns:
      (str or None) the level
    """
    if not cpu and not features:
        return None
    for architecture in architectures:
        level = _level(_ARCHITECTURES[architecture], cpu, features)
        if level:
            return level
    candidates = [levels for levels in [_ARCHITECTURES[name] for name in architectures] if not cpu or _level(levels, cpu, [])]
    if not candidates:
        problems.append(_refused(
            "--target_cpu={} in tfcompile_flags isn't a CPU whose level is known".format(cpu),
            "the levels are " + ", ".join([level for name in architectures for level in _ARCHITECTURES[name]]),
            "use --target_cpu with a level, the lowest that the program must run on",
        ))
        return None
    problems.append(_refused(
        "--target_features={} in tfcompile_flags isn't a CPU level or a part of one".format(",".join(features)),
        "code is compiled for whole levels: " + ", ".join([
            "{} ({})".format(level, " ".join([feature for feature in level_features(level) if not index or feature not in level_features(levels[index - 1])]))
            for levels in candidates
            for index, level in enumerate(levels)
            if index
        ]),
        "use --target_cpu with a level, the lowest that the program must run on",
    ))
    return None

def _translated(tfcompile_flags, xla_flags, cpp_class, problems):
    """Sorts flags into those of XLA and those of tfcompile.

    Args:
      tfcompile_flags: (str or list[str]) as users write them
      xla_flags: (str or list[str]) the same
      cpp_class: (str) the class
      problems: (list[str]) gets an error for each flag that can't be translated

    Returns:
      (tuple[list[str], str]) XLA's flags, and the CPU level or None
    """
    for name, value in (("tfcompile_flags", tfcompile_flags), ("xla_flags", xla_flags)):
        if _is_select(value):
            problems.append(_refused(
                name + " is a select()",
                "the macro reads the flags before Bazel resolves it",
                "use tf_aot_library, whose xla_flags can be a select() of lists",
            ))
            return [], None
    xla, cpu, features, architectures = [], None, [], list(_ARCHITECTURES)
    for flag in _flags(tfcompile_flags):
        name, _, value = flag.removeprefix("--").partition("=")
        asked = flag + " in tfcompile_flags"
        if flag.startswith("--xla_"):
            xla.append(flag)
        elif not flag.startswith("--"):
            problems.append(_refused(asked + " isn't a flag", "a flag is --NAME or --NAME=VALUE", "write it so, or remove it"))
        elif name == "target_cpu":
            cpu = value
        elif name == "target_features":
            features = [feature for feature in value.split(",") if feature]
        elif name == "target_triple":
            # The build's platform decides. This only says which architecture's CPU `generic` is.
            architectures = [value.partition("-")[0]]
            if architectures[0] not in _ARCHITECTURES or "-linux" not in value:
                architectures = list(_ARCHITECTURES)
                problems.append(_refused(
                    asked + " isn't supported",
                    "models are compiled for " + " and ".join([platform.title for platform in PLATFORMS.values() if platform.tested]),
                    "remove the flag",
                ))
        elif name in _NO_EFFECT or (name == "cpp_class" and value == cpp_class):
            pass
        elif name in _INSTEAD:
            problems.append(_refused(
                asked + " is a flag that the macro sets itself",
                "its counterpart is " + _INSTEAD[name],
                "use that, and remove the flag",
            ))
        else:
            problems.append(_refused(
                asked + " isn't supported",
                "the supported flags are --xla_…, --target_cpu, --target_features, and --target_triple; these have no effect: " +
                ", ".join(["--" + accepted for accepted in _NO_EFFECT]),
                "remove the flag",
            ))
    return xla + _flags(xla_flags), _cpu(cpu, features, architectures, problems)

def _problems(*, cpp_class, deps, freeze_checkpoint, freeze_saver, gen_compiler_log, mlir_components, tfcompile_tool):
    """Returns errors for what the rules can't do."""
    problems = []
    if not cpp_class:
        problems.append(_refused(
            "cpp_class isn't set",
            "the generated class has no name",
            "set it: cpp_class = \"a::b::Class\"",
        ))
    if freeze_saver and not freeze_checkpoint:
        problems.append(_refused(
            "freeze_saver without freeze_checkpoint",
            "a saver says how to read a checkpoint",
            "add freeze_checkpoint, or remove freeze_saver",
        ))
    if gen_compiler_log:
        problems.append(_refused(
            "gen_compiler_log = True",
            "the compiler in TensorFlow's wheel writes no such log; the output groups hlo and optimized_hlo, and NAME.passes.json " +
            "in the output group manifest, show what it did",
            "remove gen_compiler_log",
        ))
    if mlir_components not in _MLIR_COMPONENTS + [None]:
        problems.append(_refused(
            "mlir_components = {}".format(repr(mlir_components)),
            "the values are " + " and ".join([repr(value) for value in _MLIR_COMPONENTS]) + ", which compile the same code",
            "remove mlir_components",
        ))
    if deps:
        problems.append(_refused(
            "deps = {}".format(repr(deps)),
            "a compiled model calls no code of other libraries",
            "remove deps, and add them to the programs that use them",
        ))
    if tfcompile_tool and not str(tfcompile_tool).endswith("compiler/aot:tfcompile"):
        problems.append(_refused(
            "tfcompile_tool = {}".format(repr(str(tfcompile_tool))),
            "the compiler is the one in TensorFlow's wheel, which a toolchain provides",
            "remove tfcompile_tool; docs/guide/toolchain.md says how to choose the wheel",
        ))
    return problems

def tf_library(
        name,
        graph,
        config,
        debug_info = None,
        freeze_checkpoint = None,
        freeze_saver = None,
        cpp_class = None,
        gen_test = True,
        gen_benchmark = True,
        gen_compiler_log = False,
        visibility = None,
        testonly = None,
        tfcompile_flags = None,
        tfcompile_tool = None,
        include_standard_runtime_deps = True,
        enable_xla_hlo_profiling = False,
        enable_tracemes = False,
        mlir_components = "None",
        deps = None,
        tags = [],
        copts = [],
        xla_flags = None,
        enable_tracemes_generation = False):
    """Compiles a GraphDef, with the parameters of TensorFlow's own `tf_library`.

    It declares the targets of `tf_aot_library`: NAME, NAME_test, NAME_benchmark, and the stages. What can't be done is an error of
    NAME, NAME_test, and NAME_benchmark when they are analyzed.

    Args:
      name: (str) the library's name
      graph: (Label) a GraphDef, or a MetaGraphDef
      config: (Label) a tf2xla config with its feeds and fetches. The variables that it declares are arguments, which start at zero.
      debug_info: (Label) a GraphDebugInfo; with it, errors show lines of the model's source
      freeze_checkpoint: (Label or list[Label]) values of the variables: a checkpoint's `.index` file, its prefix, or all its files
      freeze_saver: (Label) a SaverDef that says how to restore the checkpoint
      cpp_class: (str) the generated class with its namespaces, `a::b::Class`
      gen_test: (bool) whether to declare NAME_test, which compares the code's numbers with TensorFlow's
      gen_benchmark: (bool) whether to declare NAME_benchmark
      gen_compiler_log: (bool) must be False
      visibility: (list[Label]) as in any rule
      testonly: (bool) as in any rule
      tfcompile_flags: (str or list[str]) flags of XLA, and of the program `tfcompile`
      tfcompile_tool: (Label) must be TensorFlow's own, or None; the toolchain's compiler is used
      include_standard_runtime_deps: (bool) has no effect, because the library always contains what the model needs
      enable_xla_hlo_profiling: (bool) has no effect: the class has no profile counters
      enable_tracemes: (bool) has no effect: the code contains no trace points
      mlir_components: (str) `None` or `Bridge`, which compile the same code
      deps: (list[Label]) must be empty
      tags: (list[str]) tags of the library and its tests
      copts: (list[str]) additional flags for the C++ of the library, the test, and the benchmark
      xla_flags: (str or list[str]) additional XLA flags
      enable_tracemes_generation: (bool) another name of `enable_tracemes`
    """
    _ = (enable_tracemes, enable_tracemes_generation, enable_xla_hlo_profiling, include_standard_runtime_deps)  # @unused
    problems = _problems(
        cpp_class = cpp_class,
        deps = deps,
        freeze_checkpoint = freeze_checkpoint,
        freeze_saver = freeze_saver,
        gen_compiler_log = gen_compiler_log,
        mlir_components = mlir_components,
        tfcompile_tool = tfcompile_tool,
    )
    flags, cpu = _translated(tfcompile_flags, xla_flags, cpp_class, problems)
    if problems:
        common = {"message": "\n".join(problems), "tags": tags, "visibility": visibility}
        refusal(name = name, testonly = testonly, **common)
        for suffix, wanted in (("_test", gen_test), ("_benchmark", gen_benchmark)):
            if wanted:
                refusal_test(name = name + suffix, **common)
        return
    tf_model(
        name = name + ".model",
        checkpoint = freeze_checkpoint,
        config = config,
        debug_info = debug_info,
        saver = freeze_saver,
        source = graph,
        tags = tags + ["manual"],
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    tf_aot_library(
        name = name,
        copts = copts,
        cpp_class = cpp_class,
        cpu = cpu,
        gen_benchmark = gen_benchmark,
        gen_test = gen_test,
        model = name + ".model",
        tags = tags,
        testonly = testonly,
        visibility = visibility,
        xla_flags = flags,
    )
