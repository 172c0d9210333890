"""Every conversion between dtypes, and arithmetic in each: the functions that compilers call for them must link."""

import tensorflow as tf

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64)


@tf.function(input_signature=[tf.TensorSpec((4,), tf.float32, name="x"), tf.TensorSpec((4,), tf.int32, name="n")])
def model(x, n):
    """Returns 2 * (n % 60 + 1), which every dtype has, through each conversion; and results of functions."""
    converted = []
    results = []
    small = tf.math.floormod(n, 60) + 1
    for source in (*FLOATS, *INTEGERS):
        start = tf.cast(small, source)
        # Between integers, conversions are instructions.
        for target in (*FLOATS, *(INTEGERS if source in FLOATS else ())):
            converted.append(tf.cast(tf.cast(start + start, target), tf.float32))
    for dtype in FLOATS:
        y, z = tf.cast(tf.abs(x) + 0.5, dtype), tf.cast(small, dtype)
        values = (
            y / z + tf.math.floormod(z, y),
            tf.pow(y, 1.5) + tf.math.log(y) + tf.atan2(y, z),
            tf.sin(y) + tf.tan(y) + tf.math.erf(y) + tf.round(y),
            tf.linalg.matvec(tf.tile(y[None], (4, 1)), z) + tf.reduce_mean(y * z),
        )
        results += [tf.cast(value, tf.float32) for value in values]
    for dtype in INTEGERS:
        y, z = tf.cast(small, dtype), tf.cast(tf.math.floormod(n, 7) + 1, dtype)
        results.append(tf.cast(y // z + tf.math.floormod(y, z), tf.float32))
    for dtype in (tf.complex64, tf.complex128):
        y = tf.cast(tf.complex(x, x + 1), dtype)
        results.append(tf.cast(tf.abs(y * y / (y + 2) + tf.exp(y) + tf.sqrt(y) + tf.tanh(y)), tf.float32))
    return {"converted": tf.stack(converted), "found": tf.stack(results)}
