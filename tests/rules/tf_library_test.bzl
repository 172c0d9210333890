"""TensorFlow's `tf_library`: what its attributes become here, and one error for each that these rules can't do."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//rules:defs.bzl", "TfaotObjectInfo", "tf_model")
load("//rules:tf_library.bzl", "tf_library")

def _refused_test_impl(ctx):
    """Protects readers of an error: it names the user's target, and says what was asked, what exists, and what to do."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, ctx.attr.label_in_message + ": " + ctx.attr.message)
    return analysistest.end(env)

_refused_test = analysistest.make(
    _refused_test_impl,
    attrs = {"label_in_message": attr.string(), "message": attr.string()},
    expect_failure = True,
)

_FLAGS = "the supported flags are --xla_…, --target_cpu, --target_features, and --target_triple; these have no effect: " + \
         "--debug_info_path_begin_marker, --entry_point, --gen_name_to_index, --gen_program_shape, --use_xla_nanort_runtime. " + \
         "To do: remove the flag."

_LEVELS = "use --target_cpu with a level, the lowest that the program must run on."

_REFUSED = {
    "compiler_log": (
        {"gen_compiler_log": True},
        "gen_compiler_log = True; the compiler in TensorFlow's wheel writes no such log; the output groups hlo and " +
        "optimized_hlo, and NAME.passes.json in the output group manifest, show what it did. To do: remove gen_compiler_log.",
    ),
    "components": (
        {"mlir_components": "HloLowering"},
        "mlir_components = \"HloLowering\"; the values are \"Bridge\" and \"None\", which compile the same code. " +
        "To do: remove mlir_components.",
    ),
    "deps": (
        {"deps": ["//some:kernels"]},
        "deps = [\"//some:kernels\"]; a compiled model calls no code of other libraries. " +
        "To do: remove deps, and add them to the programs that use them.",
    ),
    "features": (
        {"tfcompile_flags": "--target_features=+avx2,+aes"},
        "--target_features=+avx2,+aes in tfcompile_flags isn't a CPU level or a part of one; code is compiled for whole levels: " +
        "x86-64-v2 (cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3), x86-64-v3 (avx avx2 bmi bmi2 f16c fma lzcnt movbe), " +
        "x86-64-v4 (avx512bw avx512cd avx512dq avx512f avx512vl), armv8.2-a+dotprod+fp16 (crc lse rdm fullfp16 dotprod). To do: " +
        _LEVELS,
    ),
    "features_without": (
        {"tfcompile_flags": ["--target_cpu=haswell", "--target_features=-avx2"]},
        "--target_features=-avx2 in tfcompile_flags isn't a CPU level or a part of one; ",
    ),
    "no_class": (
        {"cpp_class": None},
        "cpp_class isn't set; the generated class has no name. To do: set it: cpp_class = \"a::b::Class\".",
    ),
    "no_flag": (
        {"tfcompile_flags": ["--xla_a=1 --xla_b=2", "O2"]},
        "O2 in tfcompile_flags isn't a flag; a flag is --NAME or --NAME=VALUE. To do: write it so, or remove it.",
    ),
    "other_class": (
        {"tfcompile_flags": "--cpp_class=a::Other"},
        "--cpp_class=a::Other in tfcompile_flags is a flag that the macro sets itself; its counterpart is the attribute cpp_class. " +
        "To do: use that, and remove the flag.",
    ),
    "other_compiler": (
        {"tfcompile_tool": "//my:tfcompile"},
        "tfcompile_tool = \"//my:tfcompile\"; the compiler is the one in TensorFlow's wheel, which a toolchain provides. " +
        "To do: remove tfcompile_tool; docs/guide/toolchain.md says how to choose the wheel.",
    ),
    "out": (
        {"tfcompile_flags": "--out_header=x.h"},
        "--out_header=x.h in tfcompile_flags is a flag that the macro sets itself; its counterpart is the output group header. " +
        "To do: use that, and remove the flag.",
    ),
    "saver": (
        {"freeze_saver": "small.saver"},
        "freeze_saver without freeze_checkpoint; a saver says how to read a checkpoint. " +
        "To do: add freeze_checkpoint, or remove freeze_saver.",
    ),
    "select": (
        {"tfcompile_flags": select({"//conditions:default": "--xla_a=1"})},
        "tfcompile_flags is a select(); the macro reads the flags before Bazel resolves it. " +
        "To do: use tf_aot_library, whose xla_flags can be a select() of lists.",
    ),
    "select_xla": (
        {"xla_flags": select({"//conditions:default": ["--xla_a=1"]})},
        "xla_flags is a select(); the macro reads the flags before Bazel resolves it. ",
    ),
    "several": (
        {"freeze_saver": "small.saver", "tfcompile_flags": "--target_cpu=native"},
        "freeze_saver without freeze_checkpoint; a saver says how to read a checkpoint. " +
        "To do: add freeze_checkpoint, or remove freeze_saver.\n" +
        "--target_cpu=native in tfcompile_flags isn't a CPU whose level is known; the levels are x86-64, x86-64-v2, x86-64-v3, " +
        "x86-64-v4, armv8-a, armv8.2-a+dotprod+fp16. To do: " + _LEVELS,
    ),
    "triple": (
        {"tfcompile_flags": "--target_triple=x86_64-pc-windows"},
        "--target_triple=x86_64-pc-windows in tfcompile_flags isn't supported; models are compiled for Linux on x86-64 and " +
        "Linux on 64-bit ARM. To do: remove the flag.",
    ),
    "triple_and_cpu": (
        {"tfcompile_flags": "--target_triple=aarch64-none-linux-gnu --target_cpu=haswell"},
        "--target_cpu=haswell in tfcompile_flags isn't a CPU whose level is known; the levels are armv8-a, armv8.2-a+dotprod+fp16. " +
        "To do: " + _LEVELS,
    ),
    "triple_android": (
        {"tfcompile_flags": "--target_triple=aarch64-none-android"},
        "--target_triple=aarch64-none-android in tfcompile_flags isn't supported; models are compiled for Linux on x86-64 and ",
    ),
    "unknown_flag": (
        {"tfcompile_flags": "--sanitize_dataflow"},
        "--sanitize_dataflow in tfcompile_flags isn't supported; " + _FLAGS,
    ),
}

