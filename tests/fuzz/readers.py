"""Fuzzes what reads models: GraphDefs, SavedModels, and configs, changed by a coverage-guided fuzzer (atheris).

Whatever is in a file, the check and the export stage must end, within a time limit, with a result or with an error that names the
cause. Inputs are changed as nodes and functions, as bytes, and by truncation. atheris measures which Python lines of rules_tfaot an
input reaches, and keeps those that reach new ones.

`tests/fuzz/readers` installs atheris and runs this file.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.preflight import fuzz
from tests.stages import harness
from tfaot.core import isolate
from tfaot.core.errors import TfaotError

SECONDS = 30
"""The time limit of an input. An input takes 20 ms on average. What takes longer is read again, with a limit of a
processor's time."""

MEGABYTES = 8000
"""The most memory that a process may use."""

LARGEST = 50_000
"""Bytes of the largest input."""

_LIFE = 6000
"""How many inputs a process reads before a new one replaces it, because TensorFlow keeps functions of every graph."""

KINDS = ("graph", "saved_model", "config", "export")
"""What an input is: its first byte is an index."""

_MODULES = (
    "tfaot.export.export",
    "tfaot.export.rewrites",
    "tfaot.export.sources.graph_def",
    "tfaot.export.sources.saved_model",
    "tfaot.export.sources.saved_objects",
    "tfaot.export.sources.subgraph",
    "tfaot.export.user_config",
    "tfaot.graph.calls",
    "tfaot.preflight.check",
    "tfaot.preflight.page",
    "tfaot.preflight.report",
    "tfaot.preflight.run",
)
"""What atheris watches. Modules that these import are watched, too."""


class Nameless(Exception):
    """An error or a report that doesn't say what is wrong."""


def read(data: bytes, folder: Path) -> str:
    """Reads an input as the tool does, in this process. Returns how that ended.

    Raises:
      Exception: the tool would report a bug in itself.
    """
    kind = KINDS[data[0] % len(KINDS)] if data else "graph"
    try:
        return _READERS[kind](data[1:], folder)
    except TfaotError as error:
        if not error.asked.strip() or not error.do.strip():
            raise Nameless(f"{error}") from None
        return "error"


def read_again(data: bytes, folder: Path) -> None:
    """Reads an input, and raises the error in which that ends."""
    kind = KINDS[data[0] % len(KINDS)]
    if kind == "config":
        _config(data[1:], folder)
    else:
        _exported(_model(kind, data[1:], folder), folder)


def _checked(kind: str, data: bytes, folder: Path) -> str:
    from tfaot.export.request import ModelRequest
    from tfaot.preflight import check

    report = check.check(ModelRequest(model=_model(kind, data, folder)))
    return _kind_of(report)


def _model(kind: str, data: bytes, folder: Path) -> harness.Model:
    if kind == "saved_model":
        (folder / "saved_model.pb").write_bytes(data)
        return harness.Model(saved_model=str(folder))
    path = folder / "graph.pb"
    path.write_bytes(data)
    return harness.Model(graph=str(path))


def _kind_of(report: object) -> str:
    from tfaot.preflight.report import Report

    assert isinstance(report, Report)
    text = report.to_text()
    report.to_json()
    findings = [finding for entry in report.entry_points for finding in entry.findings]
    if not report.compiles and not any(finding.what.strip() for finding in findings):
        raise Nameless(text)
    if any(finding.kind == "unreadable" for finding in findings):
        return "error"
    return "compiles" if report.compiles else "blocked"


def _exported(model: harness.Model, folder: Path) -> str:
    from tfaot.export.export import export
    from tfaot.export.request import Request

    out = {f"out_{name}": str(folder / name) for name in harness.EXPORTED if name != "configs"}
    export(
        Request(
            model=model,
            cpp_class="fuzz::Model",
            golden_steps=1,
            out_configs=(str(folder / "config"),),
            **out,  # type: ignore[arg-type]
        )
    )
    return "exported"


_FIXED = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [2, 3], "x"), v1.placeholder(tf.float32, [2, 3], "y")


def model_fn(features, labels):
    return tf.add(tf.add(features, labels, name="sum"), features, name="result")
