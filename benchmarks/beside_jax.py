"""Transforms, linear algebra, and 3-D convolutions that are exported from JAX, beside `jax.jit`, on one core.

    PYTHONPATH=py:.:tools/python python3 benchmarks/beside_jax.py [--level x86-64-v4] [--only fft] [--page docs/measured/jax.md]

It needs the packages of `tools/python/requirements.lock`, and installs JAX (`peers/jax.lock`). `tfaot compile` makes a class of
each program, and a C++ program calls it. JAX's call comes from Python, and is waited for. Times are the least of rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import compare, environments, harness, pages

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROUNDS = 5
NAMES = ("x", "y", "z")
DRIVER = """
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "%(header)s"

static void Read(const char* path, void* data) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::memcpy(data, bytes.data(), bytes.size());
}

template <typename Run>
static int Measure(const Run& run) {
  const auto seconds = [&](int count) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      if (!run()) std::abort();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  };
  double least = seconds(1);
  const int count = least > 0.01 ? 1 : static_cast<int>(0.01 / least) + 1;
  for (int i = 0; i < 15; ++i) {
    const double now = seconds(count);
    if (now < least) least = now;
  }
  std::printf("%%.9f\\n", least);
  return 0;
}

int main(int, char** argv) {
  auto* model = new benchmark::Program;
  const std::string name = argv[1];
  %(calls)s
  return 1;
}
"""


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Returns functions of JAX and their arguments, by title. It needs JAX."""
    import jax
    import jax.numpy as jnp
    import jax.scipy as jsp
    import numpy as np

    normal = np.random.default_rng(1).standard_normal

    def f(*shape: int) -> Any:
        return normal(shape).astype(np.float32)

    def conv(x: Any, w: Any, stride: int = 1) -> Any:
        axes = ("NDHWC", "DHWIO", "NDHWC")
        return jax.lax.conv_general_dilated(x, w, (stride,) * 3, "SAME", dimension_numbers=axes)

    def conv_3d(x: Any, y: Any) -> Any:
        return conv(x, y)

    def unet(x: Any, w: Sequence[Any]) -> Any:
        first = jax.nn.relu(conv(x, w[0]))
        deep = jax.nn.relu(conv(jax.nn.relu(conv(first, w[1], 2)), w[2]))
        up = jnp.repeat(jnp.repeat(jnp.repeat(deep, 2, 1), 2, 2), 2, 3)
        return conv(jax.nn.relu(conv(jnp.concatenate([first, up], -1), w[3])), w[4])

    weights = [f(3, 3, 3, a, b) * 0.1 for a, b in ((1, 8), (8, 16), (16, 16), (24, 8))] + [f(1, 1, 1, 8, 3) * 0.1]

    def train(x: Any, y: Any) -> Any:
        gradients = jax.grad(lambda w: jnp.mean((unet(x, w) - y) ** 2))(weights)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    def spectrum(x: Any) -> Any:
        frames = jnp.stack([x[i : i + 512] for i in range(0, 16000 - 511, 160)])
        return jnp.abs(jnp.fft.rfft(frames * jnp.hanning(512)))

    bank = np.maximum(f(257, 40), 0)

    def mfcc(x: Any) -> Any:
        return jsp.fft.dct(jnp.log(spectrum(x) ** 2 @ bank + 1e-6))[..., :13]

    result: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    for length in (64, 100, 256, 384, 1000, 1021, 1024, 1536, 4096, 4099, 16384, 65536):
        result[f"fft, {length}"] = (
            lambda x: jnp.fft.fft(x),
            ((f(8, length) + 1j * f(8, length)).astype(np.complex64),),
        )
        if length & (length - 1) == 0:
            result[f"rfft, {length}"] = (lambda x: jnp.fft.rfft(x), (f(8, length),))
    for size in (4, 32, 256, 512):
        a = f(size, size)
        s = (a @ a.T + size * np.eye(size)).astype(np.float32)
        result[f"solve, {size}"] = (lambda x, y: jnp.linalg.solve(x, y), (s, f(size)))
        result[f"cho_solve, {size}"] = (lambda x, y: jsp.linalg.cho_solve(jsp.linalg.cho_factor(x), y), (s, f(size)))
        result[f"triangular solve, {size}"] = (
            lambda x, y: jsp.linalg.solve_triangular(x, y, lower=True),
            (np.tril(s), f(size)),
        )
        result[f"inv, {size}"] = (lambda x: jnp.linalg.inv(x), (s,))
        result[f"qr, {size}"] = (lambda x: jnp.linalg.qr(x), (a,))
        result[f"eigh, {size}"] = (lambda x: jnp.linalg.eigh(x), (s,))
        result[f"svd, {size}"] = (lambda x: jnp.linalg.svd(x), (a,))
        result[f"eig, {size}"] = (lambda x: jnp.linalg.eig(x), (a,))
        result[f"sqrtm, {size}"] = (lambda x: jsp.linalg.sqrtm(x), (s,))
        result[f"expm, {size}"] = (lambda x: jsp.linalg.expm(x), (a / size,))
    result["STFT of 1 s of audio"] = (spectrum, (f(16000),))
    result["MFCC of 1 s of audio"] = (mfcc, (f(16000),))
    result["Conv3D 3³, 16 filters, 16³ × 16"] = (conv_3d, (f(1, 16, 16, 16, 16), f(3, 3, 3, 16, 16)))
    result["3-D U-Net, 16³"] = (lambda x: unet(x, weights), (f(1, 16, 16, 16, 1),))
    result["3-D U-Net, training, 16³"] = (train, (f(1, 16, 16, 16, 1), f(1, 16, 16, 16, 3)))
    return result


