"""Which kernels work on rows, and that one call of the runtime takes the place of nothing else."""

from __future__ import annotations

import dataclasses
import unittest
from unittest import mock

from tests.compile.program import changed
from tests.xla.hlo import kernels
from tfaot.compile.program.passes import row_fusion
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Copy, Kernel, Slice, Sweep, Thunk
from tfaot.compile.program.values import stages
from tfaot.compile.program.values.formulas import Formula, Operation

ROWS, COLUMNS = 1024, 64
ALL, EACH, VECTOR = 4 * ROWS * COLUMNS, 4 * ROWS, 4 * COLUMNS

HLO = """\
HloModule m, is_scheduled=true

%region_add (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%c, %d)
}

%region_max (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %maximum.1 = f32[] maximum(%a, %b)
}

%joined (p.0: f32[1024,64], q.0: f32[64], r.0: f32[1024,64]) -> f32[1024,64] {
  %p.0 = f32[1024,64]{1,0} parameter(0)
  %q.0 = f32[64]{0} parameter(1)
  %r.0 = f32[1024,64]{1,0} parameter(2)
  %bias.0 = f32[1024,64]{1,0} broadcast(%q.0), dimensions={1}
  %add.0 = f32[1024,64]{1,0} add(%r.0, %bias.0)
  ROOT %add.9 = f32[1024,64]{1,0} add(%p.0, %add.0)
}

%sums (p.1: f32[1024,64]) -> f32[2,512] {
  %p.1 = f32[1024,64]{1,0} parameter(0)
  %bitcast.1 = f32[2,512,64]{2,1,0} bitcast(%p.1)
  %piece.1 = f32[2,512,32]{2,1,0} slice(%bitcast.1), slice={[0:2], [0:512], [0:32]}
  %piece.2 = f32[2,512,32]{2,1,0} slice(%bitcast.1), slice={[0:2], [0:512], [32:64]}
  %add.2 = f32[2,512,32]{2,1,0} add(%piece.1, %piece.2)
  %zero.1 = f32[] constant(0)
  ROOT %reduce.1 = f32[2,512]{1,0} reduce(%add.2, %zero.1), dimensions={2}, to_apply=%region_add
}

%squares (p.2: f32[2,512], q.2: f32[1024,64]) -> f32[1024,64] {
  %p.2 = f32[2,512]{1,0} parameter(0)
  %q.2 = f32[1024,64]{1,0} parameter(1)
  %part.2 = f32[] constant(0.015625)
  %parts.2 = f32[2,512]{1,0} broadcast(%part.2), dimensions={}
  %mean.2 = f32[2,512]{1,0} multiply(%p.2, %parts.2)
  %bitcast.2 = f32[1024]{0} bitcast(%mean.2)
  %means.2 = f32[1024,64]{1,0} broadcast(%bitcast.2), dimensions={0}
  %apart.2 = f32[1024,64]{1,0} subtract(%q.2, %means.2)
  ROOT %square.2 = f32[1024,64]{1,0} multiply(%apart.2, %apart.2)
}

%factors (p.3: f32[1024,64], q.3: f32[]) -> f32[1024] {
  %p.3 = f32[1024,64]{1,0} parameter(0)
  %q.3 = f32[] parameter(1)
  %zero.3 = f32[] constant(0)
  %sum.3 = f32[1024]{0} reduce(%p.3, %zero.3), dimensions={1}, to_apply=%region_add
  %epsilon.3 = f32[1024]{0} broadcast(%q.3), dimensions={}
  %add.3 = f32[1024]{0} add(%sum.3, %epsilon.3)
  ROOT %rsqrt.3 = f32[1024]{0} rsqrt(%add.3)
}

%norms (p.4: f32[64], q.4: f32[1024], r.4: f32[1024,64]) -> f32[1024,64] {
  %p.4 = f32[64]{0} parameter(0)
  %q.4 = f32[1024]{0} parameter(1)
  %r.4 = f32[1024,64]{1,0} parameter(2)
  %gamma.4 = f32[1024,64]{1,0} broadcast(%p.4), dimensions={1}
  %factor.4 = f32[1024,64]{1,0} broadcast(%q.4), dimensions={0}
  %product.4 = f32[1024,64]{1,0} multiply(%gamma.4, %factor.4)
  ROOT %norm.4 = f32[1024,64]{1,0} multiply(%r.4, %product.4)
}

ENTRY %main (x: f32[1024,64]) -> f32[1024,64] {
  %x = f32[1024,64]{1,0} parameter(0)
  %g = f32[64]{0} parameter(1)
  %e = f32[] parameter(2)
  %join = f32[1024,64]{1,0} fusion(%x, %g, %x), kind=kLoop, calls=%joined
  %sum = f32[2,512]{1,0} fusion(%join), kind=kLoop, calls=%sums
  %square = f32[1024,64]{1,0} fusion(%sum, %join), kind=kLoop, calls=%squares
  %factor = f32[1024]{0} fusion(%square, %e), kind=kLoop, calls=%factors
  %other = f32[1024,64]{1,0} negate(%x)
  ROOT %norm = f32[1024,64]{1,0} fusion(%g, %factor, %join), kind=kLoop, calls=%norms
}
"""


