"""Times export, config inference, and verification on models of growing size, and with variables beyond protobuf's 2 GB.

`./bazelw run //tests/scale:benchmark -- [--nodes 1000 10000 …] [--gigabytes 2.5]` prints a table for
docs/measured/large_models.md. `--keras_variables 100 1000 10000` prints a second one, for Keras 3 networks.
Each size runs in a separate process, so its peak memory is its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from tfaot.core import environment, isolate

MODEL = """
import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    return tf1.placeholder(tf.float32, [64], "x"), tf1.placeholder(tf.float32, [64], "y")


def model_fn(features, labels):
    values = features
    for layer in range({nodes} // 3):  # a constant, an addition, and a tanh each
        if layer % 500 == 0:
            scale = tf1.get_variable(f"scale{{layer}}", [64], initializer=tf1.ones_initializer())
            values = values * scale
        values = tf.tanh(values + 1.0)
    {large}
    loss = tf.reduce_mean(tf.square(values - labels))
    return tf.identity(loss, name="loss")
"""

LARGE = """
    for index in range({count}):
        weights = tf1.get_variable(f"weights{{index}}", [{rows}, 64], initializer=tf1.ones_initializer())
        values = values + tf.reduce_sum(weights, axis=0)
"""


KERAS = """
import keras

keras.utils.set_random_seed(1)
x = keras.Input((8,), batch_size=1)
model = keras.Model(x, keras.layers.Add()([keras.layers.Dense(8, activation="tanh")(x) for _ in range({layers})]))
"""


@dataclasses.dataclass(frozen=True)
class Result:
    """The cost of exporting one model."""

    nodes: int
    variables: int
    """Number of nodes."""
    graph_bytes: int
    variable_bytes: int
    seconds: float
    """Time of the entire export, from reading the model to writing the files, without importing TensorFlow."""
    infer_seconds: float
    """Time for pruning, following the variables, and inferring the config, as part of it."""
    peak_bytes: int


def measure(nodes: int, gigabytes: float) -> Result:
    """Exports a model of about `nodes` nodes in this process."""
    environment.prepare(legacy_keras=True)
    from tensorflow.core.framework import graph_pb2

    from tfaot.core.manifest import Manifest
    from tfaot.export import config as configs
    from tfaot.export.export import export
    from tfaot.export.request import Request
    from tfaot.export.sources.model import Model
    from tfaot.graph.prune import prune
    from tfaot.graph.variables import variable_uses

    count = int(gigabytes * 2) if gigabytes else 0
    large = LARGE.format(count=count, rows=int(gigabytes * 1e9 / max(count, 1) / 256)) if count else ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("model.py", "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(MODEL.format(nodes=nodes, large=large.strip() or "pass")))
        outputs: dict[str, Any] = {
            f"out_{name}": name for name in ("graph", "manifest", "variables", "weights", "golden_inputs", "sources")
        }
        begin = time.perf_counter()
        export(
            Request(
                model=Model(model="model.py"),
                cpp_class="a::B",
                golden_steps=1,
                out_configs=("config",),
                frozen=(),
                **outputs,
            )
        )
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        graph = graph_pb2.GraphDef()
        with open("graph", "rb") as data:
            graph.ParseFromString(data.read())
        with open("manifest", encoding="utf-8") as file:
            manifest = Manifest.from_json(file.read())
        begin = time.perf_counter()
        prune(graph, ["loss"], ["x", "y"])
        variable_uses(graph)
        configs.to_text(configs.infer(manifest.entry_points[0], manifest.variables))
        infer_seconds = time.perf_counter() - begin
        return Result(
            nodes=len(graph.node),
            variables=len(manifest.variables),
            graph_bytes=os.path.getsize("graph"),
            variable_bytes=os.path.getsize("variables"),
            seconds=seconds,
            infer_seconds=infer_seconds,
            peak_bytes=peak,
        )


@dataclasses.dataclass(frozen=True)
class KerasResult:
    """CPU time for exporting and verifying a Keras 3 network, with TensorFlow and Keras already imported."""

    variables: int
    seconds: float
    model_seconds: float
    """The model's own code: creating the network, and tracing it."""
    verify_seconds: float


def measure_keras(layers: int) -> KerasResult:
    """Exports and verifies a network with `layers` layers of two variables each, in this process."""
    environment.prepare()
    import keras

    from tfaot.core.manifest import Manifest
    from tfaot.export.export import export
    from tfaot.export.request import Request
    from tfaot.export.sources.model import Model
    from tfaot.export.sources.user_code import UserCode
    from tfaot.export.sources.xla_context import xla_context
    from tfaot.verify.goldens import compute_goldens
    from tfaot.verify.request import Request as GoldensRequest

    assert keras.__version__
    with xla_context():
        pass  # imports the other Keras
    model_seconds = 0.0
    run = UserCode.run

    def timed(self: UserCode, what: str, function: Callable[..., Any], *args: Any) -> Any:
        nonlocal model_seconds
        begin = time.process_time()
        try:
            return run(self, what, function, *args)
        finally:
            model_seconds += time.process_time() - begin

    outputs: dict[str, Any] = {
        f"out_{name}": name for name in ("graph", "manifest", "variables", "weights", "golden_inputs", "sources")
    }
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(UserCode, "run", timed):
        os.chdir(folder)
        with open("model.py", "w", encoding="utf-8") as file:
            file.write(KERAS.format(layers=layers))
        begin = time.process_time()
        export(
            Request(
                model=Model(model="model.py"),
                cpp_class="a::B",
                golden_steps=1,
                out_configs=("config",),
                frozen=(),
                **outputs,
            )
        )
        seconds = time.process_time() - begin
        begin = time.process_time()
        compute_goldens(GoldensRequest("manifest", "graph", "variables", "golden_inputs", out_goldens="goldens"))
        verify_seconds = time.process_time() - begin
        with open("manifest", encoding="utf-8") as file:
            return KerasResult(len(Manifest.from_json(file.read()).variables), seconds, model_seconds, verify_seconds)


def print_keras(counts: Sequence[int]) -> None:
    """Prints one row per number of variables."""
    print(
        "\n| variables | export | of which the model's code | the rules | per 1,000 variables | verify | per 1,000 variables |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        result = isolate.run_isolated(lambda n=count: measure_keras(n // 2), what=f"a net of {count} variables")
        ours = result.seconds - result.model_seconds
        print(
            f"| {result.variables:,} | {result.seconds:.2f} s | {result.model_seconds:.2f} s | {ours:.2f} s "
            f"| {ours * 1000 / result.variables:.2f} s "
            f"| {result.verify_seconds:.2f} s | {result.verify_seconds * 1000 / result.variables:.2f} s |"
        )
        sys.stdout.flush()


def main() -> None:
    """Prints one row per size, with time and memory per 100,000 nodes next to the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 3000, 10000, 30000, 100000, 300000])
    parser.add_argument(
        "--gigabytes", type=float, default=0.0, help="also export 1,000 nodes with this much of weights"
    )
    parser.add_argument(
        "--keras_variables", type=int, nargs="*", default=[], help="also export nets of Keras 3 with so many variables"
    )
    flags = parser.parse_args()
    print(
        "| nodes | variables | graph | weights | export | a 100,000 nodes | inference | a 100,000 nodes | peak memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for nodes, gigabytes in [(nodes, 0.0) for nodes in flags.nodes] + [(1000, flags.gigabytes)] * bool(flags.gigabytes):
        result = isolate.run_isolated(lambda n=nodes, g=gigabytes: measure(n, g), what=f"exporting {nodes} nodes")
        scale = 100_000 / result.nodes
        seconds = "–" if gigabytes else f"{result.seconds * scale:.2f} s"  # there, weights take the time, not nodes
        print(
            f"| {result.nodes:,} | {result.variables:,} | {result.graph_bytes / 1e6:.1f} MB "
            f"| {result.variable_bytes / 1e6:,.1f} MB | {result.seconds:.2f} s | {seconds} "
            f"| {result.infer_seconds:.2f} s | {result.infer_seconds * scale:.2f} s "
            f"| {result.peak_bytes / 1e6:,.0f} MB |"
        )
        sys.stdout.flush()
    if flags.keras_variables:
        print_keras(flags.keras_variables)


if __name__ == "__main__":
    main()
