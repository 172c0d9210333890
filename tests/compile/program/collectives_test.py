"""Collectives behind the compiler: where they start and end, and that all CPU levels agree on them."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import unittest
from collections.abc import Sequence
from pathlib import Path

from tests.stages.harness import StageTest
from tfaot.compile.program.thunks import collectives, schedule
from tfaot.compile.program.thunks.accesses import overlap
from tfaot.compile.program.thunks.collectives import Collective
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Copy, For, Place, Slice, Thunk
from tfaot.core.errors import TfaotError

SIZE = 16
"""The bytes of each value."""
DRAWS = 60 * int(os.environ.get("TFAOT_DRAWS", "1"))


def function(*thunks: Thunk, kept: int = 1) -> CompiledFunction:
    """Returns a function on a buffer and another one, which is its result unless `kept` says the first."""
    buffers = tuple(Buffer(1 << 12, "temp", None, None) for _ in range(2))
    return CompiledFunction(buffers, (), (kept,), (), (), thunks)


def scheduled(*thunks: Thunk, kept: int = 1) -> tuple[Thunk, ...]:
    """Returns the steps of a function with one CPU level."""
    return schedule.scheduled({"level": function(*thunks, kept=kept)}, "t::Model")["level"].thunks


def copy(source: int, target: int) -> Copy:
    """Returns a step that reads a value, and writes another one."""
    return Copy(Slice(0, SIZE * target), Slice(0, SIZE * source), SIZE)


def collective(number: int, place: int) -> Collective:
    """Returns a reduction of a value over two replicas."""
    return Collective(number, "Add", 2, "f32", Slice(0, SIZE * place), SIZE // 4)


def keep(place: int) -> Copy:
    """Returns a step that makes a value the function's result."""
    return Copy(Slice(1, SIZE * place), Slice(0, SIZE * place), SIZE)


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
                values[place] = f"started {thunk.number} of {values.get(place, f'initial {place}')}"
            if part in ("Wait", ""):
                values[place] = values[place].replace("started", "reduced", 1)
    return values


def starts_and_waits(thunks: Sequence[Thunk]) -> list[Thunk | str]:
    """Returns steps, where the title of a collective stands for it."""
    return [titles([step])[0] if isinstance(step, Collective) else step for step in thunks]


