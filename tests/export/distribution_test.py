"""Models of several replicas: what becomes a collective, how many replicas there are, and what can't be compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import numpy as np

from tests.stages import harness
from tests.stages.harness import StageTest

TRAINED = """\
import tensorflow as tf

{before}
strategy = {strategy}
with strategy.scope():
    net = tf.keras.Sequential(
        [
            tf.keras.Input([6]),
            tf.keras.layers.Dense(5, use_bias=False),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dense(3),
        ]
    )
    for index, weight in enumerate(net.weights):
        weight.assign(tf.abs(tf.random.stateless_normal(weight.shape, [1, index])))
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(net.trainable_variables)


class Trainer(tf.Module):
    def step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return loss

    @tf.function(input_signature={signature})
    def train(self, x):
        losses = strategy.run(self.step, (x,))
        return {{"loss": strategy.reduce("MEAN", losses, axis=None)}}


model = Trainer()
model.net, model.optimizer = net, optimizer
"""

ALONE = TRAINED.format(
    before="",
    strategy="tf.distribute.MirroredStrategy(['CPU:0'])",
    signature="[tf.TensorSpec([4, 6], name='x')]",
)

BOTH = (
    TRAINED.format(
        before="""
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
""",
        strategy="tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])",
        signature="None",
    )
    + """
import sys

import numpy as np

losses = []
for step in np.load(sys.argv[1]):
    x = strategy.experimental_distribute_values_from_function(lambda own: tf.constant(step[own.replica_id_in_sync_group]))
    losses.append(model.train(x)["loss"].numpy())
weights = {weight.path.replace("/", "."): strategy.experimental_local_results(weight.value) for weight in net.weights}
np.savez(sys.argv[2], losses=losses, **weights)
"""
)
"""A program that trains with two devices, given the inputs of each step and replica. It writes losses, and the weights of each
replica in the end."""

SCALED = """\
import numpy as np
import tensorflow as tf
import {keras} as keras

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.05))
    optimizer.build(net.trainable_variables)


class Trainer(tf.Module):
    def step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x) ** 2)
            scaled = {scaled}(loss)
        gradients = tape.gradient(scaled, net.trainable_variables)
        {inside}
        return loss, gradients

    @tf.function(input_signature=[tf.TensorSpec([4, 5], name="x")])
    def train(self, x):
        loss, gradients = strategy.run(self.step, (x,))
        gradients = [strategy.reduce("MEAN", gradient, axis=None) for gradient in gradients]
        {outside}
        return {{"loss": strategy.reduce("MEAN", loss, axis=None)}}


model = Trainer()
model.net, model.optimizer = net, optimizer


def golden_fn(step, rng):
    return rng.standard_normal([4, 5]) * (np.inf if step == 1 else 1)
"""
"""A model with Keras's optimizer that scales losses, which applies gradients inside of `strategy.run`, or outside."""

VERSIONS = {
    "keras": ("optimizer.scale_loss", "optimizer.apply(gradients, net.trainable_variables)"),
    "tf_keras": (
        "optimizer.get_scaled_loss",
        "optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(gradients), net.trainable_variables))",
    ),
}

REDUCE = (
    "tf.raw_ops.CollectiveReduceV2(input={}, group_size={}, group_key=1, instance_key=1, ordering_token=[], "
    "merge_op='Add', final_op='Id')"
)


