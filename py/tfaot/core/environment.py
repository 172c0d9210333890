"""What must be set before TensorFlow is imported: it reads these once."""

from __future__ import annotations

import os


def xla_flag(name: str, value: str) -> str:
    """A flag for `XLA_FLAGS` whose value may hold spaces and quotes, as the path of a temporary folder may."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'--{name}="{escaped}"'


def prepare(*, xla_flags: tuple[str, ...] = (), legacy_keras: bool = False) -> None:
    """Sets the environment of this process for TensorFlow. Call it before the first import.

    Args:
      legacy_keras: whether `tf.keras` is Keras 2: `tf.compat.v1.layers` and v1 RNN cells live there.
      xla_flags: further flags, `--xla_…=…`; an unknown one kills the process at XLA's first use.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if legacy_keras else "0"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"  # keep warnings and errors
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # oneDNN picks kernels by CPU. They add in another order on each, and its fused products lose NaNs with AVX-512.
    # TensorFlow's own products go through oneDNN's sgemm all the same, so it gets the same level everywhere.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ["ONEDNN_MAX_CPU_ISA"] = os.environ["DNNL_MAX_CPU_ISA"] = "AVX2"
    ours = (
        # With its default fusions the 2.21 wheel makes thunks that its own ahead-of-time compiler refuses.
        "--xla_cpu_experimental_ynn_fusion_type=",
        # Of a small loop XLA makes one kernel, whose arguments are in the order of a hash table, which differs in each
        # process: objects would not be reproducible.
        "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=0",
        # Measured in docs/measured/xla_flags.md: variables are updated, and loops carried, with fewer copies; the same results.
        "--xla_cpu_copy_insertion_use_region_analysis=true",
        # Measured in docs/measured/xla_flags.md: level 3 unrolls what is short, which few models gain by; the same results.
        "--xla_backend_optimization_level=2",
        # XLA's default loses a NaN in the maximum of several values, which IEEE arithmetic and TensorFlow keep.
        "--xla_cpu_enable_fast_min_max=false",
    )
    os.environ["XLA_FLAGS"] = " ".join([*ours, *xla_flags])
