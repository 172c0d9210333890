"""The render stage: C++ from the manifest. Decisions are made here; the templates only spell them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jinja2

from tfaot import compile as compiler
from tfaot import dtypes, names
from tfaot.manifest import Manifest, Tensor

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")


@dataclasses.dataclass(frozen=True)
class Request:
    """What to render, and where to."""

    manifest: str
    header: str
    """How the public header is included."""
    private_header: str
    """How tfcompile's header is included."""
    out_header: str
    out_source: str
    out_variables: str
    """Assembler source that holds the variables' file."""
    out_test: str
    out_benchmark: str


@dataclasses.dataclass(frozen=True)
class Member:
    """A tensor as the templates see it."""

    name: str
    """TensorFlow's."""
    cpp_name: str
    view: str
    """Type of the view of values that may change."""
    const_view: str
    signature: str
    """`float32[64, 784]`."""
    arg: int
    """Index among the compiler's arguments, or -1."""
    result: int
    """Index among the compiler's results, or -1."""
    offset: int
    """Start of a variable's initial value, in bytes."""
    bytes: int
    written: bool


def render(request: Request) -> None:
    """Writes every C++ source that derives from the manifest alone."""
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    context = context_of(manifest, header=request.header, private_header=request.private_header)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    for template, path in (
        ("class.h.jinja", request.out_header),
        ("class.cc.jinja", request.out_source),
        ("variables.S.jinja", request.out_variables),
        ("test.cc.jinja", request.out_test),
        ("benchmark.cc.jinja", request.out_benchmark),
    ):
        text = environment.get_template(template).render(context)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def context_of(manifest: Manifest, *, header: str, private_header: str) -> dict[str, Any]:
    """Everything that the templates name."""
    namespaces, class_name = names.split_class(manifest.cpp_class)
    entry = manifest.entry_points[0]
    symbol = names.symbol(manifest.cpp_class)
    written = {variable.name: index for index, variable in enumerate(manifest.written)}
    inputs = [_member(tensor, arg=index) for index, tensor in enumerate(entry.inputs)]
    outputs = [_member(tensor, result=index) for index, tensor in enumerate(entry.outputs)]
    variables = [
        _member(
            variable,
            arg=len(inputs) + index,
            result=len(outputs) + written[variable.name] if variable.written else -1,
            offset=variable.offset,
            written=variable.written,
        )
        for index, variable in enumerate(manifest.variables)
    ]
    return {
        "class_name": class_name,
        "full_name": manifest.cpp_class.removeprefix("::"),
        "namespace": "::".join(namespaces),
        "guard": "TFAOT_GENERATED_" + symbol + "_H_",
        "header": header,
        "private_header": private_header,
        "compiled": compiler.internal_class(manifest.cpp_class),
        "variables_symbol": f"tfaot_{symbol}_variables",
        "tensorflow": manifest.tensorflow,
        "inputs": inputs,
        "outputs": outputs,
        "variables": variables,
        "num_args": len(inputs) + len(variables),
        "num_results": len(outputs) + len(written),
        "steps": manifest.golden_steps,
    }


def _member(tensor: Tensor, *, arg: int = -1, result: int = -1, offset: int = 0, written: bool = False) -> Member:
    value = dtypes.BY_NAME[tensor.dtype].cpp
    return Member(
        name=_escaped(tensor.name),
        cpp_name=tensor.cpp_name,
        view=_view(value, tensor.shape),
        const_view=_view("const " + value, tensor.shape),
        signature=f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]",
        arg=arg,
        result=result,
        offset=offset,
        bytes=tensor.bytes,
        written=written,
    )


def _view(value: str, shape: Sequence[int]) -> str:
    return f"::tfaot::View<{', '.join((value, *map(str, shape)))}>"


def _escaped(name: str) -> str:
    """A TensorFlow name inside a C++ string literal or comment: a shared_name may hold anything."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in name.encode()
    )
