"""The targets of a repository that TensorFlow's wheel was unpacked into.

A macro declares them, not a generated BUILD file, so a change here doesn't reinstall TensorFlow.
"""

load("@rules_cc//cc:cc_import.bzl", "cc_import")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_python//python:defs.bzl", "py_runtime", "py_runtime_pair")
load("//rules:toolchain.bzl", "tfaot_toolchain")
load(":python.bzl", "py_library")

# Called from @tfaot_tensorflow.
visibility("public")

# The XLA headers, and headers that they include, that these sources or a tfcompile header reach: 50 of 9,400. No folder is
# listed whole, so compile actions have few inputs. The wheel's own copy of abseil is left out because it has no sources.
_XLA_HEADERS = [
    "ml_dtypes/include/*.h",
    "tensorflow/compiler/tf2xla/allocator.h",
    "tensorflow/compiler/tf2xla/encoded_buffer_allocation_info.h",
    "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.h",
    "tensorflow/core/platform/bfloat16.h",
    "tensorflow/core/platform/byte_order.h",
    "tensorflow/core/platform/cord.h",
    "tensorflow/core/platform/ctstring*.h",
    "tensorflow/core/platform/platform.h",
    "tensorflow/core/platform/stringpiece.h",
    "tensorflow/core/platform/tstring.h",
    "tensorflow/core/platform/types.h",
    "tsl/platform/bfloat16.h",
    "tsl/platform/context.h",
    "tsl/platform/cord.h",
    "tsl/platform/ctstring*.h",
    "tsl/platform/ml_dtypes.h",
    "tsl/platform/mutex.h",
    "tsl/platform/platform.h",
    "tsl/platform/refcount.h",
    "tsl/platform/stringpiece.h",
    "tsl/platform/thread_annotations.h",
    "tsl/platform/tstring.h",
    "xla/backends/cpu/alignment.h",
    "xla/backends/cpu/buffer_allocation_info.h",
    "xla/backends/cpu/runtime/convolution_lib.h",
    "xla/backends/cpu/runtime/dot_lib.h",
    "xla/backends/cpu/runtime/kernel_c_api.h",
    "xla/backends/cpu/runtime/rng_state_lib.h",
    "xla/backends/cpu/runtime/sort_lib.h",
    "xla/backends/cpu/runtime/topk_lib.h",
    "xla/backends/cpu/runtime/work_queue.h",
    "xla/executable_run_options.h",
    "xla/service/custom_call_status*.h",
    "xla/tsl/concurrency/*.h",
    "xla/tsl/framework/contraction/*.h",
    "xla/tsl/framework/convolution/*.h",
    "xla/tsl/framework/fixedpoint/*.h",
    "xla/tsl/framework/fixedpoint_types.h",
    "xla/tsl/platform/byte_order.h",
    "xla/tsl/platform/default/context.h",
    "xla/tsl/platform/dynamic_annotations.h",
    "xla/tsl/platform/logging.h",
    "xla/tsl/platform/macros.h",
    "xla/tsl/platform/types.h",
    "xla/tsl/util/safe_reinterpret_cast.h",
    "xla/types.h",
]

# The Eigen headers that its Tensor module reaches.
_EIGEN_HEADERS = [
    "Eigen/Core",
    "Eigen/ThreadPool",
    "Eigen/Version",
    "Eigen/src/Core/**",
    "Eigen/src/ThreadPool/**",
    "Eigen/src/misc/**",
    "Eigen/src/plugins/**",
    "unsupported/Eigen/CXX11/**",
    "unsupported/Eigen/SpecialFunctions",
    "unsupported/Eigen/src/SpecialFunctions/**",
]

# Sources that stock tfcompile output links.
_XLA_SOURCES = [
    "tensorflow/compiler/tf2xla/allocator.cc",
    "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
    "xla/backends/cpu/runtime/rng_state_lib.cc",
    "xla/executable_run_options.cc",
    "xla/tsl/concurrency/async_value.cc",
    "xla/tsl/concurrency/async_value_ref.cc",
]

