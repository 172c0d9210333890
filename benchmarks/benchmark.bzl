"""A model in the benchmark: our library, stock tfcompile output for the same graph, and a driver for each."""

load("@bazel_skylib//rules:write_file.bzl", "write_file")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load("//rules:defs.bzl", "tf_aot_library", "tf_model")
load(":stock.bzl", "stock_tfcompile")

visibility(["//benchmarks/..."])

# BUILD explains why all of this is manual.

_MODEL = """\
from benchmarks.adapters import keras_ops

golden_fn = keras_ops.golden("{name}")


def model():
    return keras_ops.compiled("{name}")
"""

_TRAINER = """\
from benchmarks.adapters import keras_ops

golden_fn = keras_ops.golden("{name}")
model = keras_ops.compiled("{name}")
"""

# Programs are one file, as in docs/guide/embedding.md: a shared C++ library takes longer to load than a small model takes to run.
_ONE_FILE = ["fully_static_link"]

def driver(*, name, library, testonly = False):
    """Declares NAME_driver.

    Args:
      name: (str) the model's name in the benchmark
      library: (Label) its tf_aot_library
      testonly: (bool) as that of the library
    """
    native.filegroup(
        name = name + ".manifest",
        testonly = testonly,
        srcs = [library],
        output_group = "manifest",
        tags = ["manual"],
    )
    package, _, target = library.removeprefix("//").partition(":")
    native.genrule(
        name = name + ".driver.cc",
        testonly = testonly,
        srcs = [name + ".manifest"],
        outs = [name + "_driver.cc"],
        cmd = "$(execpath :bind) $(execpaths {}.manifest) {}/{}.h $@".format(name, package, target),
        tags = ["manual"],
        tools = [":bind"],
    )
    cc_binary(
        name = name + "_driver",
        testonly = testonly,
        srcs = [name + "_driver.cc"],
        copts = ["-O2"],
        features = _ONE_FILE,
        tags = ["manual"],
        deps = [
            library,
            ":driver",
        ],
    )

def drivers(*, name, library):
    """Declares NAME_driver, NAME_threads_driver (with threads), and NAME_stock (built with tfcompile's defaults).

    Args:
      name: (str) the model's name in the benchmark
      library: (Label) its tf_aot_library
    """
    driver(name = name, library = library)
    cc_binary(
        name = name + "_threads_driver",
        srcs = [name + "_driver.cc"],
        copts = ["-O2"],
        features = _ONE_FILE,
        local_defines = ["TFAOT_BENCHMARKS_THREADS"],
        tags = ["manual"],
        deps = [
            library,
            ":driver",
            "//runtime:threads",
        ],
    )
    stock_tfcompile(
        name = name + ".stock",
        graph = library,
        stem = name,
        tags = ["manual"],
    )
    for group in ["header", "variables"]:
        native.filegroup(
            name = "{}.stock.{}".format(name, group),
            srcs = [name + ".stock"],
            output_group = group,
            tags = ["manual"],
        )

    # A library, because a binary can't declare a file that its source includes with .incbin.
    cc_library(
        name = name + ".stock.library",
        srcs = [
            name + ".stock",
            name + ".stock.header",
        ],
        additional_compiler_inputs = [name + ".stock.variables"],
        # Exactly what tfcompile's documentation says: the compiler's default CPU, -O2.
        copts = [
            "-O2",
            "-DNDEBUG",
            "-w",
        ],
        alwayslink = True,
        tags = ["manual"],
        deps = [
            ":driver",
            ":stock_runtime",
        ],
    )
    cc_binary(
        name = name + "_stock",
        features = _ONE_FILE,
        tags = ["manual"],
        deps = [name + ".stock.library"],
    )

def benchmark_model(*, name, training = False, unseen = []):
    """Declares NAME_aot, the library for a model in definitions.py, and its drivers.

    Args:
      name: (str) the model's name in definitions.py
      training: (bool) whether it is a training step
      unseen: (list[str]) as in tf_aot_library. Weights are drawn, and some of them hardly matter.
    """
    write_file(
        name = name + ".model",
        out = name + "_model.py",
        content = (_TRAINER if training else _MODEL).format(name = name).split("\n"),
        tags = ["manual"],
    )
    tf_model(
        name = name + "_aot.model",
        entry_points = ["train"] if training else None,
        golden_steps = 1,
        source = name + "_model.py",
        tags = ["manual"],
        deps = [":models"],
    )
    tf_aot_library(
        name = name + "_aot",
        cpp_class = "benchmarks::" + "".join([part.capitalize() for part in name.split("_")]),
        model = name + "_aot.model",
        tags = ["manual"],
        test_size = "medium",
        unseen = unseen,
    )
    native.filegroup(
        name = name + ".exported",
        srcs = [name + "_aot.export"],
        tags = ["manual"],
    )
    drivers(name = name, library = "//benchmarks:{}_aot".format(name))

def narrow_model(*, name, dtype):
    """Declares NAME_DTYPE_aot, the library for a model of `benchmark_model` whose weights have fewer bits, and its driver.

    Args:
      name: (str) the model's name in definitions.py
      dtype: (str) the weights' dtype
    """
    tf_model(
        name = "{}_{}_aot.model".format(name, dtype),
        golden_steps = 1,
        source = name + "_model.py",
        tags = ["manual"],
        weights = {"dtype": dtype},
        deps = [":models"],
    )
    tf_aot_library(
        name = "{}_{}_aot".format(name, dtype),
        cpp_class = "benchmarks::" + "".join([part.capitalize() for part in name.split("_") + [dtype]]),
        model = "{}_{}_aot.model".format(name, dtype),
        tags = ["manual"],
        test_size = "medium",
    )
    driver(name = "{}_{}".format(name, dtype), library = "//benchmarks:{}_{}_aot".format(name, dtype))
