"""What a run does with each variable, comparing our flags with the compiler's verdict; and which variables are constants."""

from __future__ import annotations

import unittest

import numpy as np

from tests.stages.harness import PREAMBLE, Exported, StageTest

_VARIABLES = """\
def model_fn(x, n):
    a = v1.get_variable("a", [2])
    b = v1.get_variable("b", [2])
    c = v1.get_variable("c", [3, 2])
"""


def body(text: str) -> str:
    """Returns a model with three variables: `a` and `b` with the input's shape, and `c` for row lookups."""
    return PREAMBLE + _VARIABLES + text


class VariablesTest(StageTest):
    def check(self, text: str, **written: bool) -> None:
        """Exports, compares with the expected flags, and lets tfcompile confirm them."""
        exported = self.export(body(text), frozen=())
        self.assertEqual(exported.written, written)
        self.assertEqual([v.name for v in exported.manifest.written], [name for name, flag in written.items() if flag])
        self.compile(exported)  # rejects every flag that differs from its own verdict

    def test_only_read(self) -> None:
        """Protects inference: what is read is read-only, and what no fetch needs is dropped."""
        self.check("    return x * a", a=False)

    def test_gathered(self) -> None:
        """Protects embeddings: a row lookup is a read."""
        self.check("    return tf.gather(c, n) + x", c=False)

    def test_only_asked_about(self) -> None:
        """Protects against treating queries as writes: shape and initialization of a variable are reads."""
        self.check(
            """
    shape = tf.raw_ops.VariableShape(input=c.handle)
    there = tf.raw_ops.VarIsInitializedOp(resource=a.handle)
    return tf.where(there, x * a, x) * tf.cast(shape, tf.float32)
""",
            a=False,
            c=False,
        )

    def test_assigned(self) -> None:
        """Protects the simplest write, to a variable that nothing reads."""
        self.check(
            """
    with tf.control_dependencies([a.assign(x)]):
        return x * b
""",
            a=True,
            b=False,
        )

    def test_assigned_by_adding(self) -> None:
        """Protects `assign_add` and `assign_sub`, which are separate ops."""
        self.check(
            """
    with tf.control_dependencies([a.assign_add(x), b.assign_sub(x)]):
        return x + c[0]
""",
            a=True,
            b=True,
            c=False,
        )

    def test_scattered(self) -> None:
        """Protects sparse updates."""
        self.check(
            """
    with tf.control_dependencies([v1.scatter_update(c, [n], [x])]):
        return x + a
""",
            a=False,
            c=True,
        )

    def test_trained(self) -> None:
        """Protects optimizers: one op with several handles writes weights and slots."""
        self.check(
            """
    loss = tf.reduce_sum(tf.square(a * x + b))
    train = v1.train.AdamOptimizer(0.1).minimize(loss, var_list=[a])
    with tf.control_dependencies([train]):
        return tf.identity(loss)
""",
            **{"a": True, "b": False, "beta1_power": True, "beta2_power": True, "a/Adam": True, "a/Adam_1": True},
        )

    def test_through_identity(self) -> None:
        """Protects handles that pass through Identity on their way to a read and to a write."""
        self.check(
            """
    read = tf.raw_ops.Identity(input=a.handle)
    write = tf.raw_ops.Identity(input=tf.raw_ops.Identity(input=b.handle))
    with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=write, value=x)]):
        return x + tf.raw_ops.ReadVariableOp(resource=read, dtype=tf.float32)
""",
            a=False,
            b=True,
        )

    def test_two_handles_of_one_variable(self) -> None:
        """Protects shared names: a write through another handle of the same variable counts."""
        self.check(
            """
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="a")
    with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=handle, value=x)]):
        return x * a
""",
            a=True,
        )

    def test_inside_partitioned_call(self) -> None:
        """Protects stateless calls that get a variable."""
        self.check(
            """
    @tf.function
    def read(y):
        return a * y

    function = read.get_concrete_function(tf.TensorSpec([2], tf.float32))
    return tf.raw_ops.PartitionedCall(args=[x, a.handle], Tout=[tf.float32], f=function)[0]
""",
            a=False,
        )

    def test_inside_stateful_partitioned_call(self) -> None:
        """Protects `tf.function` in a v1 graph: the call is neither a read nor a write, but its body is."""
        self.check(
            """
    @tf.function
    def step(y):
        b.assign_add(y)
        return a * y

    return step(x)
""",
            a=False,
            b=True,
        )

    def test_inside_nested_functions(self) -> None:
        """Protects functions that pass variables on to functions."""
        self.check(
            """
    @tf.function
    def inner(y):
        b.assign_add(y)
        return a * y

    @tf.function
    def outer(y):
        return inner(y) + inner(y + 1) + c[0]

    return outer(x)
""",
            a=False,
            b=True,
            c=False,
        )

    def test_one_function_for_two_variables(self) -> None:
        """Protects against confusing callers: the same body writes one caller's variable and reads the other's."""
        self.check(
            """
    @tf.function(input_signature=[tf.TensorSpec([2]), tf.TensorSpec([], tf.resource), tf.TensorSpec([], tf.resource)])
    def move(y, source, target):
        tf.raw_ops.AssignVariableOp(resource=target, value=y + 1)
        return y + tf.raw_ops.ReadVariableOp(resource=source, dtype=tf.float32)

    function = move.get_concrete_function()
    call = tf.raw_ops.StatefulPartitionedCall
    one = call(args=[x, a.handle, b.handle], Tout=[tf.float32], f=function)[0]
    with tf.control_dependencies([one]):
        extra = v1.get_variable("d", [2])
        two = call(args=[x, a.handle, extra.handle], Tout=[tf.float32], f=function)[0]
    return one + two
""",
            a=False,
            b=True,
            d=True,
        )

    def test_while_v2(self) -> None:
        """Protects loops: a body that writes one variable and reads another, and a condition that reads a third."""
        self.check(
            """
    def body(i, y):
        b.assign_add(y)
        return i + 1, y * a

    def unfinished(i, y):
        return tf.logical_and(i < n, tf.reduce_sum(c) < 10)

    return tf.while_loop(unfinished, body, [0, x])[1]
""",
            a=False,
            b=True,
            c=False,
        )

    def test_while_v1(self) -> None:
        """Protects TensorFlow 1 loops, whose handles pass through Enter."""
        self.check(
            """
    v1.disable_control_flow_v2()

    def body(i, y):
        with tf.control_dependencies([b.assign_add(y)]):
            return i + 1, y * a

    return tf.while_loop(lambda i, y: i < n, body, [0, x])[1]
""",
            a=False,
            b=True,
        )

    def test_if_reads_in_one_branch_and_writes_in_the_other(self) -> None:
        """Protects conditionals, whose branches take the operands after the predicate: an offset of one."""
        self.check(
            """
    def then():
        return x * a

    def otherwise():
        with tf.control_dependencies([b.assign_add(x)]):
            return x * c[0]

    return tf.cond(n > 0, then, otherwise)
""",
            a=False,
            b=True,
            c=False,
        )

    def test_if_reads_and_writes_the_same_variable(self) -> None:
        """Protects a variable that only one branch writes: it is written."""
        self.check(
            """
    def write():
        with tf.control_dependencies([a.assign_add(x)]):
            return x * b

    return tf.cond(n > 0, lambda: x * a, write)
""",
            a=True,
            b=False,
        )

    def test_if_v1(self) -> None:
        """Protects TensorFlow 1 conditionals, whose handles pass through Switch."""
        self.check(
            """
    v1.disable_control_flow_v2()

    def write():
        with tf.control_dependencies([b.assign_add(x)]):
            return x * 2

    return tf.cond(n > 0, lambda: x * a, write)
""",
            a=False,
            b=True,
        )

    def test_case(self) -> None:
        """Protects `switch_case`, whose branches take the operands after the index."""
        self.check(
            """
    def write():
        with tf.control_dependencies([b.assign_add(x)]):
            return x * 2

    return tf.switch_case(n, [lambda: x * a, write, lambda: x * c[0]])
""",
            a=False,
            b=True,
            c=False,
        )

    def test_case_whose_index_is_constant(self) -> None:
        """Protects branches that the compiler drops: what only they write isn't written."""
        self.check(
            """
    def write():
        with tf.control_dependencies([b.assign_add(x)]):
            return x * 2

    return tf.switch_case(tf.constant(0) * 1, [lambda: x * a, write])
""",
            a=False,
            b=False,
        )

    def test_initializers_are_no_writes(self) -> None:
        """Protects every variable: its initializer assigns it, but no fetch reaches the initializer."""
        exported = self.export(body("    return x * a + b"), frozen=())
        self.assertEqual(exported.written, {"a": False, "b": False})
        from tensorflow.core.framework import graph_pb2

        graph = graph_pb2.GraphDef()
        graph.ParseFromString((exported.folder / "graph").read_bytes())
        self.assertFalse([node.name for node in graph.node if "Assign" in node.op or "Initializer" in node.name])

    def test_given_its_own_value(self) -> None:
        """Protects `a.assign(a.read_value())`, which isn't a write to the compiler, however the value gets there."""
        for text in (
            "    with tf.control_dependencies([a.assign(a.read_value())]):\n        return x * b\n",
            "    with tf.control_dependencies([a.assign(tf.identity(tf.stop_gradient(a)))]):\n        return x * b\n",
            "    with tf.control_dependencies([a.assign(tf.cast(a, tf.float32))]):\n        return x * b\n",
        ):
            with self.subTest(text):
                self.check(text, a=False, b=False)

    def test_given_its_own_value_in_functions(self) -> None:
        """Protects the same inside and across functions, which the compiler inlines before it compares."""
        self.check(
            """
    @tf.function
    def inside(y):
        a.assign(a)
        return a * y

    @tf.function
    def returned():
        return b.read_value()

    @tf.function
    def passed(y, value):
        c.assign(value)
        return c[0] * y

    with tf.control_dependencies([b.assign(returned())]):
        return inside(x) + passed(x, c.read_value())
""",
            a=False,
            b=False,
            c=False,
        )

    def test_given_its_own_value_in_control_flow(self) -> None:
        """Protects the same in branches and loops, where the compiler considers a value from outside to be different."""
        self.check(
            """
    old = b.read_value()

    def keep():
        with tf.control_dependencies([a.assign(a.read_value())]):
            return x * a

    def restore():
        with tf.control_dependencies([b.assign(old)]):
            return x * 2 + a

    return tf.cond(n > 0, keep, restore)
""",
            a=False,
            b=True,
        )

    def test_put_back(self) -> None:
        """Protects evaluation with averaged weights: a variable that is restored at the end isn't written."""
        self.check(
            """
    old = a.read_value()
    with tf.control_dependencies([old]):
        swap = a.assign(b)
    with tf.control_dependencies([swap]):
        result = x * a.read_value()
    with tf.control_dependencies([result]):
        back = a.assign(old)
    with tf.control_dependencies([back]):
        return tf.identity(result)
""",
            a=False,
            b=False,
        )

    def test_given_another_variables_value(self) -> None:
        """Protects copies and swaps between variables, which do change what they assign."""
        self.check(
            """
    old_a, old_b = a.read_value(), b.read_value()
    with tf.control_dependencies([old_a, old_b]):
        with tf.control_dependencies([a.assign(old_b), b.assign(old_a), c.assign(c * 1.0)]):
            return x + 1
""",
            a=True,
            b=True,
            c=True,
        )

    def test_several_entry_points(self) -> None:
        """Protects each function's own flags: what one writes, another only reads, or doesn't even take."""
        entry_points = (("Init", "init"), ("Forward", "forward"), ("Train", "train"), ("Keep", "keep"))
        exported = self.export(SEVERAL, entry_points=entry_points)
        names = [variable.name for variable in exported.manifest.variables]
        self.assertEqual(sorted(names), ["bias", "steps", "weights"])
        self.assertEqual(exported.written, {"bias": False, "steps": True, "weights": True})
        uses = {
            entry.name: {names[use.variable]: use.written for use in entry.variables}
            for entry in exported.manifest.entry_points
        }
        self.assertEqual(
            uses,
            {
                "Init": {"steps": True, "weights": True},
                "Forward": {"bias": False, "weights": False},
                "Train": {"bias": False, "steps": True, "weights": True},
                "Keep": {"steps": False, "weights": False},  # assigned its own value
            },
        )
        for name, _ in entry_points:
            self.compile(exported, entry_point=name)  # rejects every flag that differs from its own verdict


