"""Notices reductions over replicas that are lost: with one replica, `tf.distribute` adds nothing to the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.util import tf_stack

_REDUCTIONS: tuple[tuple[type, str], ...] = (
    (distribute_lib.ReplicaContext, "all_reduce"),
    (distribute_lib.StrategyBase, "reduce"),
    (distribute_lib.StrategyExtendedV2, "batch_reduce_to"),
    (distribute_lib.StrategyExtendedV2, "reduce_to"),
)


def watch(lost: Callable[[str, Iterable[Any]], None]) -> None:
    """Calls `lost` with the strategy's name whenever a strategy of one replica reduces, in the rest of this process."""
    for owner, name in _REDUCTIONS:
        setattr(owner, name, _watched(getattr(owner, name), lost))


def _watched(method: Any, lost: Callable[[str, Iterable[Any]], None]) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self
        if isinstance(self, distribute_lib.ReplicaContext):
            strategy = self.strategy
        elif isinstance(self, distribute_lib.StrategyExtendedV2):
            strategy = self._container_strategy()
        # TensorFlow has a strategy of its own where the user has none.
        own = isinstance(strategy.extended, distribute_lib._DefaultDistributionExtended)
        if not own and strategy.num_replicas_in_sync == 1:
            lost(type(strategy).__name__, tf_stack.extract_stack())
        return method(self, *args, **kwargs)

    return call
