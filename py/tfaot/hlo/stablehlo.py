"""The StableHLO stage: converts an exported graph to portable StableHLO, as text and versioned bytecode.

This needs only the wheel. The graph is imported into a function for XLA to compile, with the manifest's inputs as
arguments and its variables as captures. TensorFlow prints the function's HLO as StableHLO. That text also uses other
MLIR dialects, which a vendor's tools don't know:

- `mhlo.copy`, which keeps buffers of results separate, is removed, because values have no buffers in StableHLO.
- `mhlo.erf` becomes a function that computes it.
- `mhlo` attributes and locations are removed. The manifest says which result replaces which variable.

Any other use of `mhlo` or `chlo` is an error that names it. StableHLO's own serializer writes the versioned bytecode,
and refuses every foreign operation once more.
"""

from __future__ import annotations

import dataclasses
import re

from tfaot.core import caller, environment, isolate, names, refusals
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Manifest
from tfaot.core.stablehlo_text import STRING, VALUE, tokens
from tfaot.graph import lowering
from tfaot.hlo import erf, hlo


@dataclasses.dataclass(frozen=True)
class Request:
    """What to translate, and where to write it."""

    manifest: str
    graph: str
    sources: str
    """JSON of `file:line` by node, from the export stage; only errors read it."""
    name: str
    """The module's name."""
    out_text: str
    out_bytecode: str
    """A portable artifact: VHLO bytecode of the serializer's own version."""
    entry_point: str = ""
    """The entry point's name in the manifest; empty for the first."""


