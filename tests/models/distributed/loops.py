"""Values that replicas exchange in loops, and in pairs of neighbors, or of those that are half of all apart."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

strategy = tf.distribute.OneDeviceStrategy("CPU:0")
REPLICAS = strategy.num_replicas_in_sync
PAIRS = [[rank, rank + 1] for rank in range(0, REPLICAS, 2)]
CROSSED = [[rank + REPLICAS // 2, rank] for rank in range(REPLICAS // 2)]


class Loops(tf.Module):
    """Weights that a call trains in several steps."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(tf.random.stateless_normal([4], [1, 2]), name="weight")
        self.hidden = tf.Variable(tf.random.stateless_normal([5, 4], [3, 4]), name="hidden")

    def _step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(tf.matmul(x, self.hidden), self.weight) - 1) ** 2)
        weights = [self.weight, self.hidden]
        gradients = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, weights))
        for weight, gradient in zip(weights, gradients):  # noqa: B905, which AutoGraph lacks
            weight.assign_sub(0.1 * gradient)
        return loss

    @tf.function(input_signature=[tf.TensorSpec([3, 8, 5])])
    def train(self, rows):
        """Makes a step with each part of the rows, and returns the loss of each over all replicas."""
        losses = tf.zeros([3])
        for step in tf.range(3):
            loss = strategy.reduce("MEAN", strategy.run(self._step, (rows[step],)), axis=None)
            losses = tf.tensor_scatter_nd_update(losses, [[step]], [loss])
        return {"losses": losses}

    @tf.function(input_signature=[tf.TensorSpec([4, 2])])
    def nested(self, x):
        """Exchanges values in front of a loop, in two loops of which one is in the other, and behind them."""
        total = gen_xla_ops.xla_all_reduce(x, [[*range(REPLICAS)]], "Max", "CrossReplica")
        for _ in tf.range(2):
            x = tf.sin(gen_xla_ops.xla_all_reduce(x, [[*range(REPLICAS)]], "Add", "CrossReplica"))
            for _ in tf.range(3):
                x = tf.cos(x + gen_xla_ops.xla_all_reduce(x * total, PAIRS, "Min", "CrossReplica"))
        return {"x": x, "total": total, "rows": strategy.gather(x, axis=0)}

    @tf.function(input_signature=[tf.TensorSpec([4, 6])])
    def groups(self, x):
        """Returns each kind of result."""
        size = len(PAIRS[0])
        communicator = tf.raw_ops.CollectiveInitializeCommunicator(group_key=1, rank=0, group_size=REPLICAS)
        return {
            "pairs": gen_xla_ops.xla_all_reduce(x, PAIRS, "Add", "CrossReplica"),
            "crossed": gen_xla_ops.xla_all_reduce(tf.cos(x), CROSSED, "Mean", "CrossReplica"),
            "reduced": tf.raw_ops.CollectiveReduceV3(
                input=tf.cast(x, tf.float64), communicator=communicator, group_assignment=CROSSED, reduction="Max"
            ),
            "sum": tf.raw_ops.CrossReplicaSum(input=x[0], group_assignment=PAIRS),
            "scattered": gen_xla_ops.xla_reduce_scatter(x, CROSSED, 1, "Add"),
            "dealt": tf.raw_ops.AllToAll(
                input=x, group_assignment=CROSSED, concat_dimension=1, split_dimension=0, split_count=size
            ),
        }


model = Loops()
