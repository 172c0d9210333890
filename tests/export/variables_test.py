"""What a run does with each variable: our flags against the compiler's own verdict, on real graphs."""

from __future__ import annotations

import unittest

from tests.stages.harness import PREAMBLE, StageTest

_VARIABLES = """\
def model_fn(x, n):
    a = v1.get_variable("a", [2])
    b = v1.get_variable("b", [2])
    c = v1.get_variable("c", [3, 2])
"""


def body(text: str) -> str:
    """A model with three variables: `a` and `b` of the input's shape, and `c` to look up rows in."""
    return PREAMBLE + _VARIABLES + text


class VariablesTest(StageTest):
    def check(self, text: str, **written: bool) -> None:
        """Exports, compares with the flags that must come out, and lets tfcompile confirm them."""
        exported = self.export(body(text))
        self.assertEqual(exported.written, written)
        self.assertEqual([v.name for v in exported.manifest.written], [name for name, flag in written.items() if flag])
        self.compile(exported)  # refuses every flag that is not its own verdict

    def test_only_read(self) -> None:
        """Protects inference: what is read is read-only, and what no fetch needs is not there."""
        self.check("    return x * a", a=False)

    def test_gathered(self) -> None:
        """Protects embeddings: looking up rows is reading."""
        self.check("    return tf.gather(c, n) + x", c=False)

    def test_only_asked_about(self) -> None:
        """Protects from taking questions for writes: shape and initialization of a variable are reads."""
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
        """Protects the plainest write, of a variable that nothing reads."""
        self.check(
            """
    with tf.control_dependencies([a.assign(x)]):
        return x * b
""",
            a=True,
            b=False,
        )

    def test_assigned_by_adding(self) -> None:
        """Protects `assign_add` and `assign_sub`, which are ops of their own."""
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
        """Protects optimizers: weights and slots are written by one op that takes several handles."""
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
        """Protects stateless calls that are handed a variable."""
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
        """Protects `tf.function` in a v1 graph: a call is neither a read nor a write, its body is."""
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
        """Protects functions that hand variables on to functions."""
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
        """Protects from mixing up callers: the same body writes one caller's variable and reads the other's."""
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
        """Protects loops of TensorFlow 1, whose handles pass through Enter."""
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
        """Protects conditionals of TensorFlow 1, whose handles pass through Switch."""
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
        """Protects branches that the compiler drops: what only they write is not written."""
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
        """Protects every variable: its initializer assigns it, but no fetch reaches that."""
        exported = self.export(body("    return x * a + b"))
        self.assertEqual(exported.written, {"a": False, "b": False})
        from tensorflow.core.framework import graph_pb2

        graph = graph_pb2.GraphDef()
        graph.ParseFromString((exported.folder / "graph").read_bytes())
        self.assertFalse([node.name for node in graph.node if "Assign" in node.op or "Initializer" in node.name])

    def test_given_its_own_value(self) -> None:
        """Protects `a.assign(a.read_value())`, which the compiler takes for no write, however the value gets there."""
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
        """Protects the same in branches and loops, where a value from outside is another to the compiler."""
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
        """Protects evaluation with averaged weights: a variable that is put back at the end is not written."""
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


if __name__ == "__main__":
    unittest.main()
