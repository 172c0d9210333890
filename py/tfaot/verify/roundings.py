"""Which operations round, and by how much: the error model of `tfaot.verify.noise`."""

from __future__ import annotations

import dataclasses
import re

from tensorflow.core.framework import node_def_pb2, types_pb2

UNITS = {
    types_pb2.DT_BFLOAT16: 2.0**-9,
    types_pb2.DT_HALF: 2.0**-12,
    types_pb2.DT_FLOAT: 2.0**-25,
    types_pb2.DT_DOUBLE: 2.0**-54,
    types_pb2.DT_COMPLEX64: 2.0**-25,
    types_pb2.DT_COMPLEX128: 2.0**-54,
}
"""Approximately the standard deviation of one rounding to nearest, relative to the result: a uniform error of at most half a unit
in the last place, which itself is between 1 and 1/2 of 2^(1-p). bfloat16 has the full half unit, because XLA can also omit
roundings."""

DIGITS = {types_pb2.DT_BFLOAT16: 8, types_pb2.DT_HALF: 11, types_pb2.DT_FLOAT: 24, types_pb2.DT_DOUBLE: 53}
"""Binary digits of a number."""

GRIDS = (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF, types_pb2.DT_FLOAT)

SPREAD = re.compile(r"I?R?FFT(2D|3D)?|MatrixSolveLs|Qr|SelfAdjointEigV2|Svd|Eig|MatrixSquareRoot")
"""Operations each of whose roundings is a part of all results, so that small values get errors of large ones."""

EXACT = frozenset(
    """
    Abs AddManySparseToTensorsMap ApproxTopK Assert AssignVariableOp BatchToSpace BatchToSpaceND Bitcast BroadcastTo Case Ceil
    CheckNumerics ClipByValue Complex Concat ConcatV2 Conj ConjugateTranspose Const DepthToSpace Diag DiagPart DynamicPartition
    DynamicStitch Empty EnsureShape Enter Exit ExpandDims ExtractImagePatches FakeParam Fill Floor FloorDiv Gather GatherNd
    GatherV2 GuaranteeConst Identity IdentityN If Imag ImmutableConst InplaceUpdate InvertPermutation ListDiff MatrixBandPart
    MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2
    MatrixSetDiagV3 MatrixTranspose Max MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad
    MaxPoolGradGradV2 MaxPoolGradV2 MaxPoolV2 MaxPoolWithArgmax Maximum Merge Min Minimum MirrorPad Neg NextAfter NextIteration
    OneHot OnesLike Pack Pad PadV2 ParallelConcat ParallelDynamicStitch PartitionedCall Placeholder PlaceholderV2
    PlaceholderWithDefault PreventGradient Print PrintV2 ReadVariableOp ReadVariableXlaSplitND Real RefIdentity Relu Relu6
    Relu6Grad ReluGrad RemoteCall Reshape ResizeNearestNeighbor ResourceGather ResourceGatherNd Reverse ReverseSequence
    ReverseV2 Rint Roll Round ScatterNdUpdate SegmentMax SegmentMaxV2 SegmentMin SegmentMinV2 Select SelectV2 Sign Slice
    Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth SparseReshape SparseToDense Split SplitV Squeeze StackPopV2 StackPushV2
    StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile StopGradient StridedSlice StridedSliceGrad Switch
    TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayReadV3 TensorArrayScatterV3 TensorArraySplitV3
    TensorArrayV3 TensorArrayWriteV3 TensorListConcat TensorListConcatV2 TensorListElementShape TensorListFromTensor
    TensorListGather TensorListGetItem TensorListPopBack TensorListPushBack TensorListReserve TensorListResize
    TensorListScatter TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack TensorScatterMax TensorScatterMin
    TensorScatterUpdate TensorStridedSliceUpdate Tile TopK TopKV2 Transpose TruncateDiv Unique UniqueV2 UniqueWithCounts Unpack
    UnravelIndex UnsortedSegmentMax UnsortedSegmentMin VarHandleOp VariableV2 Where While XlaBroadcastHelper XlaConcatND
    XlaDynamicSlice XlaDynamicUpdateSlice XlaGather XlaIf XlaKeyValueSort XlaOptimizationBarrier XlaPad
    XlaRemoveDynamicDimensionSize XlaSetDynamicDimensionSize XlaSharding XlaSort XlaSplitND XlaSpmdFullToShardShape
    XlaSpmdShardToFullShape XlaVariadicSort XlaWhile ZerosLike
    """.split()  # noqa: SIM905
)
"""Operations that move, select, or compare values, and never round them, or whose results are whole numbers."""

