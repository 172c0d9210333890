"""Attributes that all Bazel rules have, or all C++ libraries: the macros hand each of them on to the right targets."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts", "unittest")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//rules:defs.bzl", "tf_aot_hlo", "tf_aot_library")
load("//runtime:copts.bzl", "CXX")

# Bazel never analyzes targets with these attributes, because they are manual.
_COMMON = {
    "deprecation": "use the next model",
    "exec_properties": {"mem": "8g"},
    "restricted_to": [":somewhere"],
    "tags": ["manual", "some-tag"],
    "target_compatible_with": [":some_cpu"],
    "testonly": True,
    "visibility": ["//tests:__pkg__"],
}
_CPP = {
    "copts": ["-DTFAOT_COPT=$(TARGET_CPU)", "-O1", "-ffast-math"],
    "features": ["treat_warnings_as_errors"],
    "linkopts": ["-Wl,--defsym=tfaot_linkopt=1"],
}

_PUBLIC = [
    "",
    "_benchmark",
    "_bundle",
    "_config_test",
    "_package",
    "_report",
    "_shared",
    "_stub",
    "_stub_header_test",
    "_stub_source_test",
    "_taps_test",
    "_test",
]
_CPP_TARGETS = ["", "_test", "_benchmark", "_taps_test", ".taps"]

def _expected(macro, suffix):
    """Returns what a target's rule should have, by attribute."""
    expected = {name: _COMMON[name] for name in ("exec_properties", "restricted_to", "target_compatible_with", "testonly")}
    public = suffix in _PUBLIC
    if suffix.endswith(".cc") or suffix in (".config", ".stub.header", ".stub.source", ".variables"):
        expected["exec_properties"] = None  # a filegroup runs nothing
    expected["visibility"] = _COMMON["visibility"] if public else ["//visibility:private"]
    expected["tags"] = (["benchmark"] if suffix == "_benchmark" else []) + _COMMON["tags"]
    expected["deprecation"] = None if suffix else _COMMON["deprecation"]
    if macro == "library" and suffix in _CPP_TARGETS:
        expected |= {name: _CPP[name] for name in ("copts", "features")}
        if suffix in ("", ".taps"):
            expected["linkopts"] = _CPP["linkopts"]
        else:
            expected["copts"] = CXX + expected["copts"]
    elif suffix in ("_shared", "_stub"):
        expected["features"] = _CPP["features"]
    return expected

def _found(rule, names):
    """Returns what a target's rule has. A testonly that is the rule's own default isn't an attribute."""
    found = {name: rule.get(name) for name in names}
    found["testonly"] = found["testonly"] or rule["kind"].endswith("_test")
    found["tags"] = sorted({tag: None for tag in found["tags"]})
    return {
        name: {key: value[key] for key in value} if type(value) == "dict" else list(value) if type(value) == "tuple" else value
        for name, value in found.items()
    }

def _declared_test_impl(ctx):
    """Protects users who set an attribute on the macro: no target drops it, and none has one that it shouldn't."""
    env = unittest.begin(ctx)
    asserts.true(env, len(ctx.attr.found) > 4)
    for target, expected in ctx.attr.expected.items():
        asserts.equals(env, expected, ctx.attr.found[target], target)
    return unittest.end(env)

_declared_test = unittest.make(_declared_test_impl, attrs = {
    "expected": attr.string_dict(),
    "found": attr.string_dict(),
})

def _cpp_test_impl(ctx):
    """Protects users of copts, features, and linkopts, and the numbers: our flags for these come after the user's."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    compiled = [
        action.argv
        for action in analysistest.target_actions(env)
        if action.mnemonic == "CppCompile" and [arg for arg in action.argv if arg.endswith(".cc")]
    ]
    asserts.true(env, len(compiled) >= 2, "the class and the executor")
    for argv in compiled:
        given = [arg for arg in argv if arg.startswith("-DTFAOT_COPT=") and "$" not in arg]
        asserts.equals(env, 1, len(given), "the user's copts, with Make variables expanded")
        ours = "-Os" if "-Os" in argv else "-O3"
        asserts.true(env, argv.index("-O1") > argv.index(ours), "the user's copts win")
        asserts.true(env, argv.index("-fno-fast-math") > argv.index("-ffast-math"), "but not over our numbers")
        asserts.true(env, "-Werror" in argv, "the feature")
    flags = [flag for input in target[CcInfo].linking_context.linker_inputs.to_list() for flag in input.user_link_flags]
    asserts.true(env, _CPP["linkopts"][0] in flags, str(flags))
    return analysistest.end(env)

_cpp_test = analysistest.make(_cpp_test_impl)

def common_test_suite(*, name):
    """Declares all tests in this file.

    Args:
      name: (str) the suite's name
    """
    before = native.existing_rules().keys()
    tf_aot_library(
        name = "common_aot",
        config_golden = "common.config.pbtxt",
        cpp_class = "common::Common",
        embed_variables = False,
        model = "small.py",
        stub_golden = "common",
        taps = ["*"],
        **(_COMMON | _CPP)
    )
    library = [target for target in native.existing_rules().keys() if target not in before]
    tf_aot_hlo(name = "common_hlo", model = "small.py", **_COMMON)
    hlo = [target for target in native.existing_rules().keys() if target not in before + library]
    tests = []
    for macro, start, targets in [("library", "common_aot", library), ("hlo", "common_hlo", hlo)]:
        expected = {target: _expected(macro, target.removeprefix(start)) for target in targets}
        _declared_test(
            name = macro + "_attributes_test",
            expected = {target: json.encode(attributes) for target, attributes in expected.items()},
            found = {
                target: json.encode(_found(native.existing_rule(target), attributes))
                for target, attributes in expected.items()
            },
        )
        tests.append(macro + "_attributes_test")
    tf_aot_library(
        name = "flags_aot",
        cpp_class = "flags::Flags",
        model = "small.py",
        tags = ["manual"],
        testonly = True,
        **_CPP
    )
    _cpp_test(name = "flags_test", target_under_test = ":flags_aot")
    native.test_suite(name = name, tests = tests + ["flags_test"])
