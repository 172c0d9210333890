"""Families of TensorFlow's ops and of JAX's, with TensorFlow's JIT, JAX's JIT, and the rules: what still can't be compiled.

    PYTHONPATH=py:.:tools/python python3 tests/breadth/families.py [--jax jaxenv/bin/python] [--page docs/measured/jax.md]

It needs the packages of `tools/python/requirements.lock`, and the runtime's objects (./bazelw build //tests/stages:native_objects).
Each family is a small model. The rules' results must be TensorFlow's. What the rules refuse has advice, which
tests/preflight/advice_test.py and tests/breadth/jax_programs_test.py follow.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pages
from tests.breadth import engine
from tests.preflight.advice_test import CASES
from tests.stages import harness
from tfaot.core import isolate
from tfaot.core.errors import TfaotError

_NORMAL = np.random.default_rng(1).standard_normal


def _f(*shape: int) -> engine.Array:
    return _NORMAL(shape).astype(np.float32)


def _c(*shape: int) -> engine.Array:
    return (_f(*shape) + 1j * _f(*shape)).astype(np.complex64)


_SPD = _f(4, 4)
OPERANDS: Mapping[str, engine.Array] = {
    "X": _f(3, 4),
    "Y": _f(4, 5),
    "Q": _f(4, 4),
    "S": (_SPD @ _SPD.T + np.eye(4)).astype(np.float32),
    "W": _f(400),
    "C": _c(4, 6, 8),
    "I": np.array([0, 0, 1, 2, 2, 3], np.int32),
    "R": _f(6, 2),
    "M": _f(1, 8, 8, 3),
    "K": _f(3, 3, 3, 4),
    "V": _f(1, 4, 6, 6, 2),
    "L": _f(2, 3, 2, 2, 3),
    "B": np.sort(np.abs(_f(8, 4)), 1),
    "P": np.abs(_f(8)),
    "F": _f(7, 2, 5),
    "D": np.array([3, 4], np.int32),
    "U": _f(2, 2, 12),
    "E": np.array([3], np.int32),
}
"""Operands by the letter that stands for them in expressions."""

FAMILIES: Mapping[str, str] = {
    "elementwise": "tf.math.erf(X) * tf.nn.gelu(X) + tf.exp(X)",
    "special functions": "tf.math.lgamma(tf.abs(X) + 1), tf.math.igamma(2.0, tf.abs(X)), tf.math.betainc(2.0, 3.0, tf.sigmoid(X))",
    "Bessel functions": "tf.math.bessel_i0e(X) + tf.math.bessel_i1e(X)",
    "complex numbers": "tf.abs(C * tf.math.conj(C) + tf.exp(C))",
    "16-bit floats": "tf.cast(tf.cast(X, tf.bfloat16) * 2, tf.float32) + tf.cast(tf.cast(X, tf.float16), tf.float32)",
    "integers": "tf.bitwise.bitwise_xor(I, 3) // 2 + I % 3",
    "products": "X @ Y",
    "einsum": "tf.einsum('ij,jk,kl->il', X, Q, Y)",
    "convolutions of 1 dimension": "tf.nn.conv1d(U, tf.ones([3, 12, 4]), 1, 'SAME')",
    "convolutions": "tf.nn.conv2d(M, K, 2, 'SAME')",
    "depthwise convolutions": "tf.nn.depthwise_conv2d(M, K, [1, 1, 1, 1], 'VALID')",
    "dilated convolutions": "tf.nn.conv2d(M, K, 1, 'SAME', dilations=2)",
    "transposed convolutions": "tf.nn.conv2d_transpose(tf.nn.conv2d(M, K, 2, 'SAME'), K, [1, 8, 8, 3], 2)",
    "gradients of convolutions": "tf.gradients(tf.reduce_sum(tf.nn.conv2d(M, K, 2, 'SAME') ** 2), [M, K])",
    "3-D convolutions": "tf.nn.conv3d(V, L, [1, 1, 2, 2, 1], 'SAME')",
    "gradients of 3-D convolutions": "tf.gradients(tf.reduce_sum(tf.nn.conv3d(V, L, [1, 1, 1, 1, 1], 'SAME') ** 2), [V, L])",
    "transposed 3-D convolutions": "tf.nn.conv3d_transpose(tf.nn.conv3d(V, L, [1] * 5, 'SAME'), L, [1, 4, 6, 6, 2], [1] * 5)",
    "pooling": "tf.nn.max_pool2d(M, 2, 2, 'SAME'), tf.nn.avg_pool2d(M, 3, 1, 'VALID')",
    "3-D pooling": "tf.nn.max_pool3d(V, 2, 2, 'SAME'), tf.nn.avg_pool3d(V, 2, 2, 'VALID')",
    "pooling with positions": "tf.nn.max_pool_with_argmax(M, 2, 2, 'SAME')",
    "fractional pooling": "tf.nn.fractional_max_pool(M, 1.5, seed=3)[0]",
    "dilations": "tf.nn.dilation2d(M, tf.zeros((3, 3, 3)), [1, 1, 1, 1], 'VALID', 'NHWC', [1, 1, 1, 1])",
    "normalization": "tf.nn.local_response_normalization(M) + tf.nn.batch_normalization(M, 0.1, 2.0, 0.2, 0.3, 1e-3)",
    "patches": "tf.image.extract_patches(M, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], 'VALID')",
    "space and depth": "tf.nn.space_to_depth(M, 2), tf.space_to_batch(M, [2, 2], [[0, 0], [0, 0]])",
    "softmax": "tf.nn.softmax(X), tf.nn.log_softmax(X), tf.nn.sparse_softmax_cross_entropy_with_logits([1, 0, 2], X)",
    "reductions": "tf.reduce_max(X, 0), tf.reduce_mean(X, 1), tf.math.reduce_std(X), tf.reduce_logsumexp(X, 1)",
    "cumulative sums": "tf.cumsum(X, 1), tf.math.cumprod(X), tf.math.cumulative_logsumexp(X, 1)",
    "argmax": "tf.argmax(X, 1), tf.argmin(X, 0)",
    "top k": "tf.math.top_k(X, 2)",
    "sorts": "tf.sort(X, 1), tf.argsort(X, 1, stable=True)",
    "n-th elements": "tf.raw_ops.NthElement(input=X, n=1)",
    "searches": "tf.searchsorted(tf.sort(P), P), tf.raw_ops.Bucketize(input=X, boundaries=[0.0, 1.0])",
    "unique values": "tf.unique(I)",
    "counts of unique values": "tf.unique_with_counts(I)",
    "where": "tf.where(X > 0)",
    "masks": "tf.boolean_mask(X, X[:, 0] > 0)",
    "differences of lists": "tf.raw_ops.ListDiff(x=[1, 2, 3, 4], y=[2, 3])",
    "gathers": "tf.gather(R, I), tf.gather_nd(X, [[0, 1], [2, 3]])",
    "scatters": "tf.tensor_scatter_nd_add(R, I[:, None], R), tf.scatter_nd(I[:, None], R, [6, 2])",
    "segments": "tf.math.segment_sum(R, I)",
    "segments without order": "tf.math.unsorted_segment_max(R, I, 4), tf.math.unsorted_segment_mean(R, I, 4)",
    "histograms": "tf.raw_ops.DenseBincount(input=I, size=5, weights=tf.ones([6]))",
    "bincount": "tf.math.bincount(I, minlength=5, maxlength=5)",
    "histograms of floats": "tf.histogram_fixed_width(X, [-2.0, 2.0], 5)",
    "one hot": "tf.one_hot(I, 4)",
    "slices": "X[1:, ::-1], tf.pad(X, [[1, 0], [0, 2]], 'REFLECT'), tf.roll(X, 1, 1), tf.tile(X, [1, 2])",
    "reversed sequences": "tf.reverse_sequence(X, [1, 3, 2], 1)",
    "partitions": "tf.dynamic_partition(R, tf.cast(R[:, 0] > 0, tf.int32), 2)",
    "stitches": "tf.dynamic_stitch([[0, 2], [1, 3]], [X[:2], X[1:]])",
    "diagonals": "tf.linalg.diag(X), tf.linalg.band_part(Q, 1, 0), tf.linalg.set_diag(Q, X[0])",
    "bits": "tf.bitcast(X, tf.int32), tf.raw_ops.PopulationCount(x=I)",
    "sets": "tf.sets.intersection(I[None], I[None, :3]).values",
    "edit distances": "tf.edit_distance(tf.sparse.from_dense(I[None, 2:]), tf.sparse.from_dense(I[None, 3:]))",
    "resizing, bilinear": "tf.image.resize(M, [5, 11]), tf.image.resize(M, [5, 11], 'nearest')",
    "resizing, bicubic": "tf.image.resize(M, [5, 11], 'bicubic')",
    "resizing, area": "tf.image.resize(M, [5, 11], 'area')",
    "crops with resizing": "tf.image.crop_and_resize(M, [[0.1, 0.1, 0.9, 0.8]], [0], [3, 3])",
    "colors": "tf.image.rgb_to_hsv(tf.abs(M)), tf.image.adjust_contrast(M, 2.0)",
    "non-maximum suppression": "tf.image.non_max_suppression_padded(B, P, 3, pad_to_max_output_size=True)[0]",
    "non-maximum suppression of classes": "tf.image.combined_non_max_suppression(B[None, :, None], P[None, :, None], 3, 3)[1]",
    "fft": "tf.signal.fft(C), tf.signal.ifft(C)",
    "rfft": "tf.signal.rfft(X), tf.signal.irfft(tf.signal.rfft(X))",
    "fft2d": "tf.signal.fft2d(C), tf.signal.irfft2d(tf.signal.rfft2d(X))",
    "fft3d": "tf.signal.fft3d(C), tf.signal.irfft3d(tf.signal.rfft3d(M[0]))",
    "fftnd": "tf.signal.fftnd(C, axes=[1])",
    "stft": "tf.abs(tf.signal.stft(W, 64, 32))",
    "istft": "tf.signal.inverse_stft(tf.signal.stft(W, 64, 32), 64, 32)",
    "mfcc": "tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(tf.abs(F) + 1))",
    "dct": "tf.signal.dct(X), tf.signal.idct(X)",
    "mdct": "tf.signal.mdct(W, 40)",
    "spectrograms": "tf.raw_ops.AudioSpectrogram(input=W[:, None], window_size=64, stride=32)",
    "Cholesky": "tf.linalg.cholesky(S)",
    "triangular solve": "tf.linalg.triangular_solve(S, Q)",
    "LU": "tf.linalg.lu(Q)",
    "solve": "tf.linalg.solve(S, Q)",
    "inverse": "tf.linalg.inv(S)",
    "determinant": "tf.linalg.det(Q), tf.linalg.slogdet(Q)",
    "QR": "tf.linalg.qr(Y)",
    "SVD": "tf.linalg.svd(Y, compute_uv=False)",
    "eigh": "tf.linalg.eigvalsh(S)",
    "eig": "tf.sort(tf.abs(tf.linalg.eigvals(Q)))",
    "least squares": "tf.linalg.lstsq(Q, Y, fast=False), tf.linalg.pinv(Y)",
    "exponential of a matrix": "tf.linalg.expm(Q)",
    "square root of a matrix": "tf.linalg.sqrtm(S)",
    "logarithm of a matrix": "tf.math.real(tf.linalg.logm(tf.cast(S, tf.complex64)))",
    "tridiagonal solve": "tf.linalg.tridiagonal_solve((P * 0.1, P + 9, P * 0.2), P, 'sequence')",
    "random numbers": "tf.random.stateless_uniform([4], D), tf.random.stateless_normal([4], D)",
    "random categories": "tf.cast(tf.random.stateless_categorical(X, 2, D), tf.float32) * 0",
    "random gamma": "tf.random.stateless_gamma([4], D, 2.0)",
    "random Poisson": "tf.random.stateless_poisson([4], D, 2.0)",
    "random binomial": "tf.random.stateless_binomial([4], D, 9.0, 0.4)",
    "loops": "tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.sin(x)), (0, X))[1]",
    "scans": "tf.scan(lambda a, b: a * 0.5 + b, X), tf.map_fn(tf.cumsum, X)",
    "branches": "tf.cond(X[0, 0] > 0, lambda: tf.sin(X), lambda: tf.cos(X)), tf.switch_case(D[0], [lambda: X, lambda: -X])",
    "gradients of loops": "tf.gradients(tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (0, X), "
    "maximum_iterations=3)[1], X)",
    "gradients of loops without a bound": "tf.gradients(tf.while_loop(lambda i, x: i < E[0], "
    "lambda i, x: (i + 1, x * x), (0, X))[1], X)",
    "lists": "tf.TensorArray(tf.float32, 3).unstack(X).write(1, X[0]).stack()",
    "lists that grow": "tf.TensorArray(tf.float32, 0, dynamic_size=True).write(0, X).write(1, X).stack()",
    "vectorized maps": "tf.vectorized_map(lambda row: tf.sin(row) * tf.reduce_sum(row), X)",
    "CTC loss": "tf.nn.ctc_loss(I[None, 2:5], F[:, :1], [3], [7])",
    "CTC decoders": "tf.nn.ctc_greedy_decoder(F, [7, 7])[1]",
    "sparse tensors": "tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(Q), Y)",
    "ragged tensors": "tf.reduce_sum(tf.RaggedTensor.from_row_lengths(X, [1, 2]), 1)",
    "sizes that depend on values": "tf.reduce_sum(tf.ones([E[0], 2]) * tf.cast(tf.range(E[0])[:, None], tf.float32))",
    "fake quantization": "tf.quantization.fake_quant_with_min_max_args(X, -1, 1)",
    "quantized numbers": "tf.raw_ops.QuantizeV2(input=X, min_range=0.0, max_range=2.0, T=tf.quint8)[1]",
    "uniform quantization": "tf.cast(tf.raw_ops.UniformDequantize(input=tf.raw_ops.UniformQuantize(input=X, scales=0.1, "
    "zero_points=0, Tout=tf.qint8, quantization_min_val=-128, quantization_max_val=127), scales=0.1, zero_points=0, "
    "Tout=tf.float32, quantization_min_val=-128, quantization_max_val=127), tf.float32)",
    "strings": "tf.strings.length(tf.strings.as_string(X))",
    "tables": "tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6]), -1).lookup(I)",
    "files and images": "tf.io.decode_raw(tf.strings.as_string(I), tf.uint8)",
    "candidate samplers": "tf.random.uniform_candidate_sampler(tf.cast(I[:, None], tf.int64), 1, 3, True, 9)[0]",
    "callbacks": "tf.ensure_shape(tf.numpy_function(lambda a: a + 1, [X], tf.float32), (3, 4))",
    "printing": "(tf.print(X), X)[1] + 1",
    "assertions": "(tf.debugging.assert_greater(P, -1.0), P)[1]",
    "other devices": "tf.raw_ops.CollectiveGatherV2(input=X, group_size=2, group_key=1, instance_key=1, ordering_token=[])",
}
"""A model of each family: Python in which capital letters stand for operands."""

ADVICE: Mapping[str, str] = {
    "CTC decoders": "CTCGreedyDecoder",
    "callbacks": "py_function",
    "candidate samplers": "candidates",
    "counts of unique values": "UniqueWithCounts",
    "crops with resizing": "CropAndResize",
    "dilations": "Dilation2D",
    "edit distances": "candidates",
    "fftnd": "FFTND",
    "fractional pooling": "FractionalMaxPool",
    "files and images": "decoded",
    "gradients of loops without a bound": "unbounded loop",
    "histograms of floats": "HistogramFixedWidth",
    "lists that grow": "growing list",
    "logarithm of a matrix": "MatrixLogarithm",
    "n-th elements": "NthElement",
    "non-maximum suppression of classes": "CombinedNonMaxSuppression",
    "other devices": "collective",
    "pooling with positions": "MaxPoolWithArgmax",
    "printing": "StringFormat",
    "quantized numbers": "quantized",
    "ragged tensors": "ragged rows",
    "random Poisson": "candidates",
    "random binomial": "candidates",
    "random gamma": "candidates",
    "resizing, area": "ResizeArea",
    "resizing, bicubic": "ResizeBicubic",
    "segments": "SegmentSum",
    "sets": "candidates",
    "sizes that depend on values": "argument",
    "sparse tensors": "sparse",
    "spectrograms": "AudioSpectrogram",
    "strings": "strings",
    "tables": "table",
    "tridiagonal solve": "TridiagonalSolve",
}
"""The case of tests/preflight/advice_test.py that follows the advice on a family."""


REASONS: Mapping[str, str] = {
    "ragged tensors": "constant row lengths, which TensorFlow folds before its JIT",
    "sizes that depend on values": "it compiles at the call, and again for each other size",
}
"""Why TensorFlow's JIT compiles what the rules don't."""


def case(family: str) -> engine.Case:
    """Returns a family's model."""
    used: list[str] = []

    def operand(match: re.Match[str]) -> str:
        if match[0] not in OPERANDS:
            return match[0]
        used.extend([] if match[0] in used else match[0])
        return f"{{{used.index(match[0])}}}"

    text = re.sub(r"'[^']*'|\w+", operand, FAMILIES[family].replace("{", "{{").replace("}", "}}"))
    operands = tuple(engine.Operand(OPERANDS[letter], fed=True) for letter in used)
    return engine.Case(family, f"({text})", operands, sums=True, rtol=1e-4, atol=1e-5)


