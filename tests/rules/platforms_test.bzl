"""Target platforms: a model compiles for those that are supported, and for any other there is one error, before anything runs."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//rules:defs.bzl", "TfaotHloInfo", "TfaotObjectInfo", "tf_aot_compile")

_OS = "@platforms//os:"
_CPU = "@platforms//cpu:"
_CONSTRAINTS = {
    "linux_aarch64": [_OS + "linux", _CPU + "aarch64"],
    "linux_armv7": [_OS + "linux", _CPU + "armv7"],
    "linux_s390x": [_OS + "linux", _CPU + "s390x"],
    "linux_x86_32": [_OS + "linux", _CPU + "x86_32"],
    "linux_x86_64": [_OS + "linux", _CPU + "x86_64"],
    "macos_aarch64": [_OS + "macos", _CPU + "aarch64"],
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

_linux_armv7_test = _refused_test("linux_armv7")
_linux_s390x_test = _refused_test("linux_s390x")
_linux_x86_32_test = _refused_test("linux_x86_32")
_macos_aarch64_test = _refused_test("macos_aarch64")
_unknown_test = _refused_test("unknown")
_windows_x86_64_test = _refused_test("windows_x86_64")

def _analyzed_test_impl(ctx):
    """Protects what isn't refused: a platform that a user declares for x86-64 Linux, and HLO, which is for any machine."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    asserts.true(env, (TfaotHloInfo if ctx.attr.hlo else TfaotObjectInfo) in target)
    return analysistest.end(env)

def _default_test_impl(ctx):
    """Protects builds for 64-bit ARM: a model that names no level gets the platform's own."""
    env = analysistest.begin(ctx)
    asserts.equals(env, ctx.attr.levels, analysistest.target_under_test(env)[TfaotObjectInfo].isa)
    return analysistest.end(env)

def _default_test(platform, levels):
    return analysistest.make(
        _default_test_impl,
        attrs = {"levels": attr.string_list(default = levels)},
        config_settings = _settings(platform),
    )

def _wrong_level_test_impl(ctx):
    """Protects models whose BUILD file names levels: on another platform, the error says which levels it has, and what to do."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(
        env,
        "x86-64-v2 isn't a CPU level of Linux on 64-bit ARM; its levels are armv8-a, armv8.2-a+dotprod+fp16. To do: remove cpu and isa " +
        "to get armv8-a, or let them depend on the platform: " +
        "select({\"@platforms//cpu:x86_64\": …, \"@platforms//cpu:aarch64\": …}).",
    )
    return analysistest.end(env)

_default_x86_64_test = _default_test("linux_x86_64", ["x86-64-v3", "x86-64-v4"])
_default_aarch64_test = _default_test("linux_aarch64", ["armv8-a"])
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
    _macos_aarch64_test(
        name = "macos_aarch64_test",
        lacks = "{0} and {1}, or {0}".format(linux, x86_64),
        target_under_test = compiled,
    )
    _unknown_test(name = "unknown_platform_test", lacks = nothing, target_under_test = compiled)
    _windows_x86_64_test(
        name = "windows_x86_64_test",
        lacks = "{0}, or {0} and {1}".format(linux, aarch64),
        target_under_test = compiled,
    )
    tf_aot_compile(
        name = name + ".default",
        cpu = "default",
        graph = library + ".export",
        tags = ["manual"],
        testonly = True,
        visibility = ["//visibility:private"],
    )
    _default_x86_64_test(name = "linux_x86_64_test", target_under_test = name + ".default")
    _default_aarch64_test(name = "linux_aarch64_test", target_under_test = name + ".default")
    _wrong_level_test(name = "wrong_level_test", target_under_test = compiled)
    _hlo_test(name = "hlo_for_any_platform_test", target_under_test = library + ".hlo")
    native.test_suite(
        name = name,
        tests = [
            "hlo_for_any_platform_test",
            "linux_aarch64_test",
            "linux_armv7_test",
            "linux_s390x_test",
            "linux_x86_32_test",
            "linux_x86_64_test",
            "macos_aarch64_test",
            "unknown_platform_test",
            "windows_x86_64_test",
            "wrong_level_test",
        ],
    )
