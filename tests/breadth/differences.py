"""Where compiled models differ from TensorFlow because XLA does. One table for both the test and the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.breadth.engine import Case, Difference, Operand
from tfaot.core import dtypes

Array = npt.NDArray[Any]
Covers = Callable[[Case, Difference], Array]

NAN, INF = np.nan, np.inf
TINY = 1e-40
"""A denormal float32."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One way in which results differ."""

    title: str
    why: str
    """Prose for the page: what happens, and what to do."""
    examples: tuple[Case, ...]
    """They differ. The test runs each, and the page shows the results."""
    covers: Covers
    """Which values of a difference found in some case are of this kind."""
    raises: bool = False
    """Whether TensorFlow raises an error where compiled code continues."""


def _never(case: Case, difference: Difference) -> Array:
    return np.zeros(difference.theirs.shape, np.bool_)


def _all(case: Case, difference: Difference) -> Array:
    return np.ones(difference.theirs.shape, np.bool_)


def _same_shape(covers: Covers) -> Covers:
    """Restricts a kind to results with the same shape."""

    def covered(case: Case, difference: Difference) -> Array:
        if difference.theirs.shape != difference.ours.shape:
            return _never(case, difference)
        return covers(case, difference)

    return covered


def _of(ops: Collection[str], covers: Covers) -> Covers:
    """Restricts a kind to some ops."""
    return lambda case, difference: covers(case, difference) if case.op in ops else _never(case, difference)


def _zeros(case: Case, difference: Difference) -> Array:
    return np.asarray((difference.theirs == 0) & (difference.ours == 0))


def _floating(values: Array) -> bool:
    return dtypes.BY_NAME[str(values.dtype)].floating and values.dtype.kind != "c"


def _odd_order(case: Case, difference: Difference) -> Array:
    """Matches if the operand has a NaN, or zeros of both signs, which the two sort in different orders."""
    for operand in case.operands:
        value = operand.value
        if _floating(value) and (np.isnan(value).any() or ((value == 0) & np.signbit(value)).any()):
            return _all(case, difference)
    return _never(case, difference)


def _denormal(value: Array) -> Array:
    if not _floating(value):
        return np.zeros(value.shape, np.bool_)
    return np.asarray(
        (value != 0) & (np.abs(value.astype(np.float64)) < float(ml_dtypes.finfo(value.dtype).smallest_normal))
    )


def _denormals(case: Case, difference: Difference) -> Array:
    """Matches if the value's operand is denormal, or if results aren't elementwise, any constant."""
    result = _never(case, difference)
    for operand in difference.operands:
        result |= _denormal(operand)
    if any(o.value.shape != difference.theirs.shape and _denormal(o.value).any() for o in case.operands):
        elementwise = {o.value.shape for o in case.operands} <= {o.shape for o in difference.operands}
        result |= not elementwise and not difference.operands
    return result


def _unrepresentable(case: Case, difference: Difference) -> Array:
    """Matches a float that the integer dtype can't represent."""
    if difference.ours.dtype.kind not in "iu" or not difference.operands or difference.operands[0].dtype.kind in "iub":
        return _never(case, difference)
    value = difference.operands[0].real.astype(np.float64)
    info = np.iinfo(difference.ours.dtype)
    return np.asarray(~((np.trunc(value) >= info.min) & (np.trunc(value) <= info.max)) | (value >= 2.0**63))


def _equal(case: Case, difference: Difference) -> Array:
    """Matches if the first operand, the image, contains equal values."""
    image = case.operands[0].value
    return np.full(difference.theirs.shape, np.unique(image).size < image.size)


def _nearly_equal(case: Case, difference: Difference) -> Array:
    """Matches if the first operand, the image, has values that are equal in bfloat16."""
    image = case.operands[0].value.astype(ml_dtypes.bfloat16).astype(np.float32)
    return np.full(difference.theirs.shape, np.unique(image).size < image.size)


