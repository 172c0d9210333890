"""What the registry of kernels doesn't say about ops, and what to do about those that don't compile. Pure.

Tests compare the tables with the compiler, and follow the advice. The check and the build's errors both read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework import op_def_pb2

_STRING = 7  # tensorflow.DT_STRING, without importing TensorFlow


def _words(text: str) -> list[str]:
    return text.split()


_CONSTANT_ARGUMENTS = {
    "alg": """
        RngReadAndSkip StochasticCastToInt
    """,
    "alg shape": """
        StatelessRandomNormalV2 StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2
        StatelessRandomUniformV2 StatelessTruncatedNormalV2
    """,
    "algorithm": """
        RngSkip
    """,
    "algorithm shape": """
        StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt
        StatefulUniformInt XlaRngBitGenerator
    """,
    "axis": """
        ConcatV2 Cumprod Cumsum CumulativeLogsumexp GatherV2 ReverseV2 Roll UniqueV2
    """,
    "base_dilations padding window_dilations window_dimensions window_strides": """
        XlaReduceWindow
    """,
    "begin end shape strides": """
        StridedSliceGrad
    """,
    "begin end strides": """
        ResourceStridedSliceAssign StridedSlice TensorStridedSliceUpdate
    """,
    "begin size": """
        Slice
    """,
    "block_shape crops": """
        BatchToSpaceND
    """,
    "block_shape paddings": """
        SpaceToBatchND
    """,
    "bound": """
        XlaSetBound
    """,
    "broadcast_dims": """
        XlaBroadcastHelper
    """,
    "concat_dim": """
        Concat
    """,
    "concat_dim shape": """
        ConcatOffset
    """,
    "crops": """
        BatchToSpace
    """,
    "delta limit start": """
        Range
    """,
    "depth": """
        OneHot
    """,
    "dim": """
        ExpandDims
    """,
    "dim_index": """
        XlaRemoveDynamicDimensionSize XlaSetDynamicDimensionSize
    """,
    "dimension": """
        ArgMax ArgMin XlaVariadicSort
    """,
    "dims": """
        Fill Reverse
    """,
    "element_shape": """
        TensorListFromTensor
    """,
    "element_shape lengths": """
        TensorListSplit
    """,
    "element_shape max_num_elements": """
        EmptyTensorList
    """,
    "element_shape num_elements": """
        TensorListReserve
    """,
    "feature_group_count lhs_dilation padding rhs_dilation window_strides": """
        XlaConv XlaConvV2
    """,
    "fft_length": """
        IRFFT IRFFT2D IRFFT3D RFFT RFFT2D RFFT3D
    """,
    "filter_sizes": """
        Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter
    """,
    "group_assignment": """
        CollectiveAssignGroupV2 XlaAllReduce
    """,
    "group_assignment scatter_dimension": """
        XlaReduceScatter
    """,
    "group_key group_size": """
        CollectiveReduceV2
    """,
    "host_args": """
        _FusedConv2D
    """,
    "indices": """
        DynamicStitch ParallelDynamicStitch
    """,
    "input_scales input_zero_points output_scales output_zero_points": """
        UniformRequantize
    """,
    "input_sizes": """
        Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput
    """,
    "k": """
        InTopKV2 MatrixSetDiagV2 MatrixSetDiagV3 TopKV2
    """,
    "k num_cols num_rows padding_value": """
        MatrixDiagV2 MatrixDiagV3
    """,
    "k padding_value": """
        MatrixDiagPartV2 MatrixDiagPartV3
    """,
    "ksize strides": """
        MaxPoolGradGradV2 MaxPoolGradV2 MaxPoolV2
    """,
    "lengths": """
        TensorArraySplitV3
    """,
    "lhs_scales lhs_zero_points output_scales output_zero_points rhs_scales rhs_zero_points": """
        UniformQuantizedAdd UniformQuantizedConvolution UniformQuantizedDot
    """,
    "max_output_size": """
        NonMaxSuppressionV3 NonMaxSuppressionV4
    """,
    "max_size": """
        StackV2
    """,
    "multiples": """
        Tile
    """,
    "num": """
        LinSpace
    """,
    "num_samples": """
        Multinomial StatelessMultinomial
    """,
    "num_segments": """
        SegmentMaxV2 SegmentMinV2 SegmentProdV2 SegmentSumV2 UnsortedSegmentMax UnsortedSegmentMin
        UnsortedSegmentProd UnsortedSegmentSum
    """,
    "orig_input_shape": """
        AvgPool3DGrad AvgPoolGrad
    """,
    "output_shape": """
        SparseToDense
    """,
    "padding window_dimensions window_strides": """
        XlaSelectAndScatter
    """,
    "padding_high padding_interior padding_low": """
        XlaPad
    """,
    "paddings": """
        MirrorPad MirrorPadGrad Pad PadV2 SpaceToBatch
    """,
    "perm": """
        ConjugateTranspose Transpose
    """,
    "reduction_indices": """
        All Any Max Mean Min Prod Sum
    """,
    "s0 s1": """
        BroadcastArgs BroadcastGradientArgs
    """,
    "scales zero_points": """
        UniformDequantize UniformQuantize UniformQuantizedClipByValue
    """,
    "shape": """
        BroadcastTo Empty ParameterizedTruncatedNormal RandomStandardNormal RandomUniform RandomUniformInt
        Reshape ScatterNd StatelessParameterizedTruncatedNormal StatelessRandomNormal StatelessRandomUniform
        StatelessRandomUniformFullInt StatelessRandomUniformInt StatelessTruncatedNormal TruncatedNormal
    """,
    "size": """
        Bincount DenseBincount ResizeBilinear ResizeNearestNeighbor TensorArrayV3
    """,
    "size_indices": """
        XlaDynamicSlice
    """,
    "size_splits split_dim": """
        SplitV
    """,
    "slice_sizes": """
        XlaGather
    """,
    "split_dim": """
        Split
    """,
    "x y": """
        ListDiff
    """,
}
"""Arguments that XLA's kernels want as compile-time constants, and the ops that have exactly these."""

