"""The op table and the tables that it is made from agree with the installed compiler."""

from __future__ import annotations

import ctypes
import os
import re
import unittest

from tests.stages import harness
from tests.stages.harness import ROOT


class OpsTest(unittest.TestCase):
    """Tables of ops."""

    @classmethod
    def setUpClass(cls) -> None:
        harness.warm()

    def test_page(self) -> None:
        """Protects readers of the page of ops: it is what the pinned TensorFlow registers, and what compiles."""
        import tensorflow as tf

        from tfaot.preflight import ops

        page = (ROOT / ops.PAGE).read_text(encoding="utf-8")
        (pinned,) = re.findall(r"TensorFlow ([\d.]+) registers", page)
        made = ops.markdown(tf.__version__)
        if tf.__version__ == pinned:
            self.assertEqual(page, made, f"to do: {ops.COMMAND} > {ops.PAGE}")
        else:  # the tests of another version of TensorFlow; the page is about the pinned one
            self.assertNotEqual(page, made)

    def test_constants(self) -> None:
        """Protects the analysis of constants: the table has the arguments that XLA's own registry has, for every op."""
        from tfaot.core import knowledge
        from tfaot.preflight import kernels

        asked = {op: arguments for op in kernels.table() if (arguments := _constant_arguments(op))}
        listed = {op: arguments for op, arguments in knowledge.CONSTANTS.items() if op in kernels.table()}
        self.assertGreater(len(asked), 100)
        self.assertEqual(asked, listed)

    def test_tables(self) -> None:
        """Protects the tables from ops that aren't what they say: with kernels, or without."""
        from tfaot.core import knowledge
        from tfaot.graph.attributes import dtype_shown
        from tfaot.preflight import kernels, ops

        registered = {str(op.name): op for op in ops.registered()}
        with_kernels = (
            knowledge.CHECKS,
            knowledge.CLAMPED,
            knowledge.DYNAMIC,
            knowledge.EMPTY_SLICES,
            knowledge.NOT_AHEAD_OF_TIME,
            knowledge.ONE_STEP,
            knowledge.REFUSED_DTYPES,
            knowledge.SEEDED,
            knowledge.SIZES,
            knowledge.TOLERATED,
            knowledge.UNLIMITED,
        )
        for table in with_kernels:
            self.assertEqual(set(table) - kernels.table().keys(), set())
        self.assertEqual({*knowledge.REWRITES} & kernels.table().keys(), set())
        self.assertEqual({*knowledge.REWRITES} - registered.keys(), set())
        for arguments in (knowledge.EMPTY_SLICES, knowledge.SIZES, knowledge.UNLIMITED):
            for op, argument in arguments.items():
                self.assertIn(argument, [arg.name for arg in registered[op].input_arg])
        for tolerated in (knowledge.TOLERATED, knowledge.ONE_STEP):
            for op, names in tolerated.items():
                self.assertLessEqual({*names}, {*knowledge.CONSTANTS[op]})
        for op, refused in knowledge.REFUSED_DTYPES.items():
            for attribute, dtypes in refused.items():
                allowed = {dtype_shown(dtype) for kernel in kernels.table()[op] for dtype in kernel[attribute]}
                self.assertTrue({*dtypes.split()} & allowed, op)


def _constant_arguments(op: str) -> tuple[str, ...]:
    """Asks XLA's registry, which Python has no function for: `XlaOpRegistry::CompileTimeConstantInputArgNames(op)`."""
    import tensorflow as tf

    library = ctypes.CDLL(os.path.join(os.path.dirname(tf.__file__), "libtensorflow_cc.so.2"))
    ask = library[
        "_ZN10tensorflow13XlaOpRegistry32CompileTimeConstantInputArgNamesERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    ]
    ask.restype, ask.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    text = ctypes.create_string_buffer(op.encode())
    given = _String(ctypes.addressof(text), len(op))
    hashed = ask(ctypes.addressof(given))  # a std::unordered_set<std::string>
    names = []
    node = ctypes.c_void_p.from_address(hashed + 16).value if hashed else None
    while node:
        name = _String.from_address(node + 8)
        names.append(ctypes.string_at(name.data, name.size).decode())
        node = ctypes.c_void_p.from_address(node).value
    return tuple(sorted(names))


class _String(ctypes.Structure):
    """A std::string of libstdc++."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("local", ctypes.c_char * 16))


if __name__ == "__main__":
    unittest.main()
