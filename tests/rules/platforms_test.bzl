"""Target platforms: a model compiles for those that are supported, and for any other there is one error, before anything runs."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//rules:defs.bzl", "TfaotHloInfo", "TfaotObjectInfo", "tf_aot_clusters", "tf_aot_compile")

_OS = "@platforms//os:"
_CPU = "@platforms//cpu:"
_CONSTRAINTS = {
    "android_aarch64": [_OS + "android", _CPU + "aarch64"],
    "linux_aarch64": [_OS + "linux", _CPU + "aarch64"],
    "linux_armv7": [_OS + "linux", _CPU + "armv7"],
    "linux_s390x": [_OS + "linux", _CPU + "s390x"],
    "linux_x86_32": [_OS + "linux", _CPU + "x86_32"],
    "linux_x86_64": [_OS + "linux", _CPU + "x86_64"],
    "macos_aarch64": [_OS + "macos", _CPU + "aarch64"],
    "macos_x86_64": [_OS + "macos", _CPU + "x86_64"],
    "unknown": [],
    "windows_x86_64": [_OS + "windows", _CPU + "x86_64"],
}

def _settings(platform):
    return {"//command_line_option:platforms": str(Label("//tests/rules:" + platform))}

def _refused_test_impl(ctx):
    """Protects who builds for another platform: the error says which one, what it lacks, what is supported, and what to do."""
    env = analysistest.begin(ctx)
    for text in [
        "small_aot.compile would be compiled for the platform ",
        "//tests/rules:{}, which lacks {}. ".format(ctx.attr.platform, ctx.attr.lacks),
        "Models can be compiled for Linux on x86-64 (@platforms//os:linux, @platforms//cpu:x86_64) and Linux on 64-bit ARM " +
        "(@platforms//os:linux, @platforms//cpu:aarch64). To do: set --platforms to such ",
        "target_compatible_with = [\"@platforms//os:linux\", \"@platforms//cpu:x86_64\"] or " +
        "[\"@platforms//os:linux\", \"@platforms//cpu:aarch64\"].",
    ]:
        asserts.expect_failure(env, text)
    return analysistest.end(env)

def _refused_test(platform):
    return analysistest.make(
        _refused_test_impl,
        attrs = {"lacks": attr.string(), "platform": attr.string(default = platform)},
        config_settings = _settings(platform),
        expect_failure = True,
    )

# What tests don't run on: the platforms' titles, LLVM's names for them, and their levels.
_UNTESTED = {
    "android_aarch64": ("Android on 64-bit ARM", "aarch64-none-linux-android", ["armv8-a"]),
    "macos_aarch64": ("macOS on 64-bit ARM", "arm64-apple-macosx11.0.0", ["armv8.2-a+dotprod+fp16"]),
    "macos_x86_64": ("macOS on x86-64", "x86_64-apple-macosx11.0.0", ["x86-64-v3"]),
    "windows_x86_64": ("Windows on x86-64", "x86_64-pc-windows-gnu", ["x86-64-v3"]),
}

def _untested_test_impl(ctx):
    """Protects who builds for a platform that no test has run on: the error says so, and names the flag that allows it."""
    env = analysistest.begin(ctx)
    platform = ctx.attr.platform
    asserts.expect_failure(env, ".default would be compiled for {} (the platform ".format(_UNTESTED[platform][0]))
    asserts.expect_failure(
        env,
        ("//tests/rules:{}), where nobody has run a model yet. Tested are Linux on x86-64 and Linux on 64-bit ARM. To do: set " +
         "--platforms to one of these, or try it with --@rules_tfaot//rules:untested_platforms.").format(platform),
    )
    return analysistest.end(env)

def _untested_test(platform):
    return analysistest.make(
        _untested_test_impl,
        attrs = {"platform": attr.string(default = platform)},
        config_settings = _settings(platform),
        expect_failure = True,
    )

def _opened_test_impl(ctx):
    """Protects who tries such a platform: with the flag, the compiler gets the platform's name and its own default levels."""
    env = analysistest.begin(ctx)
    _, triple, levels = _UNTESTED[ctx.attr.platform]
    asserts.equals(env, levels, analysistest.target_under_test(env)[TfaotObjectInfo].isa)
    (action,) = [action for action in analysistest.target_actions(env) if action.mnemonic == "TfaotCompile"]
    flags = [flag for flag in action.argv if flag.startswith("--target_triple=")]
    asserts.equals(env, ["--target_triple=" + triple], flags)
    return analysistest.end(env)

