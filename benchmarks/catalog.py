"""The models and peers, and how to build, install, and start each peer."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import environments, tensors
from benchmarks.harness import OURS, Peer, say

ROOT = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or pathlib.Path(__file__).resolve().parents[1])

PEERS = (
    "stock",
    "tensorflow_session",
    "tensorflow_jit",
    "jax",
    "onnxruntime",
    "litert",
    "iree",
    "torch_eager",
    "torch_compile",
    "openvino",
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model in the suite."""

    title: str
    training: bool
    package: str
    """Package of its tf_aot_library."""
    library: str
    defined: bool
    """Whether definitions.py has it. If so, every framework builds it; otherwise only peers that run a graph or HLO."""
    aim: float
    """Target for the best peer's time divided by ours."""


# Names and titles from definitions.py, which needs NumPy. //tests/benchmarks checks that the two agree.
_DEFINED = {
    "mlp": "10-64-64-1 net, batch 1",
    "fc": "fc 784-256-10, batch 1",
    "fc_b64": "fc 784-256-10, batch 64",
    "conv": "conv + fc, batch 1",
    "lstm": "LSTM(128) × 50, batch 1",
    "mobilenet_v2": "MobileNetV2 224×224, batch 1",
    "resnet18": "ResNet-18 224×224, batch 1",
    "transformer": "transformer encoder, 32 tokens",
    "decoder_step": "decoder, 63 MB, one token",
    "decoder_cached": "decoder, cache of 256 tokens, one token",
    "fc_bn_adam_train": "fc + BN + Adam, training, batch 64",
    "conv_train": "conv + fc + SGD, training, batch 64",
    "lstm_train": "LSTM(128) × 50 + SGD, training, batch 16",
    "resnet50": "ResNet-50 224×224, batch 1",
    "efficientnet_b0": "EfficientNet-B0 224×224, batch 1",
    "bert_base": "BERT-base, 128 tokens",
    "unet": "U-Net 128×128, batch 1",
    "wavenet": "dilated Conv1D × 10, 1024 steps",
    "gru": "GRU(128) × 50, batch 1",
    "dlrm": "DLRM-like, 26 tables, batch 16",
    "cnn_train": "CNN + BN + SGD, training, batch 32",
    "transformer_train": "transformer encoder + Adam, training, batch 8",
}
_STUDY = (
    "fc",
    "fc_adam",
    "fc_batchnorm",
    "fc_batchnorm_adam",
    "fc_kerasbatchnorm",
    "fc_batchnorm_notrain",
    "conv_fc",
    "conv_fc_adam",
    "conv_fc_batchnorm",
    "conv_fc_batchnorm_adam",
    "conv_fc_batchnorm_notrain",
    "dynamic_rnn",
    "keras_rnn",
    "rnn_seq_length",
)
# Frameworks lose the most time on small models and on training.
_SMALL = ("mlp", "fc", "fc_b64", "conv", "lstm", "gru", "dlrm")
_AHEAD = 1.5
MODELS: dict[str, Entry] = {
    name: Entry(title, training, "benchmarks", f"{name}_aot", True, _AHEAD if training or name in _SMALL else 1.0)
    for name, title in _DEFINED.items()
    for training in (name.endswith("_train"),)
} | {
    f"study_{name}": Entry(f"study: {name}", True, f"examples/{folder}", f"{name}_aot", False, _AHEAD)
    for name in _STUDY
    for folder in ("fc" if name == "fc" else "study",)
}


_ONE_THREAD = {"stock": "the suite's driver gives it no threads", "iree": "its synchronous driver has one thread"}
"""Peers that don't run on several threads, and why."""


def default_out(threads: int = 1) -> pathlib.Path:
    """Returns the default file of results. Those on other numbers of threads don't replace each other."""
    return environments.cache() / ("results.json" if threads == 1 else f"results_{threads}_threads.json")


def program(name: str, peer: str, threads: int = 1) -> str:
    """Returns the target, and the file, of a model's program: ours or stock, stripped as docs/guide/embedding.md recommends.

    On one thread, ours has no thread pool, and no code for one.
    """
    driver = "driver" if threads == 1 else "threads_driver"
    return f"{name}_{driver if peer == OURS else 'stock'}.stripped"


