"""How to call each op in XLA's registry: one recipe per op, which draws shapes, dtypes, and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.breadth.draw import COMPLEX, FLOATS, INTS, Code, Draw, call, literal, tf_type
from tests.breadth.engine import Case

Make = Callable[[Draw], str]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to draw cases of an op."""

    op: str
    make: Make
    """Adds operands, and returns the expression."""
    sums: bool
    rtol: float
    atol: float


RECIPES: dict[str, Recipe] = {}


def recipe(
    ops: str, make: Callable[[Draw, str], str], *, sums: bool = False, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Adds one recipe for several ops. The recipe gets the op's name."""
    for op in ops.split():
        assert op not in RECIPES, op
        RECIPES[op] = Recipe(op, lambda d, op=op: make(d, op), sums, rtol, atol)


def drawn(recipe_: Recipe, seed: Sequence[int]) -> Case:
    """Draws the case for a seed.

    Raises:
      LookupError: TensorFlow has no CPU kernel to compare with.
    """
    draw = Draw(seed)
    expression = recipe_.make(draw)
    operands = tuple(draw.operands)
    return Case(recipe_.op, expression, operands, recipe_.sums, recipe_.rtol, recipe_.atol, draw.setup)


# Element by element.


def unary(kind: str = "any", attribute: str = "T", **attributes: Any) -> Callable[[Draw, str], str]:
    def make(d: Draw, op: str) -> str:
        return call(op, d.of(d.dtype(op, attribute), d.shape(), kind), **attributes)

    return make


def binary(kind: str = "any", other: str = "", attribute: str = "T", **attributes: Any) -> Callable[[Draw, str], str]:
    def make(d: Draw, op: str) -> str:
        dtype, shape = d.dtype(op, attribute), d.shape()
        shapes = [shape, d.broadcast(shape)]
        if d.flip():
            shapes.reverse()
        return call(op, d.of(dtype, shapes[0], kind), d.of(dtype, shapes[1], other or kind), **attributes)

    return make


def alike(count: int, kind: str = "any", attribute: str = "T", **attributes: Any) -> Callable[[Draw, str], str]:
    def make(d: Draw, op: str) -> str:
        dtype, shape = d.dtype(op, attribute), d.shape()
        return call(op, *[d.of(dtype, shape, kind) for _ in range(count)], **attributes)

    return make


recipe(
    "Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Conj Cos Erf Erfc Exp Expm1 Floor "
    "Identity Inv Invert IsFinite IsInf IsNan LeakyRelu Log Log1p LogicalNot Ndtri Neg OnesLike PopulationCount "
    "PreventGradient Reciprocal Relu Relu6 Rint Round Rsqrt Sigmoid Sign Sin Snapshot Softplus Softsign "
    "Sqrt Square "
    "StopGradient Tan Tanh ZerosLike",
    lambda d, op: call(op, d.of("bool" if op == "LogicalNot" else d.dtype(op), d.shape())),
)
recipe("Elu Selu", unary("any"), atol=2e-7)  # TensorFlow subtracts 1 from an exponential
recipe("Erfinv", unary("any"), atol=2e-7)  # TensorFlow adds 1 to the operand
recipe("Cosh Sinh", unary("any"), rtol=2e-13)  # exp(x - log 2), of float64 up to 710: an ULP of x is a part of 1e-13
recipe("Digamma Lgamma", unary("any"), rtol=1e-4, atol=2e-6)
recipe(
    "Angle ComplexAbs Imag Real",
    lambda d, op: call(
        op, d.of(dtype := d.dtype(op), d.shape()), Tout=tf_type("float32" if dtype == "complex64" else "float64")
    ),
    rtol=1e-5,
)
recipe(
    "Complex",
    lambda d, op: call(
        op,
        d.of(dtype := d.dtype(op), s := d.shape()),
        d.of(dtype, s),
        Tout=tf_type("complex64" if dtype == "float32" else "complex128"),
    ),
)
recipe("CheckNumerics", unary("tame", message="none"))
recipe("ToBool", unary())
recipe("Rank Shape Size", unary())
recipe("ShapeN", lambda d, op: call(op, Code(f"[{d.of('float32', d.shape())}, {d.of('float32', d.shape())}]")))
recipe("IdentityN", lambda d, op: call(op, Code(f"[{d.of('float32', d.shape())}, {d.of('int32', d.shape())}]")))
recipe(
    "AddN",
    lambda d, op: (lambda t, s: call(op, Code("[" + ", ".join(d.of(t, s, "tame") for _ in range(d.int(1, 5))) + "]")))(
        d.dtype(op), d.shape()
    ),
    sums=True,
)
recipe(
    "Add AddV2 ApproximateEqual Atan2 Div DivNoNan Equal Greater GreaterEqual Less LessEqual LogicalAnd "
    "LogicalOr Maximum "
    "Minimum Mul MulNoNan NextAfter NotEqual Sub SquaredDifference Xdivy Xlog1py Xlogy RealDiv BitwiseAnd "
    "BitwiseOr BitwiseXor",
    lambda d, op: (
        alike(2)(d, op)
        if op == "ApproximateEqual"
        else call(op, d.of("bool", s := d.shape()), d.of("bool", d.broadcast(s)))
        if op.startswith("Logical")
        else binary("any", "nonzero" if op in ("Div", "RealDiv") else "any")(d, op)
    ),
)
recipe("FloorDiv FloorMod Mod TruncateDiv TruncateMod", binary("any", "nonzero"))
recipe(
    "Pow",
    lambda d, op: (
        call(op, d.of(t, s := d.shape(), "tame"), d.of(t, d.broadcast(s), "positive"))
        if (t := d.dtype(op)) in INTS
        else call(op, d.of(t, s := d.shape()), d.of(t, d.broadcast(s)))
    ),
    rtol=1e-5,
)
recipe(
    "LeftShift RightShift",
    lambda d, op: (lambda t, s: call(op, d.of(t, s), d.of(t, d.broadcast(s), "positive")))(d.dtype(op), d.shape()),
)
recipe("Igamma Igammac IgammaGradA Zeta", binary("positive"), rtol=2e-4)
recipe("RandomGammaGrad", binary("positive"), rtol=2e-3)
recipe(
    "Polygamma",
    lambda d, op: (lambda t, s: call(op, d.add(d.rng.integers(0, 4, s).astype(t)), d.of(t, s, "positive")))(
        d.dtype(op), d.shape()
    ),
    rtol=2e-4,
    atol=2e-6,
)
recipe("Betainc", alike(3, "positive"), rtol=1e-3)
RECIPES["Betainc"] = dataclasses.replace(
    RECIPES["Betainc"],
    make=lambda d: (
        lambda t, s: call(
            "Betainc", d.of(t, s, "positive"), d.of(t, s, "positive"), d.add(d.rng.uniform(0, 1, s).astype(t))
        )
    )(d.dtype("Betainc"), d.shape()),
)
recipe("EluGrad LeakyReluGrad Relu6Grad ReluGrad SeluGrad SoftplusGrad SoftsignGrad", alike(2))
recipe("ReciprocalGrad RsqrtGrad SqrtGrad", alike(2, "tame"))
recipe("SigmoidGrad TanhGrad", alike(2, "unit"))
recipe(
    "ClipByValue",
    lambda d, op: (lambda t, s: call(op, d.of(t, s), d.const(-1 if t in FLOATS else 1, t), d.const(3, t)))(
        d.dtype(op, among=FLOATS + INTS), d.shape()
    ),
)
recipe("Select", lambda d, op: (lambda t, s: call(op, d.of("bool", s), d.of(t, s), d.of(t, s)))(d.dtype(op), d.shape()))
recipe(
    "SelectV2",
    lambda d, op: (lambda t, s: call(op, d.of("bool", d.broadcast(s)), d.of(t, s), d.of(t, d.broadcast(s))))(
        d.dtype(op), d.shape()
    ),
)
recipe("L2Loss", unary("tame"), sums=True)
recipe(
    "LogSoftmax Softmax",
    lambda d, op: call(op, d.of(d.dtype(op), [d.int(1, 9), d.pick([1, 2, 7, 33])], "any")),
    rtol=1e-4,
)
recipe("Bucketize", lambda d, op: call(op, d.of(d.dtype(op), d.shape(), "any"), boundaries=[-1.0, 0.0, 0.5, 7.0]))


def _cast(d: Draw, op: str) -> str:
    sources = (*FLOATS, *INTS, "bool", *COMPLEX)
    source, target = d.pick(sources), d.pick(sources)
    return call(op, d.of(source, d.shape()), DstT=tf_type(target))


recipe("Cast", _cast)
recipe(
    "Bitcast",
    lambda d, op: (lambda p: call(op, d.of(p[0], d.shape(rank=2)), type=tf_type(p[1])))(
        d.pick(
            [
                ("float32", "int32"),
                ("int32", "float32"),
                ("float64", "int64"),
                ("float32", "uint8"),
                ("float16", "int16"),
                ("int64", "int32"),
                ("bfloat16", "uint16"),
            ]
        )
    ),
)

# Reductions.


def _axes(d: Draw, rank: int) -> list[int]:
    axes = [a for a in range(rank) if d.flip(0.6)]
    return [a - rank if d.flip(0.3) else a for a in axes]


def _reduce(kind: str) -> Callable[[Draw, str], str]:
    def make(d: Draw, op: str) -> str:
        dtype = "bool" if op in ("All", "Any") else d.dtype(op)
        shape = d.shape()
        return call(op, d.of(dtype, shape, kind), d.const(np.array(_axes(d, len(shape)))), keep_dims=d.flip())

    return make


recipe("All Any Max Min", _reduce("any"))
recipe("Mean Sum", _reduce("tame"), sums=True)
recipe(
    "Prod",
    lambda d, op: (lambda s: call(op, d.of(d.dtype(op), s, "unit"), d.const(np.array(_axes(d, len(s))))))(d.shape()),
    rtol=1e-3,
)


def _arg(d: Draw, op: str) -> str:
    shape = d.shape(low=1, empty=False)
    return call(
        op,
        d.of(d.dtype(op), shape),
        d.const(d.int(-len(shape), len(shape) - 1)),
        output_type=tf_type(d.pick(["int32", "int64"])),
    )


recipe("ArgMax ArgMin", _arg)


def _cumulative(d: Draw, op: str) -> str:
    shape = d.shape(low=1)
    return call(
        op,
        d.of(d.dtype(op), shape, "unit"),
        d.const(d.int(-len(shape), len(shape) - 1)),
        exclusive=d.flip(),
        reverse=d.flip(),
    )


recipe("Cumprod Cumsum CumulativeLogsumexp", _cumulative, sums=True)


def _segments(d: Draw, op: str) -> str:
    dtype, shape = d.dtype(op), d.shape(low=1, empty=False)
    count = d.int(1, 7)
    ids = d.rng.integers(-1, count, shape[0]).astype(np.int32)
    return call(op, d.of(dtype, shape, "any" if op.endswith(("Max", "Min")) else "unit"), d.add(ids), d.const(count))


recipe("UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum", _segments, sums=True)
recipe(
    "Bincount",
    lambda d, op: call(
        op, d.add(d.rng.integers(0, 9, d.shape(rank=1)).astype(np.int32)), d.const(7), d.of("float32", [0])
    ),
)
recipe(
    "DenseBincount",
    lambda d, op: call(
        op,
        d.add(d.rng.integers(0, 9, d.shape(rank=d.int(1, 2))).astype(np.int32)),
        d.const(7),
        d.add(np.zeros([0], d.pick(["float32", "int32", "int64"])), fed=False),
        binary_output=d.flip(),
    ),
)


def _in_top_k(d: Draw, op: str) -> str:
    rows, classes = d.int(1, 9), d.int(2, 17)
    return call(
        op,
        d.of("float32", [rows, classes], "tame"),
        d.add(d.rng.integers(0, classes, rows).astype(np.int32)),
        d.const(d.int(1, classes)),
    )


recipe("InTopKV2", _in_top_k)


def _top_k(d: Draw, op: str) -> str:
    shape = d.shape(low=1, empty=False)
    return call(op, d.of(d.dtype(op), shape), d.const(d.int(1, shape[-1])), sorted=True)


recipe("TopKV2", _top_k)

# Shapes.


def _reshape(d: Draw, op: str) -> str:
    shape = d.shape(empty=False)
    target = list(d.rng.permutation([*shape, 1]))
    if d.flip():
        target[d.int(0, len(target) - 1)] = -1
    return call(op, d.of(d.dtype(op), shape), d.const(np.array(target)))


recipe("Reshape", _reshape)
recipe("ExpandDims", lambda d, op: call(op, d.of(d.dtype(op), s := d.shape()), d.const(d.int(-len(s) - 1, len(s)))))
recipe(
    "Squeeze",
    lambda d, op: call(op, d.of(d.dtype(op), [1, d.int(0, 5), 1]), axis=d.pick([[], [0], [-1], [0, 2]])).replace(
        "axis", "axis"
    ),
)
recipe(
    "Transpose ConjugateTranspose",
    lambda d, op: call(
        op,
        d.of(d.dtype(op, among=COMPLEX if op[0] == "C" else None), s := d.shape()),
        d.const(d.rng.permutation(len(s))),
    ),
)
recipe(
    "Tile",
    lambda d, op: call(
        op,
        d.of(d.dtype(op), s := d.shape(rank=d.int(0, 3))),
        d.const(d.rng.integers(0 if d.flip(0.2) else 1, 4, len(s))),
    ),
)
recipe("Pad", lambda d, op: call(op, d.of(d.dtype(op), s := d.shape()), d.const(d.rng.integers(0, 3, [len(s), 2]))))
recipe(
    "PadV2",
    lambda d, op: (
        lambda t: call(op, d.of(t, s := d.shape()), d.const(d.rng.integers(0, 3, [len(s), 2])), d.of(t, []))
    )(d.dtype(op)),
)


def _mirror(d: Draw, op: str) -> str:
    shape = [d.int(3, 7) for _ in range(d.int(1, 4))]
    pads = d.rng.integers(0, 3, [len(shape), 2])
    if op == "MirrorPadGrad":
        shape = [a + int(p.sum()) for a, p in zip(shape, pads, strict=True)]
    return call(op, d.of(d.dtype(op), shape, "tame"), d.const(pads), mode=d.pick(["REFLECT", "SYMMETRIC"]))


recipe("MirrorPad MirrorPadGrad", _mirror, sums=True)
recipe(
    "Reverse", lambda d, op: call(op, d.of(d.dtype(op), s := d.shape(low=1)), d.const([d.flip() for _ in s], "bool"))
)
recipe(
    "ReverseV2",
    lambda d, op: call(
        op, d.of(d.dtype(op), s := d.shape(low=1)), d.const(np.array([a for a in range(len(s)) if d.flip()]))
    ),
)
recipe(
    "ReverseSequence",
    lambda d, op: (
        lambda b, n: call(
            op,
            d.of(d.dtype(op), [b, n, 3]),
            d.add(d.rng.integers(0, n + 1, b).astype(np.int32)),
            seq_dim=1,
            batch_dim=0,
        )
    )(d.int(1, 6), d.int(1, 9)),
)
recipe(
    "Roll",
    lambda d, op: (
        lambda s: call(
            op, d.of(d.dtype(op), s), d.add(d.rng.integers(-9, 9, len(s)).astype(np.int32)), d.const(np.arange(len(s)))
        )
    )(d.shape(low=1)),
)


def _slice(d: Draw, op: str) -> str:
    shape = d.shape(empty=False)
    begin = [d.int(0, size - 1) for size in shape]
    size = [d.int(0 if d.flip(0.1) else 1, s - b) for s, b in zip(shape, begin, strict=True)]
    return call(
        op, d.of(d.dtype(op), shape), d.add(np.array(begin, np.int32), fed=d.flip(0.2)), d.const(np.array(size))
    )


recipe("Slice", _slice)


def _strided(d: Draw, op: str) -> str:
    shape = d.shape(low=1)
    begin = np.array([d.int(-s - 1, s + 1) for s in shape])
    end = np.array([d.int(-s - 1, s + 1) for s in shape])
    strides = np.array([d.pick([1, 1, 2, 3, -1, -2]) for _ in shape])
    masks = {name: d.int(0, 2 ** len(shape) - 1) for name in ("begin_mask", "end_mask")}
    data = d.values(d.dtype(op), shape)
    if op == "StridedSlice":
        return call(op, d.add(data), d.const(begin), d.const(end), d.const(strides), **masks)
    first = [0 if masks["begin_mask"] >> i & 1 else None for i in range(len(shape))]
    del first
    part = data[tuple(_python_slice(shape, begin, end, strides, masks))]
    if op == "StridedSliceGrad":
        # Where the slice is empty and has steps, XLA's result has another shape, which the compile stage refuses.
        strides = np.where(np.array(part.shape) == 0, np.sign(strides), strides)
        return call(op, d.const(np.array(shape)), d.const(begin), d.const(end), d.const(strides), d.add(part), **masks)
    return call(
        op,
        d.add(data),
        d.const(begin),
        d.const(end),
        d.const(strides),
        d.add(part + part.dtype.type(1) if part.dtype != np.bool_ else ~part),
        **masks,
    )


def _python_slice(shape: Sequence[int], begin: Any, end: Any, strides: Any, masks: dict[str, int]) -> list[slice]:
    return [
        slice(
            None if masks["begin_mask"] >> i & 1 else int(begin[i]),
            None if masks["end_mask"] >> i & 1 else int(end[i]),
            int(strides[i]),
        )
        for i in range(len(shape))
    ]


recipe("StridedSlice StridedSliceGrad TensorStridedSliceUpdate", _strided)
recipe(
    "Split",
    lambda d, op: (lambda n, s: call(op, d.const(1), d.of(d.dtype(op), [s, n * d.int(0, 3)]), num_split=n))(
        d.int(1, 5), d.int(1, 7)
    ),
)
recipe(
    "SplitV",
    lambda d, op: (
        lambda sizes: call(
            op, d.of(d.dtype(op), [3, sum(sizes)]), d.const(np.array(sizes)), d.const(1), num_split=len(sizes)
        )
    )([d.int(0, 4) for _ in range(d.int(1, 5))]),
)
recipe(
    "Pack",
    lambda d, op: (
        lambda t, s: call(
            op, Code("[" + ", ".join(d.of(t, s) for _ in range(d.int(1, 5))) + "]"), axis=d.int(0, len(s))
        )
    )(d.dtype(op), d.shape(rank=d.int(0, 3))),
)
recipe(
    "Unpack", lambda d, op: (lambda n: call(op, d.of(d.dtype(op), [2, n, 3]), num=n, axis=d.pick([1, -2])))(d.int(1, 6))
)


def _concat(d: Draw, op: str) -> str:
    dtype, shape = d.dtype(op), d.shape(low=1)
    axis = d.int(0, len(shape) - 1)
    parts = []
    for _ in range(d.int(2, 5)):
        part = list(shape)
        part[axis] = d.int(0, 5)
        parts.append(d.of(dtype, part))
    values = Code("[" + ", ".join(parts) + "]")
    return call(op, d.const(axis), values) if op == "Concat" else call(op, values, d.const(axis))


recipe("Concat ConcatV2", _concat)
recipe("ConcatOffset", lambda d, op: call(op, d.const(1), Code(f"[{d.const([2, 3, 5])}, {d.const([2, 7, 5])}]")))
recipe(
    "BroadcastTo",
    lambda d, op: (lambda s: call(op, d.of(d.dtype(op), d.broadcast(s)), d.const(np.array(s))))(d.shape()),
)
recipe("BroadcastArgs BroadcastGradientArgs", lambda d, op: call(op, d.const([3, 1, 5]), d.const([7, 1])))
recipe("Fill", lambda d, op: call(op, d.const(np.array(d.shape())), d.of(d.dtype(op), [])))
recipe(
    "Range",
    lambda d, op: (lambda t: call(op, d.const(d.int(0, 5), t), d.const(d.int(5, 30), t), d.const(d.int(1, 4), t)))(
        d.dtype(op, "Tidx", among=("int32", "int64", "float32"))
    ),
)
recipe(
    "LinSpace",
    lambda d, op: (lambda t: call(op, d.const(-1.5, t), d.const(d.int(2, 9), t), d.const(d.int(1, 20))))(
        d.dtype(op, among=("float32", "float64"))
    ),
    sums=True,
)
recipe(
    "OneHot",
    lambda d, op: (
        lambda t: call(
            op,
            d.add(d.rng.integers(-1, 9, d.shape(rank=d.int(0, 2))).astype(d.pick(["int32", "int64", "uint8"]))),
            d.const(7),
            d.of(t, []),
            d.of(t, []),
            axis=d.pick([-1, 0]),
        )
    )(d.dtype(op)),
)
recipe("Empty", lambda d, op: call(op, d.const(np.array(d.shape())), dtype=tf_type("float32"), init=True))
recipe("EnsureShape", lambda d, op: call(op, d.of(d.dtype(op), s := d.shape()), shape=s))
recipe(
    "Diag",
    lambda d, op: (
        call(op, d.of(d.dtype(op), d.shape(rank=1, empty=False)[:1] if d.flip() else [2, 3]))
        .replace("4099", "67")
        .replace("1031", "31")
    ),
)
recipe("DiagPart", lambda d, op: call(op, d.of(d.dtype(op), d.pick([[7, 7], [1, 1], [2, 3, 2, 3]]))))
recipe("MatrixDiag", lambda d, op: call(op, d.of(d.dtype(op), [d.int(1, 3), d.int(0, 9)])))
recipe("MatrixDiagPart", lambda d, op: call(op, d.of(d.dtype(op), [d.int(1, 3), d.int(1, 9), d.int(1, 9)])))
recipe(
    "MatrixBandPart",
    lambda d, op: call(
        op, d.of(d.dtype(op), [2, 5, 7]), d.const(d.int(-1, 4), "int64"), d.const(d.int(-1, 6), "int64")
    ),
)
recipe("MatrixSetDiag", lambda d, op: (lambda t: call(op, d.of(t, [2, 5, 7]), d.of(t, [2, 5])))(d.dtype(op)))
recipe(
    "MatrixDiagV2 MatrixDiagV3",
    lambda d, op: (lambda t, k: call(op, d.of(t, [3, 5]), d.const(k), d.const(-1), d.const(-1), d.of(t, [])))(
        d.dtype(op), d.int(-3, 3)
    ),
)
recipe(
    "MatrixDiagPartV2 MatrixDiagPartV3",
    lambda d, op: (lambda t: call(op, d.of(t, [2, 5, 7]), d.const([d.int(-3, 0), d.int(0, 4)]), d.of(t, [])))(
        d.dtype(op)
    ),
)
recipe(
    "MatrixSetDiagV2 MatrixSetDiagV3",
    lambda d, op: (lambda t: call(op, d.of(t, [2, 5, 7]), d.of(t, [2, 5]), d.const(0)))(d.dtype(op)),
)
recipe("InvertPermutation", lambda d, op: call(op, d.add(d.rng.permutation(d.pick([1, 7, 31])).astype(np.int32))))

# Gathers and scatters.


def _gather(d: Draw, op: str) -> str:
    dtype = d.dtype(op, "Tparams")
    shape = d.shape(low=1, empty=False)
    indices = d.shape(rank=d.int(0, 2))
    axis = d.int(0, len(shape) - 1) if op == "GatherV2" else 0
    at = d.add(d.rng.integers(0, shape[axis], indices).astype(d.pick(["int32", "int64"])))
    return call(op, d.of(dtype, shape), at, *([d.const(axis)] if op == "GatherV2" else []))


recipe("Gather GatherV2", _gather)


def _points(d: Draw, shape: Sequence[int], depth: int, count: int) -> np.ndarray[Any, Any]:
    return np.stack([d.rng.integers(0, s, count) for s in shape[:depth]], -1).astype(np.int32)


def _gather_nd(d: Draw, op: str) -> str:
    shape = d.shape(low=1, empty=False)
    return call(op, d.of(d.dtype(op, "Tparams"), shape), d.add(_points(d, shape, d.int(1, len(shape)), d.int(1, 9))))


recipe("GatherNd", _gather_nd)


def _scatter(d: Draw, op: str) -> str:
    shape = d.shape(low=1, empty=False)
    depth = d.int(1, len(shape))
    count = d.int(1, 9)
    at = _points(d, shape, depth, count)
    if op == "TensorScatterUpdate":
        at = np.unique(at, axis=0)
    updates = [len(at), *shape[depth:]]
    if op == "ScatterNd":
        return call(op, d.add(at), d.of(d.dtype(op), updates, "tame"), d.const(np.array(shape)))
    dtype = d.dtype(op)
    return call(op, d.of(dtype, shape, "tame"), d.add(at), d.of(dtype, updates, "tame"))


recipe(
    "ScatterNd TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate",
    _scatter,
    sums=True,
)


def _stitch(d: Draw, op: str) -> str:
    order = d.rng.permutation(7).astype(np.int32)
    return call(
        op,
        Code(f"[{d.const(order[:3])}, {d.const(order[3:])}]"),
        Code(f"[{d.of('float32', [3, 2])}, {d.of('float32', [4, 2])}]"),
    )


recipe("DynamicStitch ParallelDynamicStitch", _stitch)
recipe(
    "DynamicPartition",
    lambda d, op: call(op, d.of("float32", [9, 2]), d.add(d.rng.integers(0, 3, 9).astype(np.int32)), num_partitions=3),
)
recipe(
    "SparseToDense",
    lambda d, op: call(
        op,
        d.add(np.array([[0, 1], [2, 3], [4, 0]], np.int32)),
        d.const([5, 7]),
        d.of("float32", [3]),
        d.of("float32", []),
    ),
)
recipe("Where", lambda d, op: call(op, d.of("bool", d.shape(low=1, rank=d.int(1, 3)))))
recipe("Unique", lambda d, op: call(op, d.of("int32", [d.int(1, 31)], "tame")))
recipe("UniqueV2", lambda d, op: call(op, d.of("int32", [d.int(1, 31)], "tame"), d.const([0])))
recipe("ListDiff", lambda d, op: call(op, d.const([1, 2, 3, 5, 7]), d.const([2, 5])))
recipe(
    "LowerBound UpperBound",
    lambda d, op: call(op, d.add(np.sort(d.values("float32", [3, 17], "tame"))), d.of("float32", [3, 5], "tame")),
)


def _nms(d: Draw, op: str) -> str:
    corner = d.rng.uniform(0, 5, [9, 2])
    boxes = np.concatenate([corner, corner + d.rng.uniform(1, 4, [9, 2])], 1).astype(np.float32)
    return call(
        op,
        d.add(boxes),
        d.add(d.rng.permutation(9).astype(np.float32)),
        d.const(4),
        d.const(0.4, "float32"),
        d.const(0.0, "float32"),
        **({"pad_to_max_output_size": True} if op.endswith("V4") else {}),
    )


recipe("NonMaxSuppressionV3 NonMaxSuppressionV4", _nms)

# Matrices.


def _matmul(d: Draw, op: str) -> str:
    dtype = d.dtype(op, "Ta", among=(*FLOATS, "int32")) if op.endswith("V3") else d.dtype(op)
    m, k, n = (
        int(d.pick([0, 1, 2, 3, 7, 8, 17, 31, 64, 67] if d.flip(0.2) else [1, 2, 3, 7, 8, 17, 31, 64, 67]))
        for _ in "mkn"
    )
    a, b = d.flip(0.3), d.flip(0.3)
    left, right = ([k, m] if a else [m, k]), ([n, k] if b else [k, n])
    if op == "MatMul":
        return call(op, d.of(dtype, left, "tame"), d.of(dtype, right, "tame"), transpose_a=a, transpose_b=b)
    batch = d.pick([[], [3], [2, 1]])
    more = {"Tout": tf_type(dtype)} if op.endswith("V3") else {}
    return call(
        op, d.of(dtype, [*batch, *left], "tame"), d.of(dtype, [*batch, *right], "tame"), adj_x=a, adj_y=b, **more
    )


recipe("BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul", _matmul, sums=True)
recipe(
    "SparseMatMul", lambda d, op: call(op, d.of("float32", [7, 5], "tame"), d.of("float32", [5, 3], "tame")), sums=True
)
recipe(
    "Einsum",
    lambda d, op: (
        lambda t, e: call(
            op,
            Code(
                "["
                + ", ".join(
                    d.of(t, [dict(zip("abcd", (2, 3, 5, 7), strict=True))[c] for c in part], "tame")
                    for part in e.split("->")[0].split(",")
                )
                + "]"
            ),
            equation=e,
        )
    )(
        d.dtype(op, among=FLOATS),
        d.pick(["ab,bc->ac", "abc,acd->abd", "ab->ba", "aa->a", "ab,cd->abcd", "abc->", "ab,ab->b"]),
    ),
    sums=True,
)


def _positive(d: Draw, dtype: str, size: int) -> np.ndarray[Any, Any]:
    root = d.values(dtype, [2, size, size], "tame")
    return (root @ np.swapaxes(root, 1, 2) + size * np.eye(size, dtype=root.dtype)).astype(root.dtype)


_WIDE = ("float32", "float64")
recipe(
    "Cholesky MatrixInverse",
    lambda d, op: call(op, d.add(_positive(d, d.dtype(op, among=_WIDE), d.pick([1, 2, 5, 16])))),
    sums=True,
    rtol=1e-4,
)
recipe(
    "MatrixSolve MatrixTriangularSolve",
    lambda d, op: (lambda t, n: call(op, d.add(_positive(d, t, n)), d.of(t, [2, n, 3], "tame")))(
        d.dtype(op, among=_WIDE), d.pick([1, 2, 5, 16])
    ),
    sums=True,
    rtol=1e-4,
)
recipe(
    "Qr",
    lambda d, op: f"(lambda q, r: (q @ r, tf.abs(r)))(*{call(op, d.of(d.dtype(op, among=_WIDE), [2, 5, 3], 'tame'))})",
    sums=True,
    rtol=1e-4,
)
recipe(
    "SelfAdjointEigV2",
    lambda d, op: call(op, d.add(_positive(d, d.dtype(op, among=_WIDE), 5))) + "[0]",
    sums=True,
    rtol=1e-4,
)
recipe("Svd", lambda d, op: call(op, d.of(d.dtype(op, among=_WIDE), [5, 3], "tame")) + "[0]", sums=True, rtol=1e-4)
recipe(
    "TridiagonalMatMul",
    lambda d, op: (
        lambda t: call(
            op, d.of(t, [1, 5], "tame"), d.of(t, [1, 5], "tame"), d.of(t, [1, 5], "tame"), d.of(t, [5, 3], "tame")
        )
    )(d.dtype(op, among=_WIDE)),
    sums=True,
)
recipe(
    "TridiagonalSolve",
    lambda d, op: (
        lambda t: call(
            op,
            d.add(d.values(t, [3, 5], "unit") + np.array([[0], [4], [0]], t)),
            d.of(t, [5, 2], "tame"),
            partial_pivoting=False,
        )
    )(d.dtype(op, among=_WIDE)),
    sums=True,
    rtol=1e-4,
)
recipe(
    "Cross",
    lambda d, op: (lambda t, s: call(op, d.of(t, s, "tame"), d.of(t, s, "tame")))(
        d.dtype(op), [*d.shape(rank=d.int(0, 2)), 3]
    ),
    sums=True,
)

# Images and neural networks.


def _image(d: Draw, *, channels: int = 0) -> list[int]:
    return [d.int(1, 3), d.int(3, 17), d.int(3, 17), channels or int(d.pick([1, 2, 3, 8, 17]))]


def _pool(d: Draw, op: str) -> str:
    window: dict[str, Any] = {"ksize": [1, d.int(1, 3), d.int(1, 3), 1], "strides": [1, d.int(1, 3), d.int(1, 3), 1]}
    window |= {"padding": d.pick(["SAME", "VALID"])}
    dtype, shape = d.dtype(op, among=(*FLOATS, "int32")), _image(d)
    kind = "tame" if op.startswith("Avg") or "Grad" in op else "any"
    if op == "AvgPool" or op == "MaxPool":
        return call(op, d.of(dtype, shape, kind), **window)
    if op == "MaxPoolV2":
        return call(
            op, d.of(dtype, shape, kind), d.const(window.pop("ksize")), d.const(window.pop("strides")), **window
        )
    out = list(shape)
    for axis in (1, 2):
        step, size = window["strides"][axis], window["ksize"][axis]
        out[axis] = -(-shape[axis] // step) if window["padding"] == "SAME" else -(-(shape[axis] - size + 1) // step)
    if op == "AvgPoolGrad":
        return call(op, d.const(np.array(shape)), d.of(dtype, out, "tame"), **window)
    image = d.of(dtype, shape, "distinct" if dtype in _WIDE else "tame")
    forward = call("MaxPool", image, **window)
    if "GradGrad" in op:
        gradient = d.of(dtype, shape, "tame")
    else:
        gradient = d.of(dtype, out, "tame")
    if op.endswith("V2"):
        return call(
            op, image, forward, gradient, d.const(window.pop("ksize")), d.const(window.pop("strides")), **window
        )
    return call(op, image, forward, gradient, **window)


recipe(
    "AvgPool AvgPoolGrad MaxPool MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradV2 MaxPoolV2",
    _pool,
    sums=True,
)


def _pool3(d: Draw, op: str) -> str:
    window = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 1, 2, 1], "padding": "VALID"}
    shape, out, dtype = [1, 4, 5, 6, 2], [1, 2, 4, 3, 2], d.dtype(op, among=FLOATS)
    if op in ("AvgPool3D", "MaxPool3D"):
        return call(op, d.of(dtype, shape, "tame"), **window)
    if op == "AvgPool3DGrad":
        return call(op, d.const(np.array(shape)), d.of(dtype, out, "tame"), **window)
    image = d.of("float32", shape, "distinct")
    forward = call("MaxPool3D", image, **window)
    return call(op, image, forward, d.of("float32", shape if "GradGrad" in op else out, "tame"), **window)


