"""Errors for users whose machine or Python isn't supported, and which Pythons are."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")

# buildifier: disable=bzl-visibility
load(
    "//rules/private:python_version.bzl",
    "broken_python_error",
    "lock_on_arm",
    "no_pip_error",
    "no_python_error",
    "platform_error",
    "python_error",
    "supported_pythons",
    "uncopied_python_warning",
)

_SUPPORTED = supported_pythons("tensorflow-cpu==2.21.0 \\")

def _contains(env, text, pieces):
    for piece in pieces:
        asserts.true(env, piece in text, "{} isn't in: {}".format(repr(piece), text))

def _supported_test_impl(ctx):
    """Protects users without a problem: they see no error."""
    env = unittest.begin(ctx)
    for version in ["3.10", "3.11", "3.12", "3.13"]:
        asserts.equals(env, None, python_error("/usr/bin/python3", "cpython", version, _SUPPORTED))
    asserts.equals(env, None, platform_error("linux", "amd64"))
    asserts.equals(env, None, platform_error("linux", "aarch64"))
    return unittest.end(env)

_supported_test = unittest.make(_supported_test_impl)

def _old_python_test_impl(ctx):
    """Protects the error for an unsupported Python: which one was found, which ones are supported, and what to set."""
    env = unittest.begin(ctx)
    for version in ["3.9", "3.14", "2.7"]:
        _contains(
            env,
            python_error("/usr/bin/python3", "cpython", version, _SUPPORTED),
            ["/usr/bin/python3 is cpython " + version, "3.10, 3.11, 3.12, 3.13", "TFAOT_PYTHON"],
        )
    _contains(env, python_error("/opt/pypy", "pypy", "3.10", _SUPPORTED), ["/opt/pypy is pypy 3.10", "needs cpython"])
    return unittest.end(env)

def _wheels_test_impl(ctx):
    """Protects users of another TensorFlow: the Pythons are those of its wheel, whatever the package is called."""
    env = unittest.begin(ctx)
    asserts.equals(env, "3.10", _SUPPORTED[0])
    asserts.equals(env, _SUPPORTED, supported_pythons("a==1\ntensorflow==2.20.1 ; python_version < '4'\n"))
    asserts.equals(env, ["3.10", "3.11", "3.12", "3.13", "3.14"], supported_pythons("jax==0.9.0\n"))
    for lock in ["tf-nightly-cpu==2.22.0.dev20260905 \\", "tf-nightly==2.23.0.dev1"]:
        asserts.equals(env, ["3.11", "3.12", "3.13", "3.14"], supported_pythons(lock))
    return unittest.end(env)

_wheels_test = unittest.make(_wheels_test_impl)

_old_python_test = unittest.make(_old_python_test_impl)

def _broken_python_test_impl(ctx):
    """Protects the error for a Python that doesn't exist, such as a shim for a version that isn't installed."""
    env = unittest.begin(ctx)
    _contains(
        env,
        broken_python_error("/shims/python3.9", "pyenv: python3.9: command not found", _SUPPORTED),
        ["/shims/python3.9 doesn't run: pyenv: python3.9: command not found", "3.10, 3.11, 3.12, 3.13", "TFAOT_PYTHON"],
    )
    return unittest.end(env)

_broken_python_test = unittest.make(_broken_python_test_impl)

def _no_python_test_impl(ctx):
    """Protects the error if there is no Python: it lists everything that was tried."""
    env = unittest.begin(ctx)
    _contains(
        env,
        no_python_error(["python3 isn't on PATH", "/usr/bin/python3.13 doesn't run: boom"], _SUPPORTED),
        ["3.10, 3.11, 3.12, 3.13", "TFAOT_PYTHON", "\n  python3 isn't on PATH\n  /usr/bin/python3.13 doesn't run: boom"],
    )
    return unittest.end(env)

_no_python_test = unittest.make(_no_python_test_impl)

def _no_pip_test_impl(ctx):
    """Protects the error for Debian's minimal Python: how to get pip."""
    env = unittest.begin(ctx)
    _contains(env, no_pip_error("/usr/bin/python3"), ["/usr/bin/python3 has no pip", "ensurepip", "apt-get install python3-pip"])
    return unittest.end(env)

_no_pip_test = unittest.make(_no_pip_test_impl)

def _uncopied_python_test_impl(ctx):
    """Protects the warning for a Python whose copy doesn't run: the build works, and why caches aren't shared."""
    env = unittest.begin(ctx)
    _contains(
        env,
        uncopied_python_warning("/opt/conda/bin/python3.11", "libffi.so.8 is missing"),
        ["actions run /opt/conda/bin/python3.11 in its place", "libffi.so.8 is missing", "Builds work", "TFAOT_PYTHON"],
    )
    return unittest.end(env)

_uncopied_python_test = unittest.make(_uncopied_python_test_impl)

def _platform_test_impl(ctx):
    """Protects the error on machines for which TensorFlow's wheel doesn't exist."""
    env = unittest.begin(ctx)
    _contains(env, platform_error("mac os x", "aarch64"), ["linux aarch64 only", "mac os x aarch64", "remote execution"])
    _contains(env, platform_error("linux", "ppc64le"), ["linux ppc64le"])
    return unittest.end(env)

_platform_test = unittest.make(_platform_test_impl)

def _arm_lock_test_impl(ctx):
    """Protects builds on ARM: pip gets tensorflow in the place of tensorflow-cpu, and every other package of the lock."""
    env = unittest.begin(ctx)
    lock = "# head\na==1 \\\n    --hash=x\n    # via tensorflow-cpu\ntensorflow-cpu==2 ; b \\\n    --hash=y\n    # via -r in\nz==3\n"
    asserts.equals(
        env,
        "# head\na==1 \\\n    --hash=x\n    # via tensorflow-cpu\nz==3\ntensorflow==2\n",
        lock_on_arm(lock, "tensorflow==2\n"),
    )
    return unittest.end(env)

_arm_lock_test = unittest.make(_arm_lock_test_impl)

def python_version_test_suite(*, name):
    """Declares the tests.

    Args:
      name: (str) name of the test suite
    """
    unittest.suite(
        name,
        _supported_test,
        _old_python_test,
        _wheels_test,
        _broken_python_test,
        _no_python_test,
        _no_pip_test,
        _uncopied_python_test,
        _platform_test,
        _arm_lock_test,
    )