def function(*lines: str) -> str:
    """Returns a model whose function has these lines, from line 6 on."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"import tensorflow as tf\n\n\n@tf.function(input_signature=[tf.TensorSpec([4], name='x')])\ndef model(x):\n{body}"


class DistributionTest(StageTest):
    """Python files with `tf.distribute`, and with collectives of their own."""

    @harness.wide
    def test_like_tensorflow(self) -> None:
        """Training for two replicas, traced with one, gives what TensorFlow computes with a strategy that has two."""
        exported = self.export(ALONE, replicas=2, entry_points=(("Train", "train"),), golden_steps=2)
        self.assertEqual(exported.manifest.replicas, 2)
        goldens = exported.goldens(strict=False)
        (self.folder / "both.py").write_text(BOTH)
        ranks = [f"(replica {rank})" for rank in range(2)]
        np.save(self.folder / "x.npy", [[goldens[f"step{step}/x {rank}"] for rank in ranks] for step in range(2)])
        run = [sys.executable, "both.py", "x.npy", "both.npz"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)}
        done = subprocess.run(run, cwd=self.folder, env=environment, capture_output=True, check=False, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        with np.load(self.folder / "both.npz") as own:
            weights = {name.replace(".", "/"): value for name, value in own.items()}
        first, second = weights.pop("losses")
        self.assertNotAlmostEqual(float(first), float(second), 3)
        trained = {each.name: each for each in exported.manifest.variables if each.name.startswith("sequential")}
        self.assertEqual(trained.keys(), weights.keys())
        for own, rank in enumerate(ranks):
            np.testing.assert_allclose(goldens[f"step0/loss {rank}"], first, rtol=1e-5)
            np.testing.assert_allclose(goldens[f"step1/loss {rank}"], second, rtol=1e-5)
            for name, weight in weights.items():
                value = goldens[f"step1/{trained[name].cpp_name} {rank}"]
                np.testing.assert_allclose(value, weight[own], rtol=1e-4, atol=1e-5, err_msg=name)

    def test_alone(self) -> None:
        """Without a number of replicas, a strategy's step is compiled for one."""
        self.assertEqual(self.export(ALONE, entry_points=(("Train", "train"),)).manifest.replicas, 1)
        self.assertEqual(self.export(function(f"return {REDUCE.format('x', 1)}")).manifest.replicas, 1)

    def test_number(self) -> None:
        """A strategy says how many replicas it has, in and outside of a step."""
        exported = self.export(
            function(
                "strategy = tf.distribute.OneDeviceStrategy('CPU:0')",
                "each = strategy.run(lambda v: v * tf.distribute.get_replica_context().num_replicas_in_sync, (x,))",
                "return strategy.reduce('SUM', each, axis=None) + strategy.num_replicas_in_sync",
            ),
            replicas=3,
        )
        goldens = exported.goldens()
        total = sum(goldens[f"step0/x (replica {rank})"] for rank in range(3))
        for rank in range(3):
            np.testing.assert_allclose(goldens[f"step0/output (replica {rank})"], 3 * total + 3, rtol=1e-5)

    def test_gather(self) -> None:
        """Replicas gather along any axis, the gradient is that of the sum over replicas, and a rank is the replica's own."""
        exported = self.export(
            function(
                "strategy = tf.distribute.OneDeviceStrategy('CPU:0')",
                "def step(x):",
                "    context = tf.distribute.get_replica_context()",
                "    with tf.GradientTape() as tape:",
                "        tape.watch(x)",
                "        y = context.all_gather(tf.reshape(x, [2, 2]), axis=1)",
                "        z = tf.reduce_sum(y ** 2) * tf.cast(context.replica_id_in_sync_group + 1, tf.float32)",
                "    return y, tape.gradient(z, x)",
                "y, dx = strategy.run(step, (x,))",
                "return {'y': y, 'dx': dx, 'rows': strategy.gather(x, axis=0)}",
            ),
            replicas=2,
        )
        goldens = exported.goldens()
        x = [goldens[f"step0/x (replica {rank})"] for rank in range(2)]
        for rank in range(2):
            wanted = {
                "y": np.concatenate([own.reshape(2, 2) for own in x], 1),
                "dx": 6 * x[rank],
                "rows": np.concatenate(x),
            }
            for name, value in wanted.items():
                np.testing.assert_allclose(goldens[f"step0/{name} (replica {rank})"], value, rtol=1e-5, err_msg=name)

    def test_sizes_that_replicas_decide(self) -> None:
        """What TensorFlow doesn't infer, because it doesn't know the number of replicas, has its size."""
        gather = "tf.raw_ops.CollectiveGatherV2(input=x, group_size=2, group_key=1, instance_key=1, ordering_token=[])"
        exported = self.export(function(f"return {gather}, tf.reduce_sum({gather}, 0)"))
        self.assertEqual([output.shape for output in exported.manifest.entry_points[0].outputs], [(8,), ()])
        self.compile(exported)

    def test_loss_scale(self) -> None:
        """Keras's LossScaleOptimizer outside of `strategy.run`, as the page says: all replicas skip a step that overflows."""
        for keras, (scaled, apply) in VERSIONS.items():
            with self.subTest(keras):
                text = SCALED.format(keras=keras, scaled=scaled, inside="", outside=apply)
                exported = self.export(text, replicas=2, entry_points=(("Train", "train"),), golden_steps=2)
                goldens = exported.goldens(strict=False)
                names = {variable.name: variable.cpp_name for variable in exported.manifest.variables}
                kernel = names.get("dense/kernel") or names["sequential/dense/kernel"]
                first, second = (
                    [goldens[f"step{step}/{kernel} (replica {rank})"] for rank in range(2)] for step in range(2)
                )
                np.testing.assert_array_equal(first[0], first[1])
                np.testing.assert_array_equal(second, first)
                self.assertFalse(np.isfinite(goldens["step1/loss (replica 0)"]))
                self.compile(exported)

    def test_loss_scale_inside(self) -> None:
        """Inside of `strategy.run`, the optimizer reduces under a condition, and the error says where to do it."""
        scaled, apply = VERSIONS["keras"]
        text = SCALED.format(keras="keras", scaled=scaled, inside=apply, outside="")
        self.assertRegex(
            self.error_of(self.export, text, replicas=2, entry_points=(("Train", "train"),)),
            r"at .*model.py:\d+ is under a condition\n.*\n  to do: exchange values in front of the condition",
        )

    def test_other_methods(self) -> None:
        """`merge_call`, `reduce` along an axis, and `broadcast_to`, which is about one process, do what they do in TensorFlow."""
        exported = self.export(
            function(
                "strategy = tf.distribute.MirroredStrategy(['CPU:0'])",
                "def merged(strategy, x):",
                "    return strategy.reduce('SUM', x, axis=None)",
                "def step(x):",
                "    return tf.distribute.get_replica_context().merge_call(merged, (x,))",
                "return {",
                "    'merged': strategy.run(step, (x,)),",
                "    'same': strategy.extended.broadcast_to(x, 'CPU:0'),",
                "    'mean': strategy.reduce('MEAN', x, axis=0),",
                "    'total': strategy.reduce('SUM', x, axis=0),",
                "}",
            ),
            replicas=2,
        )
        goldens = exported.goldens(strict=False)
        x = [goldens[f"step0/x (replica {rank})"] for rank in range(2)]
        for rank in range(2):
            wanted = {"merged": x[0] + x[1], "mean": np.mean(x), "total": np.sum(x), "same": x[rank]}
            for name, value in wanted.items():
                np.testing.assert_allclose(goldens[f"step0/{name} (replica {rank})"], value, rtol=1e-5, err_msg=name)

    def test_rank(self) -> None:
        """A rank needs a number of replicas. Of one replica, it is 0."""
        text = function("return x + tf.cast(gen_xla_ops.xla_replica_id(), tf.float32)")
        text = text.replace("\n\n\n", "\nfrom tensorflow.compiler.tf2xla.ops import gen_xla_ops\n\n\n", 1)
        self.assertRegex(
            self.error_of(self.export, text), r"nothing says how many there are\n.*\n  to do: say it: replicas = 4$"
        )
        for replicas in (1, 3):
            goldens = self.export(text, replicas=replicas).goldens()
            for rank in range(replicas):
                end = f" (replica {rank})" if replicas > 1 else ""
                np.testing.assert_array_equal(
                    goldens[f"step0/output{end}"], goldens[f"step0/x{end}"] + np.float32(rank)
                )

    def test_inputs(self) -> None:
        """Each replica has its own inputs to verify, also those of the user."""
        text = function(f"return {REDUCE.format('x', 2)}")
        text += "\n\ndef golden_fn(step, rng):\n    return rng.standard_normal(4)\n"
        goldens = self.export(text).goldens()
        self.assertFalse(np.array_equal(goldens["step0/x (replica 0)"], goldens["step0/x (replica 1)"]))


if __name__ == "__main__":
    unittest.main()
