"""Compiled models as Python objects: `load`, `run`, and NumPy arrays that view a model's memory."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import html
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core.errors import TfaotError, listed
from tfaot.run import library as lib
from tfaot.run.library import Instance, Library, ModelError, Signature, Tensor

Array = npt.NDArray[Any]


def load(
    path: str | os.PathLike[str], *, isa: str | None = None, threads: int = 1, unknown_inputs: str = "error"
) -> Model:
    """Loads a model's shared library, and creates an instance of the model.

    Args:
      path: libNAME_shared.so: a file, or a runfile of a Bazel target, such as `models/libscorer_aot_shared.so`.
      isa: the CPU level whose code runs. By default, the one in the environment variable TFAOT_ISA, or else the highest that
        this machine runs.
      threads: how many threads a run uses; 0 for one per core. The results are bitwise identical.
      unknown_inputs: what to do with inputs that the model doesn't have, "error" or "ignore". With "ignore", `Model.notes`
        lists them. This is for programs that offer the same inputs to different models.

    Raises:
      ModelError: there is no such library, or this machine can't run it.
    """
    return Model(path, isa=isa, threads=threads, unknown_inputs=unknown_inputs)


class Tensors(Mapping[str, Array]):
    """Tensors of a model by name. Both TensorFlow's names and the names of members find a tensor.

    With several entry points, names of members start with the entry point's, which you can leave out.
    """

    def __init__(
        self, kind: str, tensors: tuple[Tensor, ...], view: Callable[[Tensor], Array], entry_point: str = ""
    ) -> None:
        self._kind = kind
        self._entry_point = entry_point
        self._tensors = tensors
        self._view = view

    def tensor(self, name: str) -> Tensor:
        """Returns what is known about a tensor: its dtype, its shape, and so on.

        Raises:
          KeyError: there is none of this name.
        """
        found = _find(self._tensors, name, self._entry_point)
        if found is None:
            raise KeyError(f"no {self._kind} is called {name!r}; there is {listed([t.member for t in self._tensors])}")
        return found

    def __getitem__(self, name: str) -> Array:
        return self._view(self.tensor(name))

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or _find(self._tensors, name, self._entry_point) is None:
            raise AttributeError(f"no {self._kind} is called {name!r}; there is {listed([*self])}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return (tensor.member for tensor in self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return "\n".join(map(str, self._tensors)) or f"no {self._kind}"


class Variables(Tensors):
    """A model's variables. Reading gives a view, and assignment copies values into the model."""

    def __init__(self, tensors: tuple[Tensor, ...], view: Callable[[Tensor], Array], change: Callable[[Tensor], Array]):
        super().__init__("variable", tensors, view)
        self._change = change

    def __setitem__(self, name: str, value: npt.ArrayLike) -> None:
        tensor = self.tensor(name)
        self._change(tensor)[...] = _converted(tensor, value, tensor.shape)


class Outputs(dict[str, Array]):
    """What a run returns: arrays by the names of members, `out["loss"]` or `out.loss`.

    With several entry points, names of members start with the entry point's, which you can leave out.
    """

    def __init__(self, entry_point: str, arrays: Mapping[str, Array]) -> None:
        super().__init__(arrays)
        self._entry_point = entry_point

    def __missing__(self, name: str) -> Array:
        whole = f"{self._entry_point}_{name}"
        if whole in self:
            return self[whole]
        raise KeyError(f"no output is called {name!r}; there is {listed([*self])}")

    def __getattr__(self, name: str) -> Array:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None


