"""A model's shared library: the C structs and functions of `runtime/tfaot/c_api.h`, and what they describe."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import os
from typing import Any

import numpy as np

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError, listed

VERSION = 3
"""The version of the interface that this module reads."""

CANCELLED = 8
"""`TFAOT_CANCELLED`."""

_BATCHED, _BOUNDED, _WRITTEN = 1, 2, 4


class ModelError(RuntimeError):
    """A library, an instance, or a run failed. The text is the library's own if it has one."""


class RunCancelled(ModelError):
    """Another thread cancelled a run."""


class CTensor(ctypes.Structure):
    """`tfaot_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("member", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
    )


class CEntryPoint(ctypes.Structure):
    """`tfaot_entry_point`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("inputs", ctypes.c_size_t),
        ("outputs", ctypes.c_size_t),
        ("max_batch", ctypes.c_int64),
    )


class CDescription(ctypes.Structure):
    """`tfaot_description`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("tensorflow", ctypes.c_char_p),
        ("manifest", ctypes.c_char_p),
        ("isas", ctypes.POINTER(ctypes.c_char_p)),
        ("fingerprint", ctypes.c_uint64),
        ("entry_points", ctypes.c_size_t),
        ("variables", ctypes.c_size_t),
    )


class CSource(ctypes.Structure):
    """`tfaot_source`."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("fd", ctypes.c_int32),
        ("copied", ctypes.c_int32),
    )


class CValue(ctypes.Structure):
    """`tfaot_value`."""

    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def _function(result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)


_HANDLE = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_STATUS = ctypes.c_int32
_DIMS = ctypes.POINTER(ctypes.c_int64)
_MADE = ctypes.POINTER(_HANDLE)
_SOURCE = ctypes.POINTER(CSource)
_VALUES = ctypes.POINTER(CValue)


class Api(ctypes.Structure):
    """`tfaot_api`. Calls through it release the GIL."""

    _fields_ = (
        ("size", _SIZE),
        ("version", ctypes.c_uint32),
        ("describe", _function(ctypes.POINTER(CDescription))),
        ("describe_entry_point", _function(_STATUS, _SIZE, ctypes.POINTER(CEntryPoint))),
        ("describe_input", _function(_STATUS, _SIZE, _SIZE, ctypes.POINTER(CTensor))),
        ("describe_output", _function(_STATUS, _SIZE, _SIZE, ctypes.POINTER(CTensor))),
        ("describe_variable", _function(_STATUS, _SIZE, ctypes.POINTER(CTensor))),
        ("create", _function(_STATUS, ctypes.c_char_p, ctypes.POINTER(_HANDLE))),
        ("create_error", _function(ctypes.c_char_p)),
        ("destroy", _function(None, _HANDLE)),
        ("input", _function(ctypes.c_void_p, _HANDLE, _SIZE, _SIZE)),
        ("output", _function(ctypes.c_void_p, _HANDLE, _SIZE, _SIZE)),
        ("variable", _function(ctypes.c_void_p, _HANDLE, _SIZE)),
        ("mutable_variable", _function(ctypes.c_void_p, _HANDLE, _SIZE)),
        ("output_dims", _function(_STATUS, _HANDLE, _SIZE, _SIZE, _DIMS)),
        (
            "offer",
            _function(_STATUS, _HANDLE, _SIZE, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, _DIMS, ctypes.c_void_p),
        ),
        ("run", _function(_STATUS, _HANDLE, _SIZE, ctypes.c_int64)),
        ("load", _function(_STATUS, _HANDLE, ctypes.c_char_p)),
        ("save", _function(_STATUS, _HANDLE, ctypes.c_char_p)),
        ("seed", _function(_STATUS, _HANDLE, ctypes.c_uint64)),
        ("error", _function(ctypes.c_char_p, _HANDLE)),
        ("isa", _function(ctypes.c_char_p, _HANDLE)),
        ("set_threads", _function(_STATUS, _HANDLE, ctypes.c_int)),
        ("set_thread_pool", _function(_STATUS, _HANDLE, ctypes.c_void_p)),
        ("create_with", _function(_STATUS, ctypes.c_char_p, _HANDLE, ctypes.c_void_p, _MADE)),
        ("load_from", _function(_STATUS, _HANDLE, _SOURCE)),
        ("set_input_data", _function(_STATUS, _HANDLE, _SIZE, _SIZE, ctypes.c_void_p)),
        ("set_output_data", _function(_STATUS, _HANDLE, _SIZE, _SIZE, ctypes.c_void_p)),
        ("set_hooks", _function(_STATUS, _HANDLE, ctypes.c_void_p)),
        ("set_cancellable", _function(_STATUS, _HANDLE, ctypes.c_int)),
        ("cancel", _function(None, _HANDLE)),
        ("initial_weights", _function(_STATUS, _MADE)),
        ("load_weights", _function(_STATUS, _SOURCE, _MADE)),
        ("weights", _function(_STATUS, _HANDLE, _MADE)),
        ("update_weights", _function(_STATUS, _HANDLE, _VALUES, _SIZE, _MADE)),
        ("destroy_weights", _function(None, _HANDLE)),
        ("weights_version", _function(ctypes.c_uint64, _HANDLE)),
        ("set_weights", _function(_STATUS, _HANDLE, _HANDLE)),
        ("create_live", _function(_STATUS, _HANDLE, _MADE)),
        ("live_swap", _function(_STATUS, _HANDLE, _HANDLE)),
        ("live_load", _function(_STATUS, _HANDLE, _SOURCE)),
        ("live_update", _function(_STATUS, _HANDLE, _VALUES, _SIZE)),
        ("live_current", _function(_STATUS, _HANDLE, _MADE)),
        ("destroy_live", _function(None, _HANDLE)),
        ("follow", _function(_STATUS, _HANDLE, _HANDLE)),
        ("set_collectives", _function(_STATUS, _HANDLE, ctypes.c_void_p)),
        ("describe_gradient", _function(_STATUS, _SIZE, ctypes.c_void_p)),
    )


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input, an output, or a variable."""

    index: int
    name: str
    """TensorFlow's name."""
    member: str
    """An identifier, unique in the model."""
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    batched: bool
    """Whether the first size is the largest batch."""
    bounded: bool
    """Whether the sizes are bounds of those that a run gives."""
    written: bool
    """Whether it is a variable that the model assigns."""
    axes: tuple[tuple[int, int], ...] = ()
    """The dimensions of an input that have an open size of the entry point, and which."""

    @property
    def open_dims(self) -> frozenset[int]:
        """The dimensions that have an open size."""
        return frozenset(dim for dim, _ in self.axes)

    def numpy(self) -> np.dtype[Any]:
        """Returns NumPy's dtype.

        Raises:
          TfaotError: NumPy has no such dtype, and ml_dtypes isn't installed.
        """
        try:
            return np.dtype(self.dtype)
        except TypeError:
            pass
        try:
            return dtypes.BY_NAME[self.dtype].numpy()
        except ImportError:
            raise TfaotError(
                f"{self.name!r} has the dtype {self.dtype}, which NumPy doesn't have",
                exists="the package ml_dtypes, which adds it to NumPy, isn't installed",
                do="pip install ml_dtypes",
            ) from None

    def __str__(self) -> str:
        sizes = [
            f"≤{size}" if self.bounded or axis in self.open_dims or (self.batched and not axis) else str(size)
            for axis, size in enumerate(self.shape)
        ]
        return f"{self.member}: {self.dtype}[{', '.join(sizes)}]"


