"""Writes what `//tools:measure` writes, for an invented machine: `measure.py OUT BENCHMARK GOLDENS (TEST GOLDENS)…`."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tfaot.page import measured

out, benchmark, goldens, *tests = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "profile"
    subprocess.run([benchmark, goldens, "--steps=3", f"--profile={path}"], check=True)
    profiles = measured.profiles(path.read_text(encoding="utf-8"))
tested = [
    each
    for test, its in zip(tests[::2], tests[1::2], strict=True)
    for each in measured.tested(
        Path(test).name, subprocess.run([test, its], check=True, stdout=subprocess.PIPE, text=True).stdout
    )
]
result = measured.Measured(
    target="//tests/page:small_aot",
    fingerprint="0000000000000000",
    cpu="a CPU",
    date="2026-01-01",
    peaks={"flops": 2e11, "memory": 1e10, "cache": 5e10},
    profiles=profiles,
    tested=tuple(tested),
)
Path(out).write_text(result.to_json(), encoding="utf-8")