ROUNDED_ONCE = frozenset(
    """
    Add AddN AddV2 BiasAdd BiasAddV1 Cast Div DivNoNan FloorMod Inv LeakyRelu LeakyReluGrad LinSpace Mod
    Mul MulNoNan Range RealDiv Reciprocal Sqrt Square SquaredDifference Sub TruncateMod
    """.split()  # noqa: SIM905
)
UPDATES = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
"""Operations that change a variable and have no result, and the ones that compute its new value."""
APPLIED = (
    "ResourceApply",
    "ResourceScatterAdd",
    "ResourceScatterDiv",
    "ResourceScatterMul",
    "ResourceScatterNdAdd",
    "ResourceScatterNdSub",
    "ResourceScatterSub",
    "ResourceSparseApply",
)
"""The starts of names of operations that change variables, by an optimizer's formula for example, and have no result."""
APPROXIMATE = 6.0
"""Standard error, in roundings, of functions that XLA approximates by polynomials, and of everything that isn't listed here."""
STEEP = {
    "Digamma": 100.0,
    "Erfc": 20.0,
    "Igamma": 100.0,
    "Igammac": 100.0,
    "Lgamma": 100.0,
    "Polygamma": 100.0,
    "Zeta": 100.0,
}
"""Functions whose approximations are known to have larger errors."""
STEEP64 = {"Atanh": 100.0, "Log1p": 100.0}
"""The same, for float64 and complex128."""

ROUNDED_OPERAND = frozenset(
    {
        "Cos",
        "Cosh",
        "LogSoftmax",
        "Sin",
        "Sinh",
        "Softmax",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
        "Tan",
        "TanhGrad",
    }
)
"""Functions that begin with a sum, a difference, or a product of the operand and something else, which is rounded: exp(x - log 2),
logits less the largest one, an angle less multiples of pi."""
SHIFTED_OPERAND = frozenset({"Ndtri"})
"""Functions that begin with a difference of the operand and a number near 1: erfinv(2x - 1)."""

CANCELS = {
    "Digamma": 16.0,
    "Elu": 1.0,
    "Lgamma": 16.0,
    "LogSoftmax": 2.0,
    "Selu": 1.0,
    "SoftmaxCrossEntropyWithLogits": 2.0,
    "SparseSoftmaxCrossEntropyWithLogits": 2.0,
}
"""Functions that add numbers which can cancel, near zeros for example: their absolute errors, in roundings of a number near 1."""


@dataclasses.dataclass(frozen=True)
class Terms:
    """An operation that sums terms."""

    operands: tuple[int, ...]
    """The operands that contain them, or a factor of each."""
    count: str
    """How the number of terms in one result follows from operands' shapes: a case of `trace_count`."""
    shapes: tuple[int, ...] = ()
    """The operands whose shapes these are."""
    factors: tuple[tuple[int, ...], ...] = ()
    """A term is a product of a value from each of these groups of operands. The sum is exact if no partial sum needs to be rounded.
    Empty if it never is."""
    rounded: bool = False
    """Whether something is done to the sum, such as a division, which rounds once more."""


def _sum(count: str, *shapes: int, operand: int = 0, rounded: bool = False) -> Terms:
    return Terms((operand,), count, shapes, ((operand,),), rounded)


def _product(operand: int, count: str, shape: int, *, of: tuple[int, int]) -> Terms:
    return Terms((operand,), count, (shape,), tuple((factor,) for factor in of))