def call(name: str, *args: tuple[int, int], size: int = 0) -> Kernel:
    """Returns a call of a kernel, whose arguments are sizes and offsets in buffer 0."""
    return Kernel(f"m_{name}", tuple((Slice(0, at), bytes_) for bytes_, at in args), (1, 1, 1), single=True)


STEP = 1 << 20
X, R, V, Q, OUT, SUM, FACTOR, GAMMA, EPSILON, ELSEWHERE, FAR = (index * STEP for index in range(11))

JOIN = call("join", (ALL, X), (VECTOR, GAMMA), (ALL, R), (ALL, V))
SUMMED = call("sum", (ALL, V), (EACH, SUM))
SQUARED = call("square", (EACH, SUM), (ALL, V), (ALL, Q))
FACTORS = call("factor", (ALL, Q), (4, EPSILON), (EACH, FACTOR))
NORM = call("norm", (VECTOR, GAMMA), (EACH, FACTOR), (ALL, V), (ALL, OUT))
ALL_OF_IT = (JOIN, SUMMED, SQUARED, FACTORS, NORM)


def other(read: int, size: int, write: int) -> Copy:
    """Returns a thunk that reads and writes elsewhere."""
    return Copy(Slice(0, write), Slice(0, read), size)


def merged(*thunks: Thunk, hlo: str = HLO, kind: str = "temp") -> tuple[Thunk, ...]:
    """Returns the result for thunks. Whoever called reads OUT afterward if the buffer isn't temporary."""
    function = CompiledFunction((Buffer(16 * STEP, kind, None, None),), (), (), (), (), thunks)
    return changed.thunks(row_fusion.row_fusion, hlo, function)


def missed(*thunks: Thunk, hlo: str = HLO) -> dict[str, str]:
    """Returns the kernels that aren't merged, and why."""
    function = CompiledFunction((Buffer(16 * STEP, "temp", None, None),), (), (), (), (), thunks)
    reasons = changed.compiled(row_fusion.row_fusion, hlo, function).reasons
    return {kernel.removeprefix("m_"): reason for (_, kernel), reason in reasons.items()}