"""
"""A small model to merge configs into."""


def _config(data: bytes, folder: Path) -> str:
    """A config: complete, for a graph, or partial, to merge into what is inferred."""
    path = folder / "config.pbtxt"
    path.write_bytes(data[1:])
    whole = data[:1] != b"p"
    fixed = folder / ("fixed.pb" if whole else "fixed.py")
    fixed.write_bytes(fixed_graph(variable=True) if whole else _FIXED.encode())
    source = {"graph" if whole else "model": str(fixed)}
    return _exported(harness.Model(**source, config=str(path)), folder)  # type: ignore[arg-type]


_READERS: dict[str, Callable[[bytes, Path], str]] = {
    "graph": lambda data, folder: _checked("graph", data, folder),
    "saved_model": lambda data, folder: _checked("saved_model", data, folder),
    "config": _config,
    "export": lambda data, folder: _exported(_model("graph", data, folder), folder),
}


def judge(data: bytes, folder: Path) -> str:
    """Reads an input with the isolation that the tool has. Returns "" if that ends as it should, or what is wrong.

    TensorFlow ends its process on some graphs. The tool then has to say which check of TensorFlow failed.
    """
    kind = KINDS[data[0] % len(KINDS)]
    start = _processor_seconds()
    try:
        if kind in ("graph", "saved_model"):
            from tfaot.export.request import ModelRequest
            from tfaot.preflight import run

            _kind_of(run.isolated(ModelRequest(model=_model(kind, data[1:], folder))))
        else:
            isolate.run_isolated(lambda: read(data, folder), what="exporting the input", idle_seconds=SECONDS)
    except TfaotError as error:
        if "hung" in str(error) or not error.details.strip():
            return f"the error names no cause: {error}"
    except Exception as error:
        return f"{error!r}"
    took = _processor_seconds() - start
    return f"it took {took:.0f} s" if took > SECONDS else ""


def _processor_seconds() -> float:
    """Returns what this process and its children used of processors so far: a busy machine doesn't make an input slow."""
    return sum(os.times()[:4])


def limited(data: bytes) -> str:
    """Calls `judge` in a group of processes that has to end within ten times the time limit."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        answer = Path(folder) / "answer"
        pid = os.fork()
        if not pid:
            os.setsid()
            (Path(folder) / "input").mkdir()
            verdict = judge(data, Path(folder) / "input")
            answer.write_text(f"ended {verdict}", encoding="utf-8")
            os._exit(0)
        deadline = time.monotonic() + 10 * SECONDS
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                break
            time.sleep(0.05)
        return answer.read_text(encoding="utf-8").removeprefix("ended").strip() if answer.exists() else "it hangs"


def fixed_graph(*, variable: bool = False) -> bytes:
    """Returns a small graph that exports: two inputs, and with a config that declares it, a variable."""
    from tensorflow.core.framework import graph_pb2, types_pb2

    graph = graph_pb2.GraphDef()
    for name in ("x", "y"):
        node = graph.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = types_pb2.DT_FLOAT
        for size in (2, 3):
            node.attr["shape"].shape.dim.add(size=size)
    if variable:
        handle = graph.node.add(name="v", op="VarHandleOp")
        handle.attr["dtype"].type = types_pb2.DT_FLOAT
        handle.attr["shape"].shape.dim.add(size=3)
        handle.attr["shared_name"].s = b"v"
        value = graph.node.add(name="v/read", op="ReadVariableOp", input=["v"])
        value.attr["dtype"].type = types_pb2.DT_FLOAT
    for name, inputs in (("sum", ["x", "y"]), ("result", ["sum", "v/read" if variable else "x"])):
        node = graph.node.add(name=name, op="AddV2", input=inputs)
        node.attr["T"].type = types_pb2.DT_FLOAT
    data: bytes = graph.SerializeToString(deterministic=True)
    return data


CONFIGS = (
    (
        b"c",
        'feed { id { node_name: "x" } shape { dim { size: 2 } dim { size: 3 } } }\n'
        'feed { id { node_name: "y" } name: "y" }\nfetch { id { node_name: "result" } name: "r" }\n'
        'variable { node_name: "v" name: "w" type: DT_FLOAT shape { dim { size: 3 } } readonly: true }\n',
    ),
    (
        b"c",
        'feed { id { node_name: "x" } }\nfeed { id { node_name: "y" } }\n'
        'fetch { id { node_name: "sum" output_index: 0 } type: DT_FLOAT }\n',
    ),
    (b"p", 'feed { id { node_name: "x" } name: "first" }\nfetch { id { node_name: "result" } name: "last" }\n'),
    (b"p", 'feed { id { node_name: "y" } type: DT_FLOAT shape { dim { size: 2 } dim { size: 3 } } }\n'),
)
"""Configs, complete (c) or to be merged (p)."""


def saved_models() -> list[bytes]:
    """Returns serialized SavedModels: from TensorFlow 2 with functions and a variable, and from TensorFlow 1."""

    def build() -> list[bytes]:
        import tensorflow as tf

        class Small(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.v = tf.Variable([1.0, 2.0, 3.0], name="v")

            @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                for _ in tf.range(2):
                    x = x * self.v
                return tf.where(tf.reduce_sum(x) > 0, x, -x)

        models = []
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            model = Small()
            tf.saved_model.save(model, folder + "/2", model.__call__)
            v1 = tf.compat.v1
            with tf.Graph().as_default(), v1.Session() as session:
                x = v1.placeholder(tf.float32, [2, 3], "x")
                builder = v1.saved_model.Builder(folder + "/1")
                y = v1.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x)
                signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
                builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
                builder.save()
            for version in "21":
                models.append(Path(folder, version, "saved_model.pb").read_bytes())
        return models

    return isolate.run_isolated(build, what="saving models")


def seeds() -> list[bytes]:
    """Returns the inputs to start from."""
    graphs = [graph for graph in fuzz.originals() if len(graph) < LARGEST // 2]
    inputs = [bytes([kind]) + graph for graph in [fixed_graph(), *graphs] for kind in (0, 3)]
    inputs += [bytes([1]) + model for model in saved_models()]
    return inputs + [b"\2" + form + text.encode() for form, text in CONFIGS]


def mutate(data: bytes, seed: int, by_bytes: Callable[[bytes], bytes]) -> bytes:
    """Changes an input: its graph's nodes and functions, or its bytes."""
    draw = random.Random(seed)
    if len(data) < 2:
        return by_bytes(data)
    kind = KINDS[data[0] % len(KINDS)]
    what = draw.random()
    if what < 0.1:
        return data[: 1 + draw.randrange(len(data))]
    if kind == "config" or what < 0.35:
        return data[:1] + by_bytes(data[1:])
    try:
        return data[:1] + (_saved(draw, data[1:]) if kind == "saved_model" else _nodes(draw, data[1:]))
    except Exception:  # it isn't a graph any longer
        return data[:1] + by_bytes(data[1:])