# buildifier: disable=unnamed-macro
def tfaot_tensorflow_targets(*, interpreter, interpreter_path, library, tensorflow_version):
    """Declares all targets of the repository `tfaot_tensorflow`.

    Args:
      interpreter: (str) Python's path in the repository, or None
      interpreter_path: (str) Python's absolute path if `interpreter` is None
      library: (str) the folder of `interpreter`'s library, or None
      tensorflow_version: (str) version of TensorFlow in the folder site-packages
    """
    visibility = ["//visibility:public"]

    # One directory. Otherwise, the sandbox would link its thousands of files one by one for each action, which takes 0.2 s.
    native.filegroup(
        name = "site_packages",
        srcs = ["site-packages"],
        visibility = visibility,
    )

    py_library(
        name = "packages",
        data = ["site-packages"],
        imports = ["site-packages"],
        visibility = visibility,
    )

    py_runtime(
        name = "py_runtime",
        # One directory, for the same reason.
        files = [library] if library else [],
        interpreter = interpreter,
        interpreter_path = interpreter_path,
        python_version = "PY3",
        visibility = visibility,
    )

    py_runtime_pair(
        name = "py_runtime_pair",
        py2_runtime = None,
        py3_runtime = ":py_runtime",
        visibility = visibility,
    )

    tfaot_toolchain(
        name = "tfaot_toolchain",
        python_packages = [":site_packages"],
        python_runtime = ":py_runtime",
        stamps = ["stamp"],
        tensorflow_version = tensorflow_version,
        visibility = visibility,
    )

    # The architecture that pip installed TensorFlow for.
    arm = native.glob(["site-packages/numpy/_core/*-aarch64-linux-gnu.so"], allow_empty = True)
    native.alias(
        name = "cpu",
        actual = "@platforms//cpu:aarch64" if arm else "@platforms//cpu:x86_64",
        visibility = visibility,
    )

    # TensorFlow's C API, with which programs define ops. These are the headers that its headers reach.
    cc_import(
        name = "framework",
        shared_library = "site-packages/tensorflow/libtensorflow_framework.so.2",
    )

    cc_library(
        name = "c_api",
        hdrs = native.glob([
            "site-packages/tensorflow/include/tensorflow/c/*.h",
            "site-packages/tensorflow/include/tensorflow/c/experimental/stream_executor/stream_executor.h",
            "site-packages/tensorflow/include/tensorflow/core/common_runtime/next_pluggable_device/c/*.h",
            "site-packages/tensorflow/include/tensorflow/core/platform/ctstring.h",
            "site-packages/tensorflow/include/tsl/platform/ctstring*.h",
            "site-packages/tensorflow/include/tsl/platform/platform.h",
            "site-packages/tensorflow/include/xla/tsl/c/tsl_status.h",
        ]),
        includes = ["site-packages/tensorflow/include"],
        visibility = visibility,
        deps = [":framework"],
    )

    # XLA's CPU runtime as the wheel ships it: headers and sources, all of them for inclusion. No model uses it. The
    # benchmarks build peers with it and add abseil.
    cc_library(
        name = "xla_runtime",
        textual_hdrs = native.glob(
            ["site-packages/tensorflow/include/" + path for path in _EIGEN_HEADERS + _XLA_HEADERS] +
            ["site-packages/tensorflow/xla_aot_runtime_src/" + path for path in _XLA_SOURCES],
        ),
        includes = [
            "site-packages/tensorflow/include",
            "site-packages/tensorflow/xla_aot_runtime_src",
        ],
        visibility = visibility,
    )

    # The OpenBLAS in numpy's wheel, with its own names for CBLAS functions, and its dependencies. Only tests link it.
    parts = native.glob(["site-packages/numpy.libs/*.so*"], allow_empty = True)
    for part in parts:
        cc_import(
            name = part.rpartition("/")[2],
            shared_library = part,
        )
    cc_library(
        name = "numpy_openblas",
        visibility = visibility,
        deps = [":" + part.rpartition("/")[2] for part in parts],
    )
