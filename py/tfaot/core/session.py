"""How the rules run TensorFlow when exact numbers matter."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def session_config() -> Any:
    """Returns a config with one thread, no accelerator, and no graph rewriting, for a reproducible order of additions."""
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0}
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1  # no constant folding or common-subexpression elimination
    return config
