"""The stage as a whole: runs the user's code, names everything, infers the config, and writes the outputs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from typing import Any, TypeVar

import tensorflow as tf

from tfaot import dtypes, manifest, names, safetensors
from tfaot.errors import TfaotError
from tfaot.export import config as configs
from tfaot.export import model_fn, verdict

_T = TypeVar("_T", bound=manifest.Tensor)


@dataclasses.dataclass(frozen=True)
class Request:
    """What to export, and where to."""

    model: str
    cpp_class: str
    golden_steps: int
    user_config: str | None
    out_graph: str
    out_config: str
    out_manifest: str
    out_variables: str
    out_golden_inputs: str
    out_sources: str
    edge: str = "cpp"
    """One of `dtypes.EDGES`: which dtypes inputs, outputs, and variables may have."""


def export(request: Request) -> None:
    """Writes graph, config, manifest, variables, golden inputs, and the map from nodes to source lines.

    Raises:
      TfaotError: the class name, the user's code, its model, or the user's config is at fault.
    """
    _, class_name = names.split_class(request.cpp_class)
    if request.golden_steps < 1:
        raise TfaotError(f"golden_steps = {request.golden_steps}", do="verify at least one step")
    built = model_fn.build(request.model, steps=request.golden_steps, edge=request.edge)
    entry, variables = _named(built, class_name)
    config = configs.infer(entry, variables)
    if doubtful := {use.shared_name for use in built.variables if use.doubtful}:
        unchanged = verdict.unchanged(built.graph, config, doubtful)
        variables = tuple(dataclasses.replace(v, written=v.written and v.name not in unchanged) for v in variables)
        config = configs.infer(entry, variables)
    if request.user_config:
        with open(request.user_config, encoding="utf-8") as file:
            user = configs.parse(file.read(), path=request.user_config)
        config = configs.override(config, user, path=request.user_config)
        entry, variables = _reread(entry, variables, config, request.user_config, class_name)
    graph = built.graph.SerializeToString(deterministic=True)
    config_text = configs.to_text(config)
    result = manifest.Manifest(
        format=manifest.FORMAT,
        tensorflow=tf.__version__,
        cpp_class=request.cpp_class.removeprefix("::"),
        entry_points=(entry,),
        variables=variables,
        golden_steps=request.golden_steps,
        fingerprints=manifest.Fingerprints(
            graph=hashlib.sha256(graph).hexdigest(), config=hashlib.sha256(config_text.encode()).hexdigest()
        ),
    )
    with open(request.out_graph, "wb") as file_:
        file_.write(graph)
    with open(request.out_config, "w", encoding="utf-8") as file:
        file.write(config_text)
    with open(request.out_manifest, "w", encoding="utf-8") as file:
        file.write(result.to_json())
    with open(request.out_variables, "wb") as file_:
        safetensors.write(file_, built.initial)
    with open(request.out_golden_inputs, "wb") as file_:
        safetensors.write(
            file_,
            {
                f"step{step}/{tensor.cpp_name}": value
                for step, values in enumerate(built.steps)
                for tensor, value in zip(entry.inputs, values, strict=True)
            },
        )
    with open(request.out_sources, "w", encoding="utf-8") as file:
        json.dump(built.sources, file, indent=0, sort_keys=True)
        file.write("\n")


def _named(built: model_fn.Built, class_name: str) -> tuple[manifest.EntryPoint, tuple[manifest.Variable, ...]]:
    """Gives every edge and variable its C++ name, and variables their place in the file."""
    labels = [edge.label for edge in (*built.inputs, *built.outputs)] + [use.shared_name for use in built.variables]
    unique = iter(names.unique_identifiers(labels, class_name=class_name))

    def tensor(edge: model_fn.Edge) -> manifest.Tensor:
        shape = tuple(size or 0 for size in edge.shape or ())
        return manifest.Tensor(edge.name, next(unique), dtypes.BY_ENUM[edge.dtype].name, shape)

    inputs = tuple(tensor(edge) for edge in built.inputs)
    outputs = tuple(tensor(edge) for edge in built.outputs)
    places = safetensors.layout(
        (use.shared_name, dtypes.BY_ENUM[use.dtype].name, use.shape or ()) for use in built.variables
    )
    variables = tuple(
        manifest.Variable(place.name, next(unique), place.dtype, place.shape, use.written, place.offset)
        for use, place in zip(built.variables, places, strict=True)
    )
    return manifest.EntryPoint("Run", inputs, outputs), variables


def _reread(
    entry: manifest.EntryPoint,
    variables: tuple[manifest.Variable, ...],
    config: Any,
    path: str,
    class_name: str,
) -> tuple[manifest.EntryPoint, tuple[manifest.Variable, ...]]:
    """Takes over what a user's config may change: names, and whether a variable is written.

    Raises:
      TfaotError: it changes a dtype or a shape, or its names are no identifiers, or clash.
    """
    inputs = tuple(_renamed(t, c, path) for t, c in zip(entry.inputs, config.feed, strict=True))
    outputs = tuple(_renamed(t, c, path) for t, c in zip(entry.outputs, config.fetch, strict=True))
    variables = tuple(
        dataclasses.replace(_renamed(v, c, path), written=not c.readonly)
        for v, c in zip(variables, config.variable, strict=True)
    )
    taken = Counter(item.cpp_name for item in (*inputs, *outputs, *variables))
    for item in (*inputs, *outputs, *variables):
        name = item.cpp_name
        if not names.is_identifier(name) or name in names.MEMBERS or name == class_name:
            raise TfaotError(
                f"{path}: {item.name} is named {name!r}, which cannot name a member of {class_name}",
                do=f"write an identifier, for instance {names.unique_identifiers([name], class_name=class_name)[0]!r}",
            )
        if taken[name] > 1:
            raise TfaotError(
                f"{path}: the name {name!r} is given to {taken[name]} tensors",
                exists=", ".join(i.name for i in (*inputs, *outputs, *variables) if i.cpp_name == name),
                do="give each a name of its own, or leave names out: they are inferred without collisions",
            )
    return manifest.EntryPoint(entry.name, inputs, outputs), variables


def _renamed(tensor: _T, config: Any, path: str) -> _T:
    dtype = dtypes.BY_ENUM.get(config.type)
    shape = tuple(dim.size for dim in config.shape.dim)
    if dtype is None or dtype.name != tensor.dtype or shape != tensor.shape:
        raise TfaotError(
            f"{path}: {tensor.name} is configured as {dtype.name if dtype else 'an unsupported dtype'}{list(shape)}",
            exists=f"the model has {tensor.dtype}{list(tensor.shape)}",
            do="change the model, or leave type and shape out: they are inferred",
        )
    return dataclasses.replace(tensor, cpp_name=config.name)
