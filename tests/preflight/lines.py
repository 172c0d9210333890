"""Lines of a model, each with what the check says about it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a function of `x`, float32[4, 3], and `i`, int32[]."""

    code: str
    kind: str
    op: str
    rewrite: str
    """A part of what the check suggests."""
    severity: str = "blocker"
    because: str = ""


_HOST = "write it in TensorFlow ops"
_EXCHANGE = "exchange values by an op that compiles"
_CONSTANT = "compute it from Python numbers, constants, and shapes"
_MASK = "use a mask or tf.where with three arguments"
_CLIP = "clip them in the model"

LINES = (
    # The host.
    Line("tf.py_function(lambda v: v, [x], tf.float32)", "unsupported_op", "EagerPyFunc", _HOST),
    Line("tf.numpy_function(lambda v: v, [x], tf.float32)", "unsupported_op", "PyFunc", _HOST),
    Line("tf.strings.length(tf.constant(['a', 'b']))", "unsupported_op", "StringLength", "feed numbers"),
    Line(
        "tf.io.decode_raw(tf.constant(['abcd']), tf.uint8)", "unsupported_op", "DecodeRaw", "decode where you prepare"
    ),
    Line("tf.compat.v1.Print(x, [x])", "unsupported_op", "Print", "return the value as an output"),
    Line("(tf.print(x), x)[1]", "unsupported_op", "PrintV2", "remove tf.print"),
    # A dtype.
    Line("tf.cumsum(tf.cast(x, tf.uint8))", "unsupported_dtype", "Cumsum", "cast its operands"),
    # What the ahead-of-time compiler can't lower.
    Line(
        "tf.raw_ops.CollectiveBcastRecvV2(T=tf.float32, group_size=2, group_key=1, instance_key=1, shape=[3, 4])",
        "unsupported_op",
        "CollectiveBcastRecvV2",
        "build it as replica 0",
    ),
    Line("tf.raw_ops.NcclBroadcast(input=x, shape=[2])", "unsupported_op", "NcclBroadcast", _EXCHANGE),
    # Arguments that must be constant.
    Line("tf.argmax(x, i)", "not_constant", "ArgMax", _CONSTANT, because="it depends on the input 'i'"),
    Line("tf.range(i * 2)", "not_constant", "Range", _CONSTANT, because="it depends on the input 'i'"),
    Line(
        "tf.tile(x, [tf.random.uniform([], 1, 3, tf.int32), 1])",
        "not_constant",
        "Tile",
        _CONSTANT,
        because="it depends on RandomUniformInt 'random_uniform', which is known only at run time",
    ),
    # Hazards.
    Line("tf.debugging.check_numerics(x, 'no')", "dropped_check", "CheckNumerics", "tf.math.is_finite", "hazard"),
    Line("(tf.debugging.assert_greater(i, 0), x)[1]", "dropped_check", "Assert", "check the inputs before", "hazard"),
    Line("tf.gather(x, i)", "clamped_index", "GatherV2", _CLIP, "hazard"),
    Line("tf.gather_nd(x, [[i, 0]])", "clamped_index", "GatherNd", _CLIP, "hazard"),
    Line("tf.tensor_scatter_nd_add(x, [[i]], x[:1])", "clamped_index", "TensorScatterAdd", _CLIP, "hazard"),
    Line("tf.where(x > 0)", "dynamic_size", "Where", _MASK, "hazard"),
    Line("tf.unique(x[:, 0])[0]", "dynamic_size", "Unique", _MASK, "hazard"),
    Line("tf.math.top_k(x[0], k=i)[0]", "dynamic_size", "TopKV2", _MASK, "hazard"),
    Line(
        "tf.random.stateless_normal([3], [1, 2])",
        "fixed_seed",
        "StatelessRandomGetKeyCounter",
        "make the seed an input",
        "hazard",
    ),
)