def compiles(model: engine.Case, folder: Path) -> bool:
    """Returns whether TensorFlow's JIT computes what TensorFlow does, in a process of its own, which XLA may end."""
    path = folder / "model.py"
    path.write_text(engine.model_text([model])[0])

    def work() -> None:
        import tensorflow as tf

        names: dict[str, Any] = {}
        exec(compile(path.read_text(), path, "exec"), names)
        feeds = [*names["golden_fn"](0, None).values()]
        jitted = tf.function(lambda *values: names["model"](*values), jit_compile=True)(*feeds)
        for got, want in zip(tf.nest.flatten(jitted), tf.nest.flatten(names["model"](*feeds)), strict=True):
            np.testing.assert_allclose(got, want, 1e-3, 1e-4)

    try:
        with engine.silent(folder / "log"):
            isolate.run_isolated(work, what="TensorFlow's JIT")
    except (TfaotError, RuntimeError):
        return False
    return True


def refused_by_jax(python: str, folder: Path) -> dict[str, tuple[str, bool]]:
    """Returns what the rules refuse of JAX, with the advice, and whether JAX's JIT compiles it."""
    archive = folder / "programs.zip"
    variables = {**os.environ, "PYTHONPATH": str(engine.ROOT / "py"), "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [python, "-B", str(Path(__file__).with_name("jax_programs.py")), str(archive)], check=True, env=variables
    )
    with zipfile.ZipFile(archive) as file:
        index = json.loads(file.read("index.json"))
    return {name: (index["advice"][name], jit) for family, name, _, jit in index["programs"] if family == "refused"}


