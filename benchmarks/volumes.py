"""3-D convolutions, and a 3-D U-Net, beside ONNX Runtime, OpenVINO, PyTorch, and JAX, on one core.

    PYTHONPATH=py:.:tools/python python3 benchmarks/volumes.py [--level x86-64-v4] [--out FILE.json] [--page docs/measured/jax.md]

It needs the packages of `tools/python/requirements.lock`, and installs the peers. Results must agree. Times are the least of
interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import beside_jax, compare, environments, harness, pages

ROUNDS = 5
MODELS = {"Conv3D, 3³, 16 filters": (16, 16), "3-D U-Net": (16, 1), "3-D U-Net, larger": (48, 1)}
"""The size of the volume along each axis, and its channels."""
PEERS = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino", "PyTorch": "torch", "JAX": "jax"}
NET = """
import numpy as np
normal = np.random.default_rng(0).standard_normal
SHAPES = [(3, 3, 3, a, b) for a, b in ((1, 16), (16, 32), (32, 32), (48, 16))] + [(1, 1, 1, 16, 3)]
W = [(normal(shape) * (2 / np.prod(shape[:4])) ** 0.5).astype(np.float32) for shape in SHAPES]
KERNEL = normal((3, 3, 3, 16, 16)).astype(np.float32) / 20

def net(x):
    if not UNET:
        return conv(x, KERNEL, 1)
    first = relu(conv(x, W[0], 1))
    deep = relu(conv(relu(conv(first, W[1], 2)), W[2], 1))
    return conv(relu(conv(join(first, larger(deep)), W[3], 1)), W[4], 1)
"""
OURS = """
import tensorflow as tf
UNET = %r
conv = lambda x, w, stride: tf.nn.conv3d(x, w, (1, *3 * (stride,), 1), "SAME")
relu = tf.nn.relu
join = lambda a, b: tf.concat([a, b], -1)
larger = lambda x: tf.repeat(tf.repeat(tf.repeat(x, 2, 1), 2, 2), 2, 3)
%s
model = tf.function(net, input_signature=[tf.TensorSpec(%r, tf.float32, "x")])
"""
PEER = """
import sys, time
NAME, UNET, FILE, X, OUT = sys.argv[1], sys.argv[2] == "True", *sys.argv[3:]
import numpy as np
x = np.load(X)
turned = lambda w: np.ascontiguousarray(w.transpose(4, 3, 0, 1, 2))
first = lambda x: np.ascontiguousarray(np.moveaxis(x, -1, 1))
last = lambda x: np.moveaxis(np.asarray(x), 1, -1)
if NAME == "JAX":
    import jax, jax.numpy as jnp
    axes = ("NDHWC", "DHWIO", "NDHWC")
    conv = lambda x, w, stride: jax.lax.conv_general_dilated(x, w, 3 * (stride,), "SAME", dimension_numbers=axes)
    relu, join = jax.nn.relu, lambda a, b: jnp.concatenate([a, b], -1)
    larger = lambda x: jnp.repeat(jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), 2, 3)
%(net)s
    jitted, value = jax.jit(net), jax.device_put(x)
    run = lambda: jax.block_until_ready(jitted(value))
    result = lambda: np.asarray(run())