def work(folder: pathlib.Path, only: str) -> None:
    """Exports the programs, in JAX's Python. Then measures each program whose number it reads."""
    import time

    import jax
    import numpy as np

    import tfaot.jax

    chosen = {title: program for title, program in programs().items() if only in title}
    exported = [
        tfaot.jax.export(function, *arguments, name=f"p{number}")
        for number, (function, arguments) in enumerate(chosen.values())
    ]
    tfaot.jax.write(folder / "programs.jax", exported)
    for number, (_, arguments) in enumerate(chosen.values()):
        for name, argument in zip(NAMES, arguments, strict=False):
            np.asarray(argument).tofile(folder / f"p{number}.{name}")
    print(json.dumps({title: len(arguments) for title, (_, arguments) in chosen.items()}), flush=True)
    jitted = [(jax.jit(function), jax.device_put(arguments)) for function, arguments in chosen.values()]
    for line in sys.stdin:
        run, values = jitted[int(line)]
        jax.block_until_ready(run(*values))
        least = 1e9
        count = 1
        for _ in range(15):
            start = time.perf_counter()
            for _ in range(count):
                jax.block_until_ready(run(*values))
            least = min(least, (time.perf_counter() - start) / count)
            count = max(1, int(0.01 / least))
        print(least, flush=True)