class ReadTest(unittest.TestCase):
    """Reading kernels."""

    def read(self, name: str, old: str = "", new: str = "", hlo: str = HLO) -> Sweep | None:
        """Returns the call for a kernel alone after a change of the text."""
        self.assertIn(old, hlo)
        (kernel,) = (each for each in ALL_OF_IT if each.symbol == f"m_{name}")
        (got,) = merged(kernel, hlo=hlo.replace(old, new) if old else hlo)
        return got if isinstance(got, Sweep) else None

    def test_sums(self) -> None:
        """Protects sums: pieces of all columns are the whole row, whatever the shape of the rows."""
        got = self.read("sum")
        assert got
        self.assertEqual(got.formula.operations, (Operation("array", place=0), Operation("sum", (0,))))
        self.assertEqual((got.rows, got.columns, got.written), (ROWS, COLUMNS, (1,)))
        self.assertIsNotNone(self.read("factor"))

    def test_kinds(self) -> None:
        """Protects numbers: a value for each column and one for each row are told apart."""
        got = self.read("norm")
        assert got
        self.assertEqual(
            (got.arrays, got.vectors, got.values),
            ((Slice(0, V), Slice(0, OUT)), (Slice(0, GAMMA),), (Slice(0, FACTOR),)),
        )
        self.assertEqual(
            sorted((each.opcode, each.place) for each in got.formula.operations if each.place >= 0),
            [("array", 0), ("column", 0), ("row", 0)],
        )

    def test_other_kernels(self) -> None:
        """Protects numbers: a kernel that does anything else has no formula."""
        for name, kernel, old, new in (
            ("a piece is missing", "sum", "[32:64]", "[32:63]"),
            ("a piece is there twice", "sum", "add(%piece.1, %piece.2)", "add(%piece.1, %piece.1)"),
            (
                "a piece is there once more",
                "sum",
                "%add.2 = f32[2,512,32]{2,1,0} add(%piece.1, %piece.2)",
                "%piece.3 = f32[2,512,32]{2,1,0} add(%piece.1, %piece.2)\n"
                "  %add.2 = f32[2,512,32]{2,1,0} add(%piece.1, %piece.3)",
            ),
            (
                "pieces of two arrays",
                "sum",
                "%piece.2 = f32[2,512,32]{2,1,0} slice(%bitcast.1)",
                "%other.1 = f32[2,512,64]{2,1,0} negate(%bitcast.1)\n  %piece.2 = f32[2,512,32]{2,1,0} slice(%other.1)",
            ),
            ("a difference of pieces", "sum", "add(%piece.1, %piece.2)", "subtract(%piece.1, %piece.2)"),
            ("some rows", "sum", "[0:512], [32:64]", "[1:512], [32:64]"),
            ("columns", "factor", "dimensions={1}, to_apply", "dimensions={0}, to_apply"),
            ("a maximum", "factor", "to_apply=%region_add\n  %epsilon", "to_apply=%region_max\n  %epsilon"),
            ("a start", "factor", "%zero.3 = f32[] constant(0)", "%zero.3 = f32[] constant(1)"),
            ("a function", "square", "multiply(%apart.2, %apart.2)", "cosine(%apart.2)"),
            ("no operand", "square", "subtract(%q.2, %means.2)", "iota(), iota_dimension=0"),
            ("another layout", "norm", "%r.4 = f32[1024,64]{1,0}", "%r.4 = f32[1024,64]{0,1}"),
            ("another dtype", "norm", "%p.4 = f32[64]{0}", "%p.4 = f64[64]{0}"),
            ("too few rows", "norm", "%q.4 = f32[1024]{0}", "%q.4 = f32[512]{0}"),
        ):
            with self.subTest(name):
                self.assertIsNotNone(self.read(kernel))
                self.assertIsNone(self.read(kernel, old, new))

    def test_bits(self) -> None:
        """Protects GELU, which computes with the bits of floats: operations have the right operands, and values their dtypes."""
        old = "%square.2 = f32[1024,64]{1,0} multiply(%apart.2, %apart.2)"
        got = self.read(
            "square",
            f"ROOT {old}",
            "%bits.2 = s32[1024,64]{1,0} bitcast-convert(%apart.2)\n"
            "  %mask.2 = s32[] constant(-4096)\n"
            "  %masks.2 = s32[1024,64]{1,0} broadcast(%mask.2), dimensions={}\n"
            "  %and.2 = s32[1024,64]{1,0} and(%bits.2, %masks.2)\n"
            "  %high.2 = f32[1024,64]{1,0} bitcast-convert(%and.2)\n"
            "  ROOT %root.2 = f32[1024,64]{1,0} exponential(%high.2)",
        )
        assert got
        operations = got.formula.operations
        *_, bits, mask, both, high, power = operations
        self.assertEqual(
            [each.opcode for each in (bits, mask, both, high, power)],
            ["bitcast-convert", "integer", "and", "bitcast-convert", "exponential"],
        )
        self.assertEqual([bits.text, mask.text, high.text], ["s32", "-4096", "f32"])
        self.assertEqual([operations[each] for each in both.operands], [bits, mask])

    def test_single_value(self) -> None:
        """Protects the compile stage: an array of one value, which says nothing about the length of rows, is no error."""
        text = HLO.replace("%q.4 = f32[1024]{0}", "%q.4 = f32[1]{0}").replace(
            "broadcast(%p.4), dimensions={1}", "negate(%r.4)"
        )
        norm = dataclasses.replace(NORM, args=(NORM.args[0], (Slice(0, FACTOR), 4), *NORM.args[2:]))
        self.assertEqual(merged(norm, hlo=text), (norm,))

    def test_square(self) -> None:
        """Protects square arrays: a sum of rows never stands for values of columns."""
        square = HLO.replace("1024", "64").replace("[2,512", "[2,32").replace("[0:512]", "[0:32]")
        mixed = "%means.2 = f32[64,64]{1,0} broadcast(%bitcast.2), dimensions={0}"
        self.assertIn(mixed, square)
        total = "%total.2 = f32[64]{0} reduce(%q.2, %zero.2), dimensions={1}, to_apply=%region_add"
        text = square.replace(
            "%bitcast.2 = f32[64]{0} bitcast(%mean.2)", f"{total}\n  %bitcast.2 = f32[64]{{0}} bitcast(%total.2)"
        )
        text = text.replace("  %part.2 =", "  %zero.2 = f32[] constant(0)\n  %part.2 =")
        array = 4 * COLUMNS * COLUMNS
        squared = call("square", (4 * COLUMNS, SUM), (array, V), (array, Q))
        with mock.patch.object(row_fusion, "least_alone", return_value=0):
            self.assertEqual([*map(type, merged(squared, hlo=text))], [Sweep])
            self.assertEqual(merged(squared, hlo=text.replace(mixed, mixed.replace("={0}", "={1}"))), (squared,))


