"""Exports the functions of a user's file.

The file's `model` is a function or a callable object, or a function without parameters that returns one. Other functions are entry
points by their name. `input_fn()` returns the shapes of the arguments, and `golden_fn(step, rng)` values to verify with.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from tfaot.core import buckets, caller, programs
from tfaot.core.errors import TfaotError, listed
from tfaot.core.user_code import SEED, UserCode, seed_everything
from tfaot.jax import Exported, export, joined, labels_of

_CALL = "call"
"""The entry point that is the model itself."""
_OURS = ("golden_fn", "input_fn", "model")
"""Functions of the file that aren't entry points."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """Which functions of a file to export, and where to write them."""

    model: str
    """A Python file."""
    entry_points: tuple[tuple[str, str], ...] = ()
    """Pairs of a C++ name and the file's own."""
    state: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Arguments that are variables of the class, by where results have their new values."""
    replicas: int = 0
    """How many devices the file finds, each of which stands for a replica; 0 for those of JAX."""
    golden_steps: int = 3
    """For how many rounds of calls the file's `golden_fn` makes inputs, at least."""
    sizes: Mapping[str, tuple[int | str | None, ...]] = dataclasses.field(default_factory=dict)
    """Sizes that differ from call to call, and their buckets: there are enough rounds for all of their edges."""
    golden_calls: tuple[str, ...] = ()
    """The C++ names of the entry points of a round. By default, all."""
    out_programs: str


def run(request: Request) -> None:
    """Writes the programs.

    Raises:
      TfaotError: the user's code raised an exception, or something of it doesn't fit.
    """
    seed_everything()
    if request.replicas:
        jax.config.update("jax_num_cpu_devices", request.replicas)
    file = _File(request.model)
    pairs = request.entry_points or (("Run", file.default),)
    exported = {name: file.exported(own, request.state) for name, own in pairs}
    made = joined(list(exported.values()), source=request.model)
    golden: dict[str, Any] = {}
    if hasattr(file.user.module, "golden_fn"):
        for rank in range(max(request.replicas, 1)):
            golden |= file.golden(dict(pairs), request, rank)
    programs.write(request.out_programs, dataclasses.replace(made, golden=golden))


class _File:
    """A user's file."""

    def __init__(self, path: str) -> None:
        self.user = UserCode(path)
        model = getattr(self.user.module, "model", None)
        if inspect.isfunction(model) and not inspect.signature(model).parameters:
            model = self.user.run("model()", model)
        self._model = model

    @property
    def default(self) -> str:
        """The entry point for `Run`: the model, or the only function."""
        names = self._names
        return names[0] if len(names) == 1 else _CALL

    @property
    def _names(self) -> list[str]:
        """The entry points, for messages."""
        module = self.user.module
        own = [
            name
            for name, value in vars(module).items()
            if callable(value)
            and not inspect.isclass(value)
            and not name.startswith("_")
            and name not in _OURS
            and getattr(value, "__module__", None) == module.__name__
        ]
        return [_CALL] if callable(self._model) else own

    def _function(self, name: str) -> Callable[..., Any]:
        function = self._model if name == _CALL else getattr(self.user.module, name, None)
        if not callable(function):
            raise TfaotError(
                f"{self.user.path} has no function {'model' if name == _CALL else name}",
                exists=listed(self._names),
                do=f"define model, or name one of these in {caller.the('entry_points')}",
            )
        return function  # type: ignore[no-any-return]

    def exported(self, name: str, state: Mapping[str, str]) -> Exported:
        """Exports an entry point."""
        function = self._function(name)
        if not hasattr(self.user.module, "input_fn"):
            raise TfaotError(
                f"{self.user.path}: the arguments of {name} aren't specified",
                exists="no input_fn()",
                do="define input_fn(), which returns a jax.ShapeDtypeStruct or an array for each argument, in a tuple",
            )
        shapes = self.user.call_with("input_fn", [], name)
        args, named = _arguments(function, shapes)
        return self.user.run(  # type: ignore[no-any-return]
            f"exporting {name}", lambda: export(function, *args, state=state, name=name, **named)
        )

    def golden(self, own: Mapping[str, str], request: Request, rank: int) -> dict[str, Any]:
        """Returns what `golden_fn(step, rng)` or `golden_fn(step, rng, entry_point)` gives for each call of a replica."""
        rng = np.random.default_rng(SEED + rank)
        start = programs.of_replica(rank)
        sizes = [[bucket for bucket in edges if isinstance(bucket, int)] for edges in request.sizes.values()]
        rounds = buckets.calls(request.golden_steps, sizes)
        calls = [own[name] for _ in rounds for name in (request.golden_calls or own)]
        golden: dict[str, Any] = {}
        for step, name in enumerate(calls):
            values = self.user.call_with("golden_fn", [step, rng], name)
            golden |= {f"{start}step{step}/{label}": np.asarray(value) for label, value in labels_of(values)}
        return golden


def _arguments(function: Callable[..., Any], shapes: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns positional and keyword arguments: a tuple has one for each parameter, and a dict can have their names."""
    if isinstance(shapes, tuple) and not hasattr(shapes, "_fields"):
        return shapes, {}
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    if isinstance(shapes, dict) and shapes and all(name in parameters for name in shapes):
        return (), shapes
    return (shapes,), {}
