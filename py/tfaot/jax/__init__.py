"""Exports functions of JAX, with JAX's own packages and without TensorFlow.

program = tfaot.jax.export(step, params, jax.ShapeDtypeStruct((32, 8), "float32"), state={"params": "params"})
program.write("model.jax")  # tf_model(source = "model.jax"), or tfaot compile model.jax
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.export
import numpy as np
import numpy.typing as npt

from tfaot.core import programs
from tfaot.core.errors import TfaotError, listed
from tfaot.core.programs import Program, Value

State = Mapping[str, str] | Sequence[str]
"""Arguments that are variables of the class, by where results have their new values. A sequence means: under the same path. An
argument without a new value, `""`, is only read."""

_LISTED = 20
"""How many names a message lists."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """An entry point, and the initial values of its variables."""

    program: Program
    values: Mapping[str, npt.NDArray[Any]]
    unmatched: tuple[str, ...] = ()
    """Paths of the state that none of its arguments or results has."""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a model with this entry point."""
        write(path, [self])


def write(path: str | os.PathLike[str], exported: Sequence[Exported]) -> None:
    """Writes a model with several entry points, which share variables of the same names."""
    programs.write(path, joined(exported, source=os.fspath(path)))


def joined(exported: Sequence[Exported], *, source: str) -> programs.Programs:
    """Returns several entry points as one model.

    Args:
      exported: from `export`.
      source: the model's file, for messages.

    Raises:
      TfaotError: two have one name, or a path of the state is in none of them.
    """
    names = [entry.program.name for entry in exported]
    if len(names) > len(set(names)):
        raise TfaotError(
            f"{source}: entry points have the names {listed(names)}", do="give export another name for each: name="
        )
    values: dict[str, npt.NDArray[Any]] = {}
    for entry in exported:
        for name, value in entry.values.items():
            values.setdefault(name, value)
    missing = set.intersection(*(set(entry.unmatched) for entry in exported))
    if missing:
        arguments = [value.label for entry in exported for value in entry.program.arguments]
        results = [value.label for entry in exported for value in entry.program.results]
        raise TfaotError(
            f"{source}: state names {listed(sorted(missing))}",
            exists=f"arguments {listed(list(dict.fromkeys(arguments)), limit=_LISTED)}; "
            f"results {listed(list(dict.fromkeys(results)), limit=_LISTED)}",
            do='name an argument and the result with its new value, or a path that starts both: {"params": "params"}; '
            'an argument that is only read is {"params": ""}',
        )
    return programs.Programs(source, tuple(entry.program for entry in exported), values)


def export(function: Callable[..., Any], *shapes: Any, state: State = (), name: str = "call", **named: Any) -> Exported:
    """Exports a function.

    Args:
      function: takes and returns pytrees of arrays; jitted or not.
      *shapes: for each argument, a pytree of `jax.ShapeDtypeStruct`, with symbolic sizes or without, or of arrays. Arrays of the
        state are its initial values.
      state: arguments that are variables of the class.
      name: the entry point's name.
      **named: arguments by keyword.

    Raises:
      TfaotError: an argument isn't an array, or the state doesn't fit.
    """
    pairs, tree = jax.tree_util.tree_flatten_with_path((shapes, named))
    parameters = _parameters(function, shapes)
    labels = [_argument_label(path, parameters) for path, _ in pairs]
    leaves = [_leaf(label, value) for label, (_, value) in zip(labels, pairs, strict=True)]
    written = dict(state) if isinstance(state, Mapping) else {path: path for path in state}
    results: list[tuple[str, Any]] = []

    def flat(*values: Any) -> list[Any]:
        wrapped = [
            jax.random.wrap_key_data(value, impl=leaf.key) if leaf.key else value
            for leaf, value in zip(leaves, values, strict=True)
        ]
        args, kwargs = jax.tree.unflatten(tree, wrapped)
        results[:] = labels_of(function(*args, **kwargs))
        return [jax.random.key_data(value) if is_key(value) else value for _, value in results]

    with _settings():
        try:
            made = jax.export.export(jax.jit(flat, keep_unused=True), platforms=["cpu"])(
                *(leaf.spec for leaf in leaves)
            )
        except Exception as error:
            refusal = next(
                (r for r in _REFUSALS if isinstance(error, r.error) and re.search(r.pattern, str(error))), None
            )
            if refusal is None:
                raise
            at_run_time = isinstance(error, NotImplementedError)
            place = _line_of_callback(flat, [leaf.spec for leaf in leaves]) if at_run_time else _line_of(error)
            raise TfaotError(
                f"{name} {refusal.asked}" + (f", at {place}" if place else ""), exists=refusal.exists, do=refusal.do
            ) from None
        text = made.mlir_module()
    targets = {path: target for path, target in written.items() if target}
    arguments = tuple(Value(label, any(_within(label, path) for path in written)) for label in labels)
    moved = [_moved(label, targets) for label, _ in results]
    variables = {label: leaf for leaf, label in zip(leaves, labels, strict=True)}
    _check_state(name, variables, [(m, *r, a) for m, r, a in zip(moved, results, made.out_avals, strict=True) if m])
    returned = tuple(
        Value(new or _result_label(label), bool(new)) for new, (label, _) in zip(moved, results, strict=True)
    )
    unmatched = [path for path in written if not any(_within(label, path) for label in labels)]
    unmatched += [path for path in targets.values() if not any(_within(label, path) for label, _ in results)]
    initial = {
        value.label: leaf.value
        for value, leaf in zip(arguments, leaves, strict=True)
        if value.variable and leaf.value is not None
    }
    return Exported(Program(name, text, arguments, returned), initial, tuple(dict.fromkeys(unmatched)))


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """What no compiled code can do."""

    error: type[Exception]
    pattern: str
    """What JAX's error contains."""
    asked: str
    exists: str
    do: str


