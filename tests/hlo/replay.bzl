"""Tests that a bundle's HLO computes TensorFlow's results in a compiler other than tfcompile."""

load("@rules_python//python:defs.bzl", "py_test")

visibility(["//examples/...", "//tests/..."])

def tf_aot_replay_test(*, name, bundle, size = "small", **kwargs):
    """Replays a bundle with JAX on the CPU, from each form of the program that it contains.

    For this repository's own tests. Users don't have `@tfaot_jax`, and run the bundle's replay.py.

    Args:
      name: (str) the test's name
      bundle: (Label) target of `tf_aot_bundle`
      size: (str) Bazel's test size
      **kwargs: additional attributes of py_test
    """
    py_test(
        name = name,
        size = size,
        srcs = [Label("//py/tfaot/hlo:replay.py")],
        args = ["$(rootpath {})".format(bundle)],
        data = [bundle],
        # Otherwise, Bazel creates empty __init__.py files next to replay.py. In a reused sandbox, it writes them through an earlier
        # test's links, which empties our own.
        legacy_create_init = 0,
        main = Label("//py/tfaot/hlo:replay.py"),
        deps = ["@tfaot_jax//:jax"],
        **kwargs
    )
