"""Compares a model's graph with the program that it was converted from.

XLA's just-in-time compiler runs the whole program, as JAX runs it on CPUs. Its results must be within the tolerances of the
graph's, which TensorFlow's own kernels compute. So a fault in the conversion doesn't get into the goldens. A program that calls
LAPACK runs only in JAX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import EntryPoint
from tfaot.core.packed import with_packed_bits
from tfaot.core.session import session_config
from tfaot.verify.digest import Array, digest
from tfaot.verify.tolerance import Expected, distance

v1 = tf.compat.v1

_VERSION = 9
"""The version of XlaCallModule's conventions."""
_LAPACK = b"lapack_"
"""The start of the names of calls of LAPACK."""


def check(
    path: str,
    entry: EntryPoint,
    calls: Sequence[Sequence[Array]],
    rows: Sequence[Sequence[Mapping[str, Expected]]],
    *,
    what: str,
) -> None:
    """Runs the program on the inputs of each call, and compares its results with what is expected.

    Args:
      path: the program, StableHLO.
      entry: its inputs and outputs.
      calls: values of the inputs.
      rows: what is expected of each call, output, and part.
      what: names the model, for messages.

    Raises:
      TfaotError: a result is out of tolerance.
    """
    wrong: dict[str, str] = {}
    for values, expected in zip(_results(path, entry, calls), rows, strict=False):
        for output, value, parts in zip(entry.outputs, values, expected, strict=True):
            for part, array in digest(value).items():
                off = distance(array, parts[part].value)
                if not np.all(off <= parts[part].tolerance):
                    at = int(np.argmax(np.nan_to_num(off - parts[part].tolerance, nan=np.inf)))
                    wrong.setdefault(
                        output.cpp_name,
                        f"{output.cpp_name}: value {at} is {array.flat[at]} in the program, and "
                        f"{parts[part].value.flat[at]} in the graph",
                    )
    if wrong:
        raise TfaotError(
            f"{what}: the graph doesn't compute what {path} does: {len(wrong)} output(s) differ",
            exists=listed(list(wrong.values())),
            do="report it to rules_tfaot, with the program",
        )


def _results(path: str, entry: EntryPoint, calls: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Returns the program's outputs for each call; nothing if it can't run."""
    with open(path, "rb") as file:
        module = with_packed_bits(file.read())
    if _LAPACK in module:
        return []
    with tf.Graph().as_default() as graph:
        arguments = [v1.placeholder(tf.as_dtype(tensor.dtype), tensor.shape) for tensor in entry.inputs]
        outputs: list[Any] = list(
            gen_xla_ops.xla_call_module(
                args=arguments,
                version=_VERSION,
                module=module,
                Sout=[tf.TensorShape(tensor.shape) for tensor in entry.outputs],
                Tout=[tf.as_dtype(tensor.dtype) for tensor in entry.outputs],
                platforms=["CPU"],
            )
        )
        with v1.Session(graph=graph, config=session_config()) as session:
            return [
                [np.asarray(value) for value in session.run(outputs, dict(zip(arguments, values, strict=True)))]
                for values in calls
            ]
