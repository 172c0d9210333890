"""A pipeline as C++: the templates' contexts, in which all is decided."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence

from tfaot.cluster.pipeline import ALIGNMENT, Argument, Host, Pipeline, Place
from tfaot.core import assembly, dtypes, names, templates
from tfaot.core.errors import listed

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")

_MEMBERS = ("Add", "Call", "Failed", "Host", "Place", "Run", "Subtract", "clusters", "error", "values")
"""Names that the class has anyway."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to write, and where."""

    cpp_class: str
    """The class of the clusters."""
    header: str
    """The path by which to include the pipeline's header."""
    library_header: str
    """The path by which to include the clusters' header."""
    tensorflow: str
    steps: int
    """How many the test runs."""
    out_header: str
    out_test: str
    out_initial: str
    """Assembler source with the variables' initial values."""


@dataclasses.dataclass(frozen=True)
class _Member:
    """A view, as the templates see it."""

    label: str
    name: str
    value: str
    view: str
    """Empty if its values may not be changed."""
    const_view: str
    signature: str
    offset: int


@dataclasses.dataclass(frozen=True)
class _Parameter:
    """What a callback gets."""

    label: str
    name: str
    type: str
    argument: str
    """The expression that a run passes."""
    written: bool


@dataclasses.dataclass(frozen=True)
class _Host:
    name: str
    ops: str
    notes: tuple[str, ...]
    arguments: tuple[_Parameter, ...]

    @property
    def parameters(self) -> str:
        """The declaration."""
        return ", ".join(f"{argument.type} {argument.name}" for argument in self.arguments)


def render(pipeline: Pipeline, request: Request) -> None:
    """Writes the class, its test, and its variables' initial values."""
    namespaces, name = names.split_class(request.cpp_class)
    class_name = f"{name}Pipeline"
    taken = {*_MEMBERS, *names.MEMBERS}
    edges = [*pipeline.inputs, *pipeline.outputs]
    labels = [edge.label for edge, _ in edges] + [variable for variable, _ in pipeline.variables]
    members = names.unique_identifiers(labels, taken=taken, class_name=class_name)
    places = [place for _, place in edges] + [place for _, place in pipeline.variables]
    kinds = [True] * len(pipeline.inputs) + [False] * len(pipeline.outputs) + [True] * len(pipeline.variables)
    shown = [_member(*described) for described in zip(labels, members, places, kinds, strict=True)]
    first, second = len(pipeline.inputs), len(edges)
    inputs, outputs, variables = shown[:first], shown[first:second], shown[second:]
    hosts = [_host(host) for host in pipeline.hosts]
    values = {place.dtype.cpp for place in places}
    values |= {argument.place.dtype.cpp for host in pipeline.hosts for argument in host.arguments}
    symbol = names.symbol(request.cpp_class)
    context = {
        "alignment": ALIGNMENT,
        "apart": listed([f"{edge.label} ({_open(edge.dtype, edge.shape)})" for edge in pipeline.apart])
        if pipeline.apart
        else "",
        "bound": [
            {
                "cluster": bound.cluster,
                "is_input": "true" if bound.is_input else "false",
                "port": bound.port,
                "offset": bound.place.offset,
            }
            for bound in pipeline.bound
        ],
        "class_name": class_name,
        "clusters": request.cpp_class.removeprefix("::"),
        "full_name": "::".join([*namespaces, class_name]),
        "groups": [("Inputs", inputs), ("Outputs, valid after Run()", outputs), ("Variables", variables)],
        "guard": f"TFAOT_GENERATED_{symbol}_PIPELINE_H_",
        "header": request.header,
        "hosts": hosts,
        "initial_bytes": len(pipeline.initial),
        "initial_symbol": f"tfaot_{symbol}_pipeline_initial",
        "inputs": inputs,
        "kinds": {step.kind.capitalize() for step in pipeline.steps},
        "library_header": request.library_header,
        "namespace": "::".join(namespaces),
        "outputs": outputs,
        "size": pipeline.size,
        "step_count": request.steps,
        "steps": list(_steps(pipeline, hosts)),
        "tensorflow": request.tensorflow,
        "uses_complex": any("complex" in value for value in values),
        "uses_half": bool(values & {"::tfaot::Float16", "::tfaot::BFloat16"}),
        "variables": variables,
    }
    environment = templates.environment(_TEMPLATES)
    for template, path in (("pipeline.h.jinja", request.out_header), ("pipeline_test.cc.jinja", request.out_test)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(environment.get_template(template).render(context))
    with open(request.out_initial, "w", encoding="utf-8") as file:
        symbols = (str(context["initial_symbol"]),) if pipeline.initial else ()
        what = (
            "// TFAOT_INITIAL is the path of the variables' initial values, which the build passes.",
            ".incbin TFAOT_INITIAL",
        )
        file.write(assembly.source(symbols, what, alignment=64))


def _steps(pipeline: Pipeline, hosts: Sequence[_Host]) -> Iterable[dict[str, object]]:
    for step in pipeline.steps:
        if step.kind == "call":
            yield {"kind": "call", "index": step.index}
        elif step.kind == "host":
            host = hosts[step.index]
            yield {
                "kind": "host",
                "name": host.name,
                "arguments": ", ".join(argument.argument for argument in host.arguments),
            }
        else:
            assert step.source is not None and step.target is not None
            yield {
                "kind": step.kind if step.kind == "copy" else step.kind.capitalize(),
                "source": step.source.offset,
                "target": step.target.offset,
                "bytes": step.source.bytes,
                "count": step.source.bytes // step.source.dtype.bytes,
                "value": step.source.dtype.cpp,
            }


def _view(place: Place, *, const: bool) -> str:
    sizes = "".join(f", {size}" for size in place.shape)
    return f"::tfaot::View<{'const ' if const else ''}{place.dtype.cpp}{sizes}>"


def _member(label: str, name: str, place: Place, changes: bool) -> _Member:
    view = _view(place, const=False) if changes else ""
    signature = f"{place.dtype.name}[{', '.join(map(str, place.shape))}]"
    return _Member(label, name, place.dtype.cpp, view, _view(place, const=True), signature, place.offset)


def _host(host: Host) -> _Host:
    identifiers = names.unique_identifiers([argument.label for argument in host.arguments], taken=("values",))
    arguments = tuple(_parameter(*described) for described in zip(host.arguments, identifiers, strict=True))
    notes = []
    if host.apart:
        notes.append(f"No view shows {listed(list(host.apart))}: give it to your class yourself.")
    if host.gives:
        notes.append(f"No view takes {listed(list(host.gives))}: keep it in your class.")
    ops = ", ".join(op if count == 1 else f"{count} {op}" for op, count in host.ops.items())
    return _Host(host.name, ops, tuple(notes), arguments)


def _parameter(argument: Argument, name: str) -> _Parameter:
    view = _view(argument.place, const=not argument.written)
    const = "" if argument.written else "const "
    pointer = f"reinterpret_cast<{const}{argument.place.dtype.cpp}*>(values_ + {argument.place.offset})"
    return _Parameter(argument.label, name, view, f"{view}({pointer})", argument.written)


def _open(dtype: int, shape: Sequence[int | None] | None) -> str:
    import tensorflow as tf

    sizes = "unknown shape" if shape is None else str(["?" if size is None else size for size in shape])
    own = dtypes.BY_ENUM.get(dtype)
    return f"{own.name if own else tf.as_dtype(dtype).name}{sizes}".replace("'", "")
