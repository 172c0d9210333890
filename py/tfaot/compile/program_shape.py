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
from tfaot.core.manifest import Manifest
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
    results = module.result.parts if module.result.dtype == "tuple" else (module.result,)
    batch, buckets = function.batch, function.buckets
    bounded = {output.name for output in manifest.entry_point(entry.name).sized}
    inputs = [(tensor, tensor.at(batch, buckets)) for tensor in entry.inputs]
    outputs = [(tensor, (batch, *tensor.shape[1:]) if tensor.batched else tensor.shape) for tensor in entry.outputs]
    read, written = (
        [(variable, variable.shape) for variable in variables] for variables in (only.variables, only.written_by(entry))
    )
    differences = []
    for kind, shapes, wanted in (
        ("argument", module.parameters, [*inputs, *read]),
        ("result", results, [*outputs, *written]),
    ):
        if len(shapes) != len(wanted):
            differences.append(f"{len(shapes)} {kind}s; the model has {len(wanted)}")
            continue
        for actual, (tensor, shape) in zip(shapes, wanted, strict=True):
            if buckets and tensor.name in bounded and len(shape) == len(actual.dims):
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
            f"{manifest.cpp_class}::{entry.cpp_name}: the compiled function doesn't match the model: "
            f"{len(differences)} difference(s)",
            details="\n".join(differences),
            do="correct the shape or dtype that the model declares: TensorFlow doesn't check tf.Tensor.set_shape and the "
            "signature of a SavedModel; it checks tf.ensure_shape and tf.reshape",
        )


def _shown(dtype: str, sizes: Sequence[int]) -> str:
    return f"{dtype}[{', '.join(map(str, sizes))}]"
