"""Compiled models as Python objects: `load`, `run`, and NumPy arrays that view a model's memory."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import html
import json
import math
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
from tfaot.run.values import ALIGNMENT, Array, converted, find
from tfaot.run.weights import LiveWeights, Weights


def load(
    path: str | os.PathLike[str],
    *,
    isa: str | None = None,
    threads: int = 1,
    unknown_inputs: str = "error",
    weights: Weights | LiveWeights | None = None,
    cancellable: bool = False,
) -> Model:
    """Loads a model's shared library, and creates an instance of the model.

    Args:
      path: libNAME_shared.so: a file, or a runfile of a Bazel target, such as `models/libscorer_aot_shared.so`.
      isa: the CPU level whose code runs. By default, the one in the environment variable TFAOT_ISA, or else the fastest that
        this machine runs.
      threads: how many threads a run uses; 0 for one per core. The results are bitwise identical.
      unknown_inputs: what to do with inputs that the model doesn't have, "error" or "ignore". With "ignore", `Model.notes`
        lists them. This is for programs that offer the same inputs to different models.
      weights: the values to start with, which the model shares with others: `weights` of a model from the same library. Or
        live weights, for the model to follow. By default, the initial values.
      cancellable: whether `Model.cancel` works, which costs each kernel of a run a test.

    Raises:
      ModelError: there is no such library, or this machine can't run it, or the weights are of another library.
    """
    return Model(
        path, isa=isa, threads=threads, unknown_inputs=unknown_inputs, weights=weights, cancellable=cancellable
    )


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
        index = find(self._tensors, name, self._entry_point)
        if index is None:
            raise KeyError(f"no {self._kind} is called {name!r}; there is {listed([t.member for t in self._tensors])}")
        return index

    def __getitem__(self, name: str) -> Array:
        return self._view(self.tensor(name))

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or find(self._tensors, name, self._entry_point) is None:
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


class Edges(Tensors):
    """Inputs or outputs, which can be in the caller's memory."""

    def __init__(
        self,
        kind: str,
        tensors: tuple[Tensor, ...],
        view: Callable[[Tensor], Array],
        entry_point: str,
        place: Callable[[Tensor, Array | None], None],
    ) -> None:
        super().__init__(kind, tensors, view, entry_point)
        self._place = place

    def place(self, name: str, array: Array | None) -> None:
        """Makes runs use an array's memory for a tensor, without a copy, from now on. None is for the model's own memory.

        The array has the tensor's dtype and shape (of a batch, the largest), is contiguous, starts at a multiple of 64 bytes,
        and isn't placed elsewhere, too; `tfaot.aligned_empty(shape, dtype)` makes such arrays. Runs don't change inputs, but
        calls with arguments copy these into the array.

        Raises:
          KeyError: there is no tensor of this name.
          TfaotError: the model can't use this array; nothing has changed.
        """
        tensor = self.tensor(name)
        if array is not None:
            wrong = [
                text
                for fits, text in (
                    (array.dtype == tensor.numpy(), f"the dtype {array.dtype}"),
                    (array.shape == tensor.shape, f"the shape {list(array.shape)}"),
                    (array.flags.c_contiguous, "gaps between its values"),
                    (array.ctypes.data % ALIGNMENT == 0, f"an address that isn't a multiple of {ALIGNMENT}"),
                    (array.flags.writeable or self._kind == "input", "values that can't be written"),
                )
                if not fits
            ]
            if wrong:
                raise TfaotError(
                    f"the {self._kind} {tensor.member!r} can't be in this array",
                    exists=f"the array has {listed(wrong)}; the tensor is {tensor}",
                    do=f'pass an array of tfaot.aligned_empty({tensor.shape}, "{tensor.dtype}")',
                )
        self._place(tensor, array)


class Variables(Tensors):
    """A model's variables. Reading gives a view, and assignment copies values into the model."""

    def __init__(self, tensors: tuple[Tensor, ...], view: Callable[[Tensor], Array], change: Callable[[Tensor], Array]):
        super().__init__("variable", tensors, view)
        self._change = change

    def __setitem__(self, name: str, value: npt.ArrayLike) -> None:
        tensor = self.tensor(name)
        self._change(tensor)[...] = converted(tensor, value, tensor.shape)


