"""The toolchain's provider, for each way to specify Python and packages."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("@bazel_skylib//rules:write_file.bzl", "write_file")
load("@rules_python//python:defs.bzl", "py_library", "py_runtime")
load("//rules:toolchain.bzl", "tfaot_toolchain")

_TYPE = "//rules:toolchain_type"

def _info(env):
    return analysistest.target_under_test(env)[platform_common.ToolchainInfo].tfaot

def _library(info):
    """Returns the interpreter's files without itself, which rules_python lists since 1.0."""
    return [file.basename for file in info.interpreter_files.to_list() if file != info.interpreter]

def _resolved_impl(ctx):
    return [ctx.toolchains[_TYPE]]

# Forwards the toolchain that a stage would get.
_resolved = rule(implementation = _resolved_impl, toolchains = [_TYPE])

def _default_test_impl(ctx):
    """Protects the default toolchain: it is registered, packages and library are directories, and no path of the machine is in it."""
    env = analysistest.begin(ctx)
    info = _info(env)
    packages = info.packages.to_list()
    asserts.equals(env, 1, len(packages))
    asserts.equals(env, "site-packages", packages[0].basename)
    asserts.equals(env, [packages[0].path], info.imports.to_list())
    asserts.true(env, packages[0].path.startswith("external/"))
    asserts.equals(env, None, info.interpreter_path)
    asserts.true(env, info.interpreter.path.startswith("external/"), info.interpreter.path)
    asserts.true(env, "/python/bin/python3." in info.interpreter.path, info.interpreter.path)
    asserts.equals(env, 1, len(_library(info)))
    asserts.equals(env, "2.21.0", info.tensorflow_version)
    return analysistest.end(env)

_default_test = analysistest.make(_default_test_impl)

def _libraries_test_impl(ctx):
    """Protects users with their own packages: libraries come from PyInfo, and an interpreter can be a file."""
    env = analysistest.begin(ctx)
    info = _info(env)
    asserts.equals(env, "python3", info.interpreter.basename)
    asserts.equals(env, None, info.interpreter_path)
    asserts.equals(env, ["stdlib.zip"], _library(info))
    names = [file.basename for file in info.packages.to_list()]
    asserts.true(env, "fake.py" in names, str(names))
    asserts.true(env, "data.txt" in names, str(names))
    asserts.equals(env, ["tests/rules/toolchain/lib"], info.imports.to_list())
    asserts.equals(env, "9.9.9", info.tensorflow_version)
    asserts.equals(env, "fake_toolchain", info.label.name)

    # Another version of a package restarts the workers.
    asserts.equals(env, ["METADATA"], [file.basename for file in info.stamps.to_list()])
    return analysistest.end(env)

_libraries_test = analysistest.make(_libraries_test_impl)

def _own_packages_test_impl(ctx):
    """Protects the claim that @pip//tensorflow works as a replacement: a library in another repository is found below external/."""
    env = analysistest.begin(ctx)
    info = _info(env)
    imports = info.imports.to_list()
    packages = [file.path for file in info.packages.to_list()]
    asserts.true(env, len(imports) == 1 and imports[0].startswith("external/"), str(imports))
    asserts.true(env, imports[0] in packages, str(packages))
    return analysistest.end(env)

_own_packages_test = analysistest.make(_own_packages_test_impl)

def _wrong_packages_test_impl(ctx):
    """Protects users who name a filegroup of files, which doesn't determine PYTHONPATH."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "must be loaded from @rules_python//python:defs.bzl")
    return analysistest.end(env)

_wrong_packages_test = analysistest.make(_wrong_packages_test_impl, expect_failure = True)

def toolchain_test_suite(*, name):
    """Declares the tests.

    Args:
      name: (str) name of the test suite
    """
    manual = ["manual"]
    _resolved(name = "resolved", tags = manual)
    for out in ["lib/data.txt", "lib/fake-1.0.dist-info/METADATA", "lib/fake.py", "python3", "stdlib.zip"]:
        write_file(name = "write_" + out.replace("/", "_"), out = out, tags = manual)
    py_runtime(
        name = "fake_runtime",
        files = ["stdlib.zip"],
        interpreter = "python3",
        python_version = "PY3",
        tags = manual,
    )
    py_library(
        name = "fake_library",
        srcs = ["lib/fake.py"],
        data = ["lib/data.txt", "lib/fake-1.0.dist-info/METADATA"],
        imports = ["lib"],
        tags = manual,
    )
    native.filegroup(name = "fake_files", srcs = ["lib/fake.py", "lib/data.txt"], tags = manual)
    for toolchain, packages in [
        ("fake_toolchain", ":fake_library"),
        ("own_toolchain", "@tfaot_tensorflow//:packages"),
        ("wrong_toolchain", ":fake_files"),
    ]:
        tfaot_toolchain(
            name = toolchain,
            python_packages = [packages],
            python_runtime = ":fake_runtime",
            tags = manual,
            tensorflow_version = "9.9.9",
        )

    _default_test(name = name + "_default", target_under_test = ":resolved")
    _libraries_test(name = name + "_libraries", target_under_test = ":fake_toolchain")
    _own_packages_test(name = name + "_own_packages", target_under_test = ":own_toolchain")
    _wrong_packages_test(name = name + "_wrong_packages", target_under_test = ":wrong_toolchain")
    native.test_suite(
        name = name,
        tests = [name + suffix for suffix in ["_default", "_libraries", "_own_packages", "_wrong_packages"]],
    )