SEVERAL = """\
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.bias = tf.Variable([0.5, 0.25], name="bias")
        self.weights = tf.Variable([1.0, 2.0], name="weights")
        self.steps = tf.Variable(0, name="steps")

    @tf.function(input_signature=[])
    def init(self):
        self.steps.assign(0)
        self.weights.assign([3.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def forward(self, x):
        return x * self.weights + self.bias

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def train(self, x):
        self.steps.assign_add(1)
        self.weights.assign_sub(x * self.bias)

    @tf.function(input_signature=[])
    def keep(self):
        self.weights.assign(self.weights.read_value())
        return self.steps.read_value()


model = Model()
"""


class FrozenTest(StageTest):
    """Which variables become constants in the code, and what the manifest says about them."""

    READS = body("    return x * a + b * c[0]")
    WRITES = body("    with tf.control_dependencies([a.assign_add(x * b)]):\n        return x * c[0]\n")

    def variables_of(self, exported: Exported) -> tuple[list[str], list[str]]:
        """Returns the names of frozen and of fed variables."""
        manifest = exported.manifest
        return [frozen.name for frozen in manifest.frozen], [variable.name for variable in manifest.variables]

    def test_inference_is_frozen(self) -> None:
        """Protects the default for inference: all weights are constants, no variable is left, and the code compiles."""
        exported = self.export(self.READS)
        self.assertEqual(self.variables_of(exported), (["a", "b", "c"], []))
        self.assertEqual(
            [(f.dtype, f.shape) for f in exported.manifest.frozen], [("float32", s) for s in ((2,), (2,), (3, 2))]
        )
        self.assertEqual(exported.variables, {})
        self.assertNotIn("variable", exported.config)
        self.compile(exported)

    def test_training_is_fed(self) -> None:
        """Protects the default for anything that writes: even read-only variables stay in the file."""
        self.assertEqual(self.variables_of(self.export(self.WRITES)), ([], ["a", "b", "c"]))

    def test_several_functions_are_fed(self) -> None:
        """Protects against several copies of the weights: several functions, or batch sizes, share them."""
        two = (("Forward", "forward"), ("Again", "forward"))
        self.assertEqual(self.variables_of(self.export(SEVERAL, entry_points=two)), ([], ["weights", "bias"]))
        one = self.export(SEVERAL, entry_points=(("Forward", "forward"),))
        self.assertEqual(self.variables_of(one), (["weights", "bias"], []))
        family = self.export(
            "import tensorflow as tf\n\nw = tf.Variable([1.0, 2.0], name='w')\n\n\ndef model(x):\n    return x * w\n",
            batch_sizes=(1, 4),
            signature={"x": "float32[None, 2]"},
        )
        self.assertEqual(self.variables_of(family), ([], ["w"]))

    def test_patterns(self) -> None:
        """Protects the target's choice: variables whose names match patterns are frozen, and the others are fed."""
        exported = self.export(self.WRITES, frozen=("*", "!a"))
        self.assertEqual(self.variables_of(exported), (["b", "c"], ["a"]))
        self.compile(exported)
        self.assert_error(
            self.error_of(self.export, self.WRITES, frozen=("*",)),
            """
            frozen = ["*"]: 1 of the selected variables are written, so they can't be constants
              found: a
              to do: exclude them: "!a"
            """,
        )

    def test_fingerprints(self) -> None:
        """Protects deployments and caches: fingerprints tell frozen weights apart, and fed weights change nothing else."""
        first = {name: np.full(shape, 1, np.float32) for name, shape in (("a", [2]), ("b", [2]), ("c", [3, 2]))}
        second = first | {"b": np.full(2, 2, np.float32)}
        frozen = [self.export(self.READS, weights=weights) for weights in (first, first, second)]
        prints = [exported.manifest.fingerprints for exported in frozen]
        self.assertEqual(prints[0], prints[1])
        self.assertNotEqual(prints[0].frozen, prints[2].frozen)
        self.assertNotEqual(prints[0].constants, prints[2].constants)
        self.assertEqual(prints[0].graph, prints[2].graph)
        shas = [[variable.sha256 for variable in exported.manifest.frozen] for exported in frozen]
        self.assertEqual([a == b for a, b in zip(shas[0], shas[2], strict=True)], [True, False, True])

        fed = [self.export(self.READS, frozen=(), weights=weights) for weights in (first, second)]
        self.assertEqual(fed[0].manifest, fed[1].manifest)
        self.assertEqual((fed[0].manifest.frozen, fed[0].manifest.fingerprints.frozen), ((), ""))
        for output in ("graph", "config", "manifest", "golden_inputs"):
            self.assertEqual((fed[0].folder / output).read_bytes(), (fed[1].folder / output).read_bytes(), output)
        for exported, weights in zip(fed, (first, second), strict=True):
            self.assertEqual(set(exported.variables), set(weights))
            for name, value in exported.variables.items():
                np.testing.assert_array_equal(value, weights[name])


if __name__ == "__main__":
    unittest.main()