CONSTANTS: Mapping[str, tuple[str, ...]] = {
    op: tuple(arguments.split()) for arguments, ops in _CONSTANT_ARGUMENTS.items() for op in ops.split()
}
"""By op, the arguments that XLA's kernels want as compile-time constants."""

NOT_AHEAD_OF_TIME: Mapping[str, str] = {
    **dict.fromkeys(
        _words("XlaRecv XlaSend"),
        "XLA's ahead-of-time compiler has no code for talking to other devices",
    ),
    **dict.fromkeys(
        _words("XlaCustomCall XlaCustomCallV2"), "the code that it calls isn't part of XLA's ahead-of-time compiler"
    ),
}
"""Ops that have a kernel, and that the ahead-of-time compiler can't lower, each with the reason."""

_STRINGS = ("it computes on strings", "handle strings where you prepare the inputs, and feed numbers")
_HOST = (
    "it calls Python, or other code of the host, at run time",
    "write it in TensorFlow ops, or move it out of the model to where you prepare its inputs",
)
_DEVICES = (
    "it talks to other devices",
    "exchange values by an op that compiles (docs/guide/distributed.md), such as those of tf.distribute, or between two entry "
    "points",
)
_INPUT = ("it belongs to an input pipeline", "move it out of the model to where you prepare its inputs")
_RAGGED = (
    "it computes on ragged tensors",
    "take a dense tensor that is padded to one size, and the lengths as another input, and mask the rest",
)

