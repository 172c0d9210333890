"""The calls to verify, and TensorFlow's own run of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tfaot.core import drawn
from tfaot.core.manifest import EntryPoint, Manifest, Tensor, Variable
from tfaot.verify.digest import Array
from tfaot.verify.runner import Runner


@dataclasses.dataclass(frozen=True)
class Call:
    """A call to verify."""

    entry: EntryPoint
    inputs: tuple[Array, ...]
    draws: tuple[drawn.Draw | None, ...]
    """How the inputs are drawn; None for those of the user."""
    restored: tuple[Variable, ...]
    """Variables that are set to TensorFlow's values before the call."""
    tensors: tuple[Tensor, ...]
    """Its results: outputs, then written variables."""


def calls_of(manifest: Manifest, stored: Mapping[str, Array], ranges: Mapping[str, drawn.Range]) -> list[Call]:
    """Returns the calls to verify. The arguments are those of `drawn.draws`."""
    inputs = drawn.inputs(manifest, stored, ranges)
    draws = drawn.draws(manifest, stored, ranges)
    return [
        Call(
            entry,
            tuple(inputs[f"step{step}/{tensor.cpp_name}"] for tensor in entry.inputs),
            tuple(draws.get(f"step{step}/{tensor.cpp_name}") for tensor in entry.inputs),
            restored,
            (*entry.outputs, *manifest.written_by(entry)),
        )
        for step, (entry, restored) in enumerate(
            zip((manifest.entry_point(call.entry_point) for call in manifest.calls), manifest.restored(), strict=True)
        )
    ]


def unset(manifest: Manifest) -> dict[str, Array]:
    """Returns values for the unset variables, by name."""
    draws = drawn.variables(manifest)
    return {
        variable.name: drawn.values(variable.dtype, variable.shape, draws[variable.name])
        for variable in manifest.variables
        if variable.name in draws
    }


class OwnRun:
    """TensorFlow's own run: results of each call, and the variables before each."""

    def __init__(self, manifest: Manifest, runner: Runner, initial: dict[str, Array], calls: Sequence[Call]) -> None:
        self.initial = initial
        self.calls = calls
        self.free = manifest.free_run
        """Whether a free run differs from this run."""
        self.states: list[dict[str, Array]] = []
        """Values of the written variables that are restored before each call."""
        self.before: list[dict[str, Array]] = []
        """Values of all variables that each call uses and any call writes."""
        self.results: list[list[Array]] = []
        state = {variable.name: initial[variable.name] for variable in manifest.written}
        runner.assign(initial.items())
        for call in calls:
            self.states.append({variable.name: state[variable.name] for variable in call.restored if variable.written})
            used = (manifest.variables[use.variable].name for use in call.entry.variables)
            self.before.append({name: state[name] for name in used if name in state})
            results = runner.call(call.entry, call.inputs)
            self.results.append(results)
            for tensor, value in zip(call.tensors, results, strict=True):
                if isinstance(tensor, Variable):
                    state[tensor.name] = value
