"""Compares the arguments and results of a compiled function with the manifest.

A graph can claim a shape that its values don't have: nothing checks `set_shape`, a SavedModel's signature, or a GraphDef's
attributes. XLA derives shapes from the operations. The class and its views follow the manifest, and the memory behind them
follows XLA's shapes, so a wrong claim would read and write past the end of an instance's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError
from tfaot.core.functions import Function
from tfaot.core.manifest import EntryPoint, Manifest, Output
from tfaot.xla.module import Module


def check(module: Module, manifest: Manifest, function: Function, sources: Mapping[str, str]) -> None:
    """Compares all arguments and results of a function.

    Args:
      module: the compiled module.
      manifest: the model's manifest.
      function: the function that it was compiled for.
      sources: `file:line` by node.

    Raises:
      TfaotError: a dtype or a shape differs, or there are more or fewer values.
    """
    only = manifest.only(function.entry_point.name)
    entry = only.entry_points[0]
    shapes = {
        "argument": module.parameters,
        "result": module.result.parts if module.result.dtype == "tuple" else (module.result,),
    }
    wanted = {
        "argument": [
            *((tensor, tensor.at(function.batch, function.buckets)) for tensor in entry.inputs),
            *((variable, variable.shape) for variable in only.variables),
        ],
        "result": [
            *((tensor, _rows(tensor, function.batch)) for tensor in entry.outputs),
            *((variable, variable.shape) for variable in only.written_by(entry)),
        ],
    }
    differences = []
    for kind in ("argument", "result"):
        if len(shapes[kind]) != len(wanted[kind]):
            differences.append(f"{len(shapes[kind])} {kind}s; the model has {len(wanted[kind])}")
            continue
        for actual, (tensor, shape) in zip(shapes[kind], wanted[kind], strict=True):
            if function.buckets and any(actual.dynamic) and len(shape) == len(actual.dims):
                # A smaller bucket has smaller bounds.
                shape = tuple(map(min, shape, actual.dims))
            claimed = _shown(tensor.dtype, shape)
            dtype = dtypes.BY_XLA.get(actual.dtype)
            computed = _shown(dtype.name if dtype else actual.dtype.upper(), actual.dims)
            if computed != claimed:
                place = sources.get(tensor.name.partition(":")[0], "")
                differences.append(
                    f"the {kind} {tensor.name!r} is {computed}; the model says {claimed}"
                    + (f" at {place}" if place else "")
                )
    if differences:
        raise TfaotError(
            f"{_name(manifest, entry)}: the compiled function doesn't match the model: "
            f"{len(differences)} difference(s)",
            details="\n".join(differences),
            do="correct the shape or dtype that the model declares: TensorFlow doesn't check tf.Tensor.set_shape and the "
            "signature of a SavedModel; it checks tf.ensure_shape and tf.reshape",
        )


def _rows(output: Output, batch: int) -> tuple[int, ...]:
    return (batch, *output.shape[1:]) if output.batched else output.shape


def _name(manifest: Manifest, entry: EntryPoint) -> str:
    return f"{manifest.cpp_class}::{entry.cpp_name}"


def _shown(dtype: str, sizes: Sequence[int]) -> str:
    return f"{dtype}[{', '.join(map(str, sizes))}]"