class Outputs(dict[str, Array]):
    """What a run returns: arrays by the names of members, `out["loss"]` or `out.loss`.

    TensorFlow's names find them, too. With several entry points, names of members start with the entry point's, which you
    can leave out. This is a dict, so an output called like one of its methods has no attribute: `out["values"]`.
    """

    def __init__(self, signature: Signature, arrays: Mapping[Tensor, Array]) -> None:
        super().__init__({tensor.member: array for tensor, array in arrays.items()})
        self._signature = signature

    def __missing__(self, name: str) -> Array:
        tensor = find(self._signature.outputs, name, self._signature.name)
        if tensor is not None:
            return self[tensor.member]
        raise KeyError(f"no output is called {name!r}; there is {listed([*self])}")

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):  # such as those that pickle asks for before there are any
            raise AttributeError(name)
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
    follows: bool = False
    """Whether runs take the current version of live weights."""
    placed: dict[int, Array] = dataclasses.field(default_factory=dict)
    """Arrays that runs use, by the address that the library knows."""

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
        placed = self.placed.get(address)
        if placed is not None:
            return placed.view()
        return lib.array(instance, tensor, address, writable=True)[0]

    def output(self, signature: Signature, tensor: Tensor) -> Array:
        """Returns a view of an output, in its true size. Of a batch, it has all rows."""
        instance = self.instance
        dims = (ctypes.c_int64 * max(len(tensor.shape), 1))()
        instance.check(instance.api.output_dims(instance.handle, signature.index, tensor.index, dims))
        shape = tuple(dims[: len(tensor.shape)])
        address = instance.api.output(instance.handle, signature.index, tensor.index)
        placed = self.placed.get(address)
        if placed is not None:
            view = placed.reshape(-1)[: math.prod(shape)].reshape(shape)
            view.flags.writeable = False
            return view
        return lib.array(instance, tensor, address, writable=False, shape=shape)[0]

    def place(self, kind: str, signature: Signature, tensor: Tensor, array: Array | None) -> None:
        """Makes runs use an array, which lives as long as they do, or the instance's memory."""
        instance = self.instance
        get, put = getattr(instance.api, kind), getattr(instance.api, f"set_{kind}_data")
        before = get(instance.handle, signature.index, tensor.index)
        address = array.ctypes.data if array is not None else None
        instance.check(put(instance.handle, signature.index, tensor.index, address))
        self.placed.pop(before, None)
        if array is not None:
            self.placed[get(instance.handle, signature.index, tensor.index)] = array

    def variable(self, tensor: Tensor, *, change: bool = False) -> Array:
        """Returns a view of a variable. Values that the model only reads can't be changed through it by default."""
        instance = self.instance
        writable = change or tensor.written
        if self.follows and not writable:  # the next run may release them
            address = instance.api.variable(instance.handle, tensor.index)
            copy = lib.array(instance, tensor, address, writable=False)[0].copy()
            copy.flags.writeable = False
            return copy
        pointer = instance.api.mutable_variable if writable else instance.api.variable
        view, memory = lib.array(instance, tensor, pointer(instance.handle, tensor.index), writable=writable)
        self.views.add(memory)
        return view