def _beyond(case: Case, difference: Difference) -> Array:
    """Matches if the second operand isn't a valid bit count for the dtype."""
    places = difference.operands[1] if len(difference.operands) > 1 else case.operands[1].value.reshape(-1)
    beyond = (places < 0) | (places >= 8 * places.itemsize)
    return np.asarray(beyond if len(difference.operands) > 1 else np.full(difference.theirs.shape, beyond.any()))


def _aligned(case: Case, difference: Difference) -> Array:
    """Matches if corners are aligned, and some rows or columns are wrong, but not most."""
    few = difference.theirs.size <= max(32, max(operand.value.size for operand in case.operands))
    return np.full(difference.theirs.shape, "align_corners" in case.expression and few)


def _few(case: Case, difference: Difference) -> Array:
    """Matches if a few of many values differ, by less than a value of order 1."""
    few = difference.theirs.size <= max(1, case.operands[0].value.size // 50)
    return np.asarray((np.abs(difference.theirs - difference.ours) < 2) & np.bool_(few))


def _example(op: str, expression: str, *operands: Any, fed: bool = True) -> Case:
    values = [np.asarray(operand) for operand in operands]
    values = [v.astype(np.float32) if v.dtype == np.float64 else v for v in values]
    return Case(op, expression, tuple(Operand(v, fed) for v in values))


_CAST = [NAN, INF, -INF, 3e9, -3e9, 1e20, -1.5]
_ORDER = (
    "ArgMax",
    "ArgMin",
    "TopKV2",
    "InTopKV2",
    "MaxPool",
    "MaxPoolV2",
    "MaxPool3D",
    "UnsortedSegmentMax",
    "UnsortedSegmentMin",
)
_MAX = [[1, NAN, 3], [NAN, 1, 2], [-0.0, 0.0, -1]]

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "Casts of NaN and of values out of range to integers",
        "C++ leaves these casts undefined. TensorFlow gives whatever the CPU's instruction gives, which "
        "depends even on the value's position in the tensor. Compiled code gives 0 for NaN, and the "
        "nearest value of the integer dtype for everything else. If your model relies on either, clip the "
        "values before the cast.",
        tuple(
            _example("Cast", f"tf.cast({{0}}, tf.{dtype})", _CAST)
            for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
        ),
        _same_shape(_of(["Cast", "Bucketize"], _unrepresentable)),
    ),
    Entry(
        "NaN and signed zeros where values are put in order",
        "TensorFlow compares with `<` or `>`, and both are false for a NaN, so its result depends on the "
        "position of the NaN. For sorts and `top_k`, XLA uses one total order: -NaN, -inf, …, -0.0, 0.0, "
        "…, inf, NaN. A maximum keeps a NaN. Replace NaN before you sort.",
        (
            _example("ArgMin", "tf.argmin({0}, axis=-1)", [[1, NAN, 3], [NAN, 1, 2]]),
            _example("Sort", "tf.sort({0})", _MAX),
            _example("Sort", "tf.argsort({0}, stable=True)", _MAX),
            _example("TopKV2", "tf.math.top_k({0}, k=3).values", _MAX),
            _example("TopKV2", "tf.math.top_k({0}, k=3).indices", _MAX),
            _example(
                "MaxPool",
                "tf.nn.max_pool2d({0}, 2, 2, 'VALID')",
                np.array([1, NAN, NAN, 1, 1, 1, 1, 1], np.float32).reshape(1, 2, 4, 1),
            ),
            _example("UnsortedSegmentMax", "tf.math.unsorted_segment_max({0}, [0, 0, 1, 1], 2)", [1, NAN, NAN, 3]),
        ),
        _same_shape(_of([*_ORDER, "Sort"], _odd_order)),
    ),
    Entry(
        "The sign of zero",
        "A result of zero may have the other sign. Comparisons treat both zeros as equal. Only `1 / x`, "
        "`atan2`, and bit casts tell them apart.",
        (
            _example("Sign", "tf.sign({0})", [-0.0]),
            _example("Relu", "tf.nn.relu({0})", [-0.0]),
            _example("Maximum", "tf.maximum({0}, {1})", [-0.0, 0.0], [0.0, -0.0]),
            _example("Max", "tf.reduce_max({0})", [0.0, -0.0]),
        ),
        _same_shape(_zeros),
    ),
    Entry(
        "Denormal values that the compiler knows",
        "TensorFlow treats denormal floats as zero, and so does a compiled model inside `Run()`. At "
        "compile time, XLA folds everything that depends only on constants and frozen variables, and "
        "keeps denormals there. Feed such a variable (`frozen = []`), or round its values.",
        (
            _example("Sqrt", "tf.sqrt({0})", [TINY], fed=False),
            _example("Mul", "{0} * 1e20", [TINY], fed=False),
            _example("Log", "tf.math.log({0})", [TINY], fed=False),
        ),
        _same_shape(_denormals),
    ),
    Entry(
        "Functions of denormal values",
        "XLA computes some functions in another way, in which a denormal value gives another result than zero.",
        (_example("Atan2", "tf.atan2({0}, {1})", [TINY] * 8, [TINY] * 8),),
        _same_shape(_denormals),
    ),
    Entry(
        "`fake_quant` between two steps",
        "An input exactly halfway between two steps may go to the other step, because XLA forms a product "
        "and a sum in one operation, with one rounding. If the range is fed, the same can happen to its "
        "zero point, and then to all values. Zero stays zero.",
        (
            _example(
                "FakeQuantWithMinMaxVars",
                "tf.quantization.fake_quant_with_min_max_vars({0}, {1}, {2})",
                [0.0, -1.3, 2.1],
                np.float32(-1.3),
                np.float32(2.1),
            ),
        ),
        _same_shape(
            _of(["FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"], _few)
        ),
    ),
    Entry(
        "The gradient of max pooling where values are equal",
        "If a window contains its largest value several times and extends over the border (`SAME`), the "
        "gradient may go to another of these values.",
        (
            _example(
                "MaxPoolGrad",
                "tf.gradients(tf.nn.max_pool2d({0}, [3, 2], 2, 'SAME') * {1}, {0})",
                np.array([[0, 1, 1], [1, 0, 0], [0, 1, 0]], np.float32).reshape(1, 3, 3, 1),
                np.array([[4, 3], [8, 4]], np.float32).reshape(1, 2, 2, 1),
            ),
        ),
        _same_shape(
            _of(["MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad", "MaxPoolGradGrad", "MaxPoolGradGradV2"], _equal)
        ),
    ),
    Entry(
        "The gradients of `relu` and `fake_quant` where they are NaN or infinite",
        "TensorFlow multiplies them by zero for values that are out of range or NaN, which gives NaN. Compiled code gives zero.",
        (
            _example(
                "ReluGrad", "tf.raw_ops.ReluGrad(gradients={0}, features={1})", [INF, NAN, NAN], [-1.0, -1.0, NAN]
            ),
            _example(
                "FakeQuantWithMinMaxArgsGradient",
                "tf.quantization.fake_quant_with_min_max_args_gradient({0}, {1}, -2.0, 3.0)",
                [INF, NAN],
                [4.0, 4.0],
            ),
        ),
        _same_shape(
            _of(
                ["ReluGrad", "Relu6Grad", "LeakyReluGrad", "FakeQuantWithMinMaxArgsGradient"],
                lambda case, d: np.isnan(d.theirs) & (d.ours == 0),
            )
        ),
    ),
    Entry(
        "Products that cancel",
        "XLA fuses a product with a sum or a difference: the product isn't rounded. Where it cancels with another product of very "
        "large values, such as a mask of -1e9, TensorFlow gives zero, and compiled code the other product's rounding error. Mask "
        "after normalization, or with `tf.where`.",
        (_example("MulSub", "{0} * {1} - {2} * {1}", [-1e9, -1e9], [0.1, 0.3], [-1e9, -1e9]),),
        _same_shape(_of(["MulSub"], _all)),
    ),
    Entry(
        "The gradient of `elu` where its value is NaN",
        "TensorFlow passes the gradient on as it is. Compiled code gives NaN.",
        (_example("EluGrad", "tf.raw_ops.EluGrad(gradients={0}, outputs={1})", [1.0], [NAN]),),
        _same_shape(_of(["EluGrad"], lambda case, d: np.isnan(d.ours) & np.isnan(d.operands[-1]))),
    ),
    Entry(
        "The second derivative of max pooling where values are nearly equal",
        "XLA finds the largest value of a window by its first 8 significant bits. It may take any of those "
        "that are equal in them.",
        (
            _example(
                "MaxPoolGradGrad",
                "tf.raw_ops.MaxPoolGradGrad(orig_input={0}, orig_output=tf.nn.max_pool2d({0}, [1, 2], [1, 2], 'VALID'), "
                "grad={1}, ksize=[1, 1, 2, 1], strides=[1, 1, 2, 1], padding='VALID')",
                np.array([1, 1.001], np.float32).reshape(1, 1, 2, 1),
                np.array([7, 5], np.float32).reshape(1, 1, 2, 1),
            ),
        ),
        _same_shape(_of(["MaxPoolGradGrad", "MaxPoolGradGradV2", "MaxPool3DGradGrad"], _nearly_equal)),
    ),
    Entry(
        "Shifts by as many bits as the dtype has, or more",
        "TensorFlow leaves them undefined. Its own kernel shifts by one bit less than the dtype has, and by none if the "
        "number is negative. Compiled code shifts all bits out.",
        (
            _example(
                "LeftShift", "tf.bitwise.left_shift({0}, {1})", np.array([3, 3], np.int32), np.array([32, -1], np.int32)
            ),
            _example(
                "RightShift",
                "tf.bitwise.right_shift({0}, {1})",
                np.array([5, -5], np.int32),
                np.array([-1, -1], np.int32),
            ),
        ),
        _same_shape(_of(["LeftShift", "RightShift"], _beyond)),
    ),
    Entry(
        "Truncated normal and categorical draws from a given seed",
        "TensorFlow draws these in ways that XLA can't. [Random numbers](../guide/random.md) says what "
        "compiled code draws instead, and which draws are TensorFlow's.",
        (
            _example(
                "StatelessTruncatedNormal",
                "tf.random.stateless_truncated_normal([3], seed={0})",
                np.array([1, 2], np.int32),
            ),
            _example(
                "StatelessMultinomial",
                "tf.random.stateless_categorical({1}, 6, seed={0})",
                np.array([1, 2], np.int32),
                np.zeros([1, 4], np.float32),
            ),
        ),
        _same_shape(
            _of(
                [
                    "StatelessTruncatedNormal",
                    "StatelessTruncatedNormalV2",
                    "StatelessMultinomial",
                    "StatelessParameterizedTruncatedNormal",
                ],
                _all,
            )
        ),
    ),
    Entry(
        "`resize_bilinear` with `align_corners=True`",
        "At some sizes, such as 4 to 10 or 6 to 26, rows or columns of the result fall exactly on those "
        "of the image. XLA then takes the wrong neighbor for one of them. TensorFlow 2's "
        "`tf.image.resize` never aligns corners, so this doesn't affect it.",
        (
            _example(
                "ResizeBilinear",
                "tf.reshape(tf.compat.v1.image.resize_bilinear(tf.reshape({0}, [1, 4, 1, 1]), [10, 1], "
                "align_corners=True), [-1])",
                [0, 9, 0, 9],
            ),
        ),
        _same_shape(_of(["ResizeBilinear", "ResizeBilinearGrad", "ResizeNearestNeighbor"], _aligned)),
    ),
    Entry(
        "`erf` of infinity in float64",
        "TensorFlow gives NaN, which is wrong. Compiled code gives 1.",
        (_example("Erf", "tf.math.erf(tf.cast({0}, tf.float64))", [INF]),),
        _same_shape(_of(["Erf"], lambda case, d: np.isnan(d.theirs) & (np.abs(d.ours) == 1))),
    ),
    Entry(
        "Indices out of range",
        "On a CPU, TensorFlow raises an error. Compiled code can't: a gather takes the nearest index that "
        "exists, and a scatter skips the update. Check indices before they reach the model.",
        (
            _example("GatherV2", "tf.gather({0}, {1})", [1, 2, 3], np.array([0, 7, -1], np.int32)),
            _example("GatherNd", "tf.gather_nd({0}, {1})", [1, 2, 3], np.array([[0], [7], [-1]], np.int32)),
            _example("ScatterNd", "tf.scatter_nd({1}, {0}, [3])", [1, 2, 3], np.array([[0], [7], [-1]], np.int32)),
        ),
        _never,
        raises=True,
    ),
    Entry(
        "`Assert`, `check_numerics`, and division by zero",
        "Compiled code drops assertions, including all of `tf.debugging`, because it has no way to report "
        "them. It also drops `tf.print`. Division of an integer by zero, an error in TensorFlow, gives "
        "-1, and the remainder is the dividend. Check these conditions in C++.",
        (
            _example("Assert", "(tf.debugging.assert_positive({0}), {0} + 1)[1]", [-1]),
            _example("CheckNumerics", "tf.debugging.check_numerics({0}, 'no number')", [NAN]),
            _example(
                "TruncateDiv", "tf.truncatediv({0}, {1})", np.array([7, -7], np.int32), np.array([0, 0], np.int32)
            ),
            _example(
                "TruncateMod", "tf.truncatemod({0}, {1})", np.array([7, -7], np.int32), np.array([0, 0], np.int32)
            ),
        ),
        _never,
        raises=True,
    ),
)


