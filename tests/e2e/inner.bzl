"""Tests that run Bazel."""

load("@rules_python//python:defs.bzl", "py_test")

def inner_test(*, name, srcs, data = [], deps = [], **attributes):
    """Declares a py_test that runs Bazel itself, outside the sandbox and with the caller's caches.

    Args:
      name: the test's name.
      srcs: its file.
      data: files that it reads, besides those of the rules.
      deps: what it imports, besides `inner`.
      **attributes: additional ones of py_test.
    """
    py_test(
        name = name,
        size = "large",
        srcs = srcs,
        data = data,
        env_inherit = [
            "HOME",
            "PATH",
            "RULES_TFAOT_CACHE",
            "XDG_CACHE_HOME",
        ],
        tags = [
            "full",
            "local",
        ],
        deps = ["//tests/e2e:inner"] + deps,
        **attributes
    )
