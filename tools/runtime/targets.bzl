"""The targets of a repository that TensorFlow's wheel was unpacked in.

They are made by a macro, not by a generated BUILD file, so that a change here does not install TensorFlow anew.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_python//python:defs.bzl", "py_library", "py_runtime", "py_runtime_pair")
load("//rules:toolchain.bzl", "tfaot_toolchain")

# Called from @tfaot_tensorflow, and from any repository where a user unpacks the wheel.
visibility("public")

# Headers of XLA and of what it includes that some part of the runtime, or a header that tfcompile writes, reaches: 50 of 9,400, and
# no folder whole, so that a compile action has few inputs. The wheel's own copy of abseil is left out: it has no sources.
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

# Those of Eigen that its Tensor module reaches.
_EIGEN_HEADERS = [
    "Eigen/Core",
    "Eigen/ThreadPool",
    "Eigen/Version",
    "Eigen/Version",
    "Eigen/src/Core/**",
    "Eigen/src/ThreadPool/**",
    "Eigen/src/misc/**",
    "Eigen/src/plugins/**",
    "unsupported/Eigen/CXX11/**",
    "unsupported/Eigen/SpecialFunctions",
    "unsupported/Eigen/src/SpecialFunctions/**",
]

_CPU = "xla/backends/cpu/runtime/"
_ABSL_DOT = [
    "base:core_headers",
    "functional:any_invocable",
]
_ABSL_ASYNC = [
    "base:no_destructor",
    "container:inlined_vector",
    "functional:any_invocable",
    "functional:function_ref",
    "log:check",
    "log:log",
    "log:vlog_is_on",
    "status:status",
    "status:statusor",
    "strings:strings",
    "strings:string_view",
    "synchronization:synchronization",
    "types:span",
    "utility:utility",
]

# Where sources of ours are, and how they are included. They define symbols of XLA's with kernels that need nothing of Eigen.
_OWN_TARGET = Label("//tools/runtime/kernels:kernels")
_OWN = "tfaot/kernels/"

# Part of the runtime: (sources, targets of abseil below absl/, parts it requires). py/tfaot/runtime_parts.py has the same parts, and
# tells which a model needs; //tests/toolchain:runtime_parts_test holds the two together.
RUNTIME_PARTS = {
    "base": (
        [
            "tensorflow/compiler/tf2xla/allocator.cc",
            "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
            "xla/executable_run_options.cc",
            _CPU + "rng_state_lib.cc",
        ],
        [
            "base:core_headers",
            "base:dynamic_annotations",
            "container:flat_hash_map",
            "log:absl_log",
            "log:check",
            "numeric:int128",
            "strings:cord",
            "strings:string_view",
            "synchronization:synchronization",
            "types:span",
        ],
        [],
    ),
    "async_value": (
        [
            "xla/tsl/concurrency/async_value.cc",
            "xla/tsl/concurrency/async_value_ref.cc",
        ],
        _ABSL_ASYNC,
        [],
    ),
    "sort_lib": (
        [_CPU + "sort_lib.cc"],
        [
            "base:core_headers",
            "base:dynamic_annotations",
            "functional:any_invocable",
            "log:check",
            "log:log",
            "types:span",
        ],
        [],
    ),
    # All in its header.
    "topk_lib": (
        [],
        [
            "algorithm:container",
            "base:base",
            "base:dynamic_annotations",
        ],
        [],
    ),
} | {
    "dot_lib_" + dtype: ([_CPU + "dot_lib_{}.cc".format(dtype)], _ABSL_DOT, [])
    for dtype in ["c128", "c64", "f16", "s8"]
} | {
    "dot_lib_" + dtype: ([_OWN + "dot_lib_{}.cc".format(dtype)], ["functional:any_invocable"], [])
    for dtype in ["f32", "f64", "s32"]
} | {
    "convolution_lib_f32_2d": ([_OWN + "convolution_lib_f32_2d.cc"], ["functional:any_invocable"], []),
} | {
    "convolution_lib_" + kind: ([_CPU + "convolution_lib_{}.cc".format(kind)], _ABSL_ASYNC, ["async_value"])
    for kind in ["f16_2d", "f16_3d", "f32_3d"]
}

def tfaot_runtime_targets(*, site_packages, abseil, visibility = ["//visibility:public"]):
    """Declares XLA's CPU runtime: `:runtime`, and one target for each part of it.

    The sources are headers here (`textual_hdrs`): a model compiles those that it calls, with flags of its own, by including them.

    Args:
      site_packages: (str) the folder in this package that holds the folder `tensorflow`
      abseil: (str) the abseil repository to build with
      visibility: (list[str]) who may use the targets
    """
    include = site_packages + "/tensorflow/include"
    sources = site_packages + "/tensorflow/xla_aot_runtime_src"

    cc_library(
        name = "eigen",
        # Headers, though many have no ending that says so.
        textual_hdrs = native.glob([include + "/" + path for path in _EIGEN_HEADERS]),
        includes = [include],
        visibility = visibility,
    )

    cc_library(
        name = "xla_headers",
        textual_hdrs = native.glob([include + "/" + path for path in _XLA_HEADERS]),
        includes = [include],
        visibility = visibility,
        deps = [":eigen"],
    )

    for name, (files, absl, parts) in RUNTIME_PARTS.items():
        cc_library(
            name = name,
            # Not `includes = [include]` alone: a source that lies in the second folder is named from there.
            textual_hdrs = ["{}/{}".format(sources, file) for file in files if not file.startswith(_OWN)],
            includes = [sources],
            visibility = visibility,
            deps = [":xla_headers"] +
                   [_OWN_TARGET for file in files[:1] if file.startswith(_OWN)] +
                   [":" + part for part in parts] +
                   ["{}//absl/{}".format(abseil, target) for target in absl],
        )

    cc_library(
        name = "runtime",
        visibility = visibility,
        deps = [":" + name for name in RUNTIME_PARTS],
    )

# buildifier: disable=unnamed-macro
def tfaot_tensorflow_targets(*, abseil, interpreter_path, tensorflow_version):
    """Declares all targets of the repository `tfaot_tensorflow`.

    Args:
      abseil: (str) the abseil repository to build with
      interpreter_path: (str) Python's absolute path
      tensorflow_version: (str) version of the TensorFlow in the folder site-packages
    """
    visibility = ["//visibility:public"]

    # One directory, not its 21,000 files: declared one by one, the sandbox links each for each action (docs/toolchain.md).
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

    tfaot_runtime_targets(
        abseil = abseil,
        site_packages = "site-packages",
        visibility = visibility,
    )

    tfaot_toolchain(
        name = "tfaot_toolchain",
        python_packages = [":site_packages"],
        python_runtime = ":py_runtime",
        runtime = ":runtime",
        tensorflow_version = tensorflow_version,
        visibility = visibility,
    )
