"""Collectives behind the compiler: where they start and end, and that all CPU levels agree on them."""

from __future__ import annotations

import os
import random
import re
import unittest
from collections.abc import Sequence
from pathlib import Path

from tests.stages.harness import StageTest
from tfaot.compile.program.thunks import collectives
from tfaot.compile.program.thunks.accesses import overlap
from tfaot.compile.program.thunks.collectives import Collective
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Copy, For, Place, Slice, Thunk
from tfaot.core.errors import TfaotError

SIZE = 16
"""The bytes of each value."""
DRAWS = 60 * int(os.environ.get("TFAOT_DRAWS", "1"))


def function(*thunks: Thunk) -> CompiledFunction:
    """Returns a function on one buffer."""
    return CompiledFunction((Buffer(1 << 12, "temp", None, None),), (), (), (), (), thunks)


def copy(source: int, target: int) -> Copy:
    """Returns a step that reads a value, and writes another one."""
    return Copy(Slice(0, SIZE * target), Slice(0, SIZE * source), SIZE)


def collective(number: int, place: int) -> Collective:
    """Returns a reduction of a value over two replicas."""
    return Collective(number, "Add", 2, "f32", Slice(0, SIZE * place), SIZE // 4)


def titles(thunks: Sequence[Thunk]) -> list[str]:
    """Returns what each step is: a letter and a number of a collective, or the values that a copy is about."""
    return [
        f"{each.part}{each.number}"
        if isinstance(each, Collective)
        else f"{each.input.offset // SIZE}>{each.out.offset // SIZE}"
        if isinstance(each, Copy)
        else "loop"
        for each in thunks
    ]


def run(thunks: Sequence[Thunk]) -> dict[Place, str]:
    """Returns what each value is made from in the end. A collective's result is there from its end on."""
    values: dict[Place, str] = {}
    for thunk in thunks:
        if isinstance(thunk, For):
            for _ in range(thunk.trips):
                values |= run_from(values, thunk.body)
        else:
            values |= run_from(values, [thunk])
    return values


def run_from(values: dict[Place, str], thunks: Sequence[Thunk]) -> dict[Place, str]:
    """Returns the values after some steps."""
    values = dict(values)
    for thunk in thunks:
        (place, *_), part = thunk.places, getattr(thunk, "part", "")
        if isinstance(thunk, Copy):
            values[thunk.places[0]] = values.get(thunk.places[1], f"initial {thunk.places[1]}")
        elif isinstance(thunk, Collective):
            if part in ("Start", ""):
                values[place] = f"started {thunk.number} of {values.get(place, '')}"
            if part in ("Wait", ""):
                values[place] = values[place].replace("started", "reduced", 1)
    return values


class OverlappedTest(unittest.TestCase):
    """`overlapped` on functions that a test writes."""

    def test_places(self) -> None:
        """A collective starts behind the step that stores its values, and ends when only steps that use them are left."""
        made = function(copy(1, 0), copy(2, 3), collective(0, 0), copy(2, 4), copy(0, 5), copy(2, 6))
        self.assertEqual(
            titles(collectives.overlapped(made).thunks), ["1>0", "Start0", "2>3", "2>4", "2>6", "Wait0", "0>5"]
        )

    def test_order(self) -> None:
        """Collectives start and end in their order, also where a later one's result is needed first."""
        made = function(copy(9, 1), copy(9, 0), collective(0, 0), collective(1, 1), copy(1, 5), copy(0, 6))
        self.assertEqual(
            titles(collectives.overlapped(made).thunks),
            ["9>1", "9>0", "Start0", "Start1", "Wait0", "0>6", "Wait1", "1>5"],
        )

    def test_chained(self) -> None:
        """A collective of another one's result starts when that one has ended; one whose result nobody uses ends at last."""
        made = function(collective(0, 0), collective(1, 0), copy(2, 3))
        self.assertEqual(titles(collectives.overlapped(made).thunks), ["Start0", "2>3", "Wait0", "Start1", "Wait1"])

    def test_loop(self) -> None:
        """A loop that uses the values is a step that uses them. A collective in it stays whole."""
        inside = collective(1, 7)
        made = function(collective(0, 0), copy(2, 3), For(2, (copy(0, 4), inside)))
        found = collectives.overlapped(made).thunks
        self.assertEqual(titles(found), ["Start0", "2>3", "Wait0", "loop"])
        self.assertEqual(found[-1].bodies[0][1], inside)

    def test_random(self) -> None:
        """Nothing uses the values of a collective that is under way, and every value is as without overlap."""
        rng = random.Random(5)
        for _ in range(DRAWS):
            steps: list[Thunk] = []
            for number in range(rng.randrange(1, 14)):
                source, target, *_ = rng.sample(range(6), 3)
                steps.append(copy(source, target) if rng.random() < 0.6 else collective(number, source))
            made = collectives.overlapped(function(*steps)).thunks
            self.assertEqual(run(made), run(steps), titles(steps))
            started = [each.number for each in made if isinstance(each, Collective) and each.part == "Start"]
            self.assertEqual(started, [each.number for each in steps if isinstance(each, Collective)])
            under_way: list[Collective] = []
            for thunk in made:
                if isinstance(thunk, Collective) and thunk.part == "Wait":
                    self.assertEqual(under_way.pop(0).number, thunk.number)
                for other in under_way:
                    for place in thunk.places:
                        self.assertFalse(overlap(place, other.places[0]), titles(made))
                if isinstance(thunk, Collective) and thunk.part == "Start":
                    under_way.append(thunk)
            self.assertEqual(under_way, [])

    def test_levels(self) -> None:
        """If the code of two CPU levels reduced in different orders, replicas on different CPUs would mix up values."""
        one, other = function(collective(0, 0), collective(1, 1)), function(collective(1, 1), collective(0, 0))
        collectives.check([one, function(collective(0, 3), copy(1, 2), collective(1, 4))], "t::Model")
        with self.assertRaisesRegex(TfaotError, "t::Model: the code of different CPU levels reduces in another order"):
            collectives.check([one, other], "t::Model")


STEP = """\
import tensorflow as tf


class Step(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = [tf.Variable(tf.random.stateless_normal([64, 64], [1, i]), name=f"w{i}") for i in range(4)]

    @tf.function(input_signature=[tf.TensorSpec([32, 64], name="x")])
    def train(self, x):
        with tf.GradientTape() as tape:
            y = x
            for w in self.w:
                y = tf.tanh(y @ w)
            loss = tf.reduce_sum(y)
        for key, (w, g) in enumerate(reversed([*zip(self.w, tape.gradient(loss, self.w))])):
            sum = tf.raw_ops.CollectiveReduceV2(
                input=g, group_size=2, group_key=1, instance_key=key, ordering_token=[], merge_op="Add", final_op="Id")
            w.assign_sub(0.01 * sum)
        return loss


model = Step()
"""


class CompiledTest(StageTest):
    """A training step through the compiler."""

    def test_overlap(self) -> None:
        """Gradients of four layers are reduced in the same order at all CPU levels, each while earlier layers' are computed."""
        exported = self.export(STEP, entry_points=(("Train", "train"),))
        levels = ("x86-64", "x86-64-v3", "x86-64-v4")
        self.compile(exported, isa=levels)
        orders = []
        for level in levels:
            text = Path(exported.path(f"source.{level}")).read_text()
            calls = re.findall(r"(Start|Wait)Collective\(instance, \{(\d+),|Run(Products)", text)
            steps = [f"{part}{number}" if part else "dot" for part, number, _ in calls]
            orders.append([step for step in steps if step.startswith("Start")])
            self.assertEqual(sorted(orders[-1]), ["Start0", "Start1", "Start2", "Start3"])
            last = max(index for index, step in enumerate(steps) if step == "dot")
            self.assertLess(steps.index(orders[-1][0]), last, f"{level}: {steps}")
            self.assertGreater(steps.index(orders[-1][0].replace("Start", "Wait")), last, f"{level}: {steps}")
        self.assertEqual(orders, [orders[0]] * len(levels))

    def test_dtype(self) -> None:
        """A dtype that the interface lacks is an error that says what to do."""
        model = (
            "import tensorflow as tf\nfrom tensorflow.compiler.tf2xla.ops import gen_xla_ops\n\n\ndef model(x):\n"
            "    return gen_xla_ops.xla_all_reduce(x, [[0, 1]], 'Add', 'CrossReplica')\n"
        )
        exported = self.export(model, signature={"x": "uint32[4]"})
        self.assertIn("convert the values with tf.cast", self.error_of(self.compile, exported))


if __name__ == "__main__":
    unittest.main()
