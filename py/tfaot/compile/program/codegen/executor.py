"""Renders the program of a compiled function: C++ that runs its thunks, with as much as possible computed ahead of time.

tfcompile's own header does the same through XLA's runtime, which needs abseil and Eigen, and allocates memory during a
run. Here, a run calls the kernels directly, and creating an instance fills in where their arguments are.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfaot.compile.program.codegen import formula_code
from tfaot.compile.program.codegen.emitter import Emitter
from tfaot.compile.program.thunks.collectives import Collective, Rank
from tfaot.compile.program.thunks.kinds import CompiledFunction, walk
from tfaot.core import templates
from tfaot.core.functions import for_isa

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")


@dataclass(frozen=True)
class Rendered:
    """C++ code of a compiled function."""

    header: str
    """Declares the class that is a member of the public class."""
    sources: tuple[str, ...]
    """Its programs, one for each CPU level, to compile for that level."""
    kernels: tuple[str, ...]
    """The runtime's sources that programs call, each compiled for the program's level: `tfaot/kernels/products_f32.cc`."""


def render(functions: Mapping[str, CompiledFunction], *, cpp_class: str, cost: float, tensorflow: str) -> Rendered:
    """Renders a compiled function.

    Args:
      functions: from tfcompile's headers, by CPU level, lowest first. Each was compiled as `functions.for_isa(cpp_class, …)`.
      cpp_class: the class to declare, `namespace::name`, unique in a program.
      cost: the cost of a run, in any unit.
      tensorflow: the TensorFlow version that compiled it.

    Raises:
      TfaotError: the function sorts more arrays together than the runtime can.
    """
    namespace, _, name = cpp_class.rpartition("::")
    shared = {
        "arg_bytes": _bytes(min, [[f.buffers[b].size for b in f.arguments] for f in functions.values()]),
        "cost": f"{cost:.6g}",
        "function": next(iter(functions.values())),
        "guard": "TFAOT_GENERATED_" + name + "_EXECUTOR_H_",
        "name": name,
        "namespace": namespace,
        "result_bytes": _bytes(min, [[f.buffers[b].size for b in f.results] for f in functions.values()]),
        "result_room": _bytes(max, [[f.buffers[b].size for b in f.results] for f in functions.values()]),
        "programs": {isa: for_isa(name, isa) + "_program" for isa in functions},
        "tensorflow": tensorflow,
    }
    environment = templates.environment(_TEMPLATES)
    source = environment.get_template("executor.cc.jinja")
    plans = {isa: _plan(function) for isa, function in functions.items()}
    return Rendered(
        environment.get_template("executor.h.jinja").render(shared),
        tuple(source.render(shared, **names, function=functions[isa], isa=isa) for isa, (names, _) in plans.items()),
        tuple(sorted({path for _, sources in plans.values() for path in sources})),
    )


def _bytes(choose: Callable[..., int], sizes: Sequence[Sequence[int]]) -> str:
    """Lists, in C++, the fewest or most bytes of each argument or result at any CPU level. A zero ends the list."""
    return ", ".join(f"{size}u" for size in (*map(choose, zip(*sizes, strict=True)), 0))


def _plan(function: CompiledFunction) -> tuple[dict[str, Any], set[str]]:
    """Returns the names that the template uses for a program, and the runtime's sources that it calls."""
    emitter = Emitter(function)
    run = emitter.sequence(function.thunks, 1)
    exchanges = [thunk for thunk in walk(function.thunks) if isinstance(thunk, Collective | Rank)]
    return {
        **emitter.context(function),
        "run": run,
        "collectives": sum(isinstance(thunk, Collective) and thunk.part != "Wait" for thunk in exchanges),
        "replicas": max((thunk.replicas for thunk in exchanges), default=0),
        "formulas": [*map(formula_code.code, emitter.formulas)],
        "row_formulas": [*itertools.starmap(formula_code.row_code, emitter.row_formulas)],
    }, emitter.sources
