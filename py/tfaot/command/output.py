"""The folder that `--out` names. It appears whole or not at all, and replaces only what the command wrote itself.

A list in the folder names its files, with their hashes. If anything else is there, or a file has changed, it isn't replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfaot.command import ending
from tfaot.core.errors import TfaotError, listed

_LIST = ".tfaot.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def replacing(out: str) -> Iterator[Path]:
    """Yields a new folder, which takes the place of the folder `out` after success. Links are followed.

    Raises:
      TfaotError: `out` can't be written, or has something that the command didn't write.
    """
    try:
        target = Path(os.path.realpath(out))
        _check(out, target)
        missing = [folder for folder in target.parents if not folder.exists()]
    except (OSError, ValueError) as error:
        raise _unwritable(out, error) from None

    def remove_empty() -> None:
        with contextlib.suppress(OSError):  # it isn't empty: the output is there
            for folder in missing:
                folder.rmdir()

    with ending.then(remove_empty), contextlib.ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = stack.enter_context(ending.folder(beside=target.parent))
        except OSError as error:
            raise _unwritable(out, error) from None
        made = beside / "new"
        made.mkdir()  # with the mode that the user's umask gives, unlike a temporary folder
        yield made
        files = {path.relative_to(made).as_posix(): _hash(path) for path in made.rglob("*") if path.is_file()}
        (made / _LIST).write_text(json.dumps({"files": files}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        with ending.held():
            try:
                _place(out, made, target)
            except OSError as error:
                raise _unwritable(out, error) from None


def _place(out: str, made: Path, target: Path) -> None:
    """Moves a folder to its place. What was there is then where the folder was made."""
    if not os.path.lexists(target):
        os.rename(made, target)
        return
    _check(out, target)  # the first check is minutes old
    _exchange(made, target)
    try:
        _check(out, made)  # now nobody else finds it by its path
    except BaseException:
        _exchange(made, target)
        raise


def _check(out: str, target: Path) -> None:
    """Checks that a folder doesn't exist, or can be replaced.

    Raises:
      TfaotError: it can't.
      OSError: it can't be read.
    """
    if not out or target == Path.cwd() or target in Path.cwd().parents:
        raise TfaotError(
            f"--out {out}: this is the current folder, or contains it" if out else "--out names no folder",
            do="name a folder that doesn't exist, such as --out model",
        )
    if not os.path.lexists(target):
        return
    strangers = _strangers(target) if target.is_dir() else []
    if strangers or not target.is_dir():
        raise TfaotError(
            f"--out {out}: this isn't something that the command wrote and could replace",
            exists=f"other files, or changed ones: {listed(strangers, limit=5)}" if strangers else "no folder",
            do="name a folder that doesn't exist, an empty one, or one that the command wrote; or remove this one first",
        )


def _strangers(folder: Path) -> list[str]:
    """Returns what is in a folder and in its folders, except for files that are as the command wrote them."""
    written = _written(folder)
    folders = {str(parent) for path in written for parent in PurePosixPath(path).parents}
    strangers = []

    def unreadable(error: OSError) -> None:
        raise error

    for place, inner, files in os.walk(folder, onerror=unreadable):
        for name in sorted((*inner, *files)):
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (
                relative in folders
                if path.is_dir()
                else path.is_file() and (relative == _LIST or written.get(relative) == _hash(path))
            ):
                strangers.append(relative)
    return strangers


def _written(folder: Path) -> dict[str, str]:
    """Returns the hashes of what the command wrote to a folder, by path, or nothing if it didn't."""
    try:
        files = json.loads((folder / _LIST).read_text(encoding="utf-8"))["files"]
        return {str(path): str(value) for path, value in files.items()}
    except (AttributeError, LookupError, OSError, TypeError, ValueError):
        return {}


def _hash(path: Path) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            made.update(part)
    return made.hexdigest()


def _exchange(one: Path, other: Path) -> None:
    """Exchanges two folders, in one step where the system can, so that there is always a folder at both paths."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    paths = os.fsencode(one), os.fsencode(other)
    if function is not None and function(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return
    error = ctypes.get_errno() if function is not None else errno.ENOSYS
    if error not in (errno.EINVAL, errno.ENOSYS):  # what file systems and kernels say that can't
        raise OSError(error, os.strerror(error))
    aside = one.with_name("aside")
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except BaseException:
        os.rename(aside, other)
        raise
    os.rename(aside, one)


def _unwritable(out: str, error: OSError | ValueError) -> TfaotError:
    why = error.strerror if isinstance(error, OSError) else error
    return TfaotError(f"--out {out}: can't write there: {why}", do="name a folder that you can write")
