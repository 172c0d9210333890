"""Programs of JAX of many kinds, with several versions of JAX: what is exported, converted, and right, as a table.

    PYTHONPATH=py:. python3 tests/breadth/jax_breadth.py [--jax 0.10.2 --jax 0.9.2 --jax 0.8.3] [--page docs/measured/jax.md]

Each version is installed with pip into a temporary environment, where jax_programs.py exports the programs. TensorFlow then runs
the converted graphs, in a Python that has the packages of `tools/python/requirements.lock`. The results must be JAX's.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from tfaot.core import environment
from tfaot.core.errors import TfaotError

VERSIONS = ("0.10.2", "0.9.2", "0.8.3")
"""JAX's newest release and the two before it."""
PROGRAMS = Path(__file__).with_name("jax_programs.py")
ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- begin: tests/breadth/jax_breadth.py -->\n", "<!-- end: tests/breadth/jax_breadth.py -->\n"
RIGHT = "right"
REFUSED = "refused"
"""The family of programs that can't be compiled."""
CLOSE = {"float32": 2e-4, "complex64": 2e-4}
"""Differences to accept, relative to the largest value."""
ROUGH = {"bfloat16": 2e-2, "float16": 2e-3}
"""The same for programs whose values have few bits in between. XLA keeps more of them."""


def exported(version: str, folder: Path) -> Path:
    """Exports the programs with a version of JAX. Returns the archive."""
    python, out = folder / "bin/python", folder / "programs.zip"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    alone = {**os.environ, "PYTHONPATH": ""}  # whose packages pip would take for its own
    subprocess.run([str(python), "-m", "pip", "install", "-q", f"jax=={version}"], check=True, env=alone)
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "py"), "JAX_PLATFORMS": "cpu"}
    subprocess.run([str(python), "-B", str(PROGRAMS), str(out)], check=True, env=variables)
    return out


def result(archive: zipfile.ZipFile, number: int, program: str, folder: Path) -> str:
    """Converts and runs a program. Returns what is wrong with it."""
    import tensorflow as tf

    from tfaot.export.sources.jax_program import JaxSource
    from tfaot.export.traced import Dims

    try:
        source = JaxSource(archive.extract(f"{number}.jax", folder))
        function = source.function(source.default_entry_point, Dims({}))
    except TfaotError as error:
        return str(error)
    arrays = list(np.load(io.BytesIO(archive.read(f"{number}.npz"))).values())
    inputs, wanted = arrays[: len(function.inputs)], arrays[len(function.inputs) :]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(function.graph, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            feeds = dict(zip((edge.name for edge in function.inputs), inputs, strict=True))
            results = session.run([edge.name for edge in function.outputs], feeds)
    for value, want in zip(results, wanted, strict=True):
        largest = np.max(np.abs(want), initial=0, where=np.isfinite(want)) if want.dtype.kind in "fc" else 0
        close = ROUGH.get(program, CLOSE.get(str(want.dtype), 0))
        if not np.allclose(value, want, 0, close * max(1.0, float(largest)), equal_nan=True):
            return "other results than JAX's"
    return RIGHT


def results(archive: zipfile.ZipFile, folder: Path) -> list[tuple[str, str, str]]:
    """Returns the family and the name of each program, and what is wrong with it."""
    programs = json.loads(archive.read("index.json"))["programs"]
    return [
        (family, program, error or result(archive, number, program, folder))
        for number, (family, program, error, _) in enumerate(programs)
    ]


def seconds_of_constant(megabytes: int, folder: Path) -> float:
    """Returns the CPU time in which a program with a large constant, as text, becomes a graph."""
    from tfaot.export.sources.stablehlo import StablehloSource
    from tfaot.export.traced import Dims

    values = np.random.default_rng(0).standard_normal(megabytes * 250_000).astype(np.float32)
    type_, path = f"tensor<{values.size}xf32>", folder / "constant.mlir"
    constant = f'%0 = stablehlo.constant dense<"0x{values.tobytes().hex().upper()}"> : {type_}'
    add = f"%1 = stablehlo.add %arg0, %0 : {type_}\n return %1 : {type_}"
    path.write_text(f"module {{\n func.func public @main(%arg0: {type_}) -> {type_} {{\n {constant}\n {add}\n }}\n}}\n")
    start = time.process_time()
    StablehloSource(str(path)).function("main", Dims({}))
    return time.process_time() - start


def table(columns: dict[str, list[tuple[str, str, str]]], times: str) -> str:
    """Returns a row for each family, and one for each program that isn't right. `times` are words about times."""
    counts = [
        "| family | programs | " + " | ".join(f"JAX {version}" for version in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    first = next(iter(columns.values()))
    for family in dict.fromkeys(family for family, _, _ in first):
        rows = [[said for own, _, said in column if own == family] for column in columns.values()]
        right = [f"{sum(said == RIGHT for said in row)}" for row in rows]
        counts.append(f"| {family} | {len(rows[0])} | " + " | ".join(right) + " |")
    wrong = ["| family | program | what happens |", "|---|---|---|"]
    wrong += [
        f"| {f} | {name} | {' '.join(said.split())[:160].replace('|', '/')} |"
        for f, name, said in first
        if said != RIGHT
    ]
    number = sum(said == RIGHT for _, _, said in first)
    total = f"{number} of {len(first)} programs are right with JAX {next(iter(columns))}. {times}"
    return "\n".join([*counts, "", total, *(["", *wrong] if len(wrong) > 2 else []), ""])


def main() -> None:
    """Prints the table, or writes it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", action="append", help="a version of JAX; by default, " + ", ".join(VERSIONS))
    parser.add_argument(
        "--archive", action="append", default=[], help="an archive of jax_programs.py, in place of a version"
    )
    parser.add_argument("--page", help="the page whose table to replace")
    flags = parser.parse_args()
    environment.prepare()
    columns: dict[str, list[tuple[str, str, str]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [Path(path) for path in flags.archive]
        paths += [exported(version, folder / version) for version in ([] if paths else flags.jax or VERSIONS)]
        for path in paths:
            with zipfile.ZipFile(path) as archive:
                index = json.loads(archive.read("index.json"))
                start = time.process_time()
                columns[index["jax"]] = [row for row in results(archive, folder) if row[0] != REFUSED]
                mean = (time.process_time() - start) / len(index["programs"])
        times = f"A program takes {mean:.1f} s to convert and run, and one with a constant of 100 MB as text "
        times += f"{seconds_of_constant(100, folder):.1f} s."
    text = table(columns, times)
    if flags.page:
        page = Path(flags.page).read_text(encoding="utf-8")
        start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        Path(flags.page).write_text(page[:start] + text + page[end:], encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