elif NAME == "PyTorch":
    import torch
    torch.set_num_threads(1)
    f = torch.nn.functional
    kernels = {}
    def conv(x, w, stride):
        if id(w) not in kernels:
            kernels[id(w)] = torch.from_numpy(turned(w)).contiguous(memory_format=torch.channels_last_3d)
        if stride == 2:
            return f.conv3d(f.pad(x, 3 * (0, 1)), kernels[id(w)], stride=2)
        return f.conv3d(x, kernels[id(w)], padding=w.shape[0] // 2)
    relu, join = torch.relu, lambda a, b: torch.cat([a, b], 1)
    larger = lambda x: f.interpolate(x, scale_factor=2)
%(net)s
    value = torch.from_numpy(first(x)).contiguous(memory_format=torch.channels_last_3d)
    def run():
        with torch.inference_mode():
            return net(value)
    result = lambda: last(run().numpy())
elif NAME == "OpenVINO":
    import openvino
    options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(FILE, "CPU", options).create_infer_request()
    request.set_input_tensor(openvino.Tensor(first(x)))
    run, result = request.infer, lambda: last(request.get_output_tensor().data)
else:
    import onnx, onnxruntime
    from onnx import helper as h, numpy_helper as n
    nodes, constants = [], {"scales": np.array([1, 1, 2, 2, 2], np.float32)}
    def add(op, *inputs, **attributes):
        nodes.append(h.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"
    def conv(x, w, stride):
        name = f"w{len(constants)}"
        constants[name] = turned(w)
        return add("Conv", x, name, auto_pad="SAME_UPPER", strides=3 * [stride], kernel_shape=list(w.shape[:3]))
    relu, join = lambda x: add("Relu", x), lambda a, b: add("Concat", a, b, axis=1)
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    larger = lambda x: add("Resize", x, "", "scales", **nearest)
%(net)s
    y = net("x")
    used = {name for node in nodes for name in node.input}
    edges = [[h.make_tensor_value_info(name, 1, shape)] for name, shape in (("x", first(x).shape), (y, None))]
    graph = h.make_graph(nodes, "volumes", *edges,
                         [n.from_array(value, name) for name, value in constants.items() if name in used])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), FILE)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(FILE, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", first(x))
    binding.bind_output(y)
    run, result = lambda: session.run_with_iobinding(binding), lambda: last(binding.copy_outputs_to_cpu()[0])
run()
np.save(OUT, result())
least, end = 1e9, time.perf_counter() + 1
while time.perf_counter() < end:
    start = time.perf_counter()
    run()
    least = min(least, time.perf_counter() - start)
print(least)
"""


def main() -> None:
    """Prints the table, or puts it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="x86-64-v4", help="the CPU level")
    parser.add_argument("--out", type=pathlib.Path, help="write all times into this file")
    parser.add_argument("--page", type=pathlib.Path, help="put the table into this page")
    flags = parser.parse_args()
    import numpy as np

    pinned = ["taskset", "-c", str(harness.last_cpus()[0])]
    pythons = {title: environments.python(name) for title, name in PEERS.items()}
    source = PEER % {"net": NET.replace("\n", "\n    ")}
    on, rows, times = compare.machine(None), [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "peer.py").write_text(source)
        for number, (title, (size, channels)) in enumerate(MODELS.items()):
            is_unet = "U-Net" in title
            x = np.random.default_rng(1).standard_normal((1, size, size, size, channels)).astype(np.float32)
            x.tofile(folder / f"{number}.x")
            np.save(folder / f"{number}.npy", x)
            text = OURS % (is_unet, NET, x.shape)
            (folder / f"model{number}.py").write_text(text)
            names: dict[str, Any] = {}
            exec(text, names)
            wanted = names["model"](x).numpy()
            binary = beside_jax.compiled(folder, folder / f"model{number}.py", {"Run": ["x"]}, flags.level)

            def ours(binary: str = binary, number: int = number) -> float:
                return float(subprocess.check_output([*pinned, binary, "Run", str(folder / f"{number}.x")], text=True))

            def peer(who: str, number: int = number, is_unet: bool = is_unet, wanted: Any = wanted) -> float:
                paths = [str(folder / file) for file in (f"{number}.onnx", f"{number}.npy", "out.npy")]
                command = [*pinned, pythons[who], str(folder / "peer.py"), who, str(is_unet), *paths]
                variables = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
                printed = subprocess.check_output(command, text=True, env=variables)
                np.testing.assert_allclose(np.load(folder / "out.npy"), wanted, 1e-3, 1e-3 * np.abs(wanted).max())
                return float(printed.split()[-1])

            rounds = [{"ours": ours(), **{who: peer(who) for who in PEERS}} for _ in range(ROUNDS)]
            best = {who: min(seconds[who] for seconds in rounds) for who in rounds[0]}
            times[f"{title}, {size}³"] = {who: [seconds[who] for seconds in rounds] for who in rounds[0]}
            row = [f"{title}, {size}³ × {channels}", pages.number(1e6 * best["ours"])]
            for who in PEERS:
                row += [pages.number(1e6 * best[who]), f"{best[who] / best['ours']:.2f}"]
            rows.append(row)
    words = (
        f"    python3 benchmarks/volumes.py --level {flags.level}\n\n{on['cpu']}, one core, with other work beside it; "
        f"{on['compiler']}; float32, {ROUNDS} interleaved rounds. A ratio above 1 means that ours is faster."
    )
    heads = ["program", "ours, µs", *(head for who in PEERS for head in (f"{who}, µs", "/ ours"))]
    section = "\n".join([words, "", *pages.table(heads, rows)])
    print(section)
    if flags.out:
        flags.out.write_text(json.dumps({"machine": on, "level": flags.level, "seconds": times}, indent=1) + "\n")
    if flags.page:
        pages.put(beside_jax.ROOT / flags.page, "benchmarks/volumes.py", section)


if __name__ == "__main__":
    main()
