"""Compares a model's graph with the program that it was converted from.

XLA's just-in-time compiler runs the whole program, as JAX runs it on CPUs. Its results must be within the tolerances of the
graph's, which TensorFlow's own kernels compute. So a fault in the conversion doesn't get into the goldens. A program that calls
LAPACK, or that is for several devices, runs only in JAX.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tfaot.core import fingerprint, programs, stablehlo_text
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import EntryPoint, Manifest, Variable
from tfaot.core.session import session_config
from tfaot.verify.calls import Call, OwnRun
from tfaot.verify.digest import Array, digest
from tfaot.verify.tolerance import Expected, distance

v1 = tf.compat.v1

_VERSION = 9
"""The version of XlaCallModule's conventions."""
_ELSEWHERE = re.compile(rb"lapack_|SPMDFullToShardShape|stablehlo\.(?:all_|collective_|partition_id|reduce_scatter)")
"""What only programs that run in JAX, and not here, have."""


@dataclasses.dataclass(frozen=True)
class _Program:
    """An entry point's program."""

    module: bytes
    variables: tuple[str, ...]
    """For each argument, the variable that it is, or nothing."""
    written: tuple[str, ...]
    """For each result, the variable whose new value it is, or nothing."""
    frozen: Mapping[str, Array]
    """Values of the variables that are constants of the graph."""


def check(
    path: str,
    names: Mapping[str, str],
    manifest: Manifest,
    run: OwnRun,
    rows: Sequence[Sequence[Mapping[str, Expected]]],
) -> None:
    """Runs the program on the inputs and the variables of each call, and compares its results with what is expected.

    Args:
      path: the program, StableHLO, or programs that JAX exported.
      names: the model's own names of entry points.
      manifest: their inputs, outputs, and variables.
      run: TensorFlow's own run.
      rows: what is expected of each call, result, and part.

    Raises:
      TfaotError: a result is out of tolerance.
    """
    wrong: dict[str, str] = {}
    program_of = {
        entry.name: _program(path, names.get(entry.name, ""), manifest, entry) for entry in manifest.entry_points
    }
    compiled: dict[tuple[object, ...], _Compiled] = {}
    for call, before, results, expected in zip(run.calls, run.before, run.results, rows, strict=True):
        program = program_of[call.entry.name]
        if program is None or _ELSEWHERE.search(program.module):
            continue
        inputs, state = iter(call.inputs), {**program.frozen, **run.initial, **before}
        values = [state[variable] if variable else next(inputs) for variable in program.variables]
        places = _places(program, call)
        key = (call.entry.name, *(value.shape for value in values))
        if key not in compiled:
            pairs = zip(places, program.written, strict=True)
            like = [state[variable] if at is None else results[at] for at, variable in pairs]
            compiled[key] = _Compiled(program, values, like)
        for at, value in zip(places, compiled[key](values), strict=True):
            if at is None:
                continue
            name = call.tensors[at].cpp_name
            for part, computed in digest(value).items():
                row = expected[at][part]
                off = distance(computed, row.value)
                if not np.all(off <= row.tolerance):
                    first = int(np.argmax(np.nan_to_num(off - row.tolerance, nan=np.inf)))
                    wrong.setdefault(
                        name,
                        f"{name}: value {first} is {computed.flat[first]} in the program, and {row.value.flat[first]} in the graph",
                    )
    if wrong:
        raise TfaotError(
            f"{manifest.cpp_class}: the graph doesn't compute what {path} does: {len(wrong)} output(s) differ",
            exists=listed(list(wrong.values())),
            do="report it to rules_tfaot, with the program",
        )


def _program(path: str, name: str, manifest: Manifest, entry: EntryPoint) -> _Program | None:
    """Reads an entry point's program, or returns None if the graph has other constants in the place of its variables."""
    if not path.endswith(programs.EXTENSION):
        with open(path, "rb") as file:
            none = ("",)
            return _Program(
                stablehlo_text.readable(file.read()), none * len(entry.inputs), none * len(entry.outputs), {}
            )
    held = programs.read(path)
    program = held.program(name) or held.programs[0]
    variables, written = (
        tuple(value.label if value.variable else "" for value in values)
        for values in (program.arguments, program.results)
    )
    frozen = {variable.name: held.values[variable.name] for variable in manifest.frozen if variable.name in held.values}
    changed = [
        variable for variable in manifest.frozen if fingerprint.of_value(frozen[variable.name]) != variable.sha256
    ]
    if changed or manifest.weights.rounded_to:
        return None
    return _Program(stablehlo_text.readable(program.text.encode()), variables, written, frozen)


def _places(program: _Program, call: Call) -> list[int | None]:
    """Returns where a call has the program's results, or None for variables that the compiler knows to keep their values.

    A call's first outputs can be values inside of the graph.
    """
    outputs = iter(range(len(call.entry.outputs) - program.written.count(""), len(call.entry.outputs)))
    own = {tensor.name: at for at, tensor in enumerate(call.tensors) if isinstance(tensor, Variable)}
    return [own.get(variable) if variable else next(outputs) for variable in program.written]


class _Compiled:
    """A program for one set of shapes."""

    def __init__(self, program: _Program, values: Sequence[Array], results: Sequence[Array]) -> None:
        with tf.Graph().as_default() as graph:
            self._arguments = [v1.placeholder(tf.as_dtype(value.dtype), value.shape) for value in values]
            self._outputs = gen_xla_ops.xla_call_module(
                args=self._arguments,
                version=_VERSION,
                module=program.module,
                Sout=[tf.TensorShape(value.shape) for value in results],
                Tout=[tf.as_dtype(value.dtype) for value in results],
                platforms=["CPU"],
            )
        self._session = v1.Session(graph=graph, config=session_config())

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        feeds = dict(zip(self._arguments, values, strict=True))
        return [np.asarray(value) for value in self._session.run(list(self._outputs), feeds)]