_REFUSALS = (
    _Refusal(
        NotImplementedError,
        "callback",
        "calls Python as it runs",
        "a callback: pure_callback, io_callback, jax.debug.print, or a check that raises",
        "compute it in JAX, or return what you want to print; checks of Equinox give NaN with EQX_ON_ERROR=nan",
    ),
    _Refusal(
        Exception,
        "Reverse-mode differentiation does not work for lax.while_loop",
        "has a gradient of a loop that has no bound",
        "lax.while_loop, or lax.fori_loop with a bound that isn't a Python integer",
        "use lax.scan, or lax.fori_loop with Python integers",
    ),
    _Refusal(
        TypeError,
        "statically specified|bstract tracer value|boolean conversion of traced|concrete value",
        "has a size or a branch of Python that depends on values",
        "arguments whose values aren't known before the call",
        "give the operation a bound: size= of jnp.nonzero, unique, and where, and total_repeat_length= of jnp.repeat; branch with "
        "jnp.where or lax.cond",
    ),
)


def _line_of(error: Exception) -> str:
    """Returns the innermost line of user code that an exception comes from, or nothing."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return _user_line(reversed(frames))


def _line_of_callback(function: Callable[..., Any], specs: Sequence[Any]) -> str:
    """Returns the line of user code that calls Python at run time, or nothing."""
    rest = [jax.make_jaxpr(function)(*specs).jaxpr]
    while rest:
        for equation in rest.pop().eqns:
            if re.search("callback|debug_print", equation.primitive.name):
                frames = getattr(equation.source_info.traceback, "frames", [])
                return _user_line((frame.file_name, frame.line_num) for frame in frames)
            inner = [
                part for value in equation.params.values() for part in (value if isinstance(value, tuple) else [value])
            ]
            inner = [getattr(part, "jaxpr", part) for part in inner]
            rest += [part for part in inner if hasattr(part, "eqns")]
    return ""


def _user_line(frames: Iterable[tuple[str, int | None]]) -> str:
    """Returns the first place that isn't in an installed package or here."""
    packages = os.path.dirname(os.path.dirname(os.path.abspath(jax.__file__))), os.path.dirname(__file__)
    for file, line in frames:
        if os.path.isabs(file) and not file.startswith(packages):
            return f"{file.removeprefix(os.getcwd() + os.sep)}:{line}"
    return ""