def undocumented(case: Case, difference: Difference) -> int:
    """Returns how many values of a difference no entry covers."""
    covered = np.zeros(difference.theirs.shape, np.bool_)
    for entry in ENTRIES:
        covered |= entry.covers(case, difference)
    return int((~covered).sum()) if difference.theirs.shape == difference.ours.shape else 1


RENEW = "./bazelw run //tests/breadth:differences_test -- --write"


def page(shown: list[list[tuple[str, str]]]) -> str:
    """Returns the page, with TensorFlow's result and ours as text for each entry and example."""
    lines = [
        "# Where compiled models differ from TensorFlow",
        "",
        "On some values, XLA and TensorFlow disagree. The generated test compares your model on its golden "
        "inputs, and fails only if such values occur there. This page lists every difference that "
        "[thousands of small models](../measured/numerics.md) have shown, with examples. A test computes each "
        "example with TensorFlow and with compiled code.",
        "",
        "`tests/breadth/differences.py` generates this page. If the page is out of date, the test fails and prints "
        "the command that updates it.",
    ]
    for entry, results in zip(ENTRIES, shown, strict=True):
        lines += [
            "",
            f"## {entry.title}",
            entry.why,
            "",
        ]
        for example, (theirs, ours) in zip(entry.examples, results, strict=True):
            names = ["x", "y", "z"][: len(example.operands)]
            operands = "; ".join(f"{n} = {text(o.value)}" for n, o in zip(names, example.operands, strict=True))
            constant = "" if all(o.fed for o in example.operands) else ", a constant"
            expression = example.expression.format(*names)
            lines.append(f"- `{expression}`, {operands}{constant}: TensorFlow `{theirs}`, compiled `{ours}`")
    return "\n".join(lines) + "\n"


def text(value: Array) -> str:
    """Formats values briefly."""
    if value.ndim:
        return "[" + ", ".join(text(item) for item in value) + "]"
    if value.dtype.kind == "f":
        return f"{float(value):.6g}" if value != 0 else ("-0.0" if np.signbit(value) else "0.0")
    return str(value)
