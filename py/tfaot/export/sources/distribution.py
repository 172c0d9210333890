"""Traces `tf.distribute` for several replicas, each of which runs the graph of one.

A strategy has one replica here: the process that builds is alone. Its reductions add nothing to the graph, unless the target says
how many replicas there are. Then each reduction becomes a collective, and strategies have as many replicas, with a rank each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.util import tf_stack

_REDUCTIONS: tuple[tuple[type, str], ...] = (
    (distribute_lib.ReplicaContext, "all_gather"),
    (distribute_lib.ReplicaContext, "all_reduce"),
    (distribute_lib.Strategy, "gather"),
    (distribute_lib.StrategyBase, "reduce"),
    (distribute_lib.StrategyExtendedV2, "batch_reduce_to"),
    (distribute_lib.StrategyExtendedV2, "reduce_to"),
)


def refuse(several: Callable[[str, int, Iterable[Any]], None]) -> None:
    """Calls `several` with a strategy's name and number of replicas if these are several, in the rest of this process."""
    run = distribute_lib.StrategyBase.run

    @functools.wraps(run)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.extended._num_replicas_in_sync
        if own > 1:
            several(type(self).__name__, own, tf_stack.extract_stack())
        return run(self, *args, **kwargs)

    distribute_lib.StrategyBase.run = call


def watch(lost: Callable[[str, Iterable[Any]], None]) -> None:
    """Calls `lost` with the strategy's name whenever a strategy of one replica reduces or gathers, in the rest of this process."""
    for owner, name in _REDUCTIONS:
        setattr(owner, name, _watched(getattr(owner, name), lost))


def _watched(method: Any, lost: Callable[[str, Iterable[Any]], None]) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = _strategy(self)
        if _alone(strategy):
            lost(type(strategy).__name__, tf_stack.extract_stack())
        return method(self, *args, **kwargs)

    return call


def distribute(replicas: int) -> None:
    """Makes strategies of one replica have several, and exchange values with them, in the rest of this process."""
    extended = distribute_lib.StrategyExtendedV2
    reduce_to, batch_reduce_to = extended.reduce_to, extended.batch_reduce_to

    def reduced(reduce_op: Any, value: Any, strategy: Any) -> Any:
        (local,) = strategy.experimental_local_results(value)
        return _all_reduced(tf.convert_to_tensor(local), str(getattr(reduce_op, "value", reduce_op)).upper(), replicas)

    @functools.wraps(reduce_to)
    def all_reduce_to(self: Any, reduce_op: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self._container_strategy()
        value = reduced(reduce_op, value, strategy) if _alone(strategy) else value
        return reduce_to(self, reduce_op, value, *args, **kwargs)

    @functools.wraps(batch_reduce_to)
    def batch_all_reduce_to(self: Any, reduce_op: Any, pairs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        strategy = self._container_strategy()
        if _alone(strategy):
            # Each reduces by itself, so that it starts as soon as its gradient is there.
            return [self.reduce_to(reduce_op, value, destination) for value, destination in pairs]
        return batch_reduce_to(self, reduce_op, pairs, *args, **kwargs)

    all_gather, gather_to = distribute_lib.ReplicaContext.all_gather, extended._gather_to

    @functools.wraps(all_gather)
    def gather(self: Any, value: Any, axis: Any, options: Any = None) -> Any:
        if not _alone(self.strategy):
            return all_gather(self, value, axis, options)
        return tf.nest.map_structure(lambda one: _all_gathered(tf.convert_to_tensor(one), int(axis), replicas), value)

    @functools.wraps(gather_to)
    def all_gather_to(self: Any, value: Any, destinations: Any, axis: Any, options: Any = None) -> Any:
        strategy = self._container_strategy()
        if not _alone(strategy):
            return gather_to(self, value, destinations, axis, options)
        (local,) = strategy.experimental_local_results(value)
        return _all_gathered(tf.convert_to_tensor(local), int(axis), replicas)

    own_rank = distribute_lib.ReplicaContext.replica_id_in_sync_group

    def rank(self: Any) -> Any:
        traced = not tf.executing_eagerly() and _alone(self.strategy)
        return gen_xla_ops.xla_replica_id() if traced else own_rank.fget(self)

    def count(self: Any) -> int:
        strategy = _strategy(self)
        return replicas if _alone(strategy) else int(strategy.extended._num_replicas_in_sync)

    extended.reduce_to = all_reduce_to
    extended.batch_reduce_to = batch_all_reduce_to
    extended._gather_to = all_gather_to
    distribute_lib.ReplicaContext.all_gather = gather
    distribute_lib.ReplicaContext.replica_id_in_sync_group = property(rank)
    for owner in (distribute_lib.StrategyBase, distribute_lib.ReplicaContextBase):
        owner.num_replicas_in_sync = property(count)


def _strategy(self: Any) -> Any:
    if isinstance(self, distribute_lib.ReplicaContextBase):
        return self.strategy
    return self._container_strategy() if isinstance(self, distribute_lib.StrategyExtendedV2) else self


def _alone(strategy: Any) -> bool:
    """Returns whether a strategy of the user's has one replica. TensorFlow has one of its own where the user has none."""
    own = isinstance(strategy.extended, distribute_lib._DefaultDistributionExtended)
    return not own and strategy.extended._num_replicas_in_sync == 1


def _all_reduced(value: tf.Tensor, reduce_op: str, replicas: int) -> tf.Tensor:
    final = "Div" if reduce_op == "MEAN" else "Id"
    return tf.raw_ops.CollectiveReduceV2(
        input=value, **_group(replicas), ordering_token=[], merge_op="Add", final_op=final
    )


def _all_gathered(value: tf.Tensor, axis: int, replicas: int) -> tf.Tensor:
    """Joins the values of all replicas along an axis. Each one's gradient is the sum of all replicas' for its part."""
    axis %= value.shape.rank
    order = [axis, *(other for other in range(value.shape.rank) if other != axis)]
    back = sorted(range(len(order)), key=order.__getitem__)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def gathered(x: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return gen_xla_ops.xla_reduce_scatter(upstream, [[*range(replicas)]], 0, "Add")

        shape = [replicas * x.shape[0], *x.shape[1:]]
        return tf.raw_ops.CollectiveGather(input=x, **_group(replicas), shape=shape), gradient

    return tf.transpose(gathered(tf.transpose(value, order)), back)


def _group(replicas: int) -> dict[str, Any]:
    """Returns what collectives of TensorFlow have in common."""
    key = tf.compat.v1.get_default_graph().unique_name("tfaot_collective", mark_as_used=True).rpartition("_")[2]
    return {"group_size": replicas, "group_key": 1, "instance_key": int(key) if key.isdigit() else 0}
