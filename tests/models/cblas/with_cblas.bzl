"""Runs a test as in a build with --//rules:cblas=…."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_FLAG = "//rules:cblas"
_COPTS = "//command_line_option:per_file_copt"

def _to_cblas_impl(_settings, attr):
    # This build compiles all kernels again. The tests are about which products go to the library, not about our own code for them.
    return {_FLAG: attr.cblas, _COPTS: [r"runtime/tfaot/kernels/.*\.cc@-O0"]}

_to_cblas = transition(
    implementation = _to_cblas_impl,
    inputs = [],
    outputs = [_FLAG, _COPTS],
)

def _with_cblas_test_impl(ctx):
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = program, target_file = ctx.executable.test, is_executable = True)
    return [
        DefaultInfo(executable = program, runfiles = ctx.attr.test[0][DefaultInfo].default_runfiles),
        RunEnvironmentInfo(environment = ctx.attr.env),
    ]

with_cblas_test = rule(
    implementation = _with_cblas_test_impl,
    doc = "Runs a test that is built with the flag set for it and all that it depends on.",
    attrs = {
        "cblas": attr.label(
            doc = "The flag's value.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "env": attr.string_dict(
            doc = "The environment of the test.",
        ),
        "test": attr.label(
            doc = "The test.",
            mandatory = True,
            executable = True,
            cfg = _to_cblas,
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    test = True,
)

def _package_test_impl(ctx):
    """Protects programs that get a package from a library that it lacks: such a build has one error, before anything runs."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(
        env,
        "_package: this build uses another library for matrix products, which a package doesn't contain. " +
        "To do: build the package without --@rules_tfaot//rules:cblas.",
    )
    return analysistest.end(env)

package_test = analysistest.make(
    _package_test_impl,
    config_settings = {str(Label(_FLAG)): str(Label("//tests/models/cblas:openblas"))},
    expect_failure = True,
)