@dataclasses.dataclass(frozen=True)
class Signature:
    """An entry point."""

    index: int
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch: int
    """The largest batch; 0 if it takes no batch."""
    sizes: tuple[Tensor, ...] = ()
    """The inputs that are open sizes."""

    def __str__(self) -> str:
        outputs = ", ".join(map(str, self.outputs))
        return f"{self.name}({', '.join(map(str, self.inputs))}) -> {outputs or 'nothing'}"


class Library:
    """A shared library, which stays loaded until the process ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.library = ctypes.CDLL(path)
            get_api = self.library.tfaot_get_api
        except (OSError, AttributeError) as error:
            raise ModelError(
                f"{path} isn't a model's shared library\n  found: {error}\n"
                "  to do: build the target NAME_shared of a tf_aot_library, for this platform"
            ) from None
        get_api.restype = ctypes.POINTER(Api)
        get_api.argtypes = (ctypes.c_uint32,)
        table = get_api(VERSION)
        if not table:
            raise ModelError(
                f"{path} is older than this package\n  found: it doesn't have version {VERSION} of the C interface\n"
                "  to do: build it again with the release of rules_tfaot that this package is from"
            )
        self.api: Any = table.contents
        description = self.api.describe().contents
        self.name = _text(description.name)
        self.tensorflow = _text(description.tensorflow)
        self.manifest = _text(description.manifest)
        self._entries = json.loads(self.manifest)["entry_points"]
        self.fingerprint = f"{description.fingerprint:016x}"
        self.isas: list[str] = []
        while level := description.isas[len(self.isas)]:
            self.isas.append(_text(level))
        self.entry_points = tuple(self._entry_point(index) for index in range(description.entry_points))
        self.variables = tuple(
            self._tensor(index, self.api.describe_variable, index) for index in range(description.variables)
        )

    def _entry_point(self, index: int) -> Signature:
        entry = CEntryPoint()
        self.api.describe_entry_point(index, ctypes.byref(entry))
        described = self._entries[index]
        inputs = tuple(
            dataclasses.replace(
                self._tensor(place, self.api.describe_input, index, place),
                axes=tuple((axis["dim"], axis["size"]) for axis in tensor["axes"]),
            )
            for place, tensor in enumerate(described["inputs"])
        )
        return Signature(
            index,
            _text(entry.name),
            inputs,
            tuple(self._tensor(place, self.api.describe_output, index, place) for place in range(entry.outputs)),
            entry.max_batch,
            tuple(tensor for size in described["sizes"] for tensor in inputs if tensor.member == size["name"]),
        )

    def _tensor(self, index: int, describe: Any, *place: int) -> Tensor:
        tensor = CTensor()
        describe(*place, ctypes.byref(tensor))
        return Tensor(
            index,
            _text(tensor.name),
            _text(tensor.member),
            dtypes.BY_ENUM[tensor.dtype].name,
            tuple(tensor.dims[: tensor.rank]),
            tensor.bytes,
            bool(tensor.flags & _BATCHED),
            bool(tensor.flags & _BOUNDED),
            bool(tensor.flags & _WRITTEN),
        )

    def check(self, status: int) -> None:
        """Raises a ModelError with this thread's text of a call without an instance, unless the status is 0."""
        if status:
            raise ModelError(_text(self.api.create_error()))

    def signature(self, name: str | None) -> Signature:
        """Returns an entry point; by default, the first.

        Raises:
          TfaotError: there is no such entry point.
        """
        for entry in self.entry_points:
            if name is None or entry.name == name:
                return entry
        raise TfaotError(
            f"{self.name} has no entry point {name!r}",
            exists=f"it has {listed([entry.name for entry in self.entry_points])}",
            do="choose one of these",
        )


