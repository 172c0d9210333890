"""Which operations round, and by how much: the error model of `tfaot.verify.noise`."""

from __future__ import annotations

import dataclasses

from tensorflow.core.framework import types_pb2

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

GRIDS = (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF, types_pb2.DT_FLOAT)


EXACT = frozenset(
    """
    Abs AddManySparseToTensorsMap Assert AssignVariableOp BatchToSpace BatchToSpaceND Bitcast BroadcastTo Case Ceil
    CheckNumerics ClipByValue Complex Concat ConcatV2 Conj Const DepthToSpace Diag DiagPart DynamicPartition DynamicStitch
    EnsureShape Enter Exit ExpandDims ExtractImagePatches Fill Floor Gather GatherNd GatherV2 GuaranteeConst Identity IdentityN
    If Imag ImmutableConst InplaceUpdate InvertPermutation MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2
    MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixTranspose Max MaxPool
    MaxPoolGrad MaxPoolGradGrad MaxPoolGradV2 MaxPoolV2 MaxPoolWithArgmax Maximum Merge Min Minimum MirrorPad Neg NextIteration
    OneHot OnesLike Pack Pad PadV2 ParallelConcat ParallelDynamicStitch PartitionedCall Placeholder PlaceholderWithDefault
    PreventGradient Print PrintV2 ReadVariableOp Real RefIdentity Relu Relu6 Relu6Grad ReluGrad RemoteCall Reshape
    ResourceGather ResourceGatherNd Reverse ReverseSequence ReverseV2 Rint Roll Round ScatterNdUpdate Select SelectV2 Sign Slice
    Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth SparseReshape Split SplitV Squeeze StatefulPartitionedCall StatelessCase
    StatelessIf StatelessWhile StopGradient StridedSlice StridedSliceGrad Switch TensorListConcat TensorListConcatV2
    TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem TensorListPopBack TensorListPushBack
    TensorListReserve TensorListResize TensorListScatter TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack
    TensorScatterMax TensorScatterMin TensorScatterUpdate TensorStridedSliceUpdate Tile TopK TopKV2 Transpose Unpack
    UnravelIndex VarHandleOp VariableV2 Where While ZerosLike
    """.split()  # noqa: SIM905
)
"""Operations that move, select, or compare values, and never round them."""

ROUNDED_ONCE = frozenset(
    """
    Add AddV2 BiasAdd BiasAddV1 Cast Div DivNoNan Inv LeakyRelu LeakyReluGrad LinSpace
    Mul MulNoNan Range RealDiv Reciprocal Sqrt Square SquaredDifference Sub
    """.split()  # noqa: SIM905
)
UPDATES = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
"""Operations that change a variable and have no result, and the ones that compute its new value."""
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

ROUNDED_OPERAND = frozenset({"Cosh", "Sinh", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"})
"""Functions that begin with a sum or a difference of the operand and another number, which is rounded: exp(x - log 2), or logits
less the largest one."""


@dataclasses.dataclass(frozen=True)
class Terms:
    """An operation that sums terms."""

    operand: int
    """The operand that contains them, or a factor of each."""
    count: str
    """How the number of terms in one result follows from operands' shapes: a case of `trace_count`."""
    shapes: tuple[int, ...]
    """The operands whose shapes these are."""


TERMS = {
    "AvgPool": Terms(0, "pool", ()),
    "BatchMatMul": Terms(0, "adj_x", (0,)),
    "BatchMatMulV2": Terms(0, "adj_x", (0,)),
    "BatchMatMulV3": Terms(0, "adj_x", (0,)),
    "BiasAddGrad": Terms(0, "channels", (0,)),
    "Conv2D": Terms(0, "filter", (1,)),
    "Conv2DBackpropFilter": Terms(0, "channels", (2,)),
    "Conv2DBackpropInput": Terms(2, "whole_filter", (1,)),
    "Conv3D": Terms(0, "filter", (1,)),
    "Conv3DBackpropFilterV2": Terms(0, "channels", (2,)),
    "Conv3DBackpropInputV2": Terms(2, "whole_filter", (1,)),
    "Cumsum": Terms(0, "all", (0,)),
    "DepthwiseConv2dNative": Terms(0, "window", (1,)),
    "DepthwiseConv2dNativeBackpropFilter": Terms(0, "channels", (2,)),
    "DepthwiseConv2dNativeBackpropInput": Terms(2, "whole_window", (1,)),
    "Einsum": Terms(0, "einsum", (0,)),
    "EuclideanNorm": Terms(0, "axes", (0, 1)),
    "L2Loss": Terms(0, "all", (0,)),
    "MatMul": Terms(0, "transpose_a", (0,)),
    "Mean": Terms(0, "axes", (0, 1)),
    "Prod": Terms(0, "axes", (0, 1)),
    "ScatterNd": Terms(1, "all", (1,)),
    "SegmentMean": Terms(0, "rows", (0,)),
    "SegmentSum": Terms(0, "rows", (0,)),
    "SegmentSumV2": Terms(0, "rows", (0,)),
    "SparseSegmentMean": Terms(0, "rows", (0,)),
    "SparseSegmentSum": Terms(0, "rows", (0,)),
    "Sum": Terms(0, "axes", (0, 1)),
    "TensorScatterAdd": Terms(2, "all", (2,)),
    "TensorScatterSub": Terms(2, "all", (2,)),
    "UnsortedSegmentSum": Terms(0, "rows", (0,)),
}


def sums(dtype: int) -> int:
    """Returns the dtype in which both TensorFlow and XLA sum values of a dtype."""
    return types_pb2.DT_FLOAT if dtype in (types_pb2.DT_BFLOAT16, types_pb2.DT_HALF) else dtype
