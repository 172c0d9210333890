"""What elementwise kernels compute, and which kernels have no formula."""

from __future__ import annotations

import unittest
from unittest import mock

from tests.compile.program import changed
from tests.xla.hlo import kernel
from tfaot.compile.program.passes import elementwise_fusion
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Kernel, Slice, Sweep
from tfaot.compile.program.values.formulas import Formula, Operation

SHAPE = "f32[6,4]{1,0}"


def module(*lines: str, parameters: str = "xx", root: str = SHAPE) -> str:
    """Returns the text of a module with a kernel `m_k`, whose computation has these lines after its parameters.

    Args:
      lines: instructions; the last one is the root
      parameters: a letter each: `x` has the result's shape, `s` is a single value, `t` has another layout, `f` the same
        values in one dimension, `r` one value for each column, and `i` integers
      root: the result's shape
    """
    shapes = {"x": SHAPE, "s": "f32[]", "t": "f32[6,4]{0,1}", "f": "f32[24]{0}", "r": "f32[4]{0}", "i": "s32[6,4]{1,0}"}
    return kernel(*lines, parameters=[shapes[kind] for kind in parameters], root=root)


def read(*lines: str, parameters: str = "xx", root: str = SHAPE, dtype: str = "f32") -> Sweep | None:
    """Returns the call that computes what the kernel of such a module does. Arguments are 256 bytes apart."""
    width = 4 if dtype == "f32" else 8
    counts = [*(1 if kind == "s" else 4 if kind == "r" else 24 for kind in parameters), 6 if "[6]" in root else 24]
    args = tuple((Slice(0, 256 * index), width * count) for index, count in enumerate(counts))
    function = CompiledFunction(
        (Buffer(4096, "temp", None, None),), (), (), (), (), (Kernel("m_k", args, (1, 1, 1), single=True),)
    )
    text = module(*lines, parameters=parameters, root=root).replace("f32", dtype)
    with mock.patch.object(elementwise_fusion, "least_alone", return_value=0):
        (got,) = changed.thunks(elementwise_fusion.elementwise_fusion, text, function)
    return got if isinstance(got, Sweep) else None


def opcodes(*lines: str, parameters: str = "xx") -> list[tuple[str, tuple[int, ...]]]:
    """Returns a kernel's operations after its reads."""
    found = read(*lines, parameters=parameters)
    assert found
    return [(each.opcode, each.operands) for each in found.formula.operations if each.operands]


def shifted(by: str, opcode: str = "shift-left") -> list[str]:
    """Returns lines that shift the bits of floats."""
    bits = "s32[6,4]{1,0}"
    return [
        f"b = {bits} bitcast-convert(%p0)",
        f"n = s32[] constant({by})",
        f"ns = {bits} broadcast(%n), dimensions={{}}",
        f"s = {bits} {opcode}(%b, %ns)",
        "m = s32[] constant(-4096)",
        f"ms = {bits} broadcast(%m), dimensions={{}}",
        f"a = {bits} and(%s, %ms)",
        f"t = {bits} add(%a, %b)",
        f"v = {SHAPE} convert(%t)",
        f"f = {SHAPE} bitcast-convert(%t)",
        f"e = {SHAPE} exponential(%f)",
        f"h = {SHAPE} tanh(%e)",
        f"r = {SHAPE} divide(%v, %h)",
    ]


