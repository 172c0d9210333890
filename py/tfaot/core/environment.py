"""Environment variables that must be set before TensorFlow is imported, because it reads them only once."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import metadata

OTHER_KERAS = 79
"""Exit status of a stage that needs the other Keras than this process has imported."""


def xla_flag(name: str, value: str) -> str:
    """Returns a flag for `XLA_FLAGS`. The value can contain spaces and quotes, as the path of a temporary folder can."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'--{name}="{escaped}"'


def need_keras(*, legacy: bool) -> None:
    """Ends this process with `OTHER_KERAS` if it has imported TensorFlow for the other Keras.

    Only a worker's process has imported TensorFlow before the stage starts. The worker then runs the stage in another one.
    """
    if "tensorflow" in sys.modules and (os.environ["TF_USE_LEGACY_KERAS"] == "1") != legacy:
        sys.exit(OTHER_KERAS)


def _installed() -> tuple[int, ...]:
    """Returns the major and the minor version of the installed TensorFlow, without importing it."""
    for package in ("tensorflow-cpu", "tensorflow", "tf-nightly-cpu", "tf-nightly"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return tuple(int(number) for number in metadata.version(package).split(".")[:2])
    return (2, 21)  # packages without their metadata; the version that the rules install is the most likely one


def prepare(*, xla_flags: tuple[str, ...] = (), legacy_keras: bool = False) -> None:
    """Sets this process's environment for TensorFlow. Call it before the first import.

    Args:
      legacy_keras: whether `tf.keras` is Keras 2, which has `tf.compat.v1.layers` and the v1 RNN cells.
      xla_flags: additional flags, `--xla_…=…`. An unknown flag kills the process when it first uses XLA.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if legacy_keras else "0"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"  # keep warnings and errors
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # oneDNN picks kernels by CPU. Each adds in a different order, and its fused products lose NaNs with AVX-512.
    # TensorFlow's own products still go through oneDNN's sgemm, so we pin oneDNN to the same level everywhere.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ["ONEDNN_MAX_CPU_ISA"] = os.environ["DNNL_MAX_CPU_ISA"] = "AVX2"
    ours = (
        # With its default fusions, the 2.21 wheel emits thunks that its own ahead-of-time compiler refuses. Older wheels have
        # neither these fusions nor the flag.
        *(["--xla_cpu_experimental_ynn_fusion_type="] if _installed() >= (2, 21) else []),
        # Code that flushes denormals by itself would do so where a model doesn't: with `flush_denormals = False`. Without, a run
        # sets the core's mode.
        *(["--xla_cpu_ftz=false"] if _installed() >= (2, 22) else []),
        # XLA turns a small loop into one kernel and orders its arguments by a hash table, which differs in each process.
        # The objects would not be reproducible.
        "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=0",
        # Measured in docs/reference/xla_flags.md: variable updates and loop carries need fewer copies; the results don't change.
        "--xla_cpu_copy_insertion_use_region_analysis=true",
        # Measured in docs/reference/xla_flags.md: level 3 unrolls short loops, which helps few models; the results don't change.
        "--xla_backend_optimization_level=2",
        # By default, XLA drops NaN in the maximum of several values. IEEE arithmetic and TensorFlow keep it.
        "--xla_cpu_enable_fast_min_max=false",
    )
    os.environ["XLA_FLAGS"] = " ".join([*ours, *xla_flags])