class MergeTest(unittest.TestCase):
    """Merging kernels."""

    def sweeps(self, *thunks: Thunk) -> list[Sweep]:
        """Returns the calls among the thunks that are left."""
        return [each for each in merged(*thunks) if isinstance(each, Sweep)]

    def test_norm(self) -> None:
        """Protects the gain: a layer norm with the sum before it is one call, which reads only what the sum adds up."""
        (got,) = merged(*ALL_OF_IT)
        assert isinstance(got, Sweep)
        self.assertEqual((got.rows, got.columns), (ROWS, COLUMNS))
        self.assertEqual(got.arrays, (Slice(0, X), Slice(0, R), Slice(0, OUT)))
        self.assertEqual((got.vectors, got.values, got.scalars), ((Slice(0, GAMMA),), (), (Slice(0, EPSILON),)))
        operations = got.formula.operations
        first, second = (index for index, each in enumerate(operations) if each.opcode == "sum")
        ((array, result),) = got.formula.arrays
        self.assertEqual((array, result), (2, len(operations) - 1))
        self.assertEqual([operations[each].opcode for each in operations[first].operands], ["add"])
        self.assertEqual([operations[each].opcode for each in operations[second].operands], ["multiply"])

    def test_long_rows(self) -> None:
        """Protects long rows: a sum that XLA computes in windows of windows is one call, unless something else reads a window."""
        rows, columns = 32, 2048
        array, pieces, few = (4 * rows * count for count in (columns, 64, 2))
        shapes = [f"f32[{rows},{count}]{{1,0}}" for count in (columns, 64, 2)]
        zero = "z = f32[] constant(0)"

        def windows(result: int) -> tuple[list[str], list[str], str]:
            window = "window={size=1x32 stride=1x32}, to_apply=%sum"
            return (
                [shapes[result - 1]],
                [zero, f"r = {shapes[result]} reduce-window(%p0, %z), {window}"],
                shapes[result],
            )

        total = f"f32[{rows}]{{0}}"
        hlo = kernels(
            {
                "windows": windows(1),
                "of_windows": windows(2),
                "total": ([shapes[2]], [zero, f"r = {total} reduce(%p0, %z), dimensions={{1}}, to_apply=%sum"], total),
            }
        )
        steps = (
            call("windows", (array, X), (pieces, V)),
            call("of_windows", (pieces, V), (few, Q)),
            call("total", (few, Q), (4 * rows, SUM)),
        )
        (got,) = merged(*steps, hlo=hlo)
        assert isinstance(got, Sweep)
        self.assertEqual(
            (got.rows, got.columns, got.arrays, got.values), (rows, columns, (Slice(0, X),), (Slice(0, SUM),))
        )
        for place, size in ((V, pieces), (Q, few)):
            read = (*steps, other(place, size, ELSEWHERE))
            self.assertEqual(merged(*read, hlo=hlo), read)

    def test_needed_elsewhere(self) -> None:
        """Protects residual connections and gradients: what something else reads is still written."""
        for name, place, size in (("the sum", V, ALL), ("the squares", Q, ALL), ("the means", SUM, EACH)):
            with self.subTest(name):
                got = merged(*ALL_OF_IT, other(place, size, ELSEWHERE))
                written = [each for thunk in got[:-1] for each in self.written(thunk)]
                self.assertIn(Slice(0, place), written)
                self.assertLess(len(got), len(ALL_OF_IT) + 1)

    def written(self, thunk: Thunk) -> list[Slice]:
        """Returns where a thunk writes."""
        if isinstance(thunk, Sweep):
            arrays = [thunk.arrays[place] for place, _ in thunk.formula.arrays]
            return arrays + [thunk.values[place] for place, _ in thunk.formula.values]
        assert isinstance(thunk, Kernel)
        return [thunk.args[-1][0]]

    def test_values_of_rows(self) -> None:
        """Protects training: the call also writes sums that gradients read later, and none that one reads before it."""
        whole, _ = merged(*ALL_OF_IT, other(SUM, EACH, ELSEWHERE))
        self.assertEqual(self.written(whole), [Slice(0, OUT), Slice(0, SUM)])
        first, copy, _ = merged(JOIN, SUMMED, other(SUM, EACH, ELSEWHERE), SQUARED, FACTORS, NORM)
        self.assertIsInstance(copy, Copy)
        self.assertIn(Slice(0, SUM), self.written(first))

    def test_kept_buffers(self) -> None:
        """Protects results: nothing that is visible after a run is left out."""
        got = merged(*ALL_OF_IT, kind="parameter")
        self.assertEqual({each.offset for thunk in got for each in self.written(thunk)}, {V, Q, SUM, FACTOR, OUT})

    def test_thunks_between(self) -> None:
        """Protects dependencies: values are read later only if nothing in between changes them."""
        for name, between, count in (
            ("elsewhere", other(ELSEWHERE, ALL, FAR), 1),
            ("reads an operand", other(X, ALL, FAR), 1),
            ("writes an operand", other(ELSEWHERE, 64, X + 64), 0),
            ("may write an operand", Kernel("m_unknown", ((Slice(0, X), ALL),), (1, 1, 1)), 0),
        ):
            with self.subTest(name):
                got = merged(JOIN, SUMMED, between, SQUARED, FACTORS, NORM)
                joined = [each for each in got if isinstance(each, Sweep) and Slice(0, X) in each.arrays]
                left = [each for each in got if isinstance(each, Kernel) and each.symbol == "m_join"]
                whole = [each for each in joined if Slice(0, OUT) in each.arrays]
                self.assertEqual((len(whole), bool(left or len(got) > 2)), (count, not count))

    def test_memory_of_the_squares(self) -> None:
        """Protects the gain: what overwrites squares doesn't keep them, because nothing reads them."""
        got = merged(JOIN, SUMMED, SQUARED, FACTORS, other(ELSEWHERE, ALL, Q), NORM)
        self.assertEqual([*map(type, got)], [Copy, Sweep])

    def test_parts_of_results(self) -> None:
        """Protects numbers: a kernel that reads a part of a result, and what is next to it, reads it from memory."""
        factors = dataclasses.replace(FACTORS, args=((Slice(0, Q + 4096), ALL), *FACTORS.args[1:]))
        first, last = merged(SQUARED, factors, NORM)
        assert isinstance(last, Sweep)
        self.assertEqual(self.written(first), [Slice(0, Q)])
        self.assertIn(Slice(0, Q + 4096), last.arrays)

    def test_places(self) -> None:
        """Protects memory: a result takes an operand's place, or that of a value that is gone, but no part of an operand."""
        for name, at, whole in (
            ("in place", X, True),
            ("over the squares", Q, True),
            ("over a part", X + 4096, False),
            ("over gamma", GAMMA, False),
        ):
            with self.subTest(name):
                norm = dataclasses.replace(NORM, args=(*NORM.args[:-1], (Slice(0, at), ALL)))
                got = merged(*ALL_OF_IT[:-1], norm)
                self.assertEqual(len(got) == 1, whole)

    def test_reused_memory(self) -> None:
        """Protects XLA's plans: squares take the place of the values, which the result reads from somewhere else."""
        squared = dataclasses.replace(SQUARED, args=(*SQUARED.args[:-1], (Slice(0, V), ALL)))
        factors = dataclasses.replace(FACTORS, args=((Slice(0, V), ALL), *FACTORS.args[1:]))
        norm = dataclasses.replace(NORM, args=(*NORM.args[:2], (Slice(0, X), ALL), NORM.args[3]))
        (got,) = merged(JOIN, SUMMED, squared, factors, norm)
        assert isinstance(got, Sweep)
        self.assertNotIn(Slice(0, V), got.arrays)
        # The result reads squares here.
        got_all = merged(JOIN, SUMMED, squared, factors, NORM)
        self.assertGreaterEqual(len(got_all), 1)
        last = got_all[-1]
        assert isinstance(last, Sweep)
        self.assertEqual(sum(each.opcode == "sum" for each in last.formula.operations), 2)

    def test_last_writer(self) -> None:
        """Protects numbers: where several merged kernels write one place, what is read there later is the last one's result."""
        squared = dataclasses.replace(SQUARED, args=(*SQUARED.args[:-1], (Slice(0, V), ALL)))
        factors = dataclasses.replace(FACTORS, args=((Slice(0, V), ALL), *FACTORS.args[1:]))
        norm = dataclasses.replace(NORM, args=(*NORM.args[:2], (Slice(0, X), ALL), NORM.args[3]))
        got, _ = merged(JOIN, SUMMED, squared, factors, norm, other(V, ALL, ELSEWHERE))
        assert isinstance(got, Sweep)
        (value,) = (value for place, value in got.formula.arrays if got.arrays[place] == Slice(0, V))
        self.assertEqual(got.formula.operations[value].opcode, "multiply")

    def test_sizes(self) -> None:
        """Protects small models: XLA's kernels stay for few values, and for short rows."""
        small = HLO.replace("1024", "32").replace("[2,512", "[2,16").replace("[0:512]", "[0:16]")
        thunks = tuple(
            dataclasses.replace(
                each,
                args=tuple((at, bytes_ // 32 if bytes_ in (ALL, EACH) else bytes_) for at, bytes_ in each.args),
            )
            for each in ALL_OF_IT
        )
        self.assertEqual(merged(*thunks, hlo=small), thunks)
        few = "it has 32 rows of 64 values, fewer than 4096 in all"
        self.assertEqual([*missed(*thunks, hlo=small).values()][:1], [few])
        self.assertEqual(len(self.sweeps(SUMMED)), 1)

    def test_functions(self) -> None:
        """Protects activations: a kernel alone with an exponential is a call from 8,192 values on, because it is faster."""
        old = "ROOT %norm.4 = f32[1024,64]{1,0} multiply("
        self.assertIn(old, HLO)
        new = "ROOT %norm.4 = f32[1024,64]{1,0} exponential(%sum.4)"
        text = HLO.replace(old, f"%sum.4 = {old.partition(' = ')[2]}").replace(
            "multiply(%r.4, %product.4)", f"multiply(%r.4, %product.4)\n  {new}"
        )
        for rows, called in ((128, True), (127, False)):
            norm = call("norm", (VECTOR, GAMMA), (4 * rows, FACTOR), (rows * VECTOR, V), (rows * VECTOR, OUT))
            (got,) = merged(norm, hlo=text.replace("1024", str(rows)))
            self.assertEqual(isinstance(got, Sweep), called)

    def test_short_rows(self) -> None:
        """Protects small rows: XLA's kernels stay for rows that are shorter than a vector of the highest level."""
        short = HLO.replace("1024", "8192").replace("[2,512", "[2,4096").replace("[0:512]", "[0:4096]")
        short = short.replace("64]", "8]").replace(":32]", ":4]").replace("[32:", "[4:").replace(",32]", ",4]")
        rows, all_ = 4 * 8192, 4 * 8192 * 8
        factors = call("factor", (all_, Q), (4, EPSILON), (rows, FACTOR))
        norm = call("norm", (4 * 8, GAMMA), (rows, FACTOR), (all_, Q), (all_, OUT))
        self.assertEqual(merged(factors, norm, hlo=short), (factors, norm))
        longer = short.replace("8]", "16]").replace("8192", "4096")
        factors = call("factor", (all_, Q), (4, EPSILON), (rows // 2, FACTOR))
        norm = call("norm", (4 * 16, GAMMA), (rows // 2, FACTOR), (all_, Q), (all_, OUT))
        self.assertEqual(len(merged(factors, norm, hlo=longer)), 1)

    def test_uneven_rows(self) -> None:
        """Protects rows that XLA adds up value by value: they are a call from 500 values on, and others are XLA's for longer."""
        for rows, columns, called in ((8, 63, True), (7, 63, False), (8, 64, False), (2, 1016, True), (2, 1024, False)):
            with self.subTest(f"{rows} x {columns}"):
                text = HLO.replace("1024", str(rows)).replace("64]", f"{columns}]")
                every, all_ = 4 * rows, 4 * rows * columns
                factors = call("factor", (all_, Q), (4, EPSILON), (every, FACTOR))
                norm = call("norm", (4 * columns, GAMMA), (every, FACTOR), (all_, Q), (all_, OUT))
                self.assertEqual(len(merged(factors, norm, hlo=text)) == 1, called)

    def test_quotients(self) -> None:
        """Protects the gain: what takes long for each value is computed once, and not in each stage."""
        slow = HLO.replace("ROOT %add.9 = f32[1024,64]{1,0} add(", "ROOT %add.9 = f32[1024,64]{1,0} divide(")
        (got,) = merged(*ALL_OF_IT, hlo=slow)
        assert isinstance(got, Sweep)
        first, *later = stages.stages(got.formula)
        ((place, quotient),) = first.keeps
        self.assertEqual((got.arrays[place], got.formula.operations[quotient].opcode), (Slice(0, OUT), "divide"))
        self.assertEqual([stage.operations[quotient] for stage in later], [Operation("array", place=place)] * 2)
        # Without an array to keep them in, they stay where a kernel has stored them.
        read = (*ALL_OF_IT[:-1], other(FACTOR, EACH, ELSEWHERE))
        self.assertEqual(self.written(merged(*read, hlo=slow)[0]), [Slice(0, V)])

    def test_kept(self) -> None:
        """Protects numbers: powers are kept in a result, but not in the place of values that the last stage still reads."""
        x, powers, total = Operation("array", place=0), Operation("exponential", (0,)), Operation("sum", (1,))
        operations = (x, powers, total, Operation("divide", (1, 2)), Operation("multiply", (3, 0)))
        for out, kept in ((1, ((1, 1),)), (0, ())):
            first, last = stages.stages(Formula(operations, ((out, 4),), ()))
            self.assertEqual((first.keeps, last.keeps), (kept, ()))
            self.assertEqual(stages.repeats(Formula(operations, ((out, 4),), ())), not kept)

    def test_other_sizes(self) -> None:
        """Protects memory: a kernel whose arguments have other sizes than its text stays."""
        wrong = dataclasses.replace(SUMMED, args=(SUMMED.args[0], (Slice(0, SUM), EACH + 4)))
        self.assertEqual(merged(wrong), (wrong,))


if __name__ == "__main__":
    unittest.main()
