"""Times models with an open size beside other frameworks, for lengths of 1 to 512, on one core.

    ./bazelw run -c opt //benchmarks:lengths [-- --machine NAME]

The models are the encoder and the tagger of `examples/lengths`. Peers have one dimension that any length fits: a symbolic one in
ONNX Runtime and OpenVINO, and LiteRT's inputs get the length's size before it is timed. In each round, all programs run the same
length, one after the other. The figure is the shortest time. With `--machine`, it writes docs/measured/lengths.json and .svg, and
the table of docs/guide/sizes.md; otherwise, it prints the table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from benchmarks import environments
from benchmarks.pages import number, put, table

HERE = pathlib.Path(__file__).absolute().parents[1]
ROOT = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or HERE)
LENGTHS = (
    1,
    2,
    4,
    7,
    8,
    9,
    16,
    17,
    31,
    32,
    33,
    48,
    64,
    65,
    96,
    100,
    128,
    129,
    192,
    193,
    255,
    256,
    257,
    320,
    384,
    385,
    448,
    512,
)
SHOWN = (1, 8, 17, 32, 64, 100, 128, 193, 256, 320, 512)
MODELS = {"encoder": 2, "tagger": 1}
"""The models, and their inputs: tokens, and a mask."""
PEERS = ("onnxruntime", "openvino", "litert")
COLORS = {
    "ours": "#c0392b",
    "litert": "#8e6bbf",
    "onnxruntime": "#2e86c1",
    "openvino": "#28a068",
    "tensorflow": "#999999",
}
TOLERANCE = 1e-4


def models() -> dict[str, Any]:
    """Returns functions of the examples' models."""
    import tensorflow as tf

    encoder = runpy.run_path(str(HERE / "examples/lengths/model.py"))["model"]()
    tagger = runpy.run_path(str(HERE / "examples/lengths/tagger.py"))["model"]
    word = tf.TensorSpec((1, None), tf.int32, "tokens")
    mask = tf.TensorSpec((1, None), tf.float32, "mask")
    return {
        "encoder": (encoder, tf.function(lambda tokens, mask: encoder(tokens, mask), input_signature=[word, mask])),
        "tagger": (tagger, tf.function(lambda tokens: tagger(tokens, training=False), input_signature=[word])),
    }


def weights(name: str, model: Any) -> dict[str, Any]:
    """Returns a model's weights by the names that `adapters/lengths_onnx.py` gives them."""
    if name == "encoder":
        return {variable.name.removesuffix(":0"): variable.numpy() for variable in model.variables}
    names = ["words", "kernel", "bias"]
    names += [f"{way}_{part}" for way in ("forward", "backward") for part in ("gates", "inner", "biases")]
    return dict(zip([*names, "tags", "tags_bias"], model.get_weights(), strict=True))


