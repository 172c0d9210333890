"""padding: models whose inputs aren't cut to their size any more give the results of inputs of that size."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np

from tests.compile.passes.graphs import Array, PassTest, compiled, config_of
from tfaot.graph.attributes import FLOATS, attribute
from tfaot.graph.ops import OPEN_SIZE
from tfaot.xla.padding import BEHIND, DIFFERS, ENDS, UNKNOWN

BUCKET = 16
RNG = np.random.default_rng(0)


def cut(x: Array, axes: Mapping[int, int], sizes: Sequence[Any]) -> tuple[slice, ...]:
    """Returns the part of an input that a run has."""
    return tuple(slice(sizes[axes[axis]]) if axis in axes else slice(None) for axis in range(x.ndim))


def normal(*shape: int) -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(np.float32)


def behind_nan(graph: Any) -> Any:
    """Puts NaN behind the end of what XLA gave a bounded size, in place of what is in memory there."""
    import tensorflow as tf

    from tfaot.graph.program import Program

    program, int32 = Program(graph, {}, ()), np.dtype("int32")
    nodes = program.nodes()
    for node in [*graph.node]:
        if node.op == "XlaRemoveDynamicDimensionSize":
            program.become(node, "Identity", node.input[:1], T=node.attr["T"])
        elif node.op == "Slice" and node.name.endswith("/padded"):
            dtype, (values, _, size) = node.attr["T"], node.input
            rank = tf.make_ndarray(nodes[size].attr["value"].tensor).size
            shape = program.add("Shape", "behind", [values], origin="", T=dtype, out_type=int32)
            more = program.add("Sub", "behind", [size, shape.name], origin="", T=int32)
            zero = program.constant("behind", np.zeros(rank, np.int32), origin="")
            pads = program.add("Pack", "behind", [zero.name, more.name], origin="", N=2, T=int32, axis=1)
            nan = np.array(np.nan if dtype.type in FLOATS else -(2**31)).astype(tf.as_dtype(dtype.type).as_numpy_dtype)
            rest = program.constant("behind", nan, origin="")
            program.become(node, "PadV2", [values, pads.name, rest.name], T=dtype, Tpaddings=int32)
    return graph


Axes = Mapping[int, int]
"""The dimensions of an input that have a size, and which one."""


class PaddingTest(PassTest):
    """The pass on models of inputs such as `x[:, :n]`."""

    def applied(
        self, model: Callable[..., Any], *inputs: Array, axes: Sequence[Axes] = ({1: 0},)
    ) -> tuple[Any, list[str], list[dict[str, str]]]:
        """Applies the pass to a model. Returns the graph, its fetches, and near misses."""
        import tensorflow as tf

        from tfaot.compile import table

        count = 1 + max(size for sizes in axes for size in sizes.values())
        with tf.Graph().as_default() as graph:
            sizes = [tf.compat.v1.placeholder(tf.int32, [], f"x{len(inputs) + size}") for size in range(count)]
            cuts = []
            for index, (x, of_x) in enumerate(zip(inputs, axes, strict=True)):
                shape = [None if axis in of_x else size for axis, size in enumerate(x.shape)]
                cuts.append(tf.compat.v1.placeholder(x.dtype, shape, f"x{index}")[cut(x, of_x, sizes)])
            results = model(*cuts)
            results = results if isinstance(results, (list, tuple)) else [results]
            fetches = [tf.identity(result, f"result{index}").name for index, result in enumerate(results)]
        before = graph.as_graph_def()
        for node in before.node:
            if node.name in {cut.op.name for cut in cuts}:
                node.attr[OPEN_SIZE].CopyFrom(attribute("size"))
        feeds = [*inputs, *[np.array(1, np.int32)] * count]
        config = config_of([f"x{index}:0" for index in range(len(feeds))], feeds, fetches)
        applied = table.apply(before, config, ["padding"])
        if not applied.places["padding"]:
            self.assertEqual(len(applied.missed), 1)
        return behind_nan(applied.graph), fetches, applied.missed

    def exact(
        self,
        model: Callable[..., Any],
        *inputs: Array,
        sizes: Sequence[int | tuple[int, ...]] = (1, 2, 7, 15, 16),
        axes: Sequence[Axes] = ({1: 0},),
        bounded: Sequence[str] | None = (),
    ) -> None:
        """Asserts that the pass applies, and that no result depends on what is behind the end.

        Args:
          model: a function of tensors.
          *inputs: its inputs at the bucket's size.
          sizes: sizes to compare at.
          axes: the inputs' open dimensions.
          bounded: why the pass leaves ops to XLA. None for any reasons.
        """
        import tensorflow as tf

        graph, fetches, missed = self.applied(model, *inputs, axes=axes)
        if bounded is not None:
            self.assertEqual([miss["reason"] for miss in missed], [*bounded])
        padded = compiled(graph, fetches)
        for size in sizes:
            point = size if isinstance(size, tuple) else (size,)
            parts = [x[cut(x, of_x, point)] for x, of_x in zip(inputs, axes, strict=True)]
            results = model(*map(tf.constant, parts))
            wanted = [np.asarray(r) for r in (results if isinstance(results, (list, tuple)) else [results])]
            for behind in (np.nan, 3e38, -np.inf) if inputs[0].dtype.kind == "f" else (-(2**31), 2**31 - 1):
                fed = [np.full(x.shape, behind, x.dtype) for x in inputs]
                for whole, part in zip(fed, parts, strict=True):
                    whole[tuple(map(slice, part.shape))] = part
                got = padded(*fed, *(np.array(number, np.int32) for number in point))
                for have, want in zip(got, wanted, strict=True):
                    self.assertEqual(have.shape, want.shape)
                    largest = np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=1)
                    close = 1e-5 if want.dtype != np.float64 else 1e-9
                    np.testing.assert_allclose(have, want, close, close * largest, err_msg=f"sizes {point}, {behind}")

    def stays(self, model: Callable[..., Any], *inputs: Array, reason: str, axes: Sequence[Axes] = ({1: 0},)) -> None:
        """Asserts that the proof ends, and where."""
        _, _, missed = self.applied(model, *inputs, axes=axes)
        self.assertEqual(missed[0]["reason"], reason)

    def test_elementwise(self) -> None:
        """Protects what depends on one place alone: dense layers, norms, embeddings, splits, and reshapes."""
        import tensorflow as tf

        w, bias, table = normal(6, 4), normal(4), normal(10, 5)

        def layers(x: Any) -> Any:
            y = tf.nn.gelu(x @ w) + bias
            mean, variance = tf.nn.moments(y, -1, keepdims=True)
            y = (y - mean) * tf.math.rsqrt(variance + 1e-6)
            a, b = tf.split(y, 2, 2)
            return [a * b, tf.reshape(tf.transpose(y, [1, 0, 2]), [-1, 2, 2, 2]), tf.concat([a, a + 1], 2)]

        self.exact(layers, normal(2, BUCKET, 6))
        tokens = RNG.integers(0, 10, (3, BUCKET)).astype(np.int32)
        self.exact(lambda x: tf.gather(table, x), tokens)

    def test_reductions(self) -> None:
        """Protects sums, means, extremes, and softmaxes along the size, which need a mask."""
        import tensorflow as tf

        def reduced(x: Any) -> Any:
            return [
                tf.reduce_sum(x, 1),
                tf.reduce_mean(x, [1, 2], keepdims=True),
                tf.reduce_max(x, 1),
                tf.reduce_min(tf.exp(x), 1),
                tf.reduce_any(x > 1, 1),
                tf.reduce_all(x < 1, 1),
                tf.reduce_prod(x, 1),
                tf.nn.softmax(x, 1),
                tf.math.reduce_std(x, 1),
                tf.reduce_logsumexp(x, 1),
            ]

        self.exact(reduced, normal(2, BUCKET, 3))
        self.exact(lambda x: tf.reduce_max(x, 1), RNG.integers(0, 10, (3, BUCKET)).astype(np.int32))

    def test_attention(self) -> None:
        """Protects attention, whose scores have the size twice."""
        import tensorflow as tf

        w = normal(8, 24)

        def attention(x: Any) -> Any:
            rows, length = tf.shape(x)[0], tf.shape(x)[1]
            q, k, v = (
                tf.transpose(tf.reshape(part, [rows, length, 2, 4]), [0, 2, 1, 3]) for part in tf.split(x @ w, 3, 2)
            )
            causal = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
            scores = tf.matmul(q, k, transpose_b=True) + (causal - 1) * 1e9
            y = tf.nn.softmax(scores) @ v
            other = tf.einsum("bhqk,bhkd->bqhd", tf.nn.softmax(tf.einsum("bhqd,bhkd->bhqk", q, k)), v)
            return [tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [rows, length, 8]), other]

        self.exact(attention, normal(2, BUCKET, 8))

    def test_windows(self) -> None:
        """Protects convolutions and pools: causal ones, those of the same size, and dilated ones, one behind another."""
        import tensorflow as tf

        w, other = normal(3, 4, 5), normal(5, 5, 2)

        def windows(x: Any) -> Any:
            causal = tf.nn.conv1d(tf.pad(x, [[0, 0], [2, 0], [0, 0]]), w, 1, "VALID")
            same = tf.nn.relu(tf.nn.conv1d(x, w, 1, "SAME"))
            again = tf.nn.conv1d(same, other, 1, "SAME")
            dilated = tf.nn.convolution(same, other, padding="SAME", dilations=[2])
            dilated = tf.nn.convolution(tf.pad(dilated, [[0, 0], [6, 0], [0, 0]]), w[:, :2], dilations=[3])
            return [causal, again, tf.nn.max_pool1d(x, 3, 1, "SAME"), dilated]

        self.exact(windows, normal(2, BUCKET, 4))

    def test_strides(self) -> None:
        """Protects windows with strides: results have fewer values, and their number depends on the size."""
        import tensorflow as tf

        w, other = normal(3, 4, 5), normal(3, 5, 5)

        def front(x: Any) -> Any:
            y = tf.nn.conv1d(tf.nn.conv1d(x, w, 2, "VALID"), other, 1, "SAME")
            return [y, tf.reduce_mean(y, 1), tf.matmul(y, y, transpose_b=True) @ y]

        self.exact(front, normal(2, BUCKET, 4), sizes=(3, 4, 5, 9, 10, 15, 16))
        image = normal(3, 4, 1, 6)

        def same(x: Any) -> Any:
            y = tf.nn.relu(tf.nn.conv1d(x, w, 2, "SAME"))
            z = tf.nn.conv2d(x[..., None], image, [1, 2, 3, 1], "SAME")
            pools = [pool(x, 4, stride, "SAME") for pool in (tf.nn.max_pool1d, tf.nn.avg_pool1d) for stride in (2, 3)]
            padded = tf.nn.conv1d(tf.pad(x, [[0, 0], [2, 3], [0, 0]]), w, 2, "VALID")
            return [y, tf.nn.conv1d(y, other, 2, "SAME"), z, *pools, tf.reduce_sum(y, 1), padded]

        self.exact(same, normal(2, BUCKET, 4), sizes=(1, 2, 3, 6, 7, 8, 15, 16))
        square = normal(3, 3, 4, 5)
        self.exact(
            lambda x: [tf.nn.conv2d(x, square, 2, "SAME"), tf.nn.avg_pool2d(x, [2, 3], [2, 1], "SAME")],
            normal(2, BUCKET, BUCKET, 4),
            sizes=((1, 1), (1, 16), (15, 1), (7, 10), (16, 16)),
            axes=({1: 0, 2: 1},),
        )

    def test_frames(self) -> None:
        """Protects windows that a model cuts itself, any number of values apart, and transforms of them."""
        import tensorflow as tf

        for length, step, pads in ((25, 10, False), (25, 10, True), (12, 20, False)):
            self.exact(
                functools.partial(tf.signal.frame, frame_length=length, frame_step=step, pad_end=pads),
                normal(2, 64),
                sizes=(1, 24, 25, 34, 35, 63, 64),
            )

        def spectrum(x: Any) -> Any:
            frames = tf.signal.stft(x, 25, 10, 32, pad_end=True)
            pairs = tf.tile(frames[..., None], [1, 1, 1, 4])
            return [tf.abs(frames), tf.signal.irfft2d(tf.reshape(pairs, [2, -1, 17, 4]))]

        *_, missed = self.applied(spectrum, normal(2, 64))  # the runtime has its numbers
        self.assertEqual(missed, [])

    def test_orders(self) -> None:
        """Protects sorts and places of extremes, also where values are infinite or the same, and cumulative sums."""
        import tensorflow as tf

        def ordered(x: Any) -> Any:
            x = tf.where(x > 1, -np.inf, tf.floor(x))  # no -0, which XLA sorts before 0
            every = tf.linalg.band_part(tf.ones([tf.shape(x)[1]] * 2, tf.int32), -1, 0)
            sums = tf.reduce_sum(tf.where(every[..., None] > 0, x[:, None], 0.0), 2)
            best = tf.argmax(x, 1)
            taken = tf.gather(x, best[:, 0], axis=1, batch_dims=1)
            return [
                tf.sort(x, 1),
                tf.argsort(x, 1, "DESCENDING"),
                tf.sort(x, 1)[:, 0],
                best,
                tf.argmin(x, 1),
                taken,
                sums,
            ]

        self.exact(ordered, normal(2, BUCKET, 4))
        whole = RNG.integers(-(2**31), 2**31 - 1, (2, BUCKET, 4), np.int32)
        whole[0] = -(2**31)
        self.exact(lambda x: [tf.sort(x, 1, "DESCENDING"), tf.argsort(x, 1), tf.argmax(x, 1), tf.argmin(x, 1)], whole)

    def test_loops(self) -> None:
        """Protects recurrent layers: a loop makes a run's steps, and its last state is that of the last of them."""
        import tensorflow as tf

        w = normal(4, 4)

        def scanned(x: Any) -> Any:
            def step(state: Any, now: Any) -> Any:
                return tf.tanh(now + state @ w)

            states = tf.scan(step, tf.transpose(x, [1, 0, 2]), tf.zeros([2, 4]))
            after = tf.nn.relu(tf.transpose(states, [1, 0, 2]))
            last = tf.gather(states, (tf.shape(states)[0] - 1)[None])
            return [after, tf.reduce_sum(after, 1), last]

        def counted(x: Any) -> Any:
            size = tf.shape(x)[1]
            _, total = tf.while_loop(
                lambda i, _: i < size, lambda i, total: (i + 1, total + tf.gather(x, i, axis=1)), (0, tf.zeros([2, 4]))
            )
            return total

        def backward(x: Any) -> Any:
            states = tf.scan(lambda a, b: tf.tanh(a @ w + b), tf.transpose(tf.reverse(x, [1]), [1, 0, 2]))
            return [tf.reverse(x, [1]), tf.reverse(tf.transpose(states, [1, 0, 2]), [1])]

        def longer(x: Any) -> Any:
            size = tf.shape(x)[1]
            list_ = tf.TensorArray(tf.float32, size + 1, element_shape=[2, 4]).write(size, tf.ones([2, 4]))
            _, list_ = tf.while_loop(
                lambda i, _: i < size, lambda i, list_: (i + 1, list_.write(i, tf.gather(x, i, axis=1))), (0, list_)
            )
            return list_.stack()

        self.exact(scanned, normal(2, BUCKET, 4))
        self.assertNotEqual(self.applied(longer, normal(2, BUCKET, 4))[2], [])
        self.exact(backward, normal(2, BUCKET, 4))
        self.exact(counted, normal(2, BUCKET, 4))

    def test_numbers(self) -> None:
        """Protects models that count: means by hand, places from the end, and what comes before and after."""
        import tensorflow as tf

        def counted(x: Any) -> Any:
            size = tf.shape(x)[1]
            there = tf.cast(tf.range(size) < size - 1, tf.float32)[:, None]
            later = tf.reverse(tf.reverse(x, [1])[:, : size - 1], [1])
            last = tf.gather(x, (size - 1)[None], axis=1)
            scores = tf.linalg.band_part(tf.matmul(x, x, transpose_b=True), -1, 0)
            return [tf.reduce_sum(x, 1) / tf.cast(size, tf.float32), x * there, later, last, x - last, scores @ x]

        self.exact(counted, normal(2, BUCKET, 4))

    def test_forms(self) -> None:
        """Protects numbers that the compiler would compute for the bucket, and that are other ones for small sizes."""
        import tensorflow as tf

        def numbers(x: Any) -> Any:
            size = tf.shape(x)[1]
            return [
                x / tf.cast(tf.maximum(size, 10), tf.float32),
                tf.where(size > 10, 2 * x, x),
                x * tf.cast(tf.where(size > 10, size, 3), tf.float32),
                x * tf.cast((size + 1) % 17, tf.float32),
                x * tf.cast(size**2 // 3, tf.float32),
                x * tf.cast(tf.range(size) + size < 10, tf.float32)[:, None],
            ]

        self.exact(numbers, normal(2, BUCKET, 4), sizes=(1, 4, 5, 9, 10, 11, 16))

    def test_parts(self) -> None:
        """Protects reshapes that join or split the size, and padding to a multiple, which is right up to that multiple."""
        import tensorflow as tf

        def halves(x: Any) -> Any:
            y = tf.reshape(x, [2, tf.shape(x)[1] // 2, 8])
            return [y, tf.reduce_sum(y, 1), tf.reduce_mean(tf.reshape(x, [2, -1, 2, 4]), [1, 2])]

        def blocks(x: Any) -> Any:
            padded = tf.pad(x, [[0, 0], [0, -tf.shape(x)[1] % 8], [0, 0]])
            block = tf.reshape(padded, [2, -1, 8, 4])
            return [padded, tf.reduce_sum(block, 2), tf.nn.softmax(block, 2), tf.reduce_mean(padded, 1)]

        self.exact(halves, normal(2, BUCKET, 4), sizes=(2, 4, 6, 14, 16))
        self.exact(blocks, normal(2, BUCKET, 4), sizes=(1, 7, 8, 9, 15, 16))
        self.exact(blocks, normal(2, 11, 4), sizes=(1, 7, 8, 9, 11))
        self.exact(lambda x: tf.reduce_max(tf.signal.frame(x, 4, 2), 2), normal(2, BUCKET), sizes=(4, 5, 6, 15, 16))
        self.exact(lambda x: tf.signal.frame(x, 4, 2, pad_end=True), normal(2, BUCKET))
        self.exact(lambda x: [x[:, 1::2], tf.reduce_sum(x[:, ::3], 1)], normal(2, BUCKET, 4), sizes=(2, 3, 4, 15, 16))

    def test_joined(self) -> None:
        """Protects what is joined, tiled, or repeated along the size: the values of a run come first again."""
        import tensorflow as tf

        def joined(x: Any) -> Any:
            both = tf.concat([x, tf.ones([2, 3, 4]), 2 * x], 1)
            tiled, repeated = tf.tile(x, [1, 3, 1]), tf.repeat(x, 2, 1)
            return [both, tf.nn.softmax(both, 1), tiled, tf.reduce_sum(tiled, 1), repeated, tf.reduce_max(repeated, 1)]

        self.exact(joined, normal(2, BUCKET, 4))

    def test_listed(self) -> None:
        """Protects what depends on the size alone: a table has its values for all sizes."""
        import tensorflow as tf

        def places(x: Any) -> Any:
            size = tf.shape(x)[1]
            line, back = tf.linspace(0.0, 1.0, size), tf.range(size - 1, -1, -1)
            half, sign = tf.range(size // 2), tf.sign(tf.cast(tf.reduce_sum(tf.range(size)) - 50, tf.float32))
            return [
                x * sign,
                tf.fill([2], size > 10),
                line,
                back,
                half,
                tf.one_hot(size, 70),
                x * line[:, None],
                tf.reduce_sum(x + line[:, None], 1),
            ]

        self.exact(places, normal(2, BUCKET, 4))

    def test_tables(self) -> None:
        """Protects tables of positions with as many rows as the largest bucket."""
        import tensorflow as tf

        for rows in (BUCKET, BUCKET + 4):
            table = normal(rows, 4)
            self.exact(
                lambda x, table=table: tf.nn.softmax(x + tf.constant(table)[: tf.shape(x)[1]], 1), normal(2, BUCKET, 4)
            )

    def test_two(self) -> None:
        """Protects models with two sizes: each mask counts its own, and corners are masked, too."""
        import tensorflow as tf

        w, kernel = normal(4, 8), normal(3, 3, 4, 5)

        def translation(x: Any, y: Any) -> Any:
            attended = tf.nn.softmax(tf.matmul(x @ w, y @ w, transpose_b=True)) @ y
            return [attended, tf.reduce_max(y, 1) + tf.reduce_mean(x, 1), x / tf.cast(tf.shape(y)[1], tf.float32)]

        def image(x: Any) -> Any:
            y = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")), 3, 1, "SAME")
            h, w = tf.shape(x)[1], tf.shape(x)[2]
            scaled = y * tf.cast(tf.minimum(h, w) * h, tf.float32)
            return [
                tf.transpose(scaled, [0, 2, 1, 3]),
                tf.reduce_mean(y, [1, 2]),
                tf.nn.softmax(y, 1),
                tf.einsum("bhwd,bhwe->bde", x, x),
            ]

        sizes = ((1, 1), (1, 16), (16, 1), (7, 9), (9, 7), (16, 16))
        self.exact(translation, normal(2, BUCKET, 4), normal(2, BUCKET, 4), sizes=sizes, axes=({1: 0}, {1: 1}))
        self.exact(image, normal(2, BUCKET, BUCKET, 4), sizes=sizes, axes=({1: 0, 2: 1},))
        for model, reason in (
            (lambda x: tf.reshape(x, [2, -1, 4]), "Reshape reshapes the size away"),
            (lambda x: tf.pad(x, [[0, 0], [0, 0], [0, tf.maximum(9 - tf.shape(x)[1], 0)], [0, 0]]), f"Pad {DIFFERS}"),
        ):
            with self.subTest(reason):
                self.stays(model, normal(2, BUCKET, BUCKET, 4), reason=reason, axes=({1: 0, 2: 1},))

    def test_corners(self) -> None:
        """Protects from a product of two masked values, which is zero behind each end, and not behind both."""
        import tensorflow as tf

        from tfaot.compile.passes.padding import masks

        def corner(x: Any) -> Any:
            rows, columns = (tf.range(tf.shape(x)[axis]) < tf.shape(x)[axis] for axis in (1, 2))
            rows, columns = rows[:, None, None], columns[:, None]
            left = tf.where(rows, tf.where(columns, x, 0.0), 1.0)
            right = tf.where(columns, tf.where(rows, x, 0.0), 1.0)
            return tf.reduce_sum(left * right, [1, 2])

        x, axes = normal(2, BUCKET, BUCKET, 4), ({1: 0, 2: 1},)
        self.exact(corner, x, sizes=((5, 7), (16, 3)), axes=axes)
        with mock.patch.dict(masks.MASKS, {"Sum": lambda padded, node: None}):
            self.stays(corner, x, reason=f"Sum {BEHIND}", axes=axes)

    def test_stays(self) -> None:
        """Protects from wrong numbers: what depends on the end, the size, or other values behind it ends the proof."""
        import tensorflow as tf

        x = normal(2, BUCKET, 4)
        for model, reason in (
            (lambda x: x[:, -1:], f"StridedSlice {ENDS}"),
            (lambda x: x[:, :3], f"StridedSlice {DIFFERS}"),
            (lambda x: tf.reduce_sum(x[:, -3:] + x[:, :1], 1), f"StridedSlice {DIFFERS}"),
            (lambda x: tf.pad(x, [[0, 0], [0, tf.maximum(10 - tf.shape(x)[1], 0)], [0, 0]]), f"Pad {DIFFERS}"),
            (lambda x: tf.pad(x, [[0, 0], [tf.abs(tf.minimum(tf.shape(x)[1], 9) - 9)] * 2, [0, 0]]), f"Pad {DIFFERS}"),
            (lambda x: tf.roll(x, 1, 1), f"Roll {ENDS}"),
            (
                lambda x: tf.compat.v1.nn.fused_batch_norm(x[:, None], tf.ones(4), tf.ones(4))[0],
                f"FusedBatchNormV3 {UNKNOWN}",
            ),
        ):
            with self.subTest(reason):
                self.stays(model, x, reason=reason)

    def test_bounded(self) -> None:
        """Protects models with an op at which the proof ends: XLA bounds its size, and the rest has the bucket's."""
        import tensorflow as tf

        w = normal(4, 4)

        def attention(x: Any) -> Any:
            return tf.matmul(tf.nn.softmax(tf.matmul(x @ w, x, transpose_b=True)), x)

        def padded(x: Any) -> Any:
            return tf.pad(x, [[0, 0], [0, tf.maximum(10 - tf.shape(x)[1], 0)], [0, 0]])

        ends, differs = f"StridedSlice {ENDS}", f"StridedSlice {DIFFERS}"
        for model, reasons in (
            (lambda x: attention(x)[:, -1:] * 2 + tf.reduce_mean(attention(x), 1, keepdims=True), [ends]),
            (lambda x: attention(tf.roll(attention(x), 1, 1) + x), [f"Roll {ENDS}"]),
            (lambda x: tf.reduce_sum(attention(x)[:, -3:] + x[:, :1], 1), [differs]),
            (lambda x: tf.tensordot(x[:, -3:] * 2, w, 1), [differs]),
            (lambda x: attention(padded(attention(x))), [f"Pad {DIFFERS}"]),
            (lambda x: attention(x[:, tf.shape(x)[1] // 2 :]) @ w, [ends]),
            (lambda x: tf.argmax(tf.roll(tf.argsort(x, 1), 1, 1), 1), [f"Roll {ENDS}"]),
        ):
            with self.subTest(reasons):
                self.exact(model, normal(2, BUCKET, 4), bounded=reasons)
        self.exact(
            lambda x: attention(tf.transpose(tf.roll(x, 1, 1), [0, 2, 1, 3])) * 2,
            normal(2, BUCKET, BUCKET, 4),
            sizes=((5, 7), (16, 1), (1, 16)),
            axes=({1: 0, 2: 1},),
            bounded=[f"Roll {ENDS}"],
        )

    def test_mutants(self) -> None:
        """Protects from masks that are wrong: without one, or with one that is off by a place, the proof ends."""
        import tensorflow as tf

        from tfaot.compile.passes.padding import masks

        w = normal(3, 4, 5)
        models: dict[str, Callable[[Any], Any]] = {
            "ArgMax": lambda x: tf.argmax(x, 1),
            "ArgMin": lambda x: tf.argmin(x, 1),
            "AvgPool": lambda x: tf.nn.avg_pool1d(x, 3, 2, "SAME"),
            "BatchMatMulV2": lambda x: tf.matmul(x, x, transpose_a=True),
            "Conv2D": lambda x: tf.nn.conv1d(x, w, 1, "SAME"),
            "Einsum": lambda x: tf.einsum("bnd,bne->bde", x, x),
            "LogSoftmax": lambda x: tf.nn.log_softmax(tf.transpose(x, [0, 2, 1])),
            "Max": lambda x: tf.reduce_max(x, 1),
            "MaxPool": lambda x: tf.nn.max_pool1d(x, 3, 1, "SAME"),
            "Mean": lambda x: tf.reduce_mean(x, 1),
            "Min": lambda x: tf.reduce_min(x, 1),
            "PadV2": lambda x: tf.pad(x, [[0, 0], [0, 2], [0, 0]], constant_values=7.0),
            "Prod": lambda x: tf.reduce_prod(x, 1),
            "Softmax": lambda x: tf.nn.softmax(x, 1),
            "Sum": lambda x: tf.reduce_sum(x, 1),
            "TopKV2": lambda x: tf.sort(x, 1),
        }
        whole = masks.Masked.masked

        def counting(change: Callable[[Any], Any]) -> Callable[..., None]:
            def masked(self: Any, *args: Any) -> None:
                counted = self.count
                self.count = lambda node, count: counted(node, change(count))
                whole(self, *args)
                self.count = counted

            return masked

        late, early = (counting(lambda count, add=add: count.then(add)) for add in (1, -1))
        other = counting(lambda count: dataclasses.replace(count, size=1 - count.size))
        for op, model in models.items():
            with self.subTest(op):
                x = normal(2, BUCKET, 4)
                self.assertEqual(self.applied(model, x)[2], [])
                with mock.patch.dict(masks.MASKS, {op: lambda padded, node: None}):
                    self.assertNotEqual(self.applied(model, x)[2], [])
                for moved in (late, early):
                    with mock.patch.object(masks.Masked, "masked", moved):
                        self.assertNotEqual(self.applied(model, x)[2], [])
                two = functools.partial(self.applied, lambda x, y, model=model: [model(x), 2 * y], x, x)
                self.assertEqual(two(axes=({1: 0}, {1: 1}))[2], [])
                with mock.patch.object(masks.Masked, "masked", other):
                    self.assertNotEqual(two(axes=({1: 0}, {1: 1}))[2], [])

    def test_random(self) -> None:
        """Protects exactness: of random nets, the pass applies to most, and results are exact, with any bucket."""
        from tests.nets import sequences

        rng, applied, count = np.random.default_rng(0), 0, int(os.environ.get("TFAOT_DRAWS", "1")) * 9
        for number in range(count):
            net = sequences.net(number)
            with self.subTest(f"net {number}: {net.layers}"):
                for bucket in (11, 18):
                    inputs = net.inputs(rng, bucket)
                    if missed := self.applied(net.model, *inputs, axes=net.axes)[2]:
                        print(f"net {number}: {net.layers}: {[miss['reason'] for miss in missed]}")
                    lengths = (1, 2, int(rng.integers(3, bucket - 1)), bucket - 1, bucket)
                    points = [(size, *(int(rng.choice(lengths)) for _ in net.axes[1:])) for size in lengths]
                    self.exact(net.model, *inputs, sizes=points, axes=net.axes, bounded=None)
                    applied += not missed
        self.assertGreater(applied, count)  # of two buckets each


if __name__ == "__main__":
    import unittest

    unittest.main()