FAMILIES: tuple[tuple[str, tuple[str, str]], ...] = (
    (r"PyFunc|XlaHostCompute|_XlaSendFromHost|_XlaRecvAtHost|HostCast", _HOST),
    (
        r"CollectiveBcastRecv",
        (
            "it only receives, and all replicas run one graph",
            "build it as replica 0, where CollectiveBcastSendV2 gives all replicas its value (docs/guide/distributed.md)",
        ),
    ),
    (r"Collective|Nccl|_Send|_Recv|_HostSend|_HostRecv|AllReduce|ReplicaId|CrossReplica|AllToAll", _DEVICES),
    (r"TPU|Tpu", ("it is for TPUs", "build the graph for a CPU")),
    (r"Dataset|Iterator|Queue|Reader|Barrier|Stage|OrderedMap|UnorderedMap", _INPUT),
    (
        r"^CTC\w+Decoder",
        (
            "it decodes sequences of any length",
            "return tf.argmax(logits, -1) or the logits, and merge repeats and drop blanks where you use them",
        ),
    ),
    (
        r"Decode|Encode|ExtractJpeg|ReadFile|WriteFile|MatchingFiles|Parse",
        ("it reads or writes files or formats of files", "decode where you prepare the inputs, and feed the numbers"),
    ),
    (
        r"Save|Restore|Checkpoint|ShardedFilename",
        ("it saves or restores a model", "fetch only what the model computes"),
    ),
    (
        r"Table|Hash(?!Bucket)|Initialize",
        (
            "it looks things up in a table at run time",
            "let TensorFlow look them up, and compile the rest with tf_aot_clusters; or turn keys into indices where you "
            "prepare the inputs, and use tf.gather on a tensor",
        ),
    ),
    (r"String|Substr|Regex|Unicode|Base64|HashBucket|AsString|NGrams|Lower|Upper", _STRINGS),
    (
        r"Print|Summary|Logging",
        ("it writes to a log", "remove tf.print and the like, or return the value as an output"),
    ),
    (
        r"FFT",
        (
            "TensorFlow itself has no CPU kernel for it",
            "use tf.signal.fft, fft2d, or fft3d; tf.transpose makes axes the last",
        ),
    ),
    (
        r"Sparse|CSR",
        ("it computes on sparse tensors", "use dense tensors, or tf.gather and tf.math.unsorted_segment_sum"),
    ),
    (r"Ragged", _RAGGED),
    (
        r"Quantize",
        ("it computes on quantized numbers", "convert the model without quantization, or use fake quantization"),
    ),
    (r"BoostedTrees|Forest", ("it belongs to decision trees", "use another implementation of the trees")),
    (r"Cudnn", ("it is for NVIDIA GPUs", "use the layer's implementation in plain ops")),
    (
        r"TensorList|TensorMap|Variant",
        ("it changes lists in ways that XLA doesn't know", "use a tf.TensorArray of a fixed size"),
    ),
    (r"Candidate|Unigram|CTC|Skipgram|CandidateSampler", _INPUT),
    (
        r"^(Assign|Scatter\w*|Apply\w*|Variable\w*|TemporaryVariable|DestroyTemporaryVariable|CountUpTo|Ref\w+)$",
        ("it belongs to TensorFlow 1's reference variables", "use resource variables, as TensorFlow 2 does"),
    ),
)
"""Patterns of ops without a kernel, each with the reason and what to do. The first one that matches counts."""

REWRITES: Mapping[str, str] = {
    "CTCLoss": "use tf.nn.ctc_loss with dense labels, logit_length, and label_length",
    "MatrixLogarithm": "compute it from tf.linalg.eig: vectors * tf.math.log(values)[..., None, :] @ tf.linalg.inv(vectors)",
    "SegmentSum": "use tf.math.unsorted_segment_sum with a constant num_segments",
    "SegmentMean": "use tf.math.unsorted_segment_sum, and divide by the counts",
    "SegmentMax": "use tf.math.unsorted_segment_max with a constant num_segments",
    "SegmentMin": "use tf.math.unsorted_segment_min with a constant num_segments",
    "SegmentProd": "use tf.math.unsorted_segment_prod with a constant num_segments",
    "AudioSpectrogram": "use tf.signal.stft, and take the absolute value",
    "FractionalMaxPool": "use tf.nn.max_pool2d",
    "HistogramFixedWidth": "use tf.math.unsorted_segment_sum of ones, by the values' bins as integers",
    "MaxPoolWithArgmax": "use tf.image.extract_patches, tf.reduce_max, and tf.argmax",
    "NthElement": "use tf.sort, and take the element",
    "Dilation2D": "use tf.image.extract_patches, and take the maximum",
    "CropAndResize": "crop with tf.gather, and resize with tf.image.resize",
    "ResizeBicubic": 'use tf.image.resize with method = "bilinear"',
    "ResizeArea": 'use tf.image.resize with method = "bilinear"',
    "StringFormat": "remove tf.print, or return the value as an output",
    "UniqueWithCounts": "use tf.unique, and count with tf.math.unsorted_segment_sum",
    "NonMaxSuppressionV2": "use tf.image.non_max_suppression_padded with pad_to_max_output_size=True",
    "NonMaxSuppressionV5": "use tf.image.non_max_suppression_padded with pad_to_max_output_size=True",
    "CombinedNonMaxSuppression": "use tf.image.non_max_suppression_padded with pad_to_max_output_size=True for each class",
}
"""What to do about single ops without a kernel."""

