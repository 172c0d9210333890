"""The names of passes, and which of them a target wants. Needs no TensorFlow, so that a wrong name is found before any stage."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from tfaot.core import caller
from tfaot.core.errors import TfaotError

NAMES = (
    "padding",
    "conv1d",
    "fold_batch_norm",
    "loop_invariants",
    "hoist_projections",
    "batch_weight_gradients",
    "unroll_loops",
    "erfc",
    "narrow",
    "gemv_packing",
    "mlp_fusion",
    "epilogues",
    "transpose_folding",
    "row_fusion",
    "column_reduction",
    "filter_gradients",
    "transposes",
    "elementwise_fusion",
    "row_sums",
    "reduce_as_matmul",
    "gemv_layout",
    "split_kv_matmul",
    "max_pools",
    "pool_gradients",
    "prevent_duplication",
    "winograd",
    "prepack",
    "pack_loops",
)
"""In the order of `tfaot.compile.table.PASSES`."""
RENAMED = {
    "channel_sums": "reduce_as_matmul",
    "column_sums": "column_reduction",
    "dense_nets": "mlp_fusion",
    "gather_gradients": "batch_weight_gradients",
    "head_products": "split_kv_matmul",
    "residuals": "prevent_duplication",
    "row_copies": "transposes",
    "row_products": "gemv_packing",
    "row_sweeps": "row_fusion",
    "short_products": "gemv_layout",
    "softmax": "row_fusion",
    "strided_products": "transpose_folding",
    "sweeps": "elementwise_fusion",
}
"""The names that passes had before 0.1, and their names now."""


def chosen(patterns: Sequence[str]) -> frozenset[str]:
    """Returns the names of the passes that a target wants.

    Args:
      patterns: globs for names. Later ones win: a glob after a `!` removes what the earlier ones chose.

    Raises:
      TfaotError: a pattern matches no pass.
    """
    if patterns and patterns[0].startswith("!"):
        raise TfaotError(
            f"{caller.setting('passes', patterns)}: the first pattern takes passes away, and there are none yet",
            do=f"write * before it: {caller.setting('passes', ['*', *patterns])}",
        )
    taken: set[str] = set()
    for pattern in patterns:
        glob = pattern.removeprefix("!")
        matching = {name for name in NAMES if fnmatch.fnmatchcase(name, glob)}
        if not matching:
            asked = f'{caller.setting("passes", patterns)}: "{pattern}" matches no pass'
            if glob in RENAMED:
                raise TfaotError(
                    asked, do=f'write "{pattern.replace(glob, RENAMED[glob])}": the pass has another name now'
                )
            raise TfaotError(
                asked,
                exists=", ".join(NAMES),
                do="use one of these names, or a pattern; all passes except NAME are "
                + caller.setting("passes", ["*", "!NAME"]),
            )
        taken = taken | matching if glob == pattern else taken - matching
    return frozenset(taken)
