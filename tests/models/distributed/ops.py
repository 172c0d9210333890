"""Reductions over two replicas, by each op and of each dtype, and in several orders."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

REPLICAS = 2


def second(x, key, merge="Add", final="Id"):
    """Reduces by the op that `tf.distribute` uses."""
    return tf.raw_ops.CollectiveReduceV2(
        input=x, group_size=REPLICAS, group_key=1, instance_key=key, ordering_token=[], merge_op=merge, final_op=final
    )


@tf.function(input_signature=[tf.TensorSpec([5, 7], name="x"), tf.TensorSpec([3], tf.int32, name="n")])
def model(x, n):
    """Returns each kind of result."""
    first = tf.raw_ops.CollectiveReduce(
        input=x, group_size=REPLICAS, group_key=1, instance_key=1, merge_op="Add", final_op="Div", subdiv_offsets=[0]
    )
    group = tf.raw_ops.CollectiveInitializeCommunicator(group_key=1, rank=0, group_size=REPLICAS)
    return {
        "v1": first,
        "v2": second(tf.tanh(first), 2, "Mul"),
        "v3": tf.raw_ops.CollectiveReduceV3(
            input=x * 3, communicator=group, group_assignment=[[0, 1]], reduction="Add"
        ),
        "nccl": tf.raw_ops.NcclAllReduce(input=x[0], reduction="max", num_devices=REPLICAS, shared_name="a"),
        "xla": gen_xla_ops.xla_all_reduce(x[:, 1], [[0, 1]], "Min", "CrossReplica"),
        "mean": gen_xla_ops.xla_all_reduce(x[:, 2], [[0, 1]], "Mean", "CrossReplica"),
        "single": second(tf.reduce_sum(x), 3),
        "twice": second(x, 4) + second(x, 5),
        "constant": second(tf.constant([1.0, 2.0]), 6) + x[0, 0],
        "double": second(tf.cast(x, tf.float64) / 3, 7),
        "integers": second(n, 8),
        "long": second(tf.cast(n, tf.int64), 9, "Max"),
        "alone": tf.raw_ops.CollectiveReduceV2(
            input=x, group_size=1, group_key=2, instance_key=1, ordering_token=[], merge_op="Add", final_op="Id"
        ),
        "empty": second(x[:0], 10),
    }