MOVE = "replace it, or move it out of the model to where you prepare its inputs"
"""What to do about what nothing else is known of."""

OTHER_WAYS = (
    "the check lists all that doesn't compile, and tf_aot_clusters compiles the rest (docs/guide/diagnostics.md)"
)
"""Where to go on from a refusal."""

BOUNDED_LOOP = (
    "pass maximum_iterations to the tf.while_loop, and a size to each tf.TensorArray, as a Python integer or from a "
    "static shape"
)
"""What to do about a loop whose lists have no bound."""

PIVOTING = "pass partial_pivoting=False to tf.linalg.tridiagonal_solve, or use tf.linalg.solve on the whole matrix"
"""What to do about a tridiagonal system that is solved with pivoting."""

SLICE_ASSIGNMENT = (
    "write rows by index: variable.scatter_nd_update([[i]], [row]), or tf.tensor_scatter_nd_update(tensor, [[i]], [row]); "
    "for n rows starting at i, the indices are (i + tf.range(n))[:, None]"
)
"""What to do about an assignment to a slice whose index is known only at run time."""

EMPTY_SLICE = "remove it if its operands are empty: it then changes nothing"
"""What to do about an op on operands without elements."""

NO_PFOR = (
    "pass experimental_use_pfor=False to jacobian and batch_jacobian, and use tf.map_fn in place of tf.vectorized_map"
)
"""What to do about a loop that TensorFlow can't turn into a batch."""


def fixed_list(node: str) -> str:
    """Returns what to do about a list that grows.

    Args:
      node: its name, which says whether TensorFlow made it while it turned a loop into a batch.
    """
    return NO_PFOR if "while_init" in node else "set the size of each tf.TensorArray, and remove dynamic_size"


def constant(node: str) -> str:
    """Returns what to do about an argument that must be known at build time.

    Args:
      node: the name of the op's node, which says whether the op is part of another.
    """
    if "Ragged" in node:
        return _RAGGED[1]
    return "compute it from Python numbers, constants, and shapes, not from inputs, variables, or random values"


def other_dtype(dtypes: Mapping[str, str]) -> str:
    """Returns what to do about an op that XLA compiles, but not for these dtypes, by attribute."""
    return (
        NO_PFOR
        if "variant" in dtypes.values()
        else "cast its operands to a dtype that XLA supports, such as float32 or int32"
    )


def composite_input(type_name: str) -> str:
    """Returns what to do about an input of a type that isn't a dense tensor, such as `RaggedTensorSpec`."""
    return _RAGGED[1] if type_name.startswith("Ragged") else "take dense tensors"


def composite_output(type_name: str) -> str:
    """Returns what to do about an output of a type that isn't a dense tensor, such as `RaggedTensor`."""
    return COMPONENTS.get(type_name, "return dense tensors")


COMPONENTS = {
    "IndexedSlices": "return tf.convert_to_tensor(value)",
    "RaggedTensor": "return value.flat_values and value.row_splits",
    "SparseTensor": "return value.indices and value.values",
    "TensorArray": "return value.stack()",
}
"""What to do about an output that isn't a dense tensor, by its type."""


def why_missing(op: str, defined: op_def_pb2.OpDef | None) -> tuple[str, str]:
    """Returns why XLA has no kernel for an op, and what to do about it.

    Args:
      op: the op.
      defined: its definition, or None if TensorFlow doesn't know it.
    """
    if defined is None:
        return (
            "TensorFlow itself doesn't know this op",
            "export the model without custom ops, or write the op in TensorFlow's own",
        )
    if op in REWRITES:
        return next((why for pattern, (why, _) in FAMILIES if re.search(pattern, op)), _NO_KERNEL), REWRITES[op]
    for pattern, advice in FAMILIES:
        if re.search(pattern, op):
            return advice
    if any(arg.type == _STRING for arg in (*defined.input_arg, *defined.output_arg)):
        return _STRINGS
    return _NO_KERNEL, MOVE


_NO_KERNEL = "XLA has no kernel for it"


def lowered_otherwise(op: str) -> str:
    """Returns what to do about an op of `NOT_AHEAD_OF_TIME`."""
    return MOVE if "CustomCall" in op else _DEVICES[1]


