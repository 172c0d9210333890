"""Imports and calls a model's Python file, and reports where in it something went wrong."""

from __future__ import annotations

import importlib.util
import inspect
import os
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np

import tfaot
from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed

SEED = 1
"""Seed of every generator while user code runs, so two exports produce the same initial values."""


PACKAGES = ("/site-packages/", "/dist-packages/")
"""What the paths of installed packages contain."""
MODULE = "tfaot_user_model"
"""The module name of a model's file."""


def seed_everything() -> None:
    """Seeds the generators of Python and NumPy."""
    random.seed(SEED)
    np.random.seed(SEED)


class UserCode:
    """A model's Python file, run so that its errors point to lines in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._root = os.getcwd() + os.sep
        self._folder = os.path.dirname(os.path.abspath(path)) + os.sep
        self._packages = os.path.dirname(os.path.dirname(os.path.abspath(np.__file__))) + os.sep
        self._ours = os.path.dirname(os.path.abspath(tfaot.__file__)) + os.sep
        main = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")
        self._mains = {main, os.path.join(os.path.dirname(main), "stage.py")}  # the latter starts the former
        self._shown: dict[str, str] = {}
        self.module = self._load()

    def place(self, frames: Iterable[Any]) -> str:
        """Returns `file:line` of the innermost frame in the user's code, relative to the workspace if it's there, or nothing."""
        place = ""
        for frame in frames:
            shown = self._shown.get(frame.filename)
            if shown is None:
                shown = self._shown[frame.filename] = self._show(frame.filename)
            if shown:
                place = f"{shown}:{frame.lineno}"
        return place

    def _show(self, filename: str) -> str:
        if filename.startswith("<"):  # not a file: `<string>`, `<frozen importlib._bootstrap>`
            return ""
        path = os.path.abspath(filename)
        if path in self._mains or path.startswith((self._packages, self._ours)):
            return ""
        if any(part in path for part in PACKAGES):
            return ""
        if not os.path.exists(path):  # extension modules name the source that they were built from: h5py/h5f.pyx
            return ""
        if path.startswith(self._root):
            return path[len(self._root) :]
        # Beside the model, wherever that is.
        beside = path.startswith(self._folder)
        return os.path.join(os.path.dirname(self.path), path[len(self._folder) :]) if beside else ""

    def run(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls user code. Turns its exception into an error with the user's part of the traceback.

        Raises:
          TfaotError: the user's code raised an exception.
        """
        try:
            return function(*args)
        except TfaotError:
            raise
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            raise self.error(what, error) from None

    def error(self, what: str, error: BaseException) -> TfaotError:
        """Makes an error from an exception in the user's code."""
        frames = _frames(error)
        mine = [frame for frame in frames if self._show(frame.filename)]
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{self._show(error.filename) or error.filename}:{error.lineno}"
        else:
            place = self.place(mine) or self.path
        shown = [
            line
            for frame in mine
            for line in (f"{self._show(frame.filename)}:{frame.lineno}, in {frame.name}", f"    {frame.line}")
        ]
        text = _text(error)
        shown += text.replace(self._root, "").splitlines()
        return TfaotError(
            f"{self.path}: {what} raised {type(error).__name__} at {place}",
            details="\n".join(shown),
            do=_to_do(error, place),
        )

    def _load(self) -> types.ModuleType:
        spec = importlib.util.spec_from_file_location(MODULE, os.path.abspath(self.path))
        if spec is None or spec.loader is None:
            raise TfaotError(f"{self.path} isn't a Python file", do="name a file that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        self.run("importing it", spec.loader.exec_module, module)
        return module

    def function(self, name: str, parameters: Sequence[str], *, optional: bool = False) -> Callable[..., Any] | None:
        """Looks up a function of the model.

        Raises:
          TfaotError: it is missing, or can't be called with these positional arguments.
        """
        function: Any = getattr(self.module, name, None)
        wanted = f"{name}({', '.join(parameters)})"
        if function is None and optional:
            return None
        if not callable(function):
            public = [
                key
                for key, value in vars(self.module).items()
                if inspect.isfunction(value) and value.__module__ == self.module.__name__
            ]
            raise TfaotError(
                f"{self.path} has no function {wanted}", exists=listed(public), do=f"define {wanted} in {self.path}"
            )
        try:
            inspect.signature(function).bind(*parameters)
        except TypeError as error:
            line = function.__code__.co_firstlineno if inspect.isfunction(function) else 1
            raise TfaotError(
                f"{self.path}:{line}: {name} can't be called as {wanted}: {error}",
                exists=f"{name}{inspect.signature(function)}",
                do=f"define it with the parameters ({', '.join(parameters)})",
            ) from None
        return cast("Callable[..., Any]", function)

    def call_with(self, name: str, args: Sequence[Any], entry_point: str) -> Any:
        """Calls a function of the model that optionally takes the entry point's name as its last argument.

        An additional parameter with a default isn't the entry point's name, unless it is called `entry_point`.

        Raises:
          TfaotError: it takes other arguments, or raised an exception.
        """
        function: Any = getattr(self.module, name)
        parameters = ["step", "rng"][: len(args)]
        try:
            more = list(inspect.signature(function).parameters.values())[len(args) :]
            if more and (more[0].name == "entry_point" or more[0].default is inspect.Parameter.empty):
                inspect.signature(function).bind(*args, entry_point)
                args = [*args, entry_point]
                parameters.append("entry_point")
        except TypeError:
            pass
        self.function(name, parameters)
        return self.run(f"{name}({', '.join(parameters)})", function, *args)


def _to_do(error: BaseException, place: str) -> str:
    """Returns what to do about an exception in the user's code."""
    if isinstance(error, TypeError) and "Tensor' object does not support item assignment" in str(error):
        return (
            f"don't assign to a part of a tensor at {place}: use tensor = tf.tensor_scatter_nd_update(tensor, [[i]], [row]), or "
            "keep a tf.Variable and call variable.scatter_nd_update([[i]], [row])"
        )
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        what = f"the library that provides {name}" if caller.in_bazel() else f"the folder that contains {name}"
        return f"add {what} to {caller.the('deps')}, or fix {place}"
    missing = isinstance(error, FileNotFoundError) or "No such file or directory" in str(error)
    if missing and not isinstance(error, SyntaxError) and caller.in_bazel():
        return (
            f"add the file to the target's data, and open it by its path in the workspace, or fix {place}; "
            'a file that a rule generates is at importlib.resources.files("its.package") / "its_name"'
        )
    return f"fix {place}"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns an exception's frames, innermost last. For functions that AutoGraph rewrote, maps to the user's own lines."""
    frames = list(traceback.extract_tb(error.__traceback__))
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is not None:
        frames += [
            traceback.FrameSummary(frame.filename, frame.lineno, frame.function_name)
            for frame in reversed(metadata.translated_stack)
        ]
    return frames


def _text(error: BaseException) -> str:
    """Returns the exception's type and message, without the stack that AutoGraph adds to it."""
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is not None:
        return str(metadata.cause_message)
    return "".join(traceback.format_exception_only(type(error), error))