recipe("AvgPool3D AvgPool3DGrad MaxPool3D MaxPool3DGrad MaxPool3DGradGrad", _pool3, sums=True)
recipe("BiasAdd", lambda d, op: (lambda t, s: call(op, d.of(t, s), d.of(t, s[-1:])))(d.dtype(op), d.shape(low=2)))
recipe("BiasAddV1", lambda d, op: (lambda t, s: call(op, d.of(t, s), d.of(t, s[-1:])))(d.dtype(op), d.shape(low=2)))
recipe("BiasAddGrad", lambda d, op: call(op, d.of(d.dtype(op), d.shape(low=2), "tame")), sums=True)


def _conv(d: Draw, op: str) -> str:
    dtype = d.dtype(op, among=FLOATS)
    depthwise = op.startswith("Depthwise")
    groups = 1 if depthwise or "Backprop" in op or d.flip(0.8) else 2  # TensorFlow has no such gradient on CPUs
    channels = groups * d.pick([1, 2, 3, 8])
    image = _image(d, channels=channels)
    out = groups * d.pick([1, 2, 5, 16])
    kernel = [
        d.int(1, 4),
        d.int(1, 4),
        channels if depthwise else channels // groups,
        d.int(1, 3) if depthwise else out,
    ]
    kernel[:2] = [min(k, s) for k, s in zip(kernel[:2], image[1:3], strict=True)]
    step = d.int(1, 2)
    # TensorFlow's kernels for CPUs dilate neither gradients nor depthwise convolutions.
    dilation = 1 if step > 1 or "Backprop" in op or depthwise or d.flip(0.8) else 2
    padding = d.pick(["SAME", "VALID"])
    if any(dilation * (k - 1) + 1 > s for k, s in zip(kernel[:2], image[1:3], strict=True)):
        dilation = 1
    attributes = {"strides": [1, step, step, 1], "padding": padding, "dilations": [1, dilation, dilation, 1]}
    features = kernel[2] * kernel[3] if depthwise else kernel[3]
    result = [
        image[0],
        *[
            -(-s // step) if padding == "SAME" else -(-(s - (k - 1) * dilation) // step)
            for s, k in zip(image[1:3], kernel[:2], strict=True)
        ],
        features,
    ]
    if op.endswith("Input"):
        return call(
            op, d.const(np.array(image)), d.of(dtype, kernel, "tame"), d.of(dtype, result, "tame"), **attributes
        )
    if op.endswith("Filter"):
        return call(
            op, d.of(dtype, image, "tame"), d.const(np.array(kernel)), d.of(dtype, result, "tame"), **attributes
        )
    return call(op, d.of(dtype, image, "tame"), d.of(dtype, kernel, "tame"), **attributes)


recipe(
    "Conv2D Conv2DBackpropFilter Conv2DBackpropInput DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter "
    "DepthwiseConv2dNativeBackpropInput",
    _conv,
    sums=True,
)
recipe(
    "Conv",
    lambda d, op: call(
        op,
        d.of("float32", [1, 7, 7, 3], "tame"),
        d.of("float32", [3, 3, 3, 5], "tame"),
        strides=[1, 1, 1, 1],
        padding="SAME",
    ),
    sums=True,
)
recipe(
    "Conv3D",
    lambda d, op: call(
        op,
        d.of("float32", [1, 4, 5, 6, 2], "tame"),
        d.of("float32", [2, 2, 2, 2, 3], "tame"),
        strides=[1, 1, 1, 1, 1],
        padding="SAME",
    ),
    sums=True,
)
recipe(
    "Conv3DBackpropFilterV2",
    lambda d, op: call(
        op,
        d.of("float32", [1, 4, 5, 6, 2], "tame"),
        d.const([2, 2, 2, 2, 3]),
        d.of("float32", [1, 4, 5, 6, 3], "tame"),
        strides=[1, 1, 1, 1, 1],
        padding="SAME",
    ),
    sums=True,
)
recipe(
    "Conv3DBackpropInputV2",
    lambda d, op: call(
        op,
        d.const([1, 4, 5, 6, 2]),
        d.of("float32", [2, 2, 2, 2, 3], "tame"),
        d.of("float32", [1, 4, 5, 6, 3], "tame"),
        strides=[1, 1, 1, 1, 1],
        padding="SAME",
    ),
    sums=True,
)


def _batch_norm(d: Draw, op: str) -> str:
    dtype = "float32" if not op.endswith(("V2", "V3")) else d.dtype(op, among=FLOATS)
    image = _image(d)
    channels, training = image[-1:], d.flip()
    x, scale, offset = (
        d.of(dtype, image, "tame"),
        d.of("float32", channels, "positive"),
        d.of("float32", channels, "tame"),
    )
    given = [d.of("float32", channels, "tame"), d.of("float32", channels, "positive")]
    forward = call(
        op if "Grad" not in op else "FusedBatchNormV3",
        x,
        scale,
        offset,
        *([d.const(np.zeros(0), "float32"), d.const(np.zeros(0), "float32")] if training else given),
        is_training=training,
    )
    if "Grad" not in op:
        return forward + "[:3]"
    moments = ["f[3]", "f[4]"] if training else given  # in training, what the forward pass computed for its gradient
    more = ["f[5]"] if op.endswith("V3") else []
    gradient = call(op, d.of(dtype, image, "tame"), x, scale, *moments, *more, is_training=training)
    return f"(lambda f: {gradient})({forward})[:3]"


recipe(
    "FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3",
    _batch_norm,
    sums=True,
    rtol=1e-4,
)
recipe("LRN", lambda d, op: call(op, d.of("float32", _image(d), "tame"), depth_radius=2), sums=True)
recipe(
    "LRNGrad",
    lambda d, op: (
        lambda s: call(
            op,
            d.of("float32", s, "tame"),
            x := d.of("float32", s, "tame"),
            call("LRN", x, depth_radius=2),
            depth_radius=2,
        )
    )(_image(d)),
    sums=True,
    rtol=1e-4,
)


def _resize(d: Draw, op: str) -> str:
    size = [d.int(1, 20), d.int(1, 20)]
    mode = d.pick([{}, {"align_corners": True}, {"half_pixel_centers": True}])
    if op == "ResizeBilinearGrad":
        return call(
            op,
            d.of("float32", [1, *size, 2], "tame"),
            d.of("float32", [1, d.int(1, 20), d.int(1, 20), 2], "tame"),
            **mode,
        )
    return call(op, d.of(d.dtype(op, among=FLOATS), _image(d), "tame"), d.const(size), **mode)


recipe("ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor", _resize, sums=True)
recipe(
    "SoftmaxCrossEntropyWithLogits",
    lambda d, op: (
        lambda s: call(op, d.of("float32", s, "tame"), d.add(d.rng.dirichlet(np.ones(s[1]), s[0]).astype(np.float32)))
    )([d.int(1, 9), d.int(1, 17)]),
    sums=True,
)
recipe(
    "SparseSoftmaxCrossEntropyWithLogits",
    lambda d, op: (
        lambda s: call(op, d.of("float32", s, "tame"), d.add(d.rng.integers(0, s[1], s[0]).astype(np.int32)))
    )([d.int(1, 9), d.int(1, 17)]),
    sums=True,
)
recipe(
    "AdjustContrastv2",
    lambda d, op: call(op, d.add(d.rng.uniform(0, 1, [2, 5, 5, 3]).astype(np.float32)), d.const(1.7, "float32")),
    sums=True,
)
recipe(
    "AdjustHue AdjustSaturation",
    lambda d, op: call(op, d.add(d.rng.uniform(0, 1, [2, 5, 5, 3]).astype(np.float32)), d.const(0.3, "float32")),
    sums=True,
)
recipe(
    "HSVToRGB RGBToHSV",
    lambda d, op: call(op, d.add(d.rng.uniform(0, 1, [*d.shape(rank=2, empty=False), 3]).astype(np.float32))),
    sums=True,
)
recipe("BatchToSpace", lambda d, op: call(op, d.of(d.dtype(op), [4, 2, 3, 2]), d.const([[0, 1], [0, 0]]), block_size=2))
recipe(
    "BatchToSpaceND",
    lambda d, op: call(op, d.of(d.dtype(op), [6, 2, 3, 2]), d.const([2, 3]), d.const([[0, 1], [1, 0]])),
)
recipe("SpaceToBatch", lambda d, op: call(op, d.of(d.dtype(op), [1, 4, 3, 2]), d.const([[0, 0], [0, 1]]), block_size=2))
recipe(
    "SpaceToBatchND",
    lambda d, op: call(op, d.of(d.dtype(op), [1, 4, 6, 2]), d.const([2, 3]), d.const([[0, 0], [1, 2]])),
)
recipe("DepthToSpace", lambda d, op: call(op, d.of(d.dtype(op), [2, 2, 3, 12]), block_size=2))
recipe("SpaceToDepth", lambda d, op: call(op, d.of(d.dtype(op), [2, 4, 6, 3]), block_size=2))
recipe("DataFormatDimMap", lambda d, op: call(op, d.add(d.rng.integers(-4, 4, 7).astype(np.int32))))
recipe("DataFormatVecPermute", lambda d, op: call(op, d.of("int32", [4])))
recipe(
    "ExtractImagePatches",
    lambda d, op: call(
        op,
        d.of(d.dtype(op), _image(d)),
        ksizes=[1, 2, 3, 1],
        strides=[1, 2, 1, 1],
        rates=[1, 1, 1, 1],
        padding=d.pick(["SAME", "VALID"]),
    ),
)

# Quantization.

recipe(
    "FakeQuantWithMinMaxArgs",
    lambda d, op: call(op, d.of("float32", d.shape()), min=-2.0, max=3.0, num_bits=d.int(2, 8)),
    sums=True,
)
recipe(
    "FakeQuantWithMinMaxArgsGradient",
    lambda d, op: (lambda s: call(op, d.of("float32", s), d.of("float32", s), min=-2.0, max=3.0))(d.shape()),
)
recipe(
    "FakeQuantWithMinMaxVars",
    lambda d, op: call(op, d.of("float32", d.shape()), d.add(np.float32(-1.7)), d.add(np.float32(2.9))),
    sums=True,
)
recipe(
    "FakeQuantWithMinMaxVarsGradient",
    lambda d, op: (
        lambda s: call(
            op, d.of("float32", s, "tame"), d.of("float32", s, "tame"), d.add(np.float32(-1.7)), d.add(np.float32(2.9))
        )
    )(d.shape()),
    sums=True,
)
recipe(
    "FakeQuantWithMinMaxVarsPerChannel",
    lambda d, op: call(
        op,
        d.of("float32", [7, 3]),
        d.add(np.array([-1, -2.7, -0.3], np.float32)),
        d.add(np.array([1.1, 3, 2], np.float32)),
    ),
    sums=True,
)
recipe(
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    lambda d, op: call(
        op,
        d.of("float32", [7, 3], "tame"),
        d.of("float32", [7, 3], "tame"),
        d.add(np.array([-1, -2.7, -0.3], np.float32)),
        d.add(np.array([1.1, 3, 2], np.float32)),
    ),
    sums=True,
)
recipe(
    "QuantizeAndDequantizeV2 QuantizeAndDequantizeV4",
    lambda d, op: call(
        op,
        d.of("float32", d.shape(), "tame"),
        d.add(np.float32(-2)),
        d.add(np.float32(3)),
        range_given=d.flip(),
        signed_input=d.flip(),
    ),
    sums=True,
)
recipe(
    "QuantizeAndDequantizeV3",
    lambda d, op: call(
        op,
        d.of("float32", d.shape(), "tame"),
        d.add(np.float32(-2)),
        d.add(np.float32(3)),
        d.const(8),
        range_given=d.flip(),
    ),
    sums=True,
)
recipe(
    "Dequantize",
    lambda d, op: (
        f"tf.raw_ops.Dequantize(input=tf.bitcast({d.of('uint8', [7])}, tf.quint8), min_range={d.add(np.float32(-1))}"
        f", max_range={d.add(np.float32(2))}, mode='MIN_COMBINED')"
    ),
    sums=True,
)

# Transforms.

recipe("FFT FFT2D FFT3D IFFT IFFT2D IFFT3D", lambda d, op: call(op, d.of("complex64", [4, 4, 4])), sums=True)
recipe(
    "RFFT RFFT2D RFFT3D",
    lambda d, op: call(
        op, d.of("float32", [4, 4, 4], "tame"), d.const([4] * {"RFFT": 1, "RFFT2D": 2, "RFFT3D": 3}[op])
    ),
    sums=True,
)
recipe(
    "IRFFT IRFFT2D IRFFT3D",
    lambda d, op: call(op, d.of("complex64", [4, 4, 3]), d.const([4] * {"IRFFT": 1, "IRFFT2D": 2, "IRFFT3D": 3}[op])),
    sums=True,
)

# Random numbers, with the seed as an operand.


def _seed(d: Draw) -> str:
    dtype = d.pick(["int32", "int64"])
    limits = np.iinfo(dtype)
    return d.add(d.rng.integers(limits.min, limits.max, 2, dtype, endpoint=True))


def _size(d: Draw) -> str:
    return d.const(np.array(d.shape(low=1)))


recipe(
    "StatelessRandomNormal StatelessRandomUniform StatelessTruncatedNormal",
    lambda d, op: call(op, _size(d), _seed(d)),
    atol=4e-6,
)
recipe(
    "StatelessRandomUniformFullInt",
    lambda d, op: call(op, _size(d), _seed(d), dtype=tf_type(d.pick(["int32", "int64", "uint32"]))),
)
recipe("StatelessRandomUniformInt", lambda d, op: call(op, _size(d), _seed(d), d.const(-5), d.const(100)))


def _key(d: Draw) -> tuple[str, str, str]:
    return (
        d.add(d.rng.integers(0, 1 << 60, 1).astype(np.uint64)),
        d.add(d.rng.integers(0, 1 << 60, 2).astype(np.uint64)),
        d.const(1),
    )


recipe(
    "StatelessRandomNormalV2 StatelessRandomUniformV2 StatelessTruncatedNormalV2",
    lambda d, op: call(op, _size(d), *_key(d)),
    atol=4e-6,
)
recipe("StatelessRandomUniformFullIntV2", lambda d, op: call(op, _size(d), *_key(d), dtype=tf_type("int32")))
recipe("StatelessRandomUniformIntV2", lambda d, op: call(op, _size(d), *_key(d), d.const(-5), d.const(100)))
recipe("StatelessMultinomial", lambda d, op: call(op, d.of("float32", [3, 7], "tame"), d.const(11), _seed(d)))
recipe(
    "StatelessParameterizedTruncatedNormal",
    lambda d, op: call(
        op,
        d.const([5, 7]),
        _seed(d),
        d.const(0.0, "float32"),
        d.const(1.0, "float32"),
        d.const(-1.0, "float32"),
        d.const(2.0, "float32"),
    ),
)
recipe("StatelessRandomGetAlg", lambda d, op: call(op))
recipe("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg", lambda d, op: call(op, _seed(d)))

# Variables.


def _after(statement: str, *reads: str) -> str:
    """Returns Python source that modifies variables, and then reads them."""
    values = ", ".join(f"{name}.read_value()" for name in reads)
    return f"(lambda done: tf.nest.map_structure(tf.identity, [{values}]))({statement})"


recipe(
    "AssignVariableOp AssignAddVariableOp AssignSubVariableOp",
    lambda d, op: (
        lambda s: (lambda v: _after(call(op, f"{v}.handle", d.of("float32", s, "tame")), v))(
            d.variable(d.values("float32", s, "tame"))
        )
    )(d.shape()),
)
recipe(
    "ReadVariableOp",
    lambda d, op: (lambda v: call(op, f"{v}.handle", dtype=tf_type("float32")))(
        d.variable(d.values("float32", d.shape()))
    ),
)
recipe(
    "VarIsInitializedOp VariableShape", lambda d, op: call(op, d.variable(d.values("float32", d.shape())) + ".handle")
)
recipe(
    "ResourceGather",
    lambda d, op: (
        lambda s: (
            lambda v: call(
                op, f"{v}.handle", d.add(d.rng.integers(0, s[0], [5]).astype(np.int32)), dtype=tf_type("float32")
            )
        )(d.variable(d.values("float32", s)))
    )(d.shape(low=1, empty=False)),
)


def _resource_scatter(d: Draw, op: str) -> str:
    v = d.variable(d.values("float32", [7, 3], "tame"))
    at = np.unique(d.rng.integers(0, 7, 4)).astype(np.int32)
    at = at[:, None] if "Nd" in op else at
    return _after(call(op, f"{v}.handle", d.add(at), d.of("float32", [len(at), 3], "positive")), v)


recipe(
    "ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul "
    "ResourceScatterNdAdd "
    "ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate",
    _resource_scatter,
)
recipe(
    "ResourceStridedSliceAssign",
    lambda d, op: (
        lambda v: _after(
            call(op, f"{v}.handle", d.const([1, 0]), d.const([5, 3]), d.const([2, 1]), d.of("float32", [2, 3])), v
        )
    )(d.variable(d.values("float32", [7, 3], "tame"))),
)

_OPTIMIZERS = {  # slots, scalars before the gradient, scalars after it
    "ResourceApplyAdaMax": (3, "B L B B E", ""),
    "ResourceApplyAdadelta": (3, "L B E", ""),
    "ResourceApplyAdagrad": (2, "L", ""),
    "ResourceApplyAdagradV2": (2, "L E", ""),
    "ResourceApplyAdam": (3, "B B L B B E", ""),
    "ResourceApplyAddSign": (2, "L B B B", ""),
    "ResourceApplyCenteredRMSProp": (4, "L B B E", ""),
    "ResourceApplyFtrl": (3, "", "L E E M"),
    "ResourceApplyFtrlV2": (3, "", "L E E E M"),
    "ResourceApplyGradientDescent": (1, "L", ""),
    "ResourceApplyKerasMomentum": (2, "L", "B"),
    "ResourceApplyMomentum": (2, "L", "B"),
    "ResourceApplyPowerSign": (2, "L B B B", ""),
    "ResourceApplyProximalAdagrad": (2, "L E E", ""),
    "ResourceApplyProximalGradientDescent": (1, "L E E", ""),
    "ResourceApplyRMSProp": (3, "L B B E", ""),
}
_SCALARS = {"L": 0.1, "B": 0.9, "E": 0.01, "M": -0.5}


def _optimizer(d: Draw, op: str) -> str:
    slots, before, after = _OPTIMIZERS[op]
    shape = d.shape(rank=d.int(0, 2))
    names = [d.variable(d.values("float32", shape, "positive") * np.float32(1 if i else 3)) for i in range(slots)]
    if op == "ResourceApplyCenteredRMSProp":  # var, mg, ms, mom: ms is at least the square of mg
        d.setup = d.setup.replace(f"{names[2]} = tf.Variable(", f"{names[2]} = tf.Variable(10 + ")
    operands = [f"{name}.handle" for name in names]
    operands += [d.add(np.float32(_SCALARS[c])) for c in before.split()]
    operands += [d.of("float32", shape, "tame")]
    operands += [d.add(np.float32(_SCALARS[c])) for c in after.split()]
    return _after(call(op, *operands), *names)


recipe(" ".join(_OPTIMIZERS), _optimizer, sums=True, rtol=1e-4)


def _adagrad_da(d: Draw, op: str) -> str:
    variables = [d.variable(d.values("float32", [5], "positive")) for _ in range(3)]
    rates = [d.const(rate, "float32") for rate in (0.1, 0.01, 0.01)]
    operands = [*(f"{name}.handle" for name in variables), d.of("float32", [5], "tame"), *rates, d.const(3, "int64")]
    return _after(call(op, *operands), *variables)


recipe("ResourceApplyAdagradDA", _adagrad_da, sums=True, rtol=1e-4)

# Lists of tensors.

_LIST = "tf.TensorArray(tf.float32, size={size}, element_shape={shape})"
recipe(
    "TensorListFromTensor TensorListStack TensorListLength TensorListElementShape",
    lambda d, op: (
        {
            "TensorListFromTensor": "(lambda l: tf.raw_ops.TensorListStack(input_handle=l, element_shape=[3], "
            "element_dtype=tf.float32, num_elements=5))",
            "TensorListStack": "(lambda l: tf.raw_ops.TensorListStack(input_handle=l, element_shape=[3], "
            "element_dtype=tf.float32))",
            "TensorListLength": "(lambda l: tf.raw_ops.TensorListLength(input_handle=l))",
            "TensorListElementShape": "(lambda l: tf.raw_ops.TensorListElementShape(input_handle=l, "
            "shape_type=tf.int32))",
        }[op]
        + f"(tf.raw_ops.TensorListFromTensor(tensor={d.of('float32', [5, 3])}, element_shape=tf.constant([3])))"
    ),
)
recipe(
    "TensorListGetItem",
    lambda d, op: (
        f"tf.raw_ops.TensorListGetItem(input_handle=tf.raw_ops.TensorListFromTensor(tensor="
        f"{d.of('float32', [5, 3])}, element_shape=tf.constant([3])), index={d.add(np.int32(d.int(0, 4)))}, "
        f"element_shape=[3], "
        "element_dtype=tf.float32)"
    ),
)
recipe(
    "TensorListGather",
    lambda d, op: (
        f"tf.raw_ops.TensorListGather(input_handle=tf.raw_ops.TensorListFromTensor(tensor="
        f"{d.of('float32', [5, 3])}, element_shape=tf.constant([3])), indices={d.add(np.array([4, 0, 2], np.int32))}, "
        "element_shape=[3], "
        "element_dtype=tf.float32)"
    ),
)
recipe(
    "TensorListReserve TensorListSetItem",
    lambda d, op: (
        "(lambda l: tf.raw_ops.TensorListStack(input_handle="
        f"tf.raw_ops.TensorListSetItem(input_handle=l, index={d.add(np.int32(2))}, item={d.of('float32', [3])}), "
        "element_shape=[3], "
        "element_dtype=tf.float32))(tf.raw_ops.TensorListReserve(element_shape=[3], num_elements=5, "
        "element_dtype=tf.float32))"
    ),
)
recipe(
    "EmptyTensorList TensorListPushBack TensorListPopBack",
    lambda d, op: (
        "(lambda l: tf.raw_ops.TensorListPopBack(input_handle="
        f"tf.raw_ops.TensorListPushBack(input_handle=l, tensor={d.of('float32', [3])}), element_shape=[3], "
        f"element_dtype=tf.float32)[1])("
        "tf.raw_ops.EmptyTensorList(element_shape=[3], max_num_elements=4, element_dtype=tf.float32))"
    ),
)
recipe(
    "TensorListConcatV2",
    lambda d, op: (
        "tf.raw_ops.TensorListConcatV2(input_handle=tf.raw_ops.TensorListFromTensor(tensor="
        f"{d.of('float32', [5, 2, 3])}, element_shape=tf.constant([2, 3])), element_shape=[2, 3], "
        f"leading_dims=tf.constant([], tf.int64), "
        "element_dtype=tf.float32)[0]"
    ),
)
recipe(
    "TensorListSplit",
    lambda d, op: (
        "tf.raw_ops.TensorListStack(input_handle=tf.raw_ops.TensorListSplit(tensor="
        f"{d.of('float32', [6, 3])}, element_shape=[2, 3], lengths=tf.constant([2, 2, 2], tf.int64)), "
        f"element_shape=[2, 3], "
        "element_dtype=tf.float32)"
    ),
)

# Nodes that compute nothing, or call functions.

recipe(
    "Assert",
    lambda d, op: (
        f"tf.raw_ops.Assert(condition={d.add(np.bool_(True))}, data=[{d.of('float32', [2])}]) and tf.constant(1)"
    ),
)
recipe("Const", lambda d, op: f"tf.constant({literal(d.values('float32', d.shape()))})")
recipe("NoOp ControlTrigger", lambda d, op: f"tf.raw_ops.{op}() and {d.of('float32', d.shape())}")
recipe("PlaceholderWithDefault", lambda d, op: (lambda s: call(op, d.of("float32", s, fed=False), shape=s))(d.shape()))
_FUNCTION = "@tf.function\ndef f{n}(x):\n    return tf.tanh(x) * 2 + tf.reduce_sum(x)\n"


def _structure(text: str, *, rank: int | None = None) -> Callable[[Draw, str], str]:
    def make(d: Draw, op: str) -> str:
        d.setup = _FUNCTION
        return text.replace("X", d.of("float32", d.shape(rank=rank, empty=False), "unit")).replace(
            "N", d.add(np.int32(d.int(0, 5)))
        )

    return make


recipe("PartitionedCall StatefulPartitionedCall", _structure("f{n}(X)"), sums=True)
recipe(
    "If StatelessIf",
    _structure("(lambda x, n: tf.cond(n > 2, lambda: tf.exp(x), lambda: f{n}(x) - 1))(X, N)"),
    sums=True,
)
recipe(
    "Case StatelessCase",
    _structure("(lambda x, n: tf.switch_case(n, [lambda: x + 1, lambda: f{n}(x), lambda: x * 0.5]))(X, N)"),
    sums=True,
)
recipe(
    "While StatelessWhile",
    _structure("(lambda x, n: tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, tf.sin(y) + 0.5), (0, x)))(X, N)"),
    sums=True,
)

OFTEN_REFUSED = frozenset(
    [
        "MatrixDiagPartV3",
        "MaxPoolGradGrad",
        "MaxPoolGradGradV2",
        "ResourceStridedSliceAssign",
        "Round",
        "StatelessRandomUniformFullInt",
        "TensorStridedSliceUpdate",
        "ragged tensors",
    ]
)
"""Ops and structures that are refused for some dtypes and values. An op that is missing here only takes more time."""

LEFT_OUT = {
    "it draws from the model's own seed, or keeps a generator's state; tests/export/rewrites/random_test.py has it": "Multinomial "
    "ParameterizedTruncatedNormal RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt "
    "RngReadAndSkip RngSkip "
    "StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt "
    "StochasticCastToInt "
    "TruncatedNormal",
    "TensorFlow 1's loops make it, in pairs and with state; tests/compile/passes/loops_test.py covers it": "StackCloseV2 "
    "StackPopV2 StackPushV2 StackV2 "
    "TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayReadV3 "
    "TensorArrayScatterV3 "
    "TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3",
    "it needs several devices": "CollectiveAssignGroupV2 CollectiveReduceV2 XlaRecv XlaReduceScatter XlaReplicaId XlaSend "
    "XlaSharding XlaSpmdShardToFullShape",
    "C++ has no such dtype": "UniformDequantize UniformQuantize UniformQuantizedAdd UniformQuantizedClipByValue "
    "UniformQuantizedConvolution UniformQuantizedDot UniformRequantize",
    "only XLA has it; TensorFlow's public interface doesn't make it": "ApproxTopK XlaBroadcastHelper "
    "XlaCallModule XlaConv XlaConvV2 "
    "XlaDequantize XlaDot XlaDotV2 XlaDynamicSlice XlaDynamicUpdateSlice XlaEinsum XlaGather XlaIf "
    "XlaKeyValueSort XlaOptimizationBarrier "
    "XlaPad XlaReduce XlaReducePrecision XlaReduceWindow XlaRngBitGenerator XlaScatter XlaSelectAndScatter "
    "XlaSelfAdjointEig XlaSort XlaSvd "
    "XlaVariadicReduce XlaVariadicReduceV2 XlaVariadicSort XlaWhile",
    "only TensorFlow's runtime makes it": "DeviceIndex FakeParam SymbolicGradient _Arg _ArrayToList _EagerConst "
    "_FusedBatchNormEx _FusedConv2D "
    "_ListToArray _Retval _UnaryOpsComposition",
}
"""Why ops have no recipe. Ops without a CPU kernel to compare with need no reason."""
