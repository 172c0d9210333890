"""Values that replicas gather, scatter, permute, and broadcast, by each op and of several dtypes, for any number of replicas."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

strategy = tf.distribute.OneDeviceStrategy("CPU:0")
REPLICAS = strategy.num_replicas_in_sync
ALL = [[*range(REPLICAS)]]
GROUP = {"group_size": REPLICAS, "group_key": 1, "instance_key": 1}
KEYS = {**GROUP, "ordering_token": []}


def gathered(x):
    """Gathers by the op that `tf.distribute` uses."""
    shape = [REPLICAS * x.shape[0], *x.shape[1:]]
    return tf.ensure_shape(tf.raw_ops.CollectiveGatherV2(input=x, **KEYS), shape)


def scattered(x, merge, final):
    """Gives each replica a part of the reduction of all rows."""
    part = tf.raw_ops.CollectiveReduceScatterV2(input=x, **KEYS, merge_op=merge, final_op=final)
    return tf.ensure_shape(part, [x.shape[0] // REPLICAS, *x.shape[1:]])


def dealt(x):
    """Gives each replica a part of the rows, which become columns."""
    return tf.raw_ops.AllToAll(
        input=x, group_assignment=ALL, concat_dimension=1, split_dimension=0, split_count=REPLICAS
    )


def of_strategy(x):
    """Returns what a strategy's step gathers, with the gradient of a sum in which each replica's part has another weight."""
    context = tf.distribute.get_replica_context()
    with tf.GradientTape() as tape:
        tape.watch(x)
        together = context.all_gather(x, axis=1)
        weights = tf.range(together.shape[1], dtype=tf.float32) * tf.cast(
            context.replica_id_in_sync_group + 1, tf.float32
        )
        total = tf.reduce_sum(together**2 * weights)
    return {"all_gather": together, "gradient": tape.gradient(total, x)}


@tf.function(input_signature=[tf.TensorSpec([8, 6], name="x"), tf.TensorSpec([4], tf.int32, name="n")])
def model(x, n):
    """Returns each kind of result."""
    rank = gen_xla_ops.xla_replica_id()
    wide = tf.reshape(x, [REPLICAS, -1])
    communicator = tf.raw_ops.CollectiveInitializeCommunicator(group_key=1, rank=0, group_size=REPLICAS)
    ring = [[source, (source + 1) % REPLICAS] for source in range(REPLICAS)]
    return {
        **strategy.run(of_strategy, (x,)),
        "gather": strategy.gather(tf.sin(x), axis=0),
        "gather_1": tf.raw_ops.CollectiveGather(input=x, **GROUP, shape=[8 * REPLICAS, 6]),
        "gather_half": tf.cast(gathered(tf.cast(x, tf.float16)), tf.float32),
        "gather_one": gathered(tf.reduce_sum(x)[tf.newaxis]),
        "scatter": scattered(x, "Add", "Div"),
        "scatter_max": scattered(n, "Max", "Id"),
        "scatter_xla": gen_xla_ops.xla_reduce_scatter(tf.transpose(x), ALL, 1, "Add"),
        "all_to_all": tf.raw_ops.CollectiveAllToAllV2(input=wide, **KEYS),
        "all_to_all_3": tf.raw_ops.CollectiveAllToAllV3(input=wide, communicator=communicator, group_assignment=ALL),
        "all_to_all_axes": dealt(x),
        "all_to_all_bool": dealt(x > 0),
        "all_to_all_bfloat16": tf.cast(dealt(tf.cast(x, tf.bfloat16)), tf.float32),
        "all_to_all_bytes": dealt(tf.cast(n[:, tf.newaxis], tf.uint8)),
        "all_to_all_complex": tf.math.imag(dealt(tf.complex(x, 2 * x))),
        "broadcast": tf.raw_ops.CollectiveBcastSend(input=x, **GROUP, shape=[8, 6]),
        "broadcast_2": tf.raw_ops.CollectiveBcastSendV2(input=n, **GROUP),
        "sum": tf.raw_ops.CrossReplicaSum(input=x, group_assignment=ALL),
        "ring": tf.raw_ops.CollectivePermute(input=x, source_target_pairs=ring),
        "shift": n + tf.raw_ops.CollectivePermute(input=n, source_target_pairs=ring[:-1] or ring),
        "rank": rank,
        "next_rows": tf.gather(gathered(x), (rank + 1) % REPLICAS * 8 + tf.range(4)),
    }
