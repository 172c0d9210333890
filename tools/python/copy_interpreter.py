"""Copies the interpreter that runs this program, with its standard library, into the folder PYTHON.

    python3 copy_interpreter.py PYTHON

Actions that run the copy read nothing of the machine's Python, so its path and version are not missing from cache keys.
Prints, as JSON on one line, the copy's files relative to PYTHON; or {"error": REASON} if the copy doesn't run by itself.
Such a Python needs libraries that are neither the system's nor in its own library folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig

# Parts of the standard library that no build needs: 100 of 130 MB. ensurepip stays: the benchmarks make virtual environments.
_LEFT_OUT = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
)

# Imports what TensorFlow does, and prints the shared libraries that are not the system's.
_CHECK = """
import bz2, ctypes, hashlib, lzma, multiprocessing, os, select, ssl, sys, zlib
with open("/proc/self/maps", encoding="utf-8") as maps:
    files = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
system = ("/usr/lib", "/lib", os.path.realpath(sys.prefix) + "/")
print(*sorted(file for file in files if not file.startswith(system)), sep="\\n")
"""


def copy(into: str) -> dict[str, str]:
    """Makes the copy, and returns its files or an error."""
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    interpreter = os.path.join("bin", os.path.basename(base))
    os.makedirs(os.path.join(into, "bin"))
    shutil.copyfile(base, os.path.join(into, interpreter))
    os.chmod(os.path.join(into, interpreter), 0o755)

    # The interpreter looks for its library in this folder beside its own.
    library = os.path.join(into, sys.platlibdir)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(
        sysconfig.get_path("stdlib"), os.path.join(library, version), ignore=shutil.ignore_patterns(*_LEFT_OUT)
    )
    shared = sysconfig.get_config_var("INSTSONAME")
    folder = sysconfig.get_config_var("LIBDIR")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and not folder.startswith(("/usr/lib", "/lib")):
        shutil.copyfile(os.path.join(folder, shared), os.path.join(library, shared))
        _search_beside(os.path.join(into, interpreter), folder, sys.platlibdir)

    done = subprocess.run(
        [os.path.join(into, interpreter), "-I", "-S", "-B", "-c", _CHECK],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    if done.stdout.strip():
        return {"error": "it needs " + ", ".join(done.stdout.split())}
    return {"interpreter": interpreter, "library": sys.platlibdir}


def _search_beside(program: str, folder: str, name: str) -> None:
    """Replaces `folder` in the program's search path for libraries by the folder `name` beside the program's own."""
    with open(program, "rb") as file:
        content = file.read()
    old = b"\0" + folder.encode() + b"\0"
    new = b"\0$ORIGIN/../" + name.encode() + b"\0"
    # The string must stay in its place. Whether the copy runs without the original is checked afterwards.
    if content.count(old) == 1 and len(new) <= len(old):
        with open(program, "wb") as file:
            file.write(content.replace(old, new.ljust(len(old), b"\0")))


if __name__ == "__main__":
    print(json.dumps(copy(sys.argv[1])))