def translate(request: Request) -> None:
    """Translates in a child process, and writes all outputs or none.

    Raises:
      TfaotError: XLA refuses the graph, or the result contains an operation that StableHLO lacks.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest).only(request.entry_point)

    def crashed(how: str, log: str) -> TfaotError:
        return TfaotError(
            f"translating {request.name} to StableHLO: the compiler {how}",
            details="\n".join(log.splitlines()[-20:]),
            do="look for an op that XLA can't compile in the compiler's last lines above",
        )

    isolate.run_isolated(
        lambda: _translate(request, manifest), what=f"translating {request.name} to StableHLO", crashed=crashed
    )


def _translate(request: Request, manifest: Manifest) -> None:
    environment.prepare()
    from tensorflow.compiler.mlir.stablehlo import stablehlo
    from tensorflow.python import pywrap_mlir

    try:
        text = lower(request.graph, manifest)
    except Exception as error:  # its types say nothing, so use its text
        raise refusals.explain(str(error), request, manifest) from None
    text = portable(text, names.to_identifier(request.name))
    # Parses and prints the text again. The result is well formed, numbered without gaps, and has no locations.
    text = pywrap_mlir.experimental_run_pass_pipeline(text, "builtin.module(symbol-dce)", show_debug_info=False)
    try:
        artifact = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
    except ValueError as error:
        raise TfaotError(
            f"{request.name}: can't serialize the StableHLO: {error}",
            do=f"replace what the compiler's log names above; {caller.product('hlo')} gives the HLO itself",
        ) from None
    with open(request.out_text, "w", encoding="utf-8") as file:
        file.write(hlo.describe(manifest))
        file.write(text.rstrip("\n") + "\n")
    with open(request.out_bytecode, "wb") as binary:
        binary.write(artifact)


def lower(path: str, manifest: Manifest) -> str:
    """Returns TensorFlow's text of a graph's HLO in MLIR.

    Parameters are the inputs, then the variables. Results are the outputs, then the written variables. Each group is in
    the manifest's order. Variables are created without touching their memory, because the compiler reads only their
    shapes.
    """
    from tensorflow.core.framework import graph_pb2

    with open(path, "rb") as file:
        graph = graph_pb2.GraphDef.FromString(file.read())
    entry = manifest.entry_points[0]
    return str(
        lowering.lower(
            graph,
            [lowering.Argument(tensor.name, tensor.dtype, tensor.shape) for tensor in entry.inputs],
            [lowering.Argument(variable.name, variable.dtype, variable.shape) for variable in manifest.variables],
            [tensor.name for tensor in entry.outputs],
            stage="stablehlo",
        )
    )


_VALUE = rf"{VALUE}(?:#\d+)?"
_MODULE = re.compile(r"^module @\S+ (?:attributes \{.*\} )?\{")
_COPY = re.compile(rf"^\s*({_VALUE}) = mhlo\.copy ({_VALUE}) : ")
_ERF = re.compile(rf"^(\s*{_VALUE} = )mhlo\.erf ({_VALUE}) : tensor<((?:\d+x)*)(\w+)>")
_TOKEN = re.compile(rf"{STRING}|{_VALUE}")
_FOREIGN = re.compile(rf"{STRING}|\b((?:mhlo|chlo)\.\w+)")


def portable(text: str, name: str) -> str:
    """Rewrites TensorFlow's text to pure StableHLO, and sets the module's name.

    Raises:
      TfaotError: an operation has no equivalent.
    """
    lines: list[str] = []
    copies: dict[str, str] = {}
    scopes: list[tuple[int, str]] = []
    """The copies in scope, innermost last: indentation, and the value's name."""
    functions: dict[str, str] = {}
    foreign: dict[str, None] = {}
    for line in text.splitlines():
        if line.startswith("#loc"):
            lines.append(line)
            continue
        if line.startswith("module "):
            lines.append(_MODULE.sub(f"module @{name} {{", line))
            continue
        line = without_attributes(line)
        # The printer indents by region, and names are free again after a region ends.
        indentation = len(line) - len(line.lstrip())
        while scopes and scopes[-1][0] > indentation:
            del copies[scopes.pop()[1]]
        if copies:
            line = _TOKEN.sub(lambda token: copies.get(token[0], token[0]), line)
        if match := _COPY.match(line):
            copies[match[1]] = match[2]
            scopes.append((indentation, match[1]))
            continue
        if (match := _ERF.match(line)) and match[4] in erf.FLOATS:
            dims = [int(size) for size in match[3].split("x")[:-1]]
            symbol = f"erf.{match[3].replace('x', '.')}{match[4]}"
            functions[symbol] = erf.function(symbol, dims, match[4])
            kind = f"tensor<{match[3]}{match[4]}>"
            line = f"{match[1]}func.call @{symbol}({match[2]}) : ({kind}) -> {kind}"
        foreign |= dict.fromkeys(match[1] for match in _FOREIGN.finditer(line) if match[1])
        foreign |= dict.fromkeys(re.findall(r'"((?:mhlo|chlo)\.\w+)"\(', line))
        lines.append(line)
    if foreign:
        raise TfaotError(
            f"{name}: {listed(sorted(foreign))} can't be written as StableHLO",
            do=f"replace the ops that they come from; {caller.product('hlo')} gives HLO, which contains all of them",
        )
    end = max(index for index, line in enumerate(lines) if line.startswith("}"))
    return "\n".join(lines[:end]) + "\n" + "".join(functions.values()) + "\n".join(lines[end:]) + "\n"


def without_attributes(line: str) -> str:
    """Drops entries `mhlo.key = value` and `mhlo.key` from the dictionaries of a printed line."""
    if "mhlo." not in line:
        return line
    kept: list[str] = []
    """The text so far, without removed entries."""
    position = 0
    for match in re.finditer(rf"{STRING}|([{{,] ?)mhlo\.\w+(?: = )?", line):
        if match.start() < position or match[1] is None:
            continue
        end = next(
            place
            for token, place, depth in tokens(line, match.end())
            if (token == "," and depth == 0) or (token == "}" and depth < 0)
        )
        first, last = match[1][0] == "{", line[end] == "}"
        kept.append(line[position : match.start()])
        if first:
            # The brace stays for what follows the comma. A lone brace goes, with its partner and the space before it.
            if last:
                kept[-1] = kept[-1].rstrip(" ")
                end += 1
            else:
                kept.append("{")
                end += 2
        position = end
    return without_attributes("".join(kept) + line[position:]) if position else line