class ScheduledTest(unittest.TestCase):
    """`scheduled` on functions that a test writes."""

    def test_places(self) -> None:
        """A collective starts behind the step that stores its values, and ends when only steps that use them are left."""
        made = scheduled(copy(1, 0), copy(2, 3), collective(0, 0), copy(2, 4), copy(0, 5), copy(2, 6))
        self.assertEqual(
            [step if isinstance(step, str) else "copy" for step in starts_and_waits(made)],
            ["copy", "Start0", "copy", "copy", "copy", "Wait0", "copy"],
        )
        (stored, used), data = (made[0], made[-1]), made[1].places[0]
        self.assertEqual(stored.places[0], data)
        self.assertEqual(used.places[1], data)

    def test_order(self) -> None:
        """Collectives start and end in the order in which their values become final, wherever the compiler put them."""
        made = scheduled(copy(9, 1), copy(9, 0), collective(0, 0), collective(1, 1), copy(1, 5), copy(0, 6))
        self.assertEqual(
            [step for step in starts_and_waits(made) if isinstance(step, str)], ["Start1", "Start0", "Wait1", "Wait0"]
        )

    def test_chained(self) -> None:
        """A collective of another one's result starts when that one has ended, so one call can't do both."""
        made = scheduled(copy(9, 0), collective(0, 0), collective(1, 0), copy(2, 3))
        self.assertEqual(
            [step for step in starts_and_waits(made) if isinstance(step, str)], ["Start0", "Wait0", "Start1", "Wait1"]
        )
        self.assertFalse(any(step.joined for step in made if isinstance(step, Collective)))

    def test_loop(self) -> None:
        """A loop that uses the values is a step that uses them. A collective in it stays whole."""
        inside = collective(1, 7)
        made = scheduled(copy(9, 0), collective(0, 0), copy(2, 3), For(2, (copy(0, 4), inside)))
        self.assertEqual(titles(made[1:-1]), ["Start0", "2>3", "Wait0"])
        self.assertEqual(made[-1].bodies[0][0].places[1], made[1].places[0])
        self.assertEqual(made[-1].bodies[0][1], inside)

    def test_arena(self) -> None:
        """Values are side by side in the order in which they are final, at multiples of 64 bytes, and nothing copies them."""
        one, other, whole = (
            dataclasses.replace(collective(i, 4 * i), dtype=t) for i, t in enumerate(("f32", "f32", "s32"))
        )
        made = scheduled(copy(9, 0), copy(9, 4), copy(9, 8), whole, one, other, keep(0), keep(4), keep(8))
        starts = [step for step in made if isinstance(step, Collective) and step.part == "Start"]
        places = [(step.number, step.data.offset, step.joined) for step in starts]
        self.assertEqual(places, [(0, 0, True), (1, 64, False), (2, 128, False)])
        self.assertEqual(len({step.data.buffer for step in starts}), 1)
        self.assertEqual(sum(isinstance(step, Copy) for step in made), 6)

    def test_copied(self) -> None:
        """Values that can't be elsewhere are copied: those that nobody knows who stores, and those of the function's results."""
        for steps, kept in (
            ([For(2, (copy(9, 0),)), collective(0, 0), keep(0)], 1),
            ([copy(9, 0), collective(0, 0)], 0),
        ):
            made = scheduled(*steps, kept=kept)
            copies = [step.places for step in made if isinstance(step, Copy)]
            (data,) = {step.places[0] for step in made if isinstance(step, Collective)}
            own = (Slice(0, 0), SIZE)
            self.assertIn((data, own), copies)
            self.assertIn((own, data), copies)

    def test_random(self) -> None:
        """Nothing uses the values of a collective that is under way, and every value is as without overlap."""
        rng = random.Random(5)
        for draw in range(DRAWS):
            steps: list[Thunk] = []
            for number in range(rng.randrange(1, 14)):
                source, target, *_ = rng.sample(range(6), 3)
                steps.append(copy(source, target) if rng.random() < 0.6 else collective(number, source))
            kept = draw % 2
            steps += [keep(place) for place in range(3)]
            made = scheduled(*steps, kept=kept)
            wanted, values = run(steps), run(made)
            for place, value in wanted.items():
                if place[0].buffer == kept:
                    self.assertEqual(values[place], value, titles(steps))
            started = [step.number for step in made if isinstance(step, Collective) and step.part == "Start"]
            self.assertEqual(sorted(started), sorted(step.number for step in steps if isinstance(step, Collective)))
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

    def test_joined(self) -> None:
        """A call has what starts before the first wait at every CPU level, since all replicas make the same calls."""
        # At the other level, the second value is stored where a step reads the first result.
        parts = [copy(9, 0), collective(0, 0), keep(0)], [copy(9, 1), collective(1, 1), keep(1)]
        early = function(*parts[0], *parts[1])
        late = function(*parts[0], Copy(Slice(0, SIZE), Slice(1, 0), SIZE), *parts[1][1:])
        for functions, joined in (([early], [True, False]), ([early, late], [False, False])):
            made = schedule.scheduled({str(number): made for number, made in enumerate(functions)}, "t::Model")
            for level in made.values():
                starts = [step for step in level.thunks if isinstance(step, Collective) and step.part == "Start"]
                self.assertEqual([(step.number, step.joined) for step in starts], [*enumerate(joined)])

    def test_levels(self) -> None:
        """Levels that reduce in different orders get one, unless these are in a loop; each level has the same collectives."""
        one, other = function(collective(0, 0), collective(1, 1)), function(collective(1, 1), collective(0, 0))
        collectives.check([one, other, function(collective(0, 3), copy(1, 2), collective(1, 4))], "t::Model")
        made = schedule.scheduled({"one": one, "other": other}, "t::Model")
        for level in made.values():
            started = [step for step in starts_and_waits(level.thunks) if isinstance(step, str) and "Start" in step]
            self.assertEqual(started, ["Start0", "Start1"])
        loops = [function(For(2, (collective(first, 0), collective(1 - first, 1)))) for first in range(2)]
        for levels in ([one, function(collective(0, 0))], loops, [function(collective(0, 0), collective(0, 1))]):
            with (
                self.subTest(levels),
                self.assertRaisesRegex(TfaotError, "t::Model: XLA made other collectives for one"),
            ):
                collectives.check(levels, "t::Model")

    def test_beside_a_loop(self) -> None:
        """A loop with collectives starts when those before it have ended, and all levels have it at the same place."""
        loop = For(2, (copy(9, 3), collective(1, 3)))
        for steps in ((collective(0, 0), loop, collective(2, 2)), (loop, collective(0, 0), collective(2, 2))):
            made = schedule.scheduled(
                {
                    "one": function(copy(9, 0), copy(9, 2), *steps, keep(0), keep(2), keep(3)),
                    "other": function(copy(9, 0), copy(9, 2), *reversed(steps), keep(0), keep(2), keep(3)),
                },
                "t::Model",
            )
            orders = []
            for level in made.values():
                step_titles = titles(level.thunks)
                place = step_titles.index("loop")
                under_way = sum((title.startswith("Start")) - title.startswith("Wait") for title in step_titles[:place])
                self.assertEqual(under_way, 0, step_titles)
                orders.append([title for title in step_titles if title == "loop" or title.startswith("Start")])
            self.assertEqual(orders[0], orders[1])


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
        """Gradients of four layers are reduced in the same order at all CPU levels, while those of earlier layers are computed.

        They are side by side, so that one call can reduce all.
        """
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
            begin, end = (steps.index(orders[-1][0].replace("Start", part)) for part in ("Start", "Wait"))
            self.assertGreaterEqual(steps[begin:end].count("dot"), 2, f"{level}: {steps}")
            starts = re.findall(r"StartCollective\(instance, \{.*b\[(\d+)\] \+ (\d+), 4096u.*\}, (\w+)\)", text)
            self.assertEqual(len({buffer for buffer, _, _ in starts}), 1)
            self.assertEqual([int(offset) for _, offset, _ in starts], [0, 16384, 32768, 49152])
            self.assertEqual([joined for *_, joined in starts], ["true", "true", "true", "false"])
            self.assertNotIn("memcpy(b", text)  # products store gradients where replicas reduce them
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
