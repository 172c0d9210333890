"""Files of tensors: our output is safetensors, and our input is validated."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import unittest
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import dtypes, safetensors
from tfaot.core.errors import TfaotError


def tensors() -> dict[str, npt.NDArray[Any]]:
    return {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.array(7, np.int64),
        "empty": np.zeros((0, 4), np.float64),
        "bytes/3": np.array([1, 2, 3], np.uint8),
        "größe": np.array([True, False]),
    }


class SafetensorsTest(unittest.TestCase):
    def written(self, values: Mapping[str, npt.NDArray[Any]]) -> bytes:
        file = io.BytesIO()
        safetensors.write(file, values)
        return file.getvalue()

    def file(self, content: bytes) -> str:
        handle, path = tempfile.mkstemp(suffix=".safetensors", dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(os.remove, path)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path

    def test_layout_is_the_format_s(self) -> None:
        """Protects other readers of our files: eight bytes of length, a JSON object, then all values without gaps."""
        content = self.written(tensors())
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        self.assertEqual(content[8:9], b"{")
        end = 0
        for name, value in tensors().items():
            self.assertEqual(header[name]["data_offsets"], [end, end + value.nbytes])
            self.assertEqual(header[name]["shape"], list(value.shape))
            end += value.nbytes
            data = content[8 + length :][slice(*header[name]["data_offsets"])]
            self.assertEqual(data, value.tobytes())
        self.assertEqual(len(content), 8 + length + end)
        self.assertEqual(header["scalar"]["dtype"], "I64")
        self.assertEqual(header["größe"]["dtype"], "BOOL")

    def test_data_is_aligned(self) -> None:
        """Protects mapped files and linked-in values: they start at a cache line, whatever the header's length."""
        for count in range(20):
            content = self.written({"x" * (count + 1): np.zeros(1, np.float32)})
            (length,) = struct.unpack("<Q", content[:8])
            self.assertEqual((8 + length) % 64, 0)

    def test_layout_in_the_given_order(self) -> None:
        """Protects goldens: C++ reads them in sequence, so they are in the given order, whatever their sizes."""
        values = {str(size): np.full(size, size % 251, np.uint8) for size in (3, 64, 0, 5, 128, 65, 1)}
        content = self.written(values)
        self.assertTrue(content.endswith(b"".join(value.tobytes() for value in values.values())))
        (length,) = struct.unpack("<Q", content[:8])
        self.assertEqual(list(json.loads(content[8 : 8 + length])), list(values))

    def test_aligned_layout(self) -> None:
        """Protects mapped weights from being copied: sizes that keep the next tensor aligned come first."""
        sizes = {"a": 3, "b": 64, "none": 0, "c": 5, "d": 128, "nothing": 0, "e": 64}
        values = {name: np.full(size, index, np.uint8) for index, (name, size) in enumerate(sizes.items())}
        entries = safetensors.layout(((name, "uint8", (size,)) for name, size in sizes.items()), aligned=True)
        self.assertEqual(
            [(entry.name, entry.offset, entry.bytes) for entry in entries],
            [
                ("a", 256, 3),
                ("b", 0, 64),
                ("none", 64, 0),
                ("c", 259, 5),
                ("d", 64, 128),
                ("nothing", 192, 0),
                ("e", 192, 64),
            ],
        )
        file = io.BytesIO()
        self.assertEqual(safetensors.write(file, values, aligned=True), entries)
        content = file.getvalue()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        self.assertEqual(list(header), ["b", "none", "d", "nothing", "e", "a", "c"])
        for entry in entries:
            self.assertEqual(header[entry.name]["data_offsets"], [entry.offset, entry.offset + entry.bytes])
        read = safetensors.read(self.file(content))
        for name, value in values.items():
            np.testing.assert_array_equal(read[name], value)

    def test_round_trip(self) -> None:
        """Protects values, dtypes, and shapes, including those of scalars and empty tensors."""
        read = safetensors.read(self.file(self.written(tensors())))
        self.assertEqual(list(read), list(tensors()))
        for name, value in tensors().items():
            self.assertEqual(read[name].dtype, value.dtype)
            self.assertEqual(read[name].shape, value.shape)
            np.testing.assert_array_equal(read[name], value)

    def test_every_dtype_of_the_edge(self) -> None:
        """Protects every dtype that can cross a model's edge: all of them can be stored."""
        values = {dtype.name: np.ones(3, dtype.numpy()) for dtype in dtypes.ALL}
        read = safetensors.read(self.file(self.written(values)))
        for dtype in dtypes.ALL:
            self.assertEqual(read[dtype.name].dtype.name, dtype.name)
            self.assertEqual(read[dtype.name].itemsize, dtype.bytes)
            self.assertEqual(read[dtype.name].tolist(), values[dtype.name].tolist())

    def test_values_that_do_not_lie_in_a_row(self) -> None:
        """Protects transposed and strided arrays: values are written row by row, whatever their memory layout."""
        value = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
        read = safetensors.read(self.file(self.written({"x": value})))
        np.testing.assert_array_equal(read["x"], value)

    def test_zeros_take_no_space(self) -> None:
        """Protects disks from large models: long runs of zeros are holes in the file, and everything else is there."""
        hole = safetensors.HOLE
        values: dict[str, npt.NDArray[Any]] = {
            "zeros": np.zeros(40 * hole // 4, np.float32),
            "negative zeros": np.full(2 * hole // 4, -0.0, np.float32),
            "first": np.zeros(4 * hole, np.uint8),
            "last": np.zeros(4 * hole + 1, np.uint8),
            "short": np.zeros(hole, np.bool_),
            "end": np.zeros(4 * hole // 8, np.int64),
        }
        values["first"][0] = values["last"][-1] = 7
        values["zeros"][39 * hole // 4] = 5
        for count in range(1, len(values) + 1):  # each value is at the end once
            tensors = dict(list(values.items())[:count])
            path = self.file(self.written(tensors))
            with open(path, "wb") as file:
                safetensors.write(file, tensors, aligned=True)
            read = safetensors.read(path)
            for name, value in tensors.items():
                self.assertEqual(read[name].tobytes(), value.tobytes(), name)
            self.assertEqual(
                os.path.getsize(path), 8 + self.header_size(path) + sum(v.nbytes for v in tensors.values())
            )
            self.assertLess(os.stat(path).st_blocks * 512, 12 * hole)

    def header_size(self, path: str) -> int:
        """Returns the length at the start of a file."""
        with open(path, "rb") as file:
            return int(struct.unpack("<Q", file.read(8))[0])

    def test_same_tensors_same_bytes(self) -> None:
        """Protects caches: the file contains nothing except the tensors."""
        self.assertEqual(self.written(tensors()), self.written(tensors()))
        self.assertEqual(self.written({})[8:10], b"{}")

    def test_other_writers_files_are_read(self) -> None:
        """Protects files from elsewhere, with metadata and without our padding."""
        header = json.dumps(
            {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
        ).encode()
        path = self.file(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.5))
        self.assertEqual({name: value.tolist() for name, value in safetensors.read(path).items()}, {"a": [1.5]})

    def test_truncated_file(self) -> None:
        """Protects against made-up values: a file truncated anywhere is an error that names it."""
        content = self.written(tensors())
        (length,) = struct.unpack("<Q", content[:8])
        for size, what in (
            (0, "{} is truncated, or isn't a safetensors file"),
            (7, "{} is truncated, or isn't a safetensors file"),
            (8, "{} is truncated, or isn't a safetensors file"),
            (7 + length, "{} is truncated, or isn't a safetensors file"),
            (8 + length, "{} is truncated: matrix is past its end"),
            (len(content) - 1, "{} is truncated: größe is past its end"),
        ):
            with self.subTest(size):
                path = self.file(content[:size])
                with self.assertRaises(TfaotError) as raised:
                    safetensors.read(path)
                self.assertEqual(str(raised.exception), what.format(path) + "\n  to do: write it again")

    def test_unknown_dtype(self) -> None:
        """Protects against misreading bytes: a dtype that we don't know is an error."""
        header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}).encode()
        path = self.file(struct.pack("<Q", len(header)) + header + b"\0")
        with self.assertRaises(TfaotError) as raised:
            safetensors.read(path)
        self.assertEqual(
            str(raised.exception),
            f"{path}: a has dtype F8_E4M3\n"
            "  found: the known dtypes are F32, F64, I32, U8, I16, I8, I64, C64, BOOL, BF16, U16, C128, F16, U32, U64\n"
            "  to do: write it with one of these dtypes",
        )

    def test_text_instead_of_a_header(self) -> None:
        """Protects against a traceback for a file that is something else entirely."""
        path = self.file(struct.pack("<Q", 4) + b"oops" + bytes(100))
        with self.assertRaises(TfaotError) as raised:
            safetensors.read(path)
        self.assertEqual(str(raised.exception), f"{path} isn't a safetensors file\n  to do: write it again")

    def test_something_else_in_the_header(self) -> None:
        """Protects against a traceback for JSON that isn't a header: files come from users, too."""
        entry: dict[str, Any] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        headers: tuple[Any, ...] = (
            [],
            {"a": 1},
            {"a": {"dtype": "F32", "shape": [1]}},
            {"a": entry | {"shape": 1}},
            {"a": entry | {"shape": [1.5]}},
            {"a": entry | {"data_offsets": [0, 4, 8]}},
            {"a": entry | {"data_offsets": ["0", "4"]}},
        )
        for header in headers:
            with self.subTest(header):
                text = json.dumps(header).encode()
                path = self.file(struct.pack("<Q", len(text)) + text + bytes(100))
                with self.assertRaises(TfaotError) as raised:
                    safetensors.read(path)
                self.assertEqual(str(raised.exception), f"{path} isn't a safetensors file\n  to do: write it again")

    def refused(self, header: str | bytes, data: bytes = bytes(100)) -> str:
        """Reads a file with this header. Returns the error without the file's name."""
        text = header if isinstance(header, bytes) else header.encode()
        path = self.file(struct.pack("<Q", len(text)) + text + data)
        with self.assertRaises(TfaotError) as raised:
            safetensors.read(path)
        return str(raised.exception).replace(path, "FILE")

    @staticmethod
    def entry(begin: int, end: int) -> str:
        """Returns a header's entry for bytes from one offset to another."""
        return f'{{"dtype":"U8","shape":[{end - begin}],"data_offsets":[{begin},{end}]}}'

    def test_two_tensors_of_one_name(self) -> None:
        """Protects against a file that two readers interpret differently: names, and parts of an entry, are unique."""
        one, two = self.entry(0, 4), self.entry(4, 8)
        for header, name in (
            (f'{{"a":{one},"b":{two},"a":{two}}}', "a"),
            (f'{{"a":{one},"\\u0061":{two}}}', "a"),
            (f'{{"a":{one},"b":{two.replace("dtype", "shape")}}}', "shape"),
        ):
            with self.subTest(header):
                wanted = (
                    f"FILE contradicts itself\n  found: {name} appears twice in its header\n  to do: write it again"
                )
                self.assertEqual(self.refused(header), wanted)

    def test_overlaps(self) -> None:
        """Protects against a tensor that changes with another one: they can be adjacent, but must not overlap."""
        for first, second in (((0, 8), (4, 12)), ((0, 12), (4, 8)), ((4, 8), (4, 8)), ((4, 12), (0, 5))):
            with self.subTest(first=first, second=second):
                text = self.refused(f'{{"a":{self.entry(*first)},"b":{self.entry(*second)}}}')
                self.assertRegex(text, "^FILE contradicts itself\n  found: (a and b|b and a) overlap\n")
        header = f'{{"a":{self.entry(4, 8)},"e":{self.entry(2, 2)},"b":{self.entry(0, 4)}}}'.encode()
        read = safetensors.read(self.file(struct.pack("<Q", len(header)) + header + bytes(range(8))))
        self.assertEqual(
            {name: bytes(value) for name, value in read.items()}, {"a": b"\4\5\6\7", "e": b"", "b": b"\0\1\2\3"}
        )

    def test_deep_nesting(self) -> None:
        """Protects against a traceback, or worse, for an endlessly nested header."""
        for deep in ("[" * 200_000, '{"a":' * 200_000):
            self.assertEqual(self.refused(deep), "FILE isn't a safetensors file\n  to do: write it again")

    def test_large_headers(self) -> None:
        """Protects memory: a header that is larger than the format allows isn't even read."""
        path = self.file(b"")
        with open(path, "r+b") as file:
            file.write(struct.pack("<Q", 100_000_001))
            file.truncate(8 + 100_000_001)
        with self.assertRaises(TfaotError) as raised:
            safetensors.read(path)
        self.assertEqual(
            str(raised.exception),
            f"{path} has a header of 100,000,001 bytes\n"
            "  found: the safetensors format allows 100,000,000\n"
            "  to do: write fewer tensors into one file",
        )

    def test_shapes_that_cannot_be(self) -> None:
        """Protects against a traceback for an empty tensor whose other sizes no array can have."""
        for shape in ([0, 1 << 70], [0, 1 << 62, 1 << 62], [0] * 100):
            with self.subTest(shape):
                header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}})
                self.assertIn("found: a has an impossible shape: ", self.refused(header))

    def test_text_of_other_kinds(self) -> None:
        """Protects terminals and readers: a header is UTF-8, and quotes from it in a message are escaped."""
        header = f'{{"a":{self.entry(0, 4)}}}'
        half = header.replace('"a"', '"\\ud800"')
        for text in (header.encode("utf-16"), header.encode("utf-32-le"), b"\xff" + header.encode(), half):
            self.assertEqual(self.refused(text), "FILE isn't a safetensors file\n  to do: write it again")
        text = self.refused(header.replace('"a"', '"\\u001b[2J"').replace("U8", "\\u0007" * 300))
        self.assertTrue(text.startswith("FILE: '\\x1b[2J' has dtype '\\x07\\x07"), text)
        self.assertLess(len(text), 500)

    def test_sizes_are_checked(self) -> None:
        """Protects against another tensor's values: the distance between a tensor's offsets must equal its size."""
        for shape, offsets in (([3], [0, 8]), ([3], [0, 16]), ([3], [12, 0]), ([-3], [12, 0]), ([3], [-4, 8])):
            with self.subTest(offsets):
                text = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
                path = self.file(struct.pack("<Q", len(text)) + text + bytes(100))
                with self.assertRaises(TfaotError) as raised:
                    safetensors.read(path)
                self.assertEqual(
                    str(raised.exception),
                    f"{path} contradicts itself\n"
                    f"  found: a is at bytes {offsets[0]} to {offsets[1]}, which isn't the size of float32{shape}\n"
                    "  to do: write it again",
                )


if __name__ == "__main__":
    unittest.main()
