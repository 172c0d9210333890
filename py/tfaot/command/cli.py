"""Compiles TensorFlow models into C++ libraries, without Bazel."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from tfaot.command import options
from tfaot.command.build import Build
from tfaot.command.progress import Progress
from tfaot.command.stages import StageFailed, Stages
from tfaot.core import version
from tfaot.core.errors import TfaotError

_MODEL_ARGUMENT = click.Argument(["model_path"], required=False, metavar="[MODEL]")
_NAME = click.Option(["--name"], help="The library's name. By default, the class's in lower case.")
_FOLDER = click.Option(
    ["--header-folder"],
    default="",
    metavar="PATH",
    help='The folder in the header\'s path: #include "PATH/NAME.h". By default, there is none.',
)
_OUT = click.Option(
    ["--out"], required=True, metavar="DIR", help="The folder to write. A package that is already there is replaced."
)


@click.group(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version.RULES, prog_name="tfaot")
def tfaot() -> None:
    """Groups the commands."""


_Command = TypeVar("_Command", bound=Callable[..., None])


def _command(name: str, help_text: str, *own: click.Parameter) -> Callable[[_Command], _Command]:
    """Declares a command that takes a model and the attributes of `tf_aot_library`."""

    def declare(function: _Command) -> _Command:
        def call(**given: Any) -> None:
            model = given.pop("model_path", None) or ""
            made = options.options()
            values = options.source(model, {each.field.name: each.read(given.pop(each.field.name)) for each in made})
            function(values, **given)

        parameters = [_MODEL_ARGUMENT, *own, *(each.made() for each in options.options())]
        tfaot.add_command(click.Command(name, callback=call, params=parameters, help=help_text))
        return function

    return declare


@_command(
    "compile",
    "Compiles MODEL, a Python file, SavedModel, or GraphDef, into a package with a C++ class, a static library, and "
    "descriptions for CMake and pkg-config.",
    _OUT,
    _NAME,
    _FOLDER,
)
def compile_model(values: dict[str, Any], *, out: str, name: str | None, header_folder: str) -> None:
    """Writes a package."""
    with _replacing(out) as made, _build(values, name, header_folder) as build:
        build.export()
        build.compile()
        build.render()
        build.pack(folder=str(made), archive=None)
    click.echo(f"wrote {out}")


@contextlib.contextmanager
def _build(values: dict[str, Any], name: str | None, header_folder: str) -> Iterator[Build]:
    """Yields a build in a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="tfaot.") as folder,
        Stages(deps=values["deps"]) as stages,
        Progress() as progress,
    ):
        yield Build(
            values,
            name=name or _default_name(values["cpp_class"]),
            header_folder=header_folder,
            folder=Path(folder),
            stages=stages,
            step=progress.step,
        )


def _default_name(cpp_class: str) -> str:
    """Maps `a::MyModel` to `my_model`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cpp_class.rpartition("::")[2]).lower()


@contextlib.contextmanager
def _replacing(out: str) -> Iterator[Path]:
    """Yields a new folder beside `out`, which takes its place after success."""
    target = Path(out).absolute()
    if target.exists() and not _ours(target):
        raise TfaotError(
            f"--out {out}: this isn't a package that the command could replace",
            exists="a file" if target.is_file() else "a folder with other files",
            do="name a folder that doesn't exist, an empty one, or a package",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise TfaotError(
            f"--out {out}: can't write there: {error.strerror}", do="name a folder that you can write"
        ) from None
    try:
        yield made
        made.chmod(0o777 & ~_umask())
        old = made.with_name(made.name + ".old")
        if target.exists():
            os.rename(target, old)
        os.rename(made, target)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _ours(folder: Path) -> bool:
    return folder.is_dir() and (not any(folder.iterdir()) or any(folder.glob("share/*/model.json")))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def main() -> None:
    """Runs the command. An error is one message, with exit status 1, or 2 for wrong options."""
    try:
        tfaot(standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        sys.exit(f"error: {error.format_message()}\n  to do: see {_help_of(error)}")
    except StageFailed as error:
        sys.exit(str(error))
    except TfaotError as error:
        sys.exit(f"error: {error}")


def _help_of(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'tfaot'} --help"


if __name__ == "__main__":
    main()
