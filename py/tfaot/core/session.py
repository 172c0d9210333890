"""How the rules run TensorFlow when exact numbers matter."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def session_config() -> Any:
    """Returns a config with one thread for each session, no accelerator, and no graph rewriting.

    The order of additions is therefore reproducible, and sessions in several threads don't wait for each other. The session's
    thread is a pool's, because TensorFlow flushes denormal floats only there.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=1,
        use_per_session_threads=True,
        device_count={"GPU": 0},
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1  # no constant folding or common-subexpression elimination
    return config