def _translated_test_impl(ctx):
    """Protects targets that move from TensorFlow's rules: flags in any spelling reach the compiler, and CPUs become levels."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    asserts.equals(env, ctx.attr.levels, target[TfaotObjectInfo].isa)
    action = [action for action in analysistest.target_actions(env) if action.mnemonic == "TfaotCompile"][0]
    flags = [arg.removeprefix("--xla_flags=") for arg in action.argv if arg.startswith("--xla_flags=")]
    asserts.equals(env, ctx.attr.xla_flags or [""], flags)
    return analysistest.end(env)

_translated_test = analysistest.make(
    _translated_test_impl,
    attrs = {"levels": attr.string_list(), "xla_flags": attr.string_list()},
)

_DEFAULT = ["x86-64-v3", "x86-64-v4"]

_TRANSLATED = {
    "cpu": ({"tfcompile_flags": "--target_cpu=skylake-avx512"}, ["x86-64-v4"], []),
    "features": ({"tfcompile_flags": ["--target_features=+avx2,+fma"]}, ["x86-64-v3"], []),
    "level": ({"tfcompile_flags": "--target_cpu=x86-64-v2 --target_features=+sse2"}, ["x86-64-v2"], []),
    "none": ({"deps": [], "mlir_components": "Bridge", "tfcompile_flags": None, "xla_flags": None}, _DEFAULT, []),
    "notes": (
        {
            "copts": ["-DX"],
            "enable_tracemes": True,
            "enable_tracemes_generation": True,
            "enable_xla_hlo_profiling": True,
            "include_standard_runtime_deps": False,
            "tfcompile_flags": "--gen_name_to_index --gen_program_shape=true --use_xla_nanort_runtime --entry_point=e " +
                               "--cpp_class=small::Small --target_triple=x86_64-none-linux-gnu --debug_info_path_begin_marker=x",
            "tfcompile_tool": "//tensorflow/compiler/aot:tfcompile",
        },
        _DEFAULT,
        [],
    ),
    "quoted": (
        {"tfcompile_flags": "--xla_a='1 2'\n\t\"--xla_b=3\"\n", "xla_flags": "--xla_c=4  --xla_d=5"},
        _DEFAULT,
        ["--xla_a=1 2", "--xla_b=3", "--xla_c=4", "--xla_d=5"],
    ),
    "without": ({"tfcompile_flags": "--target_cpu=nehalem --target_features=+avx,-avx512f"}, ["x86-64-v3"], []),
}

_arm_test = analysistest.make(
    _translated_test_impl,
    attrs = {"levels": attr.string_list(), "xla_flags": attr.string_list()},
    config_settings = {"//command_line_option:platforms": str(Label("//tests/rules:linux_aarch64"))},
)

_ON_ARM = {
    "arm": ("--target_triple=aarch64-none-linux-gnu", "armv8-a"),
    "arm_cpu": ("--target_cpu=neoverse-n1", "armv8.2-a+dotprod+fp16"),
    "arm_features": ("--target_features=+neon,+dotprod", "armv8.2-a+dotprod+fp16"),
    "arm_generic": ("--target_cpu=generic --target_triple=aarch64-none-linux-gnu --target_features=+neon", "armv8-a"),
    "arm_level": ("--target_cpu=armv8-a", "armv8-a"),
}

def _checkpoint_test_impl(ctx):
    """Protects checkpoints however a target names them: the stage gets the index, and all files are its inputs."""
    env = analysistest.begin(ctx)
    action = [action for action in analysistest.target_actions(env) if action.mnemonic == "TfaotExport"][0]
    names = [file.basename for file in action.inputs.to_list()]
    for name in ["trained.ckpt.index", "trained.ckpt.data-00000-of-00002", "trained.ckpt.data-00001-of-00002"]:
        asserts.true(env, name in names, "{} isn't an input".format(name))
    asserts.true(env, "--checkpoint=tests/rules/checkpoint/trained.ckpt.index" in action.argv)
    return analysistest.end(env)

_checkpoint_test = analysistest.make(_checkpoint_test_impl)

_CHECKPOINTS = {
    "files": [
        "checkpoint/trained.ckpt.data-00000-of-00002",
        "checkpoint/trained.ckpt.data-00001-of-00002",
        "checkpoint/trained.ckpt.index",
    ],
    "filegroup": ":trained",
    "index": "checkpoint/trained.ckpt.index",
    "prefix": "checkpoint/trained.ckpt",
}

_REFUSED_CHECKPOINTS = {
    "no_data": (
        ["checkpoint/trained.ckpt.index"],
        "checkpoint names trained.ckpt.index, and none of the files with its values is beside it in the target's own package. " +
        "To do: name all files, trained.ckpt.index and each trained.ckpt.data-?????-of-?????, or a filegroup of them.",
    ),
    "two": (
        ["checkpoint/trained.ckpt.index", "checkpoint/other.ckpt.index"],
        "checkpoint names 2 checkpoints: trained.ckpt.index, other.ckpt.index. To do: name the files of one.",
    ),
}

def tf_library_test_suite(*, name):
    """Declares all tests in this file.

    Args:
      name: (str) the suite's name
    """
    own = {"tags": ["manual"], "testonly": 1, "visibility": ["//visibility:private"]}
    tests = []
    for case, (attributes, message) in _REFUSED.items():
        target = "{}.refused_{}".format(name, case)
        tf_library(
            name = target,
            config = "small.config.pbtxt",
            graph = "small.pb",
            **({"cpp_class": "small::Small"} | attributes | own)
        )
        for suffix in ("", "_test", "_benchmark"):
            test = "refused_{}{}_analysis_test".format(case, suffix)
            _refused_test(
                name = test,
                label_in_message = "//tests/rules:" + target + suffix,
                message = message,
                target_under_test = target + suffix,
            )
            tests.append(test)
            if case != "unknown_flag":
                break
    for case, (attributes, levels, xla_flags) in _TRANSLATED.items():
        target = "{}.{}".format(name, case)
        tf_library(
            name = target,
            config = "small.config.pbtxt",
            cpp_class = "small::Small",
            graph = "small.pb",
            **(attributes | own)
        )
        _translated_test(
            name = case + "_translated_test",
            levels = levels,
            target_under_test = target + ".compile",
            xla_flags = xla_flags,
        )
        tests.append(case + "_translated_test")
    for case, (flags, level) in _ON_ARM.items():
        target = "{}.{}".format(name, case)
        tf_library(
            name = target,
            config = "small.config.pbtxt",
            cpp_class = "small::Small",
            graph = "small.pb",
            tfcompile_flags = flags,
            **own
        )
        _arm_test(
            name = case + "_translated_test",
            levels = [level],
            target_under_test = target + ".compile",
        )
        tests.append(case + "_translated_test")
    native.filegroup(name = "trained", srcs = native.glob(["checkpoint/trained.*"]), **own)
    for case, checkpoint in _CHECKPOINTS.items():
        target = "{}.checkpoint_{}".format(name, case)
        tf_library(
            name = target,
            config = "small.config.pbtxt",
            cpp_class = "small::Small",
            freeze_checkpoint = checkpoint,
            graph = "checkpoint/trained.ckpt.meta",
            **own
        )
        _checkpoint_test(name = case + "_checkpoint_test", target_under_test = target + ".model")
        tests.append(case + "_checkpoint_test")
    for case, (checkpoint, message) in _REFUSED_CHECKPOINTS.items():
        target = "{}.checkpoint_{}".format(name, case)
        tf_model(
            name = target,
            checkpoint = checkpoint,
            source = "small.pb",
            **own
        )
        _refused_test(
            name = case + "_checkpoint_test",
            label_in_message = "//tests/rules:" + target,
            message = message,
            target_under_test = target,
        )
        tests.append(case + "_checkpoint_test")
    native.test_suite(name = name, tests = tests)
