"""The front end of audio models, compiled from `tf.signal`, beside LiteRT and ONNX Runtime, on one core.

    PYTHONPATH=py:.:tools/python python3 benchmarks/audio.py [--level x86-64-v4] [--page docs/measured/jax.md]

It needs the packages of `tools/python/requirements.lock`, and installs the peers. Each computes the magnitudes of a short-time
Fourier transform of one second of audio, or MFCCs. Results must agree. Times are the least of rounds.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import beside_jax, compare, environments, harness, pages

ROUNDS = 5
FRAME, STEP, BANDS, KEPT = 512, 160, 40, 13
MODEL = """
import numpy as np
import tensorflow as tf

BANK = tf.signal.linear_to_mel_weight_matrix(40, 257, 16000, 20.0, 8000.0)


@tf.function(input_signature=[tf.TensorSpec((1, 16000), tf.float32, "x")])
def model(x):
    spectrum = tf.abs(tf.signal.stft(x, 512, 160, window_fn=tf.signal.hann_window))
    if KIND == "STFT":
        return spectrum
    mel = tf.math.log(tf.matmul(spectrum**2, BANK) + 1e-6)
    if PRODUCT:  # LiteRT can't convert the transform of complex numbers
        return tf.matmul(mel, tf.signal.mfccs_from_log_mel_spectrograms(tf.eye(40))[:, :13])
    return tf.signal.mfccs_from_log_mel_spectrograms(mel)[..., :13]
"""
PEER = """
import sys, time
import numpy as np
KIND, NAME, FILE, X, OUT, BANK, DCT = sys.argv[1:]
x, bank, dct = (np.load(path) for path in (X, BANK, DCT))
if NAME == "LiteRT":
    from ai_edge_litert.interpreter import Interpreter
    peer = Interpreter(FILE, num_threads=1)
    peer.allocate_tensors()
    peer.set_tensor(peer.get_input_details()[0]["index"], x)
    run, result = peer.invoke, lambda: peer.get_tensor(peer.get_output_details()[0]["index"])
else:
    import onnx, onnxruntime
    from onnx import helper as h, numpy_helper as n
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)).astype(np.float32)
    constants = {"step": np.int64(160), "window": window, "frame": np.int64(512), "least": np.float32(1e-6), "bank": bank,
                 "dct": dct, "last": np.array([2], np.int64), "parts": np.array([3], np.int64)}
    nodes = [h.make_node("Unsqueeze", ["x", "last"], ["signal"]),
             h.make_node("STFT", ["signal", "step", "window", "frame"], ["both"], onesided=1),
             h.make_node("ReduceSumSquare", ["both", "parts"], ["power"], keepdims=0)]
    if KIND == "STFT":
        nodes += [h.make_node("Sqrt", ["power"], ["y"])]
    else:
        nodes += [h.make_node("MatMul", ["power", "bank"], ["mel"]), h.make_node("Add", ["mel", "least"], ["more"]),
                  h.make_node("Log", ["more"], ["log"]), h.make_node("MatMul", ["log", "dct"], ["y"])]
    used = {name for node in nodes for name in node.input}
    graph = h.make_graph(nodes, "audio", [h.make_tensor_value_info("x", 1, x.shape)], [h.make_tensor_value_info("y", 1, None)],
                         [n.from_array(np.asarray(value), name) for name, value in constants.items() if name in used])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    run, result = lambda: session.run_with_iobinding(binding), lambda: binding.copy_outputs_to_cpu()[0]
run()
np.save(OUT, result())
least = 1e9
for _ in range(200):
    start = time.perf_counter()
    run()
    least = min(least, time.perf_counter() - start)
print(least)
"""


def main() -> None:
    """Prints the table, or puts it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="x86-64-v4", help="the CPU level")
    parser.add_argument("--page", type=pathlib.Path, help="put the table into this page")
    flags = parser.parse_args()
    import numpy as np
    import tensorflow as tf

    pinned = ["taskset", "-c", str(harness.last_cpus()[0])]
    peers = {"LiteRT": environments.python("litert"), "ONNX Runtime": environments.python("onnxruntime")}
    on, rows = compare.machine(None), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        x = np.random.default_rng(0).standard_normal((1, 16000)).astype(np.float32)
        x.tofile(folder / "x.bin")
        dct = tf.signal.mfccs_from_log_mel_spectrograms(tf.eye(BANDS)).numpy()[:, :KEPT]
        bank = tf.signal.linear_to_mel_weight_matrix(BANDS, FRAME // 2 + 1, 16000, 20.0, 8000.0).numpy()
        for path, value in (("x", x), ("dct", dct), ("bank", bank)):
            np.save(folder / f"{path}.npy", value)
        for kind in ("STFT", "MFCC"):
            source = folder / f"{kind}.py"
            text = MODEL.replace("KIND", repr(kind))
            source.write_text(text.replace("PRODUCT", "False"))
            names: dict[str, Any] = {}
            exec(text.replace("PRODUCT", "True"), names)
            wanted = names["model"](x).numpy()
            converter = tf.lite.TFLiteConverter.from_concrete_functions([names["model"].get_concrete_function()])
            (folder / f"{kind}.tflite").write_bytes(converter.convert())
            binary = beside_jax.compiled(folder, source, {"Run": ["x"]}, flags.level)

            def ours(binary: str = binary) -> float:
                return float(subprocess.check_output([*pinned, binary, "Run", str(folder / "x.bin")], text=True))

            def peer(title: str, kind: str = kind, wanted: Any = wanted) -> float:
                paths = [folder / f"{kind}.tflite", *(folder / f"{n}.npy" for n in ("x", "out", "bank", "dct"))]
                command = [*pinned, peers[title], "-c", PEER, kind, title, *map(str, paths)]
                printed = subprocess.check_output(command, text=True, env={"PATH": "/usr/bin:/bin"})
                np.testing.assert_allclose(np.load(folder / "out.npy"), wanted, 1e-3, 1e-3 * np.abs(wanted).max())
                return float(printed.split()[-1])

            rounds = [{"ours": ours(), **{title: peer(title) for title in peers}} for _ in range(ROUNDS)]
            best = {title: min(times[title] for times in rounds) for title in rounds[0]}
            row = [f"{kind} of 1 s", pages.number(1e6 * best["ours"])]
            for title in peers:
                row += [pages.number(1e6 * best[title]), f"{best[title] / best['ours']:.2f}"]
            rows.append(row)
    words = (
        f"    python3 benchmarks/audio.py --level {flags.level}\n\n{on['cpu']}, one core, with other work beside it; "
        f"{on['compiler']}; 16,000 samples, 97 frames of {FRAME}; {ROUNDS} rounds."
    )
    heads = ["front end", "ours, µs", "LiteRT, µs", "/ ours", "ONNX Runtime, µs", "/ ours"]
    section = "\n".join([words, "", *pages.table(heads, rows)])
    print(section)
    if flags.page:
        pages.put(beside_jax.ROOT / flags.page, "benchmarks/audio.py", section)


if __name__ == "__main__":
    main()