TOLERATED: Mapping[str, tuple[str, ...]] = {
    "MatrixDiagPartV2": ("padding_value",),
    "MatrixDiagV2": ("padding_value",),
    "MatrixDiagV3": ("padding_value",),
    "Slice": ("begin", "size"),
    "TopKV2": ("k",),
}
"""Arguments that XLA prefers as constants, and also takes as values of run time."""

ONE_STEP: Mapping[str, tuple[str, ...]] = {"StridedSlice": ("begin", "end")}
"""Arguments that XLA also takes as values of run time if all strides are 1."""

SIZES: Mapping[str, str] = {"Slice": "size", "StridedSlice": "end", "TopKV2": "k"}
"""Ops whose result has a size that depends on values if this argument isn't known."""

UNLIMITED: Mapping[str, str] = {"EmptyTensorList": "max_num_elements", "StackV2": "max_size"}
"""Ops that make lists, each with the argument that is negative if the list has no limit."""

EMPTY_SLICES: Mapping[str, str] = {"ResourceStridedSliceAssign": "value", "TensorStridedSliceUpdate": "value"}
"""Ops that XLA can't compile if this argument has no elements."""


_REAL = "float16 bfloat16 float32 float64"
_SIGNED = "int8 int16 int32 int64"
_UNSIGNED = "uint8 uint16 uint32 uint64"
_COMPLEX = "complex64 complex128"

REFUSED_DTYPES: Mapping[str, Mapping[str, str]] = {
    "ApproximateEqual": {"T": _UNSIGNED},
    "ConjugateTranspose": {"T": f"{_REAL} {_SIGNED} {_UNSIGNED} bool"},
    "FloorDiv": {"T": _COMPLEX},
    "Inv": {"T": _SIGNED},
    "Range": {"Tidx": "int8 int16 uint8 uint16 uint32 uint64 bfloat16 float16"},
    "Round": {"T": f"{_SIGNED} {_UNSIGNED} {_COMPLEX}"},
    "TensorScatterSub": {"T": "bool"},
    "XlaSelfAdjointEig": {"T": f"{_SIGNED} {_UNSIGNED}"},
}
"""By op and attribute, dtypes that a kernel takes, and that its own code then refuses, or dies of."""


DYNAMIC = frozenset({"ListDiff", "NonMaxSuppressionV3", "Unique", "UniqueV2", "Where"})
"""Ops whose result has a size that depends on values. Compiled code has a bound for it."""

CHECKS: Mapping[str, tuple[str, str]] = {
    "Assert": (
        "XLA drops tf.debugging.Assert and the like: the compiled model runs on whatever the condition is",
        "check the inputs before the call, or return the condition as an output and check that",
    ),
    "CheckNumerics": (
        "XLA drops tf.debugging.check_numerics: the compiled model passes NaN and infinities on",
        "check the results after the call, or return tf.reduce_all(tf.math.is_finite(…)) as an output",
    ),
}
"""Ops that check something in TensorFlow and not in compiled code, each with what to do."""

CLAMPED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("Gather", "GatherNd", "GatherV2", "ResourceGather"),
        (
            "an index out of range reads the nearest element, where TensorFlow reports an error",
            "check the indices before the call, or clip them in the model so that both do the same",
        ),
    ),
    **dict.fromkeys(
        _words(
            "ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul "
            "ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub "
            "ResourceScatterUpdate ScatterNd TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub "
            "TensorScatterUpdate"
        ),
        (
            "an index out of range is ignored, where TensorFlow reports an error",
            "check the indices before the call, or clip them in the model so that both do the same",
        ),
    ),
}
"""Ops that take indices, for which compiled code reports no error."""

SEEDED = frozenset(
    _words(
        "StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomGetKeyCounter "
        "StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomUniform "
        "StatelessRandomUniformFullInt StatelessRandomUniformInt StatelessTruncatedNormal"
    )
)
"""Ops that draw random numbers from a seed that is an operand."""


def hazard(op: str) -> str:
    """Returns how an op behaves unlike TensorFlow in compiled code; empty if it doesn't."""
    if op in CHECKS:
        return CHECKS[op][0]
    if op in CLAMPED:
        return CLAMPED[op][0]
    return "the size of its result depends on values, and compiled code has a bound" if op in DYNAMIC else ""
