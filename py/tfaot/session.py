"""How the rules run TensorFlow when its numbers matter."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def session_config() -> Any:
    """One thread, so that TensorFlow adds in the same order every time, and no accelerator."""
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0}
    )