def _saved(draw: random.Random, data: bytes) -> bytes:
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString(data)
    meta = draw.choice(saved.meta_graphs)
    what = draw.randrange(4)
    if what == 0 and meta.object_graph_def.nodes:
        node, other = draw.choice(meta.object_graph_def.nodes), draw.choice(meta.object_graph_def.nodes)
        node.CopyFrom(other)
    elif what == 1 and meta.object_graph_def.nodes:
        for child in draw.choice(meta.object_graph_def.nodes).children:
            child.node_id = draw.choice([0, 1, -1, 2**30, len(meta.object_graph_def.nodes)])
    elif what == 2 and meta.signature_def:
        signature = meta.signature_def[draw.choice(sorted(meta.signature_def))]
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            if draw.random() < 0.5:
                info.name = draw.choice(["", ":", "x:99", "nothing:0", "^x", info.name + ":0"])
            else:
                info.tensor_shape.dim.add(size=draw.choice([-1, 0, 2**40, 2**62, -7]))
    else:
        meta.graph_def.CopyFrom(graph_pb2.GraphDef.FromString(_nodes(draw, meta.graph_def.SerializeToString())))
    changed: bytes = saved.SerializeToString()
    return changed


def _nodes(draw: random.Random, data: bytes) -> bytes:
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString(fuzz._nodes(draw, data))
    bodies = [body for body in (graph.node, *(function.node_def for function in graph.library.function)) if body]
    if bodies and draw.random() < 0.4:
        nodes = draw.choice(bodies)
        node = draw.choice(nodes)
        what = draw.randrange(5)
        if what == 0:  # a cycle
            node.input.insert(0, draw.choice(nodes).name)
        elif what == 1:  # a huge shape
            for value in node.attr.values():
                if value.WhichOneof("value") in ("shape", "tensor"):
                    shape = value.shape if value.WhichOneof("value") == "shape" else value.tensor.tensor_shape
                    if shape.dim:
                        draw.choice(shape.dim).size = draw.choice([2**31, 2**40, 2**62, 2**63 - 1, -2, 1_000_003])
        elif what == 2:  # another dtype
            for value in node.attr.values():
                if value.WhichOneof("value") == "type":
                    value.type = draw.choice([0, 1, 3, 7, 9, 20, 21, 101, 99])
        elif what == 3 and graph.library.function:  # a function that calls itself, or one that isn't there
            name = draw.choice(graph.library.function).signature.name
            node.op = draw.choice([name, "StatefulPartitionedCall"])
            node.attr["f"].func.name = draw.choice([name, "nothing"])
        elif what == 4:
            node.name = draw.choice(["", "a b", "^x", "x:1", "\N{SNOWMAN}", node.name * 50])
    changed: bytes = graph.SerializeToString()
    return changed