class EntryPoint:
    """A function of a model. Call it with arrays: `model.train(x=batch)`."""

    def __init__(self, state: _State, signature: Signature) -> None:
        self._state = state
        self.signature = signature
        name = signature.name
        place = functools.partial(state.place, "input", signature)
        self.inputs = Edges("input", signature.inputs, functools.partial(state.input, signature), name, place)
        """Views of the inputs' memory, to fill without a copy. Then call the entry point without arguments."""
        place = functools.partial(state.place, "output", signature)
        self.outputs = Edges("output", signature.outputs, functools.partial(state.output, signature), name, place)
        """Views of the outputs' memory. The next run changes them. Of a batch, they have all rows."""

    def __call__(
        self, inputs: Mapping[str, npt.ArrayLike] | None = None, /, batch: int | None = None, **named: npt.ArrayLike
    ) -> Outputs:
        """Runs it on these inputs, and returns copies of its outputs.

        Args:
          inputs: a dict of inputs by name, for names that aren't Python identifiers.
          batch: the number of rows. By default, the inputs' own, or else the largest batch.
          **named: more inputs by name. Without any inputs, the run uses what the inputs' memory contains.

        Raises:
          TfaotError: an input is missing, unknown, or has another dtype or shape.
          ModelError: the run failed.
        """
        state = self._state
        instance = state.instance
        if inputs is not None and not isinstance(inputs, Mapping):
            first = self.signature.inputs[0].member if self.signature.inputs else "x"
            raise TfaotError(
                f"{state.library.name}: {self.signature.name}() got {type(inputs).__name__} without a name",
                exists=f"it takes {listed([str(tensor) for tensor in self.signature.inputs])}",
                do=f"name inputs: {first}=…, or pass a dict",
            )
        values = self._taken({**(inputs or {}), **named})
        rows = self._rows(values, batch)
        for tensor, value in values.items():
            used = [slice(size) if axis in tensor.open_dims else slice(None) for axis, size in enumerate(value.shape)]
            state.input(self.signature, tensor)[(slice(rows), *used[1:]) if tensor.batched else tuple(used)] = value
        status = instance.api.run(instance.handle, self.signature.index, rows)
        if status == lib.CANCELLED:
            error = instance.error()
            instance.check(instance.api.set_cancellable(instance.handle, 1))  # for the next run
            raise lib.RunCancelled(error)
        instance.check(status)
        return Outputs(
            self.signature,
            {
                tensor: state.output(self.signature, tensor)[slice(rows) if tensor.batched else ...].copy()
                for tensor in self.signature.outputs
            },
        )

    def _taken(self, offered: Mapping[str, npt.ArrayLike]) -> dict[Tensor, Array]:
        """Returns the values that the entry point has inputs for, converted."""
        values: dict[Tensor, Array] = {}
        for name, value in offered.items():
            tensor = find(self.signature.inputs, name, self.signature.name)
            if tensor is not None:
                values[tensor] = converted(tensor, value, tensor.shape)
                continue
            if self._state.unknown_inputs != "ignore":
                raise TfaotError(
                    f"{self._state.library.name}: there is no input {name!r}",
                    exists=f"{self.signature.name}() takes {listed([str(t) for t in self.signature.inputs])}",
                    do='pass one of these, or load the model with unknown_inputs="ignore"',
                )
            self._state.notes.setdefault(name, f"{self.signature.name}() ignored {name!r}, which isn't an input")
        for index, size in enumerate(self.signature.sizes):
            if values and size not in values:
                values[size] = self._size(values, index, size)
        missing = [tensor for tensor in self.signature.inputs if tensor not in values]
        if offered and missing:
            raise TfaotError(
                f"{self._state.library.name}: {self.signature.name}() got no value for {listed([t.member for t in missing])}",
                exists=f"it takes {listed([str(tensor) for tensor in self.signature.inputs])}",
                do="pass all inputs, or none to use what `inputs` contains",
            )
        return values

    def _size(self, values: Mapping[Tensor, Array], index: int, size: Tensor) -> Array:
        """Returns an open size, on which the inputs agree."""
        places = [
            (tensor.member, value.shape[dim])
            for tensor, value in values.items()
            for dim, own in tensor.axes
            if own == index
        ]
        lengths = {length for _, length in places}
        if len(lengths) > 1:
            raise TfaotError(
                f"{self._state.library.name}: the inputs of {self.signature.name}() have different sizes of {size.member}",
                exists=listed(sorted({f"{name} has {length}" for name, length in places})),
                do=f"pass the same size everywhere, or {size.member} with the one to use",
            )
        return np.array(lengths.pop() if lengths else 0, np.int32)

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
        self,
        path: str | os.PathLike[str],
        *,
        isa: str | None = None,
        threads: int = 1,
        unknown_inputs: str = "error",
        weights: Weights | LiveWeights | None = None,
        cancellable: bool = False,
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
        start = weights.handle if isinstance(weights, Weights) else None
        state = _State(self.library, unknown_inputs, Instance(self.library, isa, start))
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
        if isinstance(weights, LiveWeights):
            self.follow(weights)
        self._cancellable = cancellable
        if cancellable:
            self._call("set_cancellable", 1)

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
        self._check_views("load variables")
        self._call("load", os.fsencode(path))
        self._state.follows = False

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves all variables to a safetensors file.

        Raises:
          ModelError: the file couldn't be written; an older one is unchanged.
        """
        self._call("save", os.fsencode(path))

    @property
    def weights(self) -> Weights:
        """The values of variables that the model uses, to share with others, without changes by this program.

        Assign other weights of the same library to use their values for variables that the model only reads. Those that it
        writes keep their values.

        Raises:
          BufferError: on assignment, there are views of variables.
          ModelError: the model has no variables, or the weights are of another library.
        """
        made = ctypes.c_void_p()
        self._call("weights", ctypes.byref(made))
        return Weights(self.library, made)

    @weights.setter
    def weights(self, weights: Weights) -> None:
        self._check_views("take other weights")
        self._call("set_weights", weights.handle)
        self._state.follows = False

    def follow(self, live: LiveWeights | None) -> None:
        """Makes each run use the version that is current at its start. With None, the model keeps what it has.

        Meanwhile, `variables` has copies of those that the model only reads.

        Raises:
          BufferError: there are views of variables.
          ModelError: the live weights are of another library.
        """
        self._check_views("follow live weights")
        self._call("follow", live.handle if live is not None else None)
        self._state.follows = live is not None

    def cancel(self) -> None:
        """Ends the run that is under way, or else the next one, with `tfaot.RunCancelled`. Any thread may call it.

        Raises:
          TfaotError: the model wasn't loaded with `cancellable=True`.
        """
        if not self._cancellable:
            raise TfaotError(
                f"{self.name}: cancel()",
                exists="the model was loaded without cancellable=True",
                do="load it with cancellable=True",
            )
        instance = self._state.instance
        instance.api.cancel(instance.handle)

    def _check_views(self, what: str) -> None:
        if self._state.views:
            raise BufferError(
                f"{self.name}: can't {what} while arrays view the variables' memory\n"
                f"  found: {len(self._state.views)} views\n  to do: delete them, or keep copies: model.variables.w.copy()"
            )

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
