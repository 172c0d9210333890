"""Converts a definition's Keras model, which is also compiled ahead of time, to LiteRT's format.

    to_tflite.py MODEL [WEIGHTS] OUT

WEIGHTS is the dtype in which the converter stores weights: float16, or int8 (LiteRT's dynamic range quantization).
"""

from __future__ import annotations

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from benchmarks import definitions
from benchmarks.adapters import keras_ops


def main() -> None:
    """Converts with the default settings, float32 and no quantization, unless a dtype is given."""
    name, *weights, out = sys.argv[1:]
    model = definitions.MODELS[name]
    network = keras_ops.network(name)
    spec = tf.TensorSpec((model.batch, *model.shape), tf.int32 if model.tokens else tf.float32, name="x")
    function = tf.function(lambda x: network(x, training=False)).get_concrete_function(spec)
    # Freeze first: the converter leaves variables in the body of an LSTM's loop, where LiteRT can't read them.
    frozen = convert_to_constants.convert_variables_to_constants_v2(function)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    if weights:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16] if weights == ["float16"] else []
    converted = converter.convert()
    with open(out, "wb") as file:
        file.write(converted)


if __name__ == "__main__":
    main()