class FormulasTest(unittest.TestCase):
    """Reading optimized HLO."""

    def test_update(self) -> None:
        """Protects updates of variables: arrays, single values, and constants keep their roles."""
        got = read(
            "rate = f32[6,4]{1,0} broadcast(%p1), dimensions={}",
            "c = f32[] constant(1e-07)",
            "cs = f32[6,4]{1,0} broadcast(%c), dimensions={}",
            "root = f32[6,4]{1,0} sqrt(%p2)",
            "sum = f32[6,4]{1,0} add(%root, %cs)",
            "step = f32[6,4]{1,0} multiply(%rate, %p0)",
            "r = f32[6,4]{1,0} divide(%step, %sum)",
            parameters="xsx",
        )
        operations = (
            Operation("scalar", place=0),
            Operation("array", place=0),
            Operation("multiply", (0, 1)),
            Operation("array", place=1),
            Operation("sqrt", (3,)),
            Operation("constant", text="1e-07"),
            Operation("add", (4, 5)),
            Operation("divide", (2, 6)),
        )
        arrays = tuple(Slice(0, 256 * index) for index in (0, 2, 3))
        self.assertEqual(got, Sweep(Formula(operations, ((2, 7),)), 1, 24, arrays, scalars=(Slice(0, 256),)))

    def test_products_and_sums(self) -> None:
        """Protects bits: a product and a sum round once where XLA's compiler fuses them, and twice elsewhere."""
        square, other = f"a = {SHAPE} multiply(%p0, %p0)", f"b = {SHAPE} multiply(%p0, %p1)"
        for lines, want in (
            ((square, f"r = {SHAPE} add(%a, %p1)"), [("multiply_add", (0, 0, 1))]),
            ((square, f"r = {SHAPE} add(%p1, %a)"), [("multiply_add", (1, 1, 0))]),
            ((square, f"r = {SHAPE} subtract(%a, %p1)"), [("multiply_subtract", (0, 0, 1))]),
            ((square, f"r = {SHAPE} subtract(%p1, %a)"), [("subtract_product", (1, 1, 0))]),
            ((square, other, f"r = {SHAPE} add(%b, %a)"), [("multiply", (0, 0)), ("multiply_add", (0, 1, 2))]),
            ((square, f"r = {SHAPE} add(%a, %a)"), [("multiply", (0, 0)), ("add", (1, 1))]),
            (
                (square, f"b = {SHAPE} add(%a, %p1)", f"r = {SHAPE} divide(%b, %a)"),
                [("multiply", (0, 0)), ("add", (1, 2)), ("divide", (3, 1))],
            ),
        ):
            with self.subTest(lines):
                self.assertEqual(opcodes(*lines), want)

    def test_choices(self) -> None:
        """Protects bounded updates: comparisons keep their direction, and a selection its order."""
        got = read("c = pred[6,4]{1,0} compare(%p0, %p1), direction=GE", f"r = {SHAPE} select(%c, %p1, %p0)")
        assert got
        self.assertEqual(
            got.formula.operations[2:], (Operation("compare", (0, 1), text="GE"), Operation("select", (2, 1, 0)))
        )

    def test_bounds(self) -> None:
        """Protects clipped gradients: bounds can be single values."""
        bounds = ("low = f32[] constant(-1)", "high = f32[] constant(1)")
        got = read(*bounds, f"r = {SHAPE} clamp(%low, %p0, %high)", parameters="x")
        assert got
        self.assertEqual([each.opcode for each in got.formula.operations], ["constant", "array", "constant", "clamp"])
        self.assertEqual(got.formula.operations[-1].operands, (0, 1, 2))

    def test_bits(self) -> None:
        """Protects GELU, which computes with the bits of floats: each operation knows whether its values are integers."""
        got = read(*shifted("23"), parameters="x")
        assert got
        self.assertEqual(
            got.formula.operations,
            (
                Operation("array", place=0),
                Operation("bitcast-convert", (0,), text="s32"),
                Operation("integer", text="23"),
                Operation("shift-left", (1, 2)),
                Operation("integer", text="-4096"),
                Operation("and", (3, 4)),
                Operation("add", (5, 1)),
                Operation("convert", (6,), text="s32"),
                Operation("bitcast-convert", (6,), text="f32"),
                Operation("exponential", (8,)),
                Operation("tanh", (9,)),
                Operation("divide", (7, 10)),
            ),
        )

    def test_reshaped(self) -> None:
        """Protects flattened values: a bitcast moves nothing."""
        self.assertEqual(
            opcodes(f"b = {SHAPE} bitcast(%p1)", f"r = {SHAPE} add(%p0, %b)", parameters="xf"), [("add", (0, 1))]
        )

    def test_others(self) -> None:
        """Protects numbers: a kernel that isn't arithmetic of values at the same index has no formula."""
        for name, got in {
            "another layout": read(f"r = {SHAPE} add(%p0, %p1)", parameters="xt"),
            "a row": read(
                f"b = {SHAPE} broadcast(%p1), dimensions={{1}}", f"r = {SHAPE} add(%p0, %b)", parameters="xr"
            ),
            "another dtype": read(f"c = {SHAPE} convert(%p1)", f"r = {SHAPE} add(%p0, %c)", parameters="xi"),
            "integers": read("r = s32[6,4]{1,0} add(%p0, %p1)", parameters="ii", root="s32[6,4]{1,0}"),
            "a transposition": read(f"b = {SHAPE} transpose(%p1), dimensions={{1,0}}", f"r = {SHAPE} add(%p0, %b)"),
            "a function": read(f"b = {SHAPE} cosine(%p1)", f"r = {SHAPE} add(%p0, %b)"),
            "a function in double": read("r = f32[6,4]{1,0} exponential(%p0)", parameters="x", dtype="f64"),
            "a shift by 32": read(*shifted("32"), parameters="x"),
            "a shift to the right": read(*shifted("1", "shift-right-logical"), parameters="x"),
            "an integer's value as a float's": read(
                "b = s32[6,4]{1,0} bitcast-convert(%p0)",
                "m = s32[6,4]{1,0} maximum(%b, %b)",
                f"r = {SHAPE} convert(%m)",
                parameters="x",
            ),
            "a reduction": read(
                "r = f32[6]{0} reduce(%p0, %p1), dimensions={1}, to_apply=%sum", parameters="xs", root="f32[6]{0}"
            ),
            "NaN": read(
                "i = f32[] constant(nan)",
                f"is = {SHAPE} broadcast(%i), dimensions={{}}",
                f"r = {SHAPE} add(%p0, %is)",
                parameters="x",
            ),
            "a single value": read("r = f32[] add(%p0, %p1)", parameters="ss", root="f32[]"),
            "two results": read(f"r = ({SHAPE}, {SHAPE}) tuple(%p0, %p1)"),
        }.items():
            with self.subTest(name):
                self.assertIsNone(got)


if __name__ == "__main__":
    unittest.main()