def labels_of(tree: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of a pytree with their paths: keys, fields, and positions, joined by `/`."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [("/".join(map(_key, path)), value) for path, value in pairs]


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """An array among the arguments."""

    spec: Any
    key: Any
    """How its bits become a key of random numbers, or None."""
    value: npt.NDArray[Any] | None
    """None if only its shape is given."""


def _leaf(label: str, value: Any) -> _Leaf:
    if not hasattr(value, "dtype") and not isinstance(value, bool | int | float | complex):
        raise TfaotError(
            f"the argument {label} is {type(value).__name__}, {str(value)[:80]!r}",
            exists="arguments of compiled code are arrays",
            do="bind other values before the export: functools.partial(function, ...); of an Equinox module, pass "
            "eqx.filter(module, eqx.is_array)",
        )
    if not hasattr(value, "dtype"):
        value = np.asarray(value, jax.dtypes.canonicalize_dtype(np.asarray(value).dtype))
    shaped = isinstance(value, jax.ShapeDtypeStruct)
    if is_key(value):
        implementation = _implementation(value)
        bits = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(value.shape, value.dtype))
        data = None if shaped else np.asarray(jax.random.key_data(value))
        return _Leaf(jax.ShapeDtypeStruct(bits.shape, bits.dtype), implementation, data)
    dtype = jax.dtypes.canonicalize_dtype(value.dtype)
    sharding = getattr(value, "sharding", None)
    split = sharding if isinstance(sharding, jax.sharding.NamedSharding) else None
    spec = jax.ShapeDtypeStruct(value.shape, dtype, sharding=split)
    return _Leaf(spec, None, None if shaped else np.asarray(value, dtype))


def is_key(value: Any) -> bool:
    """Returns whether a value, or its shape, is a typed key of random numbers."""
    return hasattr(value, "dtype") and bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def _implementation(value: Any) -> Any:
    """Returns the name of a key's generator: `key<fry>` and `key<rbg>` are dtypes."""
    return jax.random.key_impl(value) if isinstance(value, jax.Array) else value.dtype._impl.name


def _parameters(function: Callable[..., Any], shapes: Sequence[Any]) -> list[str]:
    """Returns a name for each positional argument."""
    try:
        bound = inspect.signature(function).bind_partial(*range(len(shapes))).arguments
    except (TypeError, ValueError):  # the call says what is wrong
        return [f"input_{index}" for index in range(len(shapes))]
    names: list[str] = []
    for name, value in bound.items():
        names += [f"{name}/{index}" for index in range(len(value))] if isinstance(value, tuple) else [name]
    return names


def _argument_label(path: Sequence[Any], parameters: Sequence[str]) -> str:
    """Returns the label of an argument's leaf, whose path starts with positional or keyword."""
    positional, first, *rest = path
    start = parameters[first.idx] if positional.idx == 0 else str(first.key)
    return "/".join([start, *map(_key, rest)])


def _key(key: Any) -> str:
    """Returns a part of a path: a key, a field, or a position."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return re.sub(r"\W", "", str(key))


def _result_label(label: str) -> str:
    """Returns an output's label, as other sources of models have it."""
    return f"output_{label}" if label[:1].isdigit() else label or "output"


def _within(label: str, path: str) -> bool:
    return label == path or label.startswith(path + "/")


def _moved(label: str, targets: Mapping[str, str]) -> str:
    """Returns the variable whose new value a result is, or nothing."""
    for path, target in targets.items():
        if _within(label, target):
            return path + label[len(target) :]
    return ""


def _check_state(name: str, variables: Mapping[str, _Leaf], results: Sequence[tuple[str, str, Any, Any]]) -> None:
    """Checks that new values fit their variables."""
    wrong = []
    for variable, label, _, value in results:
        leaf = variables.get(variable)
        wanted = "nothing" if leaf is None else f"{leaf.spec.dtype}{list(leaf.spec.shape)}"
        if wanted != f"{value.dtype}{list(value.shape)}":
            wrong.append(
                f"the result {label} is {value.dtype}{list(value.shape)}, and the argument {variable} {wanted}"
            )
    if wrong:
        raise TfaotError(
            f"{name}: {len(wrong)} new value(s) don't fit the state",
            exists=listed(wrong),
            do="return each part of the state under the path that it has in its argument, with its shape and dtype",
        )


_SETTINGS: Mapping[str, Any] = {
    # TensorFlow doesn't know Shardy.
    "jax_use_shardy_partitioner": False,
    # Locations have the lines of user code, by their path in the workspace.
    "jax_include_full_tracebacks_in_locations": True,
    "jax_traceback_in_locations_limit": -1,
    "jax_hlo_source_file_canonicalization_regex": re.escape(os.getcwd() + os.sep),
}
"""What programs for TensorFlow need of JAX."""


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Sets JAX up for an export."""
    before = {name: getattr(jax.config, name) for name in _SETTINGS if hasattr(jax.config, name)}
    try:
        for name in before:
            jax.config.update(name, _SETTINGS[name])
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