def converted(name: str, model: Any, function: Any, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes a model for the peers. Returns their files."""
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    np.savez(folder / f"{name}.npz", **weights(name, model))
    onnx, lite = folder / f"{name}.onnx", folder / f"{name}.tflite"
    command = [environments.python("onnxruntime"), "-m", "benchmarks.adapters.lengths_onnx", name]
    subprocess.run([*command, folder / f"{name}.npz", onnx], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    frozen = convert_to_constants.convert_variables_to_constants_v2(function.get_concrete_function())
    files = {"onnxruntime": onnx, "openvino": onnx}
    try:
        lite.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([frozen]).convert())
        files["litert"] = lite
    except Exception as error:  # its types say nothing
        print(f"lengths: litert doesn't convert {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return files


class Program:
    """A process that answers lines."""

    def __init__(self, command: Sequence[str | pathlib.Path]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def __call__(self, line: str) -> str:
        """Returns the answer to a line.

        Raises:
          RuntimeError: the process ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert isinstance(stdin, IO) or stdin is not None
        assert stdout is not None
        stdin.write(line + "\n")
        stdin.flush()
        if not (answer := stdout.readline()):
            raise RuntimeError(f"it ended with {self._process.wait()}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def calls(nanoseconds: float) -> int:
    """Returns how many runs take about 3 ms."""
    return max(1, min(500, round(3e6 / nanoseconds)))


def measured(name: str, model: Any, function: Any, rounds: int, folder: pathlib.Path) -> dict[str, dict[int, float]]:
    """Returns microseconds by program and length."""
    programs = {"ours": Program([HERE / "benchmarks/lengths_driver"])}
    for peer, file in converted(name, model, function, folder).items():
        python = environments.python(peer)
        programs[peer] = Program([python, "-m", "benchmarks.workers.lengths_peer", peer, file, str(MODELS[name])])
    best: dict[str, dict[int, float]] = {program: {} for program in programs}
    with contextlib.ExitStack() as stack:
        for program in programs.values():
            stack.callback(program.close)
        for peer in [*programs]:
            if peer == "ours":
                continue
            try:
                _compare(peer, programs[peer], name, function, folder)
            except (RuntimeError, ValueError) as error:
                print(f"lengths: {peer} doesn't run {name}: {error}", file=sys.stderr)
                del programs[peer], best[peer]
        for length in LENGTHS:
            count = dict.fromkeys(programs, 3)
            for _ in range(rounds):
                for peer, program in programs.items():
                    line = f"{name} {length} {count[peer]}" if peer == "ours" else f"{length} {count[peer]}"
                    took = float(program(line))
                    count[peer] = calls(took)
                    best[peer][length] = min(best[peer].get(length, float("inf")), took / 1e3)
            print(name, length, {peer: round(best[peer][length], 1) for peer in programs}, file=sys.stderr, flush=True)
    return best


def _compare(peer: str, program: Program, name: str, function: Any, folder: pathlib.Path) -> None:
    """Checks a peer's outputs.

    Raises:
      ValueError: they aren't TensorFlow's.
    """
    for length in (1, 37, 512):
        inputs = [np.arange(length, dtype=np.int32)[None] % 100, np.ones((1, length), np.float32)][: MODELS[name]]
        results = function(*inputs)
        wanted = sorted(
            (np.asarray(v) for v in (results.values() if isinstance(results, dict) else [results])), key=np.size
        )
        program(f"{length} 1")
        program(f"0 {folder / 'outputs.npz'}")
        outputs = sorted(np.load(folder / "outputs.npz").values(), key=np.size)
        for have, want in zip(outputs, wanted, strict=True):
            off = float(np.max(np.abs(have - want)) / np.max(np.abs(want)))
            if not off <= TOLERANCE:
                raise ValueError(f"its outputs for length {length} are off by {off:.1e}")


def plot(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Returns a plot of microseconds by length, both with logarithmic axes: one part for each model."""
    width, height, left, top = 420, 300, 56, 30
    parts = []
    for index, (name, peers) in enumerate(results.items()):
        times = [time for by_length in peers.values() for time in by_length.values()]
        low, high = np.floor(np.log10(min(times))), np.ceil(np.log10(max(times)))
        shift = index * (width + 40)

        def x(length: float, shift: int = shift) -> float:
            return shift + left + float(np.log2(length)) / 9 * (width - left)

        def y(time: float, low: float = low, high: float = high) -> float:
            return top + (high - float(np.log10(time))) / (high - low) * (height - top)

        parts.append(f'<text x="{shift + left}" y="16" font-weight="bold">{name}, µs by length</text>')
        for power in range(int(low), int(high) + 1):
            at = y(10.0**power)
            parts.append(f'<path d="M{x(1):.0f} {at:.0f}H{x(512):.0f}" stroke="#ddd"/>')
            parts.append(f'<text x="{x(1) - 6:.0f}" y="{at + 4:.0f}" text-anchor="end">{10**power:,}</text>')
        for power in range(0, 10, 3):
            parts.append(f'<text x="{x(2**power):.0f}" y="{height + 18}" text-anchor="middle">{2**power}</text>')
        for row, (peer, by_length) in enumerate(peers.items()):
            points = " ".join(f"{x(int(length)):.1f},{y(time):.1f}" for length, time in by_length.items())
            thick = 2.5 if peer == "ours" else 1.5
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[peer]}" stroke-width="{thick}"/>')
            parts.append(f'<text x="{shift + left + 12}" y="{top + 18 + 16 * row}" fill="{COLORS[peer]}">{peer}</text>')
    size = f'width="{2 * width + 60}" height="{height + 30}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def rows(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Returns the page's table."""
    lines = []
    for name, peers in results.items():
        body = []
        for length in map(str, SHOWN):
            times = [by_length[length] for by_length in peers.values()]
            best = min(peers[peer][length] for peer in peers if peer != "ours")
            body.append([length, *map(number, times), f"{best / peers['ours'][length]:.2f}"])
        lines += table([f"{name}, length", *(f"{peer}, µs" for peer in peers), "best peer / ours"], body)
    return lines


def main() -> None:
    """Measures, and prints or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", help="describes it: write the files of docs/measured, and the page")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--models", nargs="*", default=[*MODELS], choices=[*MODELS])
    flags = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    results: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, function) in models().items():
            if name in flags.models:
                times = measured(name, model, function, flags.rounds, pathlib.Path(folder))
                results[name] = {peer: {str(length): time for length, time in by.items()} for peer, by in times.items()}
    print("\n".join(rows(results)))
    for name, peers in results.items():
        ratios = {
            length: min(peers[peer][length] for peer in peers if peer != "ours") / ours
            for length, ours in peers["ours"].items()
        }
        print(f"{name}: below 1 at", {length: round(ratio, 2) for length, ratio in ratios.items() if ratio < 1})
    if flags.machine:
        document = {"machine": flags.machine, "date": datetime.date.today().isoformat(), "microseconds": results}
        (ROOT / "docs/measured/lengths.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (ROOT / "docs/measured/lengths.svg").write_text(plot(results), encoding="utf-8")
        put(ROOT / "docs/guide/sizes.md", "benchmarks/lengths.py", "\n".join(rows(results)))


if __name__ == "__main__":
    main()