def _opened_test(platform):
    return analysistest.make(
        _opened_test_impl,
        attrs = {"platform": attr.string(default = platform)},
        config_settings = _settings(platform) | {str(Label("//rules:untested_platforms")): True},
    )

_untested_android_aarch64_test = _untested_test("android_aarch64")
_untested_macos_aarch64_test = _untested_test("macos_aarch64")
_untested_macos_x86_64_test = _untested_test("macos_x86_64")
_untested_windows_x86_64_test = _untested_test("windows_x86_64")
_opened_android_aarch64_test = _opened_test("android_aarch64")
_opened_macos_aarch64_test = _opened_test("macos_aarch64")
_opened_macos_x86_64_test = _opened_test("macos_x86_64")
_opened_windows_x86_64_test = _opened_test("windows_x86_64")

def _other_tensorflow_test_impl(ctx):
    """Protects who builds the op of clusters for another architecture than TensorFlow's: one error, not the linker's."""
    env = analysistest.begin(ctx)
    for text in [
        "platforms_test_clusters links TensorFlow, and the TensorFlow of this build is for x86_64, and the platform ",
        "isn't. To do: build NAME_library, which doesn't link TensorFlow; or give TensorFlow's C API for the platform as a " +
        "cc_library: --@rules_tfaot//rules:target_tensorflow=//:tensorflow.",
    ]:
        asserts.expect_failure(env, text)
    return analysistest.end(env)

_other_tensorflow_test = analysistest.make(
    _other_tensorflow_test_impl,
    config_settings = _settings("linux_aarch64") | {
        "//command_line_option:extra_toolchains": [str(Label("//tests/rules/arm:toolchain"))],
    },
    expect_failure = True,
)

_linux_armv7_test = _refused_test("linux_armv7")
_linux_s390x_test = _refused_test("linux_s390x")
_linux_x86_32_test = _refused_test("linux_x86_32")
_unknown_test = _refused_test("unknown")

def _analyzed_test_impl(ctx):
    """Protects what isn't refused: a platform that a user declares for x86-64 Linux, and HLO, which is for any machine."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    asserts.true(env, (TfaotHloInfo if ctx.attr.hlo else TfaotObjectInfo) in target)
    return analysistest.end(env)

def _default_test_impl(ctx):
    """Protects models that name no level: they get those of the flag that the platform has, or else the platform's own."""
    env = analysistest.begin(ctx)
    asserts.equals(env, ctx.attr.levels, analysistest.target_under_test(env)[TfaotObjectInfo].isa)
    return analysistest.end(env)

def _default_test(platform, levels, flag = []):
    return analysistest.make(
        _default_test_impl,
        attrs = {"levels": attr.string_list(default = levels)},
        config_settings = _settings(platform) | {str(Label("//rules:cpu")): flag},
    )