class Build:
    """Builds targets with Bazel, and converts their outputs."""

    def __init__(self, startup: Sequence[str], flags: Sequence[str]) -> None:
        self._bazel = [str(ROOT / "bazelw"), *startup]
        # Unless compiled for speed, abseil's mutexes look for deadlocks.
        # As users build, who don't have this repository's flags for its tests.
        self._flags = ["--compilation_mode=opt", "--noforce_pic", *flags]
        self._paths: dict[str, str] = {}

    def models(self, names: Sequence[str], peers: Sequence[str], threads: int = 1) -> dict[str, str]:
        """Builds everything that these models and peers need. Returns why ours couldn't be built, by model."""
        peers = [peer for peer in peers if threads == 1 or peer not in _ONE_THREAD]
        targets = ["//benchmarks:roofline"] if threads == 1 else []
        for name in names:
            entry = MODELS[name]
            targets += [f"//benchmarks:{program(name, OURS, threads)}", f"//{entry.package}:{entry.library}.export"]
            targets += [f"//benchmarks:{program(name, 'stock')}"] if "stock" in peers else []
            targets += [f"//{entry.package}:{entry.library}.hlo"] if "jax" in peers and not entry.defined else []
            targets += [f"//{entry.package}:{entry.library}.stablehlo"] if "iree" in peers else []
        say(f"building {len(targets)} targets")
        subprocess.run([*self._bazel, "build", "--keep_going", *self._flags, *targets], cwd=ROOT, check=False)
        drivers = {name: self.output(f"benchmarks/{program(name, OURS, threads)}") for name in names}
        return {name: "it doesn't build" for name, path in drivers.items() if not path.exists()}

    def threads(self, names: Sequence[str]) -> None:
        """Builds drivers that take `--threads=N`, and their inputs."""
        targets = [f"//benchmarks:{name}_threads_driver" for name in names]
        subprocess.run([*self._bazel, "build", *self._flags, *targets], cwd=ROOT, check=True)
        self.exported(names)

    def exported(self, names: Sequence[str]) -> None:
        """Runs the export stage for these models."""
        targets = [f"//{MODELS[name].package}:{MODELS[name].library}.export" for name in names]
        subprocess.run([*self._bazel, "build", *self._flags, *targets], cwd=ROOT, check=True)

    def program(self, target: str) -> pathlib.Path:
        """Builds a program, `PACKAGE:NAME`, and returns its file."""
        subprocess.run([*self._bazel, "build", *self._flags, f"//{target}"], cwd=ROOT, check=True)
        return self.output(target.replace(":", "/"))

    def _info(self, key: str) -> str:
        if key not in self._paths:
            done = subprocess.run(
                [*self._bazel, "info", *self._flags, key], cwd=ROOT, capture_output=True, check=True, text=True
            )
            self._paths[key] = done.stdout.strip()
        return self._paths[key]

    def output(self, path: str) -> pathlib.Path:
        """Returns an output file by its path in the workspace."""
        return pathlib.Path(self._info("bazel-bin")) / path

    def packages(self) -> str:
        """Returns the folder of the wheel that the rules installed. TensorFlow's own peers run on it."""
        if "packages" not in self._paths:
            command = ["cquery", *self._flags, "--output=files", "@tfaot_tensorflow//:site_packages"]
            done = subprocess.run([*self._bazel, *command], cwd=ROOT, capture_output=True, check=True, text=True)
            self._paths["packages"] = os.path.join(self._info("execution_root"), done.stdout.split()[0])
        return self._paths["packages"]

    def roofline(self, cpus: Sequence[int]) -> dict[str, Any]:
        """Measures the core's limits: the best of several processes, because bandwidth depends on where their memory is."""
        say("measuring the roofline")
        command = [str(self.output("benchmarks/roofline"))]
        limits: list[dict[str, Any]] = []
        for _ in range(8):
            done = subprocess.run(
                command, capture_output=True, check=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus)
            )
            limits.append(json.loads(done.stdout))
        return {
            "gflops": max(measured["gflops"] for measured in limits),
            "bandwidth": [
                {"kib": points[0]["kib"], "gb_per_s": max(point["gb_per_s"] for point in points)}
                for points in zip(*(measured["bandwidth"] for measured in limits), strict=True)
            ],
        }

    def work(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """Returns, by model, the bytes of all its variables, and floating-point operations per call if definitions.py has it."""
        defined = [name for name in names if MODELS[name].defined]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.adapters.work_ops", *defined],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{self.packages()}"},
        )
        flops: dict[str, int] = json.loads(done.stdout)
        work = {}
        for name in names:
            file = self.output(f"{MODELS[name].package}/{MODELS[name].library}.model.json")
            size = variable_bytes(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else 0
            work[name] = {"flops": flops.get(name, 0), "variables": size}
        return work

    def peers(self, name: str, peers: Sequence[str], threads: int = 1) -> tuple[list[Peer], dict[str, str]]:
        """Returns the peers that can be started for a model, and why the others can't.

        Workers get their number of threads from the harness (process.py). Only our program has it in its arguments.
        """
        entry = MODELS[name]
        folder = environments.cache() / "models"
        folder.mkdir(parents=True, exist_ok=True)
        library = f"{entry.package}/{entry.library}"
        files = {
            "graph": f"{library}.pb",
            "manifest": f"{library}.model.json",
            "variables": f"{library}.variables.safetensors",
            "hlo": f"{library}.hlo.pb",
            "stablehlo": f"{library}.stablehlo.mlir",
        }
        paths = {kind: str(self.output(path)) for kind, path in files.items()}
        inputs = write_inputs(str(self.output(library)), str(folder / name))
        case = json.dumps({"model": name, "inputs": inputs, "files": paths, "folder": str(folder)})
        data = tuple(i["path"] for i in inputs)
        started, missing = [], {}
        for peer in (OURS, *peers):
            try:
                started.append(self._peer(peer, name, case, data, str(folder), threads))
            except (environments.NotInstalled, _Impossible) as error:
                missing[peer] = str(error)
        return started, missing

    def _peer(self, peer: str, name: str, case: str, data: tuple[str, ...], folder: str, threads: int) -> Peer:
        entry = MODELS[name]
        if threads > 1 and peer in _ONE_THREAD:
            raise _Impossible(_ONE_THREAD[peer])
        if peer in (OURS, "stock"):
            binary = str(self.output(f"benchmarks/{program(name, peer, threads)}"))
            if not os.path.exists(binary):
                raise _Impossible("it doesn't build")
            return Peer(peer, (binary, *([f"--threads={threads}"] if threads > 1 else []), *data), binary=binary)
        path = str(ROOT)
        if peer.startswith("tensorflow"):
            path = f"{ROOT}:{ROOT / 'py'}:{self.packages()}"
            return Peer(peer, (sys.executable, "-m", f"benchmarks.workers.{peer}", case), {"PYTHONPATH": path})
        if not entry.defined and peer != "jax":
            raise _Impossible("this step exists as a TensorFlow graph and as HLO only")
        if entry.training and peer in ("onnxruntime", "litert", "openvino", "iree"):
            raise _Impossible(
                "it is for inference; a training step has not been tried" if peer == "iree" else "it is for inference"
            )
        kind = peer.partition("_")[0]
        python = environments.python(kind)
        if peer in ("onnxruntime", "openvino"):
            onnx = environments.python("onnxruntime")
            self._convert(f"{folder}/{name}.onnx", [onnx, "-m", "benchmarks.adapters.onnx_ops", name], path)
        if peer == "litert":
            command = [sys.executable, "-m", "benchmarks.workers.to_tflite", name]
            self._convert(f"{folder}/{name}.tflite", command, f"{ROOT}:{ROOT / 'py'}:{self.packages()}")
        if peer == "iree":
            command = [python, "-m", "benchmarks.workers.to_iree", json.loads(case)["files"]["stablehlo"]]
            self._convert(f"{folder}/{name}.vmfb", command, path)
        worker = [python, "-m", f"benchmarks.workers.{kind}_peer", case]
        return Peer(peer, tuple(worker + ([peer] if kind == "torch" else [])), {"PYTHONPATH": path})

    def _convert(self, out: str, command: list[str], path: str) -> None:
        """Runs a converter, unless its result is newer than the benchmark's Python files and the converter's input."""
        sources = [
            *pathlib.Path(__file__).parent.glob("**/*.py"),
            *(pathlib.Path(c) for c in command if c.endswith(".mlir")),
        ]
        if os.path.exists(out) and os.path.getmtime(out) > max(s.stat().st_mtime for s in sources if s.exists()):
            return
        say(f"converting to {os.path.basename(out)}")
        done = subprocess.run(
            [*command, out], capture_output=True, check=False, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            errors = [line for line in lines if re.match(r"\S*[Ee]rror\b", line)]
            raise _Impossible("it can't be converted: " + ("; ".join(errors) or lines[-1])[:300])


def variable_bytes(manifest: dict[str, Any]) -> int:
    """Returns the bytes of a model's variables, including frozen ones, from its model.json."""
    bits = {"bool": 8, "bfloat16": 16}
    return sum(
        math.prod(variable["shape"]) * (bits.get(variable["dtype"]) or int(re.sub(r"\D", "", variable["dtype"]))) // 8
        for variable in (*manifest["variables"], *manifest["frozen"])
    )


class _Impossible(Exception):
    """Why a peer doesn't run a model."""


def write_inputs(library: str, prefix: str) -> list[dict[str, Any]]:
    """Writes the first step's inputs as raw files, and returns their locations in the model's order.

    They are the model's own. If it has none, they are drawn.

    Args:
      library: the path of the export stage's outputs without their extensions, `…/mlp_aot`.
      prefix: of the files' paths.
    """
    goldens = f"{library}.golden_inputs.safetensors"
    if not os.path.exists(goldens):
        return []
    values = tensors.read(goldens)
    rng = random.Random(1)
    with open(f"{library}.model.json", encoding="utf-8") as file:
        model = json.load(file)
    entry = model["entry_points"][0]
    inputs = []
    for index, tensor in enumerate(entry["inputs"]):
        value = values.get(f"step0/{tensor['cpp_name']}")
        if value is None:
            shape = [model["calls"][0]["batch"], *tensor["shape"][1:]] if tensor["batched"] else tensor["shape"]
            value = tensors.drawn(tensor["dtype"], shape, rng)
        path = f"{prefix}.input{index}"
        with open(path, "wb") as file:
            file.write(value.data)
        inputs.append({"path": path, "dtype": value.dtype, "shape": list(value.shape)})
    return inputs
