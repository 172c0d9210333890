"""A folder with only the declared inputs, and a process that can't write elsewhere or reach a network.

It does what Bazel's linux-sandbox does for an action without a worker (`src/main/tools/linux-sandbox-pid1.cc`). Where the
system has no user namespaces, Bazel's own sandbox is only the folder, and so is this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_NOATIME, _MS_NODIRATIME = 32, 1024, 2048
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_RELATIME = 4096, 16384, 1 << 18, 1 << 21
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CAPABILITY_VERSION = 0x20080522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_OPTIONS = {
    "nosuid": _MS_NOSUID,
    "nodev": _MS_NODEV,
    "noexec": _MS_NOEXEC,
    "noatime": _MS_NOATIME,
    "nodiratime": _MS_NODIRATIME,
    "relatime": _MS_RELATIME,
}
"""Options of a mount, which must be repeated to make it read-only: a user namespace can't drop them."""

_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Makes the kernel send this process a signal when its parent, the process `parent`, ends in any way."""
    _call("prctl", _PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent and parent != 0:
        os._exit(1)  # it ended before the call


def close_descriptors() -> None:
    """Closes all files of this process but the standard ones. A model can write to any that it inherits."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # that of the folder itself
                os.close(int(name))


def stage_inputs(folder: Path, root: Path, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Fills a folder with links to inputs, whose paths are relative to `root`, and with the outputs' empty folders."""
    made = {str(folder)}
    folder.mkdir(parents=True)
    # Packages that are listed file by file are 17,000 inputs, for which Path would take a second more.
    into, out_of = f"{folder}/", f"{root}/"
    for path in inputs:
        link = into + path
        parent = os.path.dirname(link)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        os.symlink(out_of + path, link)
    for path in outputs:
        os.makedirs(os.path.dirname(into + path), exist_ok=True)


class Repositories:
    """Folders with links to the inputs from one repository each. A request links to such a folder with a single link.

    Packages from pip.parse are 17,000 inputs of each request, always the same ones.
    """

    _MANY = 1000

    def __init__(self, folder: Path) -> None:
        """Takes a folder to create them in, which lasts as long as the requests."""
        self._folder = folder
        self._made: dict[tuple[str, ...], Path] = {}
        self.in_tmp = False  # whether one of the inputs is in /tmp

    def staged(self, root: Path, inputs: Iterable[str]) -> tuple[list[str], dict[str, Path]]:
        """Makes the folders of repositories with many inputs.

        Args:
          root: the folder that the inputs' paths are relative to.
          inputs: paths.

        Returns:
          The other inputs, and the folders by path.
        """
        of = dict[str, list[str]]()
        for path in inputs:
            parts = path.split("/", 2)
            of.setdefault("/".join(parts[:2]) if parts[0] == "external" and len(parts) == 3 else "", []).append(path)
        folders = {}
        for repository, paths in [*of.items()]:
            if repository and len(paths) >= self._MANY:
                key = (str(root), *of.pop(repository))
                if key not in self._made:
                    self._made[key] = self._folder / str(len(self._made))
                    stage_inputs(self._made[key], root, paths, ())
                    self.in_tmp |= below_tmp(root / path for path in paths)
                folders[repository] = self._made[key] / repository
        return [path for paths in of.values() for path in paths], folders


def take_outputs(folder: Path, root: Path, outputs: Iterable[str]) -> None:
    """Moves the outputs that exist to the execution root. Each appears whole or not at all."""
    for path in outputs:
        if (folder / path).exists():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder / path, root / path)


class Namespaces:
    """Lets the process that made it fork children in namespaces of their own."""

    def __init__(self) -> None:
        """Reads where this process is. It must run in `within`."""
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY)

    @staticmethod
    def within(body: Callable[[], int]) -> int:
        """Calls `body` in a forked child that is allowed to use this class. Returns its exit status, negative for a signal.

        This process enters a user namespace. When it ends, the kernel ends the child and everything that the child started.

        Raises:
          OSError: the system doesn't allow it.
        """
        user, group = os.getuid(), os.getgid()
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWPID)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")

        def first() -> int:
            end_with_parent(0)  # the parent is outside this namespace, and has no number in it
            return body()

        return in_child(first)

    def fork(self) -> int:
        """Forks a child that is the first process of a new namespace: with its end, the kernel ends all others."""
        _call("unshare", _CLONE_NEWPID)
        pid = os.fork()
        if pid != 0:
            _call("setns", self._own, _CLONE_NEWPID)
        return pid

    @staticmethod
    def isolate(*, writable: Path, own_tmp: bool) -> None:
        """Takes the network away from such a child, and the right to write to all but `writable` and `/tmp`.

        Then it drops all capabilities, with which the child could take both back. No program that it starts gets any.

        Afterwards, the child must change to a folder in `writable` again, to reach it where it can write.

        Args:
          writable: a folder.
          own_tmp: whether `/tmp` becomes an empty folder. It can't if `writable` or what the child reads is there.

        Raises:
          OSError: the system doesn't allow it.
        """
        _call("unshare", _CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWIPC)
        _mount("none", "/", _MS_REC | _MS_PRIVATE)
        temporary = writable / "tmp" if own_tmp else Path("/tmp")
        temporary.mkdir(exist_ok=True)
        _mount(str(temporary), "/tmp", _MS_BIND | _MS_REC)
        _mount(str(writable), str(writable), _MS_BIND)
        _write_protect(except_for=(str(writable), "/tmp", "/dev/shm"))
        _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, kind="proc")
        _loopback_up()
        _drop_capabilities()

    @staticmethod
    def work(folder: Path) -> bool:
        """Returns whether the system allows all of this. It uses a folder, which doesn't exist before and after the call."""
        folder.mkdir(parents=True)

        def attempt() -> int:
            try:
                return Namespaces.within(parent)
            except OSError:
                return 1

        def parent() -> int:
            pid = Namespaces().fork()
            if pid == 0:
                try:
                    Namespaces.isolate(writable=folder, own_tmp=not below_tmp([folder]))
                    os._exit(0)
                finally:
                    os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        try:
            return in_child(attempt) == 0
        finally:
            shutil.rmtree(folder)


def below_tmp(paths: Iterable[Path]) -> bool:
    """Returns whether one of these files is in `/tmp`, with links resolved."""
    folders = dict[str, str]()
    for path in map(str, paths):
        parent = os.path.dirname(path)
        if parent not in folders:
            folders[parent] = os.path.realpath(parent)
        real = os.path.realpath(path) if os.path.islink(path) else f"{folders[parent]}/"
        if f"{real}/".startswith("/tmp/"):
            return True
    return False


def in_child(body: Callable[[], int]) -> int:
    """Calls `body` in a forked child, and returns its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _write_protect(*, except_for: tuple[str, ...]) -> None:
    for line in Path("/proc/self/mounts").read_bytes().splitlines():
        _, escaped, _, options, *_ = line.split(b" ")
        place = os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), escaped))
        if place in except_for:
            continue
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY
        for option in options.decode().split(","):
            flags |= _OPTIONS.get(option, 0)
        with contextlib.suppress(
            OSError
        ):  # below another mount, or a kind that refuses; linux-sandbox ignores these too
            _mount("none", place, flags)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _drop_capabilities() -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call(
        "capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(2 * 3 * 4)
    )  # none is effective, permitted, or inheritable


def _mount(source: str, target: str, flags: int, *, kind: str | None = None) -> None:
    _call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        None,
    )


def _call(name: str, *arguments: object) -> None:
    """Calls a function of the C library.

    Raises:
      OSError: the function failed.
    """
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