def text(outcomes: Mapping[str, str], jits: Mapping[str, bool], jax: Mapping[str, tuple[str, bool]]) -> str:
    """Returns the section: how many families compile, and a row for each that the rules refuse."""
    ours = {name: kind == engine.PASSES for name, kind in outcomes.items()}
    shown = {True: "yes", False: "no"}
    rows = []
    for name in sorted({name for name in ours if not ours[name]} | jax.keys(), key=str.lower):
        theirs, jitted = shown[jits[name]] if name in jits else "–", jax.get(name, ("", False))
        advice = [CASES[ADVICE[name]][0]] if name in ADVICE else []
        advice += [f"JAX: {jitted[0]}"] if name in jax and jitted[0] not in advice else []
        cells = [
            name,
            theirs,
            shown[jitted[1]] if name in jax else "–",
            shown[ours.get(name, False)],
            "; ".join(advice),
        ]
        rows.append([cell.replace("|", "/") for cell in cells])
    both = sum(jits.values())
    left = [f"{name} ({REASONS[name]})" for name in ours if jits[name] and not ours[name]]
    more = [name for name in ours if ours[name] and not jits[name]]
    return "\n".join(
        [
            f"Of {len(ours)} families of TensorFlow's ops, each a small model, `jit_compile=True` compiles {both} to TensorFlow's "
            f"results, and the rules {sum(ours.values())}. "
            + (f"The JIT alone compiles {'; '.join(left)}. " if left else "All that the JIT compiles is among them. ")
            + f"The rules alone compile {', '.join(more)}. What the rules refuse:",
            "",
            *pages.table(["family", "TensorFlow's JIT", "JAX's JIT", "the rules", "instead"], rows),
        ]
    )


