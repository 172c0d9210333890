"""split_kv_matmul: which products of attention are rewritten, and their results."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "split_kv_matmul"
RNG = np.random.default_rng(19)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


def split(x: Any, heads: int) -> Any:
    """Moves the heads of [batch, rows, channels] before the rows."""
    import tensorflow as tf

    return tf.transpose(tf.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))


def joined(x: Any) -> Any:
    """Joins the last of the rows in axis 1 to the others, as a decoder joins a token's keys to the cache."""
    import tensorflow as tf

    return tf.concat([x[:, :-1], x[:, -1:]], 1)


class HeadProductsTest(PassTest):
    """The pass on graphs with attention."""

    def attention(
        self, queries: int, positions: int, heads: int, channels: int, batch: int = 1, dtype: str = "float32"
    ) -> int:
        """Returns how many products of an attention the pass changes, out of two."""
        import tensorflow as tf

        def attend(query: Any, keys: Any, values: Any) -> Any:
            scores = split(query, heads) @ tf.transpose(split(joined(keys), heads), (0, 1, 3, 2))
            mixed = tf.nn.softmax(scores * channels**-0.5) @ split(joined(values), heads)
            return tf.transpose(mixed, (0, 2, 1, 3))

        cache = (batch, positions, heads * channels)
        query = normal(batch, queries, heads * channels, dtype=dtype)
        return self.rewritten(NAME, attend, query, normal(*cache, dtype=dtype), normal(*cache, dtype=dtype))

    def test_sizes(self) -> None:
        """With one query, scores and sums of values change, in both float types, for few and many heads."""
        for positions, heads, channels in ((257, 8, 64), (17, 8, 64), (129, 2, 32), (100, 12, 7), (33, 40, 8)):
            self.assertEqual(self.attention(1, positions, heads, channels), 2)
        self.assertEqual(self.attention(1, 65, 4, 32, dtype="float64"), 2)

    def test_stays(self) -> None:
        """Several queries, a batch, one head, few positions or values, and other dtypes don't change."""
        for queries, positions, heads, channels, batch in (
            (2, 65, 4, 32, 1),
            (1, 65, 4, 32, 2),
            (1, 257, 1, 64, 1),
            (1, 16, 8, 128, 1),
            (1, 32, 8, 33, 1),
        ):
            self.assertEqual(self.attention(queries, positions, heads, channels, batch), 0)
        self.assertEqual(self.attention(1, 65, 4, 32, dtype="float16"), 0)

    def test_one_operand(self) -> None:
        """An einsum of one operand is no product, and doesn't change."""
        import tensorflow as tf

        self.assertEqual(self.rewritten(NAME, lambda x: tf.einsum("ij->ji", x), normal(65, 128)), 0)

    def test_orders(self) -> None:
        """Keys change on either side, by rows and by columns, behind transpositions and identities."""
        import tensorflow as tf

        def rows(query: Any, keys: Any) -> Any:
            query, keys = split(query, 4), tf.identity(split(joined(keys), 4))
            return [tf.matmul(query, keys, adjoint_b=True), tf.matmul(keys, query, adjoint_b=True)]

        def columns(query: Any, keys: Any) -> Any:
            query, keys = split(query, 4), tf.transpose(tf.identity(split(joined(keys), 4)), (0, 1, 3, 2))
            turned = tf.transpose(query, (0, 1, 3, 2))
            return [
                tf.matmul(query, keys),
                tf.matmul(turned, keys, adjoint_a=True),
                tf.matmul(keys, query, adjoint_a=True, adjoint_b=True),
            ]

        self.assertEqual(self.rewritten(NAME, rows, normal(1, 1, 128), normal(1, 65, 128)), 2)
        self.assertEqual(self.rewritten(NAME, columns, normal(1, 1, 128), normal(1, 65, 128)), 3)

    def test_heads_first(self) -> None:
        """A cache that has each head's rows or columns together changes as well, because then nothing copies it."""
        import tensorflow as tf

        def rows(query: Any, keys: Any) -> Any:
            return tf.matmul(query, tf.concat([keys[:, :, :-1], keys[:, :, -1:]], -2), adjoint_b=True)

        def columns(query: Any, keys: Any) -> Any:
            return tf.matmul(query, tf.concat([keys[..., :-1], keys[..., -1:]], 3))

        query = normal(1, 4, 1, 32)
        self.assertEqual(self.rewritten(NAME, rows, query, normal(1, 4, 65, 32)), 1)
        self.assertEqual(self.rewritten(NAME, columns, query, normal(1, 4, 32, 65)), 1)

    def test_heads_last(self) -> None:
        """A cache in which heads are adjacent stays, because a product reads it one value at a time."""
        import tensorflow as tf

        def net(query: Any, keys: Any) -> Any:
            return tf.einsum("bnh,bshn->bns", query, tf.concat([keys[:, :-1], keys[:, -1:]], 1))

        self.assertEqual(self.rewritten(NAME, net, normal(1, 4, 32), normal(1, 65, 32, 4)), 0)

    def test_order_of_parts(self) -> None:
        """Either part can be the cache, and both can be large."""
        import tensorflow as tf

        for place in (1, 64, 70):

            def net(query: Any, keys: Any, place: int = place) -> Any:
                return tf.einsum("bthd,bshd->bhts", query, tf.concat([keys[:, :place], keys[:, place:]], 1))

            self.assertEqual(self.rewritten(NAME, net, normal(1, 1, 4, 32), normal(1, 128, 4, 32)), 1)

    def test_other_concatenations(self) -> None:
        """A concatenation of heads or channels, of more than two parts, or across an axis that is split, stays."""
        import tensorflow as tf

        def joined(keys: Any, axis: int, *sizes: int) -> Any:
            return tf.concat(tf.split(keys, sizes, axis), axis)

        query = normal(1, 1, 4, 32)
        for shape, axis, sizes in (
            ((1, 64, 4, 32), 2, (3, 1)),
            ((1, 128, 4, 32), 1, (1, 126, 1)),
            ((1, 64, 128), 2, (96, 32)),
            ((64 * 4, 32), 0, (64, 192)),
            ((1, 128, 128), 2, (120, 8)),
        ):

            def net(query: Any, keys: Any, axis: int = axis, sizes: tuple[int, ...] = sizes) -> Any:
                keys = tf.reshape(joined(keys, axis, *sizes), (1, -1, 4, 32))
                return tf.einsum("bthd,bshd->bhts", query, keys)

            with self.subTest(shape=shape, sizes=sizes):
                self.assertEqual(self.rewritten(NAME, net, query, normal(*shape)), 0)

    def test_channels(self) -> None:
        """Keys that are joined along channels change too: their scores are sums."""
        import tensorflow as tf

        def net(query: Any, keys: Any) -> Any:
            return tf.einsum("bthd,bshd->bhts", query, tf.concat([keys[..., :16], keys[..., 16:]], 3))

        self.assertEqual(self.rewritten(NAME, net, normal(1, 1, 4, 32), normal(1, 256, 4, 32)), 1)

    def test_shapes(self) -> None:
        """A concatenation is found behind axes of size 1, and behind changes of shape that keep its rows."""
        import tensorflow as tf

        def other_heads(query: Any, keys: Any) -> Any:
            return tf.einsum("bhd,bshd->bhs", query, tf.reshape(tf.concat([keys[:-1], keys[-1:]], 0), (1, 65, 4, 32)))

        self.assertEqual(self.rewritten(NAME, other_heads, normal(1, 4, 32), normal(65, 2, 64)), 1)

        def net(query: Any, keys: Any) -> Any:
            keys = tf.squeeze(tf.concat([keys[:-1, :, None], keys[-1:, :, None]], 0), 2)
            return tf.einsum("bhd,bshd->bhs", query, tf.expand_dims(keys, 0))

        self.assertEqual(self.rewritten(NAME, net, normal(1, 4, 32), normal(65, 4, 32)), 1)

    def test_broadcast(self) -> None:
        """Keys that all heads share stay."""
        import tensorflow as tf

        def net(query: Any, keys: Any) -> Any:
            return tf.matmul(query, tf.transpose(joined(keys), (0, 2, 3, 1)))

        self.assertEqual(self.rewritten(NAME, net, normal(1, 8, 1, 64), normal(1, 257, 1, 64)), 0)

    def einsum(self, equation: str, first: Array, second: Array) -> int:
        """Returns how many products the pass changes, out of one."""
        import tensorflow as tf

        def net(first: Any, second: Any) -> Any:
            return tf.einsum(equation, *(joined(each) if each.shape[1] == 65 else each for each in (first, second)))

        return self.rewritten(NAME, net, first, second)

    def test_einsum(self) -> None:
        """The equations of Keras, KerasHub, and others change, whatever their letters are and whatever operand is first."""
        query, cache = normal(1, 1, 4, 32), normal(1, 65, 4, 32)
        for equation, first, second in (
            ("BTNH,BSNH->BNTS", query, cache),
            ("BNTS,BSNH->BTNH", normal(1, 4, 1, 65), cache),
            ("aecd,abcd->acbe", cache, query),
            ("bqhd, bkhd -> bqkh", query, cache),
        ):
            with self.subTest(equation):
                self.assertEqual(self.einsum(equation, first, second), 1)

    def test_other_equations(self) -> None:
        """Several queries, a diagonal, an ellipsis, and sums over a head or a position stay."""
        query, cache = normal(1, 1, 4, 32), normal(1, 65, 4, 32)
        for equation, row in (
            ("BTNH,BSNH->BNTS", normal(1, 2, 4, 32)),
            ("bthd,bshd->bts", query),
            ("bthd,bshd->bhd", query),
            ("bthd,bshd->bh", query),
            ("bh,bshd->bhs", normal(1, 4)),
            ("bthd,bshd->bshd", query),
            ("bt...,bs...->b...ts", query),
        ):
            with self.subTest(equation):
                self.assertEqual(self.einsum(equation, row, cache), 0)
        self.assertEqual(self.einsum("bbhd,bshd->bhs", query, cache), 0)

    def test_not_joined(self) -> None:
        """A cache that no concatenation makes stays."""
        import tensorflow as tf

        def net(query: Any, keys: Any) -> Any:
            return tf.einsum("BTNH,BSNH->BNTS", query, keys), tf.einsum(
                "BTNH,BSNH->BNTS", query, tf.nn.relu(joined(keys))
            )

        self.assertEqual(self.rewritten(NAME, net, normal(1, 1, 4, 32), normal(1, 65, 4, 32)), 0)


if __name__ == "__main__":
    unittest.main()
