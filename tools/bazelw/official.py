"""Way 2: the official release, a single file, checked against a SHA-256 that releases.json pins."""

from __future__ import annotations

import hashlib
import http.client
import json
import platform
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from . import cache
from .errors import WayFailed
from .progress import Progress, megabytes
from .way import Bazel

_ADDRESS = "https://github.com/bazelbuild/bazel/releases/download/{version}/{name}"
_PINS = Path(__file__).with_name("releases.json")
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
# How long to wait for the host's answer to begin, in seconds. A blocked host often doesn't answer at all.
ANSWER_TIMEOUT = 5.0
# How long a download can stall, in seconds.
_STALL_TIMEOUT = 30.0
# How often to resume an interrupted download within one call.
_RESUMES = 3
# How long to skip a host that didn't answer, in seconds.
REMEMBER = 24 * 3600.0
_CHUNK = 1 << 18


def set_up(folder: Path, version: str, progress: Progress) -> Bazel:
    """Downloads the release, or the rest of it, and checks it. Needs the lock.

    Raises WayFailed if no release is pinned for this machine, if the host is unreachable (remembered for a day), or if
    the file isn't the pinned one.
    """
    name = _name(version)
    digest = json.loads(_PINS.read_text(encoding="utf-8")).get(version, {}).get(name) if name else None
    if not name or digest is None:
        raise WayFailed(f"no official release {version} is pinned for {platform.system()} on {platform.machine()}")
    memory = folder / "official" / "blocked.json"
    remembered = cache.read_json(memory)
    if remembered.get("until", 0.0) > time.time():
        raise WayFailed(f"{remembered['reason']} (found less than a day ago; remove {memory} to try again)")
    target = folder / "official" / name
    started = time.monotonic()
    try:
        size = fetch(_ADDRESS.format(version=version, name=name), target, digest, progress)
    except Unreachable as failure:
        reason = f"can't download the official release: {failure}"
        cache.write_json(memory, {"reason": reason, "until": time.time() + REMEMBER})
        raise WayFailed(reason) from failure
    seconds = time.monotonic() - started
    cache.write_json(target.with_suffix(".json"), {"download_bytes": size, "seconds": round(seconds, 1)})
    progress.say(f"Bazel {version} is ready after {seconds:.0f} s: {megabytes(size)}")
    return Bazel(str(target))


class Unreachable(WayFailed):
    """The host didn't answer, or answered without the file."""


def fetch(address: str, target: Path, digest: str, progress: Progress) -> int:
    """Downloads `address` to `target`, an executable that appears whole and checked, or not at all.

    Keeps what an interrupted call left in `target`.part, and requests only the rest. Returns the size in bytes. Raises
    Unreachable if the host doesn't serve the file, and WayFailed if the download breaks off for good or the file's
    SHA-256 isn't `digest`; in the last case, nothing remains.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    for _ in range(_RESUMES):
        if _append(address, part, progress):
            break
    else:
        raise WayFailed(f"the download of {target.name} was interrupted; the next call resumes it")
    content = part.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        part.unlink()
        raise WayFailed(f"the downloaded {target.name} doesn't match the pinned SHA-256; it was removed")
    part.chmod(0o755)
    part.rename(target)
    return len(content)


def _append(address: str, part: Path, progress: Progress) -> bool:
    """Appends the missing bytes to `part`. Returns whether the file is complete now."""
    have = part.stat().st_size if part.exists() else 0
    answer = _open(address, have)
    if answer is None:
        # 416: there are no more bytes. The digest decides whether this is the file.
        return True
    with answer:
        if answer.status != http.client.PARTIAL_CONTENT:
            have = 0
        rest = answer.headers.get("Content-Length")
        total = have + int(rest) if rest and rest.isdecimal() else None
        with part.open("r+b" if have else "wb") as out:
            out.seek(have)
            try:
                while chunk := answer.read(_CHUNK):
                    out.write(chunk)
                    have += len(chunk)
                    of = f" of {megabytes(total)}" if total else ""
                    progress.move(f"downloading {part.stem}, {megabytes(have)}{of}")
            except (OSError, http.client.HTTPException):
                return False
    return total is None or have == total


def _open(address: str, have: int) -> Any | None:
    """Requests the bytes from `have` on. Returns the response, or None if there are no more."""
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    result: list[Any] = []

    def ask() -> None:
        try:
            result.append(urllib.request.urlopen(request, timeout=_STALL_TIMEOUT))
        except Exception as failure:  # The caller gets it, and knows which ones to expect.
            result.append(failure)

    # In a separate thread, because neither name resolution nor a chain of redirects has a time limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_TIMEOUT)
    if not result:
        raise Unreachable(f"the host didn't answer within {ANSWER_TIMEOUT:.0f} s")
    answer = result[0]
    if isinstance(answer, urllib.error.HTTPError):
        if answer.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return None
        raise Unreachable(f"the host answered {answer.code} {answer.reason}") from answer
    if isinstance(answer, urllib.error.URLError):
        raise Unreachable(f"the host can't be reached ({answer.reason})") from answer
    if isinstance(answer, (OSError, http.client.HTTPException)):
        raise Unreachable(f"the host can't be reached ({answer})") from answer
    if isinstance(answer, Exception):
        raise answer
    return answer


def _name(version: str) -> str | None:
    machine = _MACHINES.get(platform.machine().lower())
    return f"bazel-{version}-linux-{machine}" if machine and platform.system() == "Linux" else None