@dataclasses.dataclass
class _State:
    """What a model's parts share. None of them refers to the model, so its memory goes away with its last user."""

    library: Library
    unknown_inputs: str
    opened: Instance | None
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    views: weakref.WeakSet[lib.Memory] = dataclasses.field(default_factory=weakref.WeakSet)
    """What views of variables keep alive."""

    @property
    def instance(self) -> Instance:
        """The C instance.

        Raises:
          ModelError: the model is closed.
        """
        if self.opened is None:
            raise ModelError(f"{self.library.name}: the model is closed\n  to do: load it again")
        return self.opened

    def input(self, signature: Signature, tensor: Tensor) -> Array:
        """Returns a view of an input."""
        instance = self.instance
        address = instance.api.input(instance.handle, signature.index, tensor.index)
        return lib.array(instance, tensor, address, writable=True)[0]

    def output(self, signature: Signature, tensor: Tensor) -> Array:
        """Returns a view of an output, in its true size. Of a batch, it has all rows."""
        instance = self.instance
        dims = (ctypes.c_int64 * max(len(tensor.shape), 1))()
        instance.check(instance.api.output_dims(instance.handle, signature.index, tensor.index, dims))
        address = instance.api.output(instance.handle, signature.index, tensor.index)
        return lib.array(instance, tensor, address, writable=False, shape=tuple(dims[: len(tensor.shape)]))[0]

    def variable(self, tensor: Tensor, *, change: bool = False) -> Array:
        """Returns a view of a variable. Values that the model only reads can't be changed through it by default."""
        instance = self.instance
        writable = change or tensor.written
        pointer = instance.api.mutable_variable if writable else instance.api.variable
        view, memory = lib.array(instance, tensor, pointer(instance.handle, tensor.index), writable=writable)
        self.views.add(memory)
        return view


class EntryPoint:
    """A function of a model. Call it with arrays: `model.train(x=batch)`."""

    def __init__(self, state: _State, signature: Signature) -> None:
        self._state = state
        self.signature = signature
        self.inputs = Tensors("input", signature.inputs, functools.partial(state.input, signature), signature.name)
        """Views of the inputs' memory, to fill without a copy. Then call the entry point without arguments."""
        self.outputs = Tensors("output", signature.outputs, functools.partial(state.output, signature), signature.name)
        """Views of the outputs' memory. The next run changes them. Of a batch, they have all rows."""

    def __call__(
        self, inputs: Mapping[str, npt.ArrayLike] | None = None, /, batch: int | None = None, **named: npt.ArrayLike
    ) -> Outputs:
        """Runs it on these inputs, and returns copies of its outputs.

        Args:
          inputs: inputs by name, for names that aren't Python identifiers.
          batch: the number of rows. By default, the inputs' own, or else the largest batch.
          **named: more inputs by name. Without any inputs, the run uses what the inputs' memory contains.

        Raises:
          TfaotError: an input is missing, unknown, or has another dtype or shape.
          ModelError: the run failed.
        """
        state = self._state
        instance = state.instance
        values = self._taken({**(inputs or {}), **named})
        rows = self._rows(values, batch)
        for tensor, value in values.items():
            state.input(self.signature, tensor)[slice(rows) if tensor.batched else ...] = value
        instance.check(instance.api.run(instance.handle, self.signature.index, rows))
        return Outputs(
            self.signature.name,
            {
                tensor.member: state.output(self.signature, tensor)[slice(rows) if tensor.batched else ...].copy()
                for tensor in self.signature.outputs
            },
        )

    def _taken(self, offered: Mapping[str, npt.ArrayLike]) -> dict[Tensor, Array]:
        """Returns the values that the entry point has inputs for, converted."""
        values: dict[Tensor, Array] = {}
        for name, value in offered.items():
            tensor = _find(self.signature.inputs, name, self.signature.name)
            if tensor is not None:
                values[tensor] = _converted(tensor, value, tensor.shape)
                continue
            if self._state.unknown_inputs != "ignore":
                raise TfaotError(
                    f"{self._state.library.name}: there is no input {name!r}",
                    exists=f"{self.signature.name}() takes {listed([str(t) for t in self.signature.inputs])}",
                    do='pass one of these, or load the model with unknown_inputs="ignore"',
                )
            self._state.notes.setdefault(name, f"{self.signature.name}() ignored {name!r}, which isn't an input")
        missing = [tensor for tensor in self.signature.inputs if tensor not in values]
        if offered and missing:
            raise TfaotError(
                f"{self._state.library.name}: {self.signature.name}() got no value for {listed([t.member for t in missing])}",
                exists=f"it takes {listed([str(tensor) for tensor in self.signature.inputs])}",
                do="pass all inputs, or none to use what `inputs` contains",
            )
        return values

    def _rows(self, values: Mapping[Tensor, Array], batch: int | None) -> int:
        """Returns the number of rows that the inputs and the caller agree on; 0 without batches."""
        if not self.signature.max_batch:
            if batch is not None:
                raise TfaotError(
                    f"{self._state.library.name}: {self.signature.name}(batch={batch})",
                    exists="this entry point takes no batch",
                    do="leave it out",
                )
            return 0
        sizes = {tensor.member: len(value) for tensor, value in values.items() if tensor.batched}
        if batch is not None:
            sizes["batch"] = batch
        if len({*sizes.values()}) > 1:
            raise TfaotError(
                f"{self._state.library.name}: the inputs of {self.signature.name}() have different numbers of rows",
                exists=", ".join(f"{name} has {size}" for name, size in sizes.items()),
                do="pass the same number of rows everywhere",
            )
        rows = next(iter(sizes.values()), self.signature.max_batch)
        if not 1 <= rows <= self.signature.max_batch:
            raise TfaotError(
                f"{self._state.library.name}: a batch of {rows} rows",
                exists=f"{self.signature.name}() takes 1 to {self.signature.max_batch}",
                do="split it, or raise the target's max_batch",
            )
        return rows

    def __repr__(self) -> str:
        return str(self.signature)


