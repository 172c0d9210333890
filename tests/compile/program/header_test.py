"""The reader of tfcompile's header."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

from tests.compile.program.models import HEAD, MODELS, keeping_header
from tests.stages.harness import StageTest
from tfaot.compile.program import header


class HeaderTest(StageTest):
    """Strictness of the header's reader."""

    header: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        test = StageTest()
        test.setUp()
        exported = test.export(HEAD + MODELS["conditionals"], cpp_class="t::M", golden_steps=4)
        with keeping_header(exported):
            test.compile(exported)
        cls.header = Path(exported.path("tfcompile.h")).read_text()
        test.doCleanups()

    def changed(self, old: str, new: str, count: int = 1) -> str:
        """Returns the error for the header with a part replaced."""
        self.assertIn(old, self.header)
        return self.error_of(header.parse, self.header.replace(old, new, count))

    def test_unknown_text(self) -> None:
        """Protects against a TensorFlow with different output: no part of a thunk can be ignored."""
        self.assert_error(
            self.changed("// Conditional Thunk", "// Custom Thunk").replace(self._conditional(), "…"),
            """
            tfcompile's header has a part that the rules don't know

                // Custom Thunk …

              to do: use the TensorFlow that tools/python/requirements.lock names, or extend py/tfaot/compile/program/header.py
            """,
        )
        for old, new in (
            ("(*comparator)(&result, nullptr, data,", "(*comparator)(&result, &done, data,"),
            ("for (uint64_t x = 0;", "for (uint64_t x = 1;"),
            ("return false;", "return true;"),
            ("TypedMatMul<float, float, float>", "TypedMatMul<int8_t, int8_t, int32_t>"),
            ("run_options->intra_op_thread_pool()", "nullptr"),
            ("done.Wait();", ""),
            ("XLA_CPU_KernelArg{reinterpret_cast<std::byte*>(buffer_table[", "XLA_CPU_KernelArg{(buffer_table["),
            ("? 0 : 1;", "? 1 : 0;"),
            ("case 1: {", "case 1: { ++buffer_table;"),
            ("buffer + 64};", "buffer + 32};"),
            ("EncodedBufferAllocationInfo{", "EncodedBufferAllocationInfo{1ULL + "),
        ):
            with self.subTest(old):
                self.assertIn("has a part that the rules don't know", self.changed(old, new))

    def _conditional(self) -> str:
        text = " ".join(self.header.split())
        begin = text.index("// Conditional Thunk") + len("// Conditional Thunk ")
        return text[begin : begin + 200 - len("// Custom Thunk ")] + "…"

    def test_contradictions(self) -> None:
        """Protects against misreading: facts that the header states twice must agree, and no thunk can exceed its buffers."""
        self.assert_error(
            self.changed("kNumResults = 2;", "kNumResults = 3;"),
            """
            tfcompile's header contradicts itself: kNumResults is 3, but 2 are listed
              to do: use the TensorFlow that tools/python/requirements.lock names; if it is that one, this is a bug of rules_tfaot
            """,
        )
        large = re.search(r"\+ \d+, 16384\}", self.header)
        assert large
        for old, new, wanted in (
            ("kNumBuffers = ", "kNumBuffers = 1", "are listed"),
            (large[0], "+ 0, 163840}", "a Kernel uses bytes 0 to 163840 of buffer"),
            ("case 1: {", "case 2: {", "branch 1 of a conditional is missing"),
            ("std::array<XLA_CPU_KernelArg, 2>", "std::array<XLA_CPU_KernelArg, 3>", "has 2 arguments and wants 3"),
        ):
            with self.subTest(wanted):
                self.assertIn(wanted, self.changed(old, new))
        index = re.search(r"kArgIndexToBufferIndex\[kNumArgs\] = \{\s*(\d+), (\d+)", self.header)
        assert index
        swapped = index[0].replace(f"{index[1]}, {index[2]}", f"{index[2]}, {index[1]}")
        self.assertIn("which contains argument 1", self.changed(index[0], swapped))

    def test_other_files(self) -> None:
        """Protects readers of an error: a file that isn't such a header is reported as such."""
        self.assert_error(
            self.error_of(header.parse, "int main() {}"),
            """
            the text isn't a header that tfcompile wrote: it has 0 of kNumArgs
              to do: pass the file that tfcompile, of the TensorFlow that tools/python/requirements.lock names, wrote as out_header
            """,
        )


if __name__ == "__main__":
    unittest.main()