def _wrong_level_test_impl(ctx):
    """Protects models whose BUILD file names levels: on another platform, the error says which levels it has, and what to do."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(
        env,
        "x86-64 isn't a CPU level of Linux on 64-bit ARM; its levels are armv8-a, armv8.2-a+dotprod+fp16. To do: remove cpu " +
        "to get armv8-a, or let it depend on the platform: " +
        "select({\"@platforms//cpu:x86_64\": […], \"@platforms//cpu:aarch64\": […]}).",
    )
    return analysistest.end(env)

_default_x86_64_test = _default_test("linux_x86_64", ["x86-64-v3", "x86-64-v4"])
_default_aarch64_test = _default_test("linux_aarch64", ["armv8-a"])
_flag_x86_64_test = _default_test("linux_x86_64", ["x86-64", "x86-64-v3"], ["armv8-a", "x86-64-v3", "x86-64"])
_flag_aarch64_test = _default_test("linux_aarch64", ["armv8-a"], ["x86-64-v3"])
_wrong_level_test = analysistest.make(
    _wrong_level_test_impl,
    config_settings = _settings("linux_aarch64"),
    expect_failure = True,
)
_hlo_test = analysistest.make(
    _analyzed_test_impl,
    attrs = {"hlo": attr.bool(default = True)},
    config_settings = _settings("macos_aarch64"),
)

def platforms_test_suite(*, name, library):
    """Declares all tests in this file.

    Args:
      name: (str) the suite's name
      library: (str) a tf_aot_library target named small_aot
    """
    for platform, constraints in _CONSTRAINTS.items():
        native.platform(name = platform, constraint_values = constraints)
    compiled = library + ".compile"
    linux, x86_64, aarch64 = _OS + "linux", _CPU + "x86_64", _CPU + "aarch64"
    neither = x86_64 + ", or " + aarch64
    nothing = "{0} and {1}, or {0} and {2}".format(linux, x86_64, aarch64)
    _linux_armv7_test(name = "linux_armv7_test", lacks = neither, target_under_test = compiled)
    _linux_s390x_test(name = "linux_s390x_test", lacks = neither, target_under_test = compiled)
    _linux_x86_32_test(name = "linux_x86_32_test", lacks = neither, target_under_test = compiled)
    _unknown_test(name = "unknown_platform_test", lacks = nothing, target_under_test = compiled)
    tf_aot_compile(
        name = name + ".default",
        cpu = ["default"],
        graph = library + ".export",
        tags = ["manual"],
        testonly = True,
        visibility = ["//visibility:private"],
    )
    untested = {
        "android_aarch64": (_untested_android_aarch64_test, _opened_android_aarch64_test),
        "macos_aarch64": (_untested_macos_aarch64_test, _opened_macos_aarch64_test),
        "macos_x86_64": (_untested_macos_x86_64_test, _opened_macos_x86_64_test),
        "windows_x86_64": (_untested_windows_x86_64_test, _opened_windows_x86_64_test),
    }
    for platform, (untested_test, opened_test) in untested.items():
        untested_test(name = "untested_{}_test".format(platform), target_under_test = name + ".default")
        opened_test(name = "opened_{}_test".format(platform), target_under_test = name + ".default")
    tf_aot_clusters(
        name = name + "_clusters",
        testonly = True,
        cpp_class = "small::Clusters",
        gen_test = False,
        model = "small.py",
        tags = ["manual"],
    )
    _other_tensorflow_test(name = "other_tensorflow_test", target_under_test = name + "_clusters")
    _default_x86_64_test(name = "linux_x86_64_test", target_under_test = name + ".default")
    _default_aarch64_test(name = "linux_aarch64_test", target_under_test = name + ".default")
    _flag_x86_64_test(name = "flag_linux_x86_64_test", target_under_test = name + ".default")
    _flag_aarch64_test(name = "flag_linux_aarch64_test", target_under_test = name + ".default")
    _wrong_level_test(name = "wrong_level_test", target_under_test = compiled)
    _hlo_test(name = "hlo_for_any_platform_test", target_under_test = library + ".hlo")
    native.test_suite(
        name = name,
        tests = ["{}_{}_test".format(kind, platform) for platform in _UNTESTED for kind in ["opened", "untested"]] + [
            "flag_linux_aarch64_test",
            "flag_linux_x86_64_test",
            "hlo_for_any_platform_test",
            "linux_aarch64_test",
            "linux_armv7_test",
            "linux_s390x_test",
            "linux_x86_32_test",
            "linux_x86_64_test",
            "other_tensorflow_test",
            "unknown_platform_test",
            "wrong_level_test",
        ],
    )
