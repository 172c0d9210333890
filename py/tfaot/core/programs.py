"""The file between JAX and the export stage: programs in StableHLO, what their arguments and results are, and values.

It is a ZIP archive, because JAX writes it with its own packages, and TensorFlow's are other ones.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy.typing as npt

from tfaot.core import safetensors
from tfaot.core.errors import TfaotError

Array = npt.NDArray[Any]

EXTENSION = ".jax"
_INDEX, _VALUES, _GOLDEN = "program.json", "values.safetensors", "golden.safetensors"
_FORMAT = 1
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest in an archive: the same programs are the same bytes."""


@dataclasses.dataclass(frozen=True)
class Value:
    """An argument or a result of a program."""

    label: str
    """The user's name: keys, fields, and positions, joined by `/`."""
    variable: bool
    """Whether it is a variable of the class, of which the label is the name."""


@dataclasses.dataclass(frozen=True)
class Program:
    """An entry point."""

    name: str
    text: str
    """StableHLO."""
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Programs:
    """The contents of a file."""

    source: str
    """The user's file, for messages."""
    programs: tuple[Program, ...]
    """The first is the default entry point."""
    values: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    """Initial values of variables. The others have none."""
    golden: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    """Inputs to verify: `step0/KEYS`, in the order in which the user gave them. Those of other replicas start with `of_replica`."""

    def program(self, name: str) -> Program | None:
        """Returns an entry point, or None."""
        return next((program for program in self.programs if program.name == name), None)


def of_replica(rank: int) -> str:
    """Returns what the names of a replica's inputs to verify start with."""
    return f"replica{rank}/" if rank else ""


def write(path: str | os.PathLike[str] | IO[bytes], programs: Programs) -> None:
    """Writes a file."""
    index = {
        "format": _FORMAT,
        "source": programs.source,
        "programs": [
            {key: value for key, value in dataclasses.asdict(program).items() if key != "text"}
            for program in programs.programs
        ],
    }
    with zipfile.ZipFile(path, "w") as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, _DATE), data)

        add(_INDEX, json.dumps(index, indent=1).encode())
        for number, program in enumerate(programs.programs):
            add(f"{number}.mlir", program.text.encode())
        for name, arrays in ((_VALUES, programs.values), (_GOLDEN, programs.golden)):
            data = io.BytesIO()
            safetensors.write(data, arrays)
            add(name, data.getvalue())


def read(path: str) -> Programs:
    """Reads a file.

    Raises:
      TfaotError: it isn't such a file.
    """
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            index = json.loads(archive.read(_INDEX))
            if index["format"] == _FORMAT:
                values, golden = (safetensors.read(archive.extract(name, folder)) for name in (_VALUES, _GOLDEN))
                programs = tuple(
                    Program(
                        described["name"],
                        archive.read(f"{number}.mlir").decode(),
                        tuple(Value(**value) for value in described["arguments"]),
                        tuple(Value(**value) for value in described["results"]),
                    )
                    for number, described in enumerate(index["programs"])
                )
                return Programs(index["source"], programs, values, golden)
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from None
    raise _unreadable(path, f"format {index['format']}, and not {_FORMAT}")


def _unreadable(path: str, problem: str) -> TfaotError:
    return TfaotError(
        f"{path} isn't a program that tfaot.jax.export of this release wrote", exists=problem, do="export it again"
    )
