"""Test files that share one TensorFlow."""

load("@rules_python//python:defs.bzl", "py_test")

def py_suite(*, name, tests, data = [], deps = [], env = {}, wide = False, **attributes):
    """Runs the files of a folder as one test, each in a child of one process that has imported TensorFlow.

    `bazel test //tests/FOLDER:suite --test_filter=names_test` runs one file. With `wide`, the target `wide` has the tests that
    `harness.wide` marks, in the tier `full`, and the suite has the others.

    Args:
      name: the test's name, `suite` by convention.
      tests: files of this package, `.py` or not: `glob(["*_test.py"])`, or some of them.
      data: files that the tests read.
      deps: what the tests import.
      env: variables of the environment.
      wide: whether some tests are marked.
      **attributes: additional ones of py_test, such as `shard_count`.
    """
    main = "//tests/stages:suite.py"
    files = [test.removesuffix(".py") + ".py" for test in tests]
    tiers = {name: ({"TFAOT_WIDE": "0"}, []), "wide": ({"TFAOT_WIDE": "1"}, ["full"])} if wide else {name: ({}, [])}
    for target, (tier, tags) in tiers.items():
        py_test(
            name = target,
            srcs = [main] + files,
            args = ["{}/{}".format(native.package_name(), file) for file in files],
            data = data,
            env = env | tier | {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"},  # as for the stages
            main = main,
            tags = attributes.get("tags", []) + tags,
            deps = depset(deps + ["//tests/stages:harness"]).to_list(),
            **{key: value for key, value in attributes.items() if key != "tags"}
        )