def compiled(folder: pathlib.Path, source: pathlib.Path, inputs: Mapping[str, Sequence[str]], level: str) -> str:
    """Compiles a model, and a C++ program: given an entry point and files with its inputs, it prints the time of a call.

    Returns:
      The program's path.
    """
    out = folder / source.stem
    command = [sys.executable, "-m", "tfaot.command.cli", "compile", str(source), "--no-verify"]
    command += [f"--entry-points={name}" for name in inputs if name != "Run"]
    command += ["--cpp-class", "benchmark::Program", "--name", "program", "--cpu", level, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    header = next((out / "include").rglob("program.h")).relative_to(out / "include")
    calls = []
    for name, tensors in inputs.items():
        prefix = "" if name == "Run" else f"{name}_"
        reads = [f"Read(argv[{i}], model->{prefix}{tensor}().data());" for i, tensor in enumerate(tensors, 2)]
        calls.append(
            f'if (name == "{name}") {{ {" ".join(reads)} return Measure([&] {{ return model->{name}(); }}); }}'
        )
    driver, binary = folder / f"{source.stem}.cc", str(folder / f"{source.stem}.bin")
    driver.write_text(DRIVER % {"header": header, "calls": "\n  ".join(calls)})
    libraries = [str(path) for path in out.rglob("*.a")]
    flags = ["-std=c++17", "-O2", f"-I{out}/include", "-lpthread", "-o", binary]
    subprocess.run(["g++", str(driver), *libraries, *flags], check=True)
    return binary


def tables(best: Mapping[str, Sequence[float]]) -> list[str]:
    """Returns tables of seconds that programs take here and in JAX: of transforms, of linear algebra by size, and of the others."""
    sized = [title.split(", ") for title in best if title.rpartition(", ")[2].isdecimal()]
    functions = list(dict.fromkeys(name for name, _ in sized))
    lines: list[str] = []
    for names in ([n for n in functions if "fft" in n], [n for n in functions if "fft" not in n]):
        sizes = list(dict.fromkeys(size for name, size in sized if name in names))
        down, across = (sizes, names) if len(sizes) > len(names) else (names, sizes)
        rows = []
        for row in down:
            rows.append([row])
            for column in across:
                pair = best.get(f"{row}, {column}") or best.get(f"{column}, {row}")
                rows[-1] += [pages.number(1e6 * pair[0]), f"{pair[1] / pair[0]:.2f}"] if pair else ["", ""]
        heads = [part for column in across for part in (f"{column}: µs", "JAX / ours")]
        lines += pages.table(["length" if down is sizes else "size", *heads], rows) if rows else []
    others = {title: pair for title, pair in best.items() if title.split(", ") not in sized}
    cells = [[title, pages.number(1e6 * pair[0]), f"{pair[1] / pair[0]:.2f}"] for title, pair in others.items()]
    return lines + (pages.table(["program", "µs", "JAX / ours"], cells) if cells else [])


def main() -> None:
    """Prints the table, or puts it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="x86-64-v4", help="the CPU level")
    parser.add_argument("--only", default="", help="a part of titles")
    parser.add_argument("--page", type=pathlib.Path, help="put the table into this page")
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.worker:
        return work(flags.worker, flags.only)
    python, cpus = environments.python("jax"), harness.last_cpus()
    on = compare.machine(None)
    pinned = ["taskset", "-c", ",".join(map(str, cpus[:1]))]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        variables = {**os.environ, "PYTHONPATH": f"{ROOT}/py", "JAX_PLATFORMS": "cpu"}
        command = [*pinned, python, "-B", __file__, "--worker", name, "--only", flags.only]
        jax = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
        assert jax.stdin is not None and jax.stdout is not None
        titles: dict[str, int] = json.loads(jax.stdout.readline())
        inputs = {f"p{number}": NAMES[:count] for number, count in enumerate(titles.values())}
        binary = compiled(folder, folder / "programs.jax", inputs, flags.level)
        best = {title: [1e9, 1e9] for title in titles}
        for _ in range(ROUNDS):
            for number, (title, count) in enumerate(titles.items()):
                paths = [str(folder / f"p{number}.{letter}") for letter in NAMES[:count]]
                printed = subprocess.check_output([*pinned, binary, f"p{number}", *paths], text=True)
                jax.stdin.write(f"{number}\n")
                jax.stdin.flush()
                pair = float(printed), float(jax.stdout.readline())
                best[title] = [min(old, new) for old, new in zip(best[title], pair, strict=True)]
        jax.stdin.close()
        jax.wait()
    words = (
        f"    python3 benchmarks/beside_jax.py --level {flags.level}\n\n{on['cpu']}, one core, with other work beside it; "
        f"{on['compiler']}; JAX 0.10.2, float32, {ROUNDS} interleaved rounds. Transforms are of 8 rows."
    )
    section = "\n".join([words, "", *tables(best)])
    print(section)
    if flags.page:
        pages.put(ROOT / flags.page, "benchmarks/beside_jax.py", section)


if __name__ == "__main__":
    main()