class Model:
    """An instance of a compiled model: inputs, outputs, variables, and working memory.

    Use an instance in one thread at a time. Runs release the GIL, so several threads run several instances in parallel.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, isa: str | None = None, threads: int = 1, unknown_inputs: str = "error"
    ) -> None:
        if unknown_inputs not in ("error", "ignore"):
            raise TfaotError(
                f"unknown_inputs={unknown_inputs!r}",
                exists='the values are "error" and "ignore"',
                do="pass one of these",
            )
        self.library = Library(lib.find(path))
        self.name = self.library.name
        """The C++ class."""
        state = _State(self.library, unknown_inputs, Instance(self.library, isa))
        self._state = state
        self.notes = state.notes
        """Inputs that were ignored, and a sentence on each."""
        self.variables = Variables(
            self.library.variables, state.variable, functools.partial(state.variable, change=True)
        )
        """Views of the variables' values, by name."""
        self.entry_points = {entry.name: EntryPoint(state, entry) for entry in self.library.entry_points}
        """The model's functions, by name. Each is an attribute, too."""
        self.run = self.entry_points[self.library.entry_points[0].name]
        """The first entry point."""
        self.inputs = self.run.inputs
        self.outputs = self.run.outputs
        if threads != 1:
            self.set_threads(threads)

    @property
    def isa(self) -> str:
        """The CPU level whose code runs."""
        instance = self._state.instance
        return str(instance.api.isa(instance.handle).decode())

    @property
    def fingerprint(self) -> str:
        """Identifies the code, but not values of variables: 16 hexadecimal digits."""
        return self.library.fingerprint

    @property
    def manifest(self) -> dict[str, Any]:
        """What `model.json` says about the model's interface."""
        manifest = json.loads(self.library.manifest)
        assert isinstance(manifest, dict)
        return manifest

    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads all variables from a safetensors file.

        Raises:
          BufferError: there are views of variables, whose memory would go away.
          ModelError: the file doesn't fit the model; nothing has changed.
        """
        if self._state.views:
            raise BufferError(
                f"{self.name}: can't load variables while arrays view their memory\n"
                f"  found: {len(self._state.views)} views\n  to do: delete them, or keep copies: model.variables.w.copy()"
            )
        self._call("load", os.fsencode(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves all variables to a safetensors file.

        Raises:
          ModelError: the file couldn't be written; an older one is unchanged.
        """
        self._call("save", os.fsencode(path))

    def seed(self, seed: int) -> None:
        """Restarts the random numbers.

        Raises:
          ModelError: the model draws none.
        """
        self._call("seed", seed)

    def set_threads(self, threads: int) -> None:
        """Makes runs use this many threads; 0 for one per core. The results are bitwise identical."""
        self._call("set_threads", threads)

    def close(self) -> None:
        """Ends the instance, once no array views its memory. A closed model can't be used."""
        self._state.opened = None

    def _call(self, function: str, *arguments: Any) -> None:
        instance = self._state.instance
        instance.check(getattr(instance.api, function)(instance.handle, *arguments))

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> EntryPoint:
        entries = self.__dict__.get("entry_points", {})
        if name in entries:
            entry = entries[name]
            assert isinstance(entry, EntryPoint)
            return entry
        raise AttributeError(f"a model has no attribute {name!r}; its entry points are {listed([*entries])}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.entry_points]

    def _summary(self) -> str:
        total = sum(variable.bytes for variable in self.library.variables)
        state = self.isa if self._state.opened is not None else "closed"
        return (
            f"{len(self.library.variables)} variables, {total:,} bytes; {state}; "
            f"TensorFlow {self.library.tensorflow}; fingerprint {self.fingerprint}"
        )

    def __repr__(self) -> str:
        entries = "".join(f"  {entry}\n" for entry in self.library.entry_points)
        return f"{self.name}\n{entries}  {self._summary()}"

    def _repr_html_(self) -> str:
        """Returns tables for notebooks."""
        rows = [
            (entry.name, kind, tensor)
            for entry in self.library.entry_points
            for kind, tensors in (("input", entry.inputs), ("output", entry.outputs))
            for tensor in tensors
        ]
        rows += [("", "variable", tensor) for tensor in self.library.variables]
        lines = [
            "<tr>"
            + "".join(
                f"<td>{html.escape(cell)}</td>" for cell in (place, kind, *str(tensor).split(": ", 1), tensor.name)
            )
            + "</tr>"
            for place, kind, tensor in rows
        ]
        head = "".join(
            f"<th>{title}</th>" for title in ("function", "", "name", "dtype and shape", "TensorFlow's name")
        )
        return (
            f"<div><b>{html.escape(self.name)}</b><br>{html.escape(self._summary())}"
            f"<table><tr>{head}</tr>{''.join(lines)}</table></div>"
        )


def _find(tensors: tuple[Tensor, ...], name: str, entry_point: str) -> Tensor | None:
    """Returns the tensor of this name: TensorFlow's, or else the member's, or else either of them shortened."""
    ways: tuple[Callable[[Tensor], bool], ...] = (
        lambda tensor: tensor.name == name,
        lambda tensor: tensor.member == name,
        lambda tensor: tensor.name == f"{name}:0",
        lambda tensor: tensor.member == f"{entry_point}_{name}",
    )
    return next((tensor for matches in ways for tensor in tensors if matches(tensor)), None)


def _converted(tensor: Tensor, value: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """Returns values of a tensor's dtype and shape. A batch can have fewer rows.

    Raises:
      TfaotError: they have another shape, or a dtype whose values the tensor's can't hold.
    """
    dtype = tensor.numpy()
    given = np.asarray(value)
    plain = not isinstance(value, np.ndarray | np.generic)
    if not _fits(given, dtype, plain=plain):
        raise TfaotError(
            f"{tensor.member!r} can't be {given.dtype}{list(given.shape)}",
            exists=f"it is {tensor}",
            do=f'convert the values if you want this: value.astype("{tensor.dtype}")',
        )
    expected = given.shape[1:] == shape[1:] and given.ndim == len(shape) if tensor.batched else given.shape == shape
    if not expected:
        raise TfaotError(
            f"{tensor.member!r} can't have the shape {list(given.shape)}",
            exists=f"it is {tensor}",
            do="pass an array of this shape",
        )
    return given.astype(dtype, copy=False)


def _fits(given: Array, dtype: np.dtype[Any], *, plain: bool) -> bool:
    """Whether a tensor of this dtype takes these values. Floats may round, and nothing else may lose anything.

    Python's own integers have no dtype that the caller chose, so their values decide.
    """
    if np.can_cast(given.dtype, dtype, "safe"):
        return True
    if plain and given.dtype.kind in "iu":
        return dtype.kind != "b" and (dtype.kind not in "iu" or bool((given.astype(dtype) == given).all()))
    return (given.dtype.kind in "fV" and dtype.kind in "fcV") or given.dtype.kind == dtype.kind == "c"