def main() -> None:
    """Prints the section, or puts it into a page. Prints families with other results than TensorFlow's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", required=True, help="a Python that has JAX")
    parser.add_argument("--page", help="the page whose section to replace")
    parser.add_argument("--only", nargs="*", help="names of families")
    flags = parser.parse_args()
    harness.warm()
    folder = Path(tempfile.mkdtemp())
    try:
        models = {name: case(name) for name in flags.only or FAMILIES}
        jits = {name: compiles(model, folder) for name, model in models.items()}
        runner = engine.Engine(folder, flags=("-O0",))
        together = [model for name, model in models.items() if name not in ADVICE]
        groups = [*engine.chunks(together, 12), *([models[name]] for name in ADVICE if name in models)]
        outcomes = [outcome for group in groups for outcome in runner.outcomes(group)]
        for outcome in outcomes:
            if (outcome.case.op in ADVICE) != (outcome.kind == engine.REFUSED) or outcome.kind != engine.PASSES:
                print(f"{outcome.case.op}: {outcome.kind}\n{outcome.details[-700:]}\n", flush=True)
        section = text({outcome.case.op: outcome.kind for outcome in outcomes}, jits, refused_by_jax(flags.jax, folder))
    finally:
        shutil.rmtree(folder)
    if flags.page:
        pages.put(Path(flags.page), "tests/breadth/families.py", section)
    else:
        print(section)


if __name__ == "__main__":
    main()