@dataclasses.dataclass
class Campaign:
    """A folder with the inputs kept, what was found, and a log of all inputs."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("corpus", "died", "found"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        """A line for each input: its hash and how it ended."""
        return self.folder / "log"

    @property
    def current(self) -> Path:
        """The input that is being read, in case that a signal ends the process before libFuzzer can write it."""
        return Path(os.environ.get("TEST_TMPDIR", "/dev/shm")) / f"readers.{self.folder.name}"

    def counts(self) -> Counter[str]:
        """Returns how many inputs that differ from each other ended how."""
        if not self.log.exists():
            return Counter()
        ends = dict(line.split(" ", 1) for line in self.log.read_text(encoding="utf-8").splitlines() if " " in line)
        return Counter(ends.values())

    def keep(self, data: bytes, what: str) -> None:
        """Keeps an input that shows a fault, once for each place in the code."""
        lines = re.findall(r'File ".*?(tfaot/[^"]+)", line (\d+)', what)
        last = re.sub(r"0x[0-9a-f]+|\d+", "N", what.strip().splitlines()[-1])[:200]
        place = f"{last.split(':')[0]} {lines[-1]}" if lines else last
        name = hashlib.sha256(place.encode()).hexdigest()[:12]
        path = self.folder / "found" / name
        if not path.exists():
            path.write_bytes(data)
            (self.folder / "found" / (name + ".txt")).write_text(what, encoding="utf-8")
            print(f"fault {name}: {what.strip().splitlines()[-1][:300]}", flush=True)

    def life(self, runs: int, seed: int) -> int:
        """Reads inputs in a child until it dies or has read enough. Returns its exit status."""
        pid = os.fork()
        if pid:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                (self.folder / "died" / f"signal{-code}").write_bytes(self.current.read_bytes())
            return code
        import atheris

        log = self.log.open("a", encoding="utf-8", buffering=1)
        silent = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        work = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR", "/dev/shm")))

        def one(data: bytes) -> None:
            self.current.write_bytes(data)
            try:
                end = read(data, work)
            except (Exception, RecursionError):
                end = "fault"
                self.keep(data, traceback.format_exc())
            log.write(f"{hashlib.sha256(data).hexdigest()[:16]} {end}\n")

        def changed(data: bytes, largest: int, number: int) -> bytes:
            return mutate(data, number, lambda part: atheris.Mutate(part, largest - 2))[:largest]

        arguments = [
            sys.argv[0],
            f"-runs={runs}",
            f"-seed={seed}",
            f"-timeout={SECONDS}",
            f"-rss_limit_mb={MEGABYTES}",
            f"-max_len={LARGEST}",
            f"-artifact_prefix={self.folder}/died/",
            "-len_control=0",
            "-mutate_depth=2",  # more changes leave little of a graph
            "-verbosity=0",
            str(self.folder / "corpus"),
        ]
        atheris.Setup(arguments, one, custom_mutator=changed)
        atheris.Fuzz()
        os._exit(0)

    def judge(self) -> None:
        """Reads each input of which a process died with the tool's isolation, and keeps those that the tool gets wrong."""
        for path in sorted((self.folder / "died").iterdir()):
            data = path.read_bytes()
            wrong = limited(data) if data else ""
            if wrong:
                self.keep(data, wrong)
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"{hashlib.sha256(data).hexdigest()[:16]} {'fault' if wrong else 'died'}\n")
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a campaign, or reads given inputs once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where inputs are kept; the next run starts from them")
    parser.add_argument("--runs", type=int, default=1000, help="how many inputs to read, with those of earlier runs")
    parser.add_argument(
        "--replay", action="store_true", help="read the inputs in FOLDER/found again, and print how they end"
    )
    flags = parser.parse_args(arguments)
    if not flags.replay:
        import atheris

        with atheris.instrument_imports(include=["tfaot"]):
            import importlib

            for name in _MODULES:
                importlib.import_module(name)
    harness.warm()
    campaign = Campaign(flags.folder.absolute())
    if flags.replay:
        for path in sorted(path for path in (campaign.folder / "found").iterdir() if not path.suffix):
            print(path.name, limited(path.read_bytes()) or "ends as it should")
        return
    for data in seeds():
        (campaign.folder / "corpus" / hashlib.sha1(data).hexdigest()).write_bytes(data)
    start, seed = time.monotonic(), sum(campaign.counts().values()) + 1
    while (done := sum(campaign.counts().values())) < flags.runs:
        status = campaign.life(_LIFE + len(list((campaign.folder / "corpus").iterdir())), seed + done)
        campaign.judge()
        print(f"{time.monotonic() - start:.0f} s, status {status}: {dict(campaign.counts())}", flush=True)
    counts = campaign.counts()
    faults = [path.read_text(encoding="utf-8") for path in sorted((campaign.folder / "found").glob("*.txt"))]
    kept = len(list((campaign.folder / "corpus").iterdir()))
    print(f"{sum(counts.values()):,} inputs, {kept:,} kept: {dict(counts)}; {len(faults)} kinds of faults")
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