class Instance:
    """An instance of a model. It lives as long as anything refers to it, views of its values among them."""

    def __init__(self, library: Library, isa: str | None, weights: ctypes.c_void_p | None = None) -> None:
        self.library = library
        self.api = library.api
        self.handle = ctypes.c_void_p()
        level = isa.encode() if isa is not None else None
        library.check(self.api.create_with(level, weights, None, ctypes.byref(self.handle)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.api.destroy(self.handle)

    def check(self, status: int) -> None:
        """Raises a ModelError with the library's text, unless the status is 0."""
        if status:
            raise (RunCancelled if status == CANCELLED else ModelError)(self.error())

    def error(self) -> str:
        """Returns why the latest call failed."""
        return _text(self.api.error(self.handle))


class Memory:
    """Values of an instance, as NumPy takes them. Arrays that view them keep the instance alive."""

    def __init__(self, instance: Instance, address: int, size: int, *, writable: bool) -> None:
        self._instance = instance
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, not writable)}


def array(
    instance: Instance, tensor: Tensor, address: int | None, *, writable: bool, shape: tuple[int, ...] | None = None
) -> tuple[np.ndarray[Any, Any], Memory]:
    """Returns an array that views values in the library's memory, and what it keeps alive.

    Raises:
      ModelError: there is no memory for the values.
    """
    if address is None:
        raise ModelError(instance.error() or "out of memory")
    dtype = tensor.numpy()
    shape = tensor.shape if shape is None else shape
    memory = Memory(instance, address, math.prod(shape) * dtype.itemsize, writable=writable)
    return np.asarray(memory).view(dtype).reshape(shape), memory


def _text(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def find(path: str | os.PathLike[str]) -> str:
    """Returns the path of a library: a file, or else a file in Bazel's runfiles.

    Raises:
      ModelError: there is neither.
    """
    name = os.fspath(path)
    if os.path.exists(name):
        return os.path.abspath(name)
    tried = [os.path.abspath(name)]
    if (files := _runfiles()) is not None:
        for place in (name, f"_main/{name}"):
            runfile = files.Rlocation(place, "")
            if runfile and os.path.exists(runfile):
                return str(runfile)
        tried.append(f"the runfile _main/{name}")
    raise ModelError(
        f"there is no model {name!r}\n  found: neither of {' and '.join(tried)}\n"
        "  to do: pass the path of libNAME_shared.so; under Bazel, add NAME_shared to the program's data"
        if len(tried) > 1
        else f"there is no model {name!r}\n  found: no file {tried[0]}\n  to do: pass the path of libNAME_shared.so"
    )


def _runfiles() -> Any:
    """Returns Bazel's runfiles, or None outside of Bazel."""
    for module in ("runfiles", "python.runfiles"):
        try:
            package = __import__(module, fromlist=["Runfiles"])
            return package.Runfiles.Create()
        except (ImportError, AttributeError):
            continue
    return None