TERMS = {
    "AdjustContrastv2": Terms((0,), "fixed:8"),
    "AdjustHue": Terms((0,), "fixed:4"),
    "AdjustSaturation": Terms((0,), "fixed:4"),
    "AvgPool": _sum("pool", rounded=True),
    "AvgPool3D": _sum("pool", rounded=True),
    "AvgPool3DGrad": Terms((1,), "pool"),
    "AvgPoolGrad": Terms((1,), "pool"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _product(0, "adj_x", 0, of=(0, 1))),
    "BiasAddGrad": _sum("channels", 0),
    "Bincount": _sum("all", 2, operand=2),
    "Cholesky": Terms((0,), "last", (0,)),
    **dict.fromkeys(("Conv2D", "Conv3D"), _product(0, "filter", 1, of=(0, 1))),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _product(0, "channels", 2, of=(0, 2))),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _product(2, "whole_filter", 1, of=(1, 2))),
    "Cross": Terms((0,), "fixed:2", (), ((0,), (1,))),
    "Cumprod": Terms((), "all", (0,)),
    "Cumsum": _sum("all", 0),
    "CumulativeLogsumexp": Terms((0,), "all", (0,)),
    "DenseBincount": _sum("all", 2, operand=2),
    "DepthwiseConv2dNative": _product(0, "window", 1, of=(0, 1)),
    "DepthwiseConv2dNativeBackpropFilter": _product(0, "channels", 2, of=(0, 2)),
    "DepthwiseConv2dNativeBackpropInput": _product(2, "whole_window", 1, of=(1, 2)),
    "Einsum": Terms((0,), "einsum", (0,)),
    "EuclideanNorm": Terms((0,), "axes", (0, 1), ((0,), (0,)), rounded=True),
    **dict.fromkeys(("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D"), Terms((0,), "fixed:32")),
    **dict.fromkeys(("IRFFT", "IRFFT2D", "IRFFT3D", "RFFT", "RFFT2D", "RFFT3D"), Terms((0,), "fixed:32")),
    "HSVToRGB": Terms((0,), "fixed:4"),
    "L2Loss": Terms((0,), "all", (0,), ((0,), (0,))),
    "LRNGrad": Terms((0,), "fixed:4"),
    "MatMul": _product(0, "transpose_a", 0, of=(0, 1)),
    **dict.fromkeys(
        ("LogMatrixDeterminant", "Lu", "MatrixDeterminant", "MatrixInverse", "MatrixSolve", "MatrixTriangularSolve"),
        Terms((0,), "last", (0,)),
    ),
    "Mean": _sum("axes", 0, 1, rounded=True),
    "MirrorPadGrad": Terms((0,), "fixed:4", (), ((0,),)),
    "Prod": _sum("axes", 0, 1),
    **dict.fromkeys(
        ("Eig", "MatrixSolveLs", "MatrixSquareRoot", "Qr", "SelfAdjointEigV2", "Svd"), Terms((0,), "last_squared", (0,))
    ),
    "RGBToHSV": Terms((0,), "fixed:4"),
    "ResizeBilinear": Terms((0,), "extent", (0,)),
    "ResizeBilinearGrad": Terms((0,), "extent", (1,)),
    "ScatterNd": _sum("all", 1, operand=1),
    **dict.fromkeys(("SegmentMean", "SparseSegmentMean"), _sum("rows", 0, rounded=True)),
    **dict.fromkeys(("SegmentProd", "SegmentProdV2", "UnsortedSegmentProd"), Terms((0,), "rows", (0,))),
    **dict.fromkeys(("SegmentSum", "SegmentSumV2", "SparseSegmentSum", "UnsortedSegmentSum"), _sum("rows", 0)),
    "SparseMatMul": _product(0, "transpose_a", 0, of=(0, 1)),
    "Sum": _sum("axes", 0, 1),
    **dict.fromkeys(("TensorScatterAdd", "TensorScatterSub"), Terms((2,), "all", (2,), ((0, 2),))),
    **dict.fromkeys(("TridiagonalMatMul", "TridiagonalSolve"), Terms((0,), "fixed:4")),
    **dict.fromkeys(("XlaConv", "XlaConvV2", "XlaDot", "XlaDotV2"), _product(0, "all", 1, of=(0, 1))),
    "XlaEinsum": Terms((0,), "einsum", (0,)),
}


def terms(node: node_def_pb2.NodeDef) -> Terms | None:
    """Returns what a node sums, or None if it isn't a sum."""
    own = TERMS.get(node.op)
    operands = tuple(index for index, ref in enumerate(node.input) if not ref.startswith("^"))
    if node.op == "AddN" and len(operands) > 2:
        return Terms(operands, f"fixed:{len(operands)}", (), (operands,))
    if own is not None and node.op in ("Einsum", "XlaEinsum"):
        return dataclasses.replace(own, factors=tuple((index,) for index in operands))
    return own


def sums(dtype: int) -> int:
    """Returns the dtype in which both TensorFlow and XLA sum values of a dtype."""
    return types_pb2.DT_FLOAT if dtype in (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF) else dtype
