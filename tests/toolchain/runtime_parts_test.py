"""Which parts of the runtime a header calls."""

import json
import unittest
from pathlib import Path

from tfaot import runtime_parts
from tfaot.errors import TfaotError

_BASE = """
#include "absl/log/check.h"
#include "absl/synchronization/blocking_counter.h"
#include "xla/backends/cpu/runtime/kernel_c_api.h"
#include "xla/types.h"
#include "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.h"
#include "tensorflow/core/platform/types.h"
"""
_MATMUL = """          ::xla::cpu::internal::TypedMatMul<{types}>(
            run_options->intra_op_thread_pool(),
"""
_CONVOLUTION = """        xla::cpu::internal::EigenConv2D<float>(
          run_options->intra_op_thread_pool(),
"""
_HALF_CONVOLUTION = _CONVOLUTION.replace("float", "Eigen::half")


def _names(*texts: str) -> list[str]:
    return [part.name for part in runtime_parts.parts_for(_BASE + "".join(texts))]


class PartsForTest(unittest.TestCase):
    def test_elementwise(self) -> None:
        """Protects build time: a model of kernels alone compiles no part that needs Eigen."""
        self.assertEqual(_names(), ["base"])

    def test_each_matmul_type(self) -> None:
        """Protects linking: each type that tfcompile can name has its part, and that one alone."""
        for types, part in {
            "float, float, float": "dot_lib_f32",
            "double, double, double": "dot_lib_f64",
            "Eigen::half, Eigen::half, Eigen::half": "dot_lib_f16",
            "int32_t, int32_t, int32_t": "dot_lib_s32",
            "int8_t, int8_t, int32_t": "dot_lib_s8",
            "std::complex<float>, std::complex<float>, std::complex<float>": "dot_lib_c64",
            "std::complex<double>, std::complex<double>, std::complex<double>": "dot_lib_c128",
        }.items():
            with self.subTest(types):
                include = '#include "xla/backends/cpu/runtime/dot_lib.h"\n'
                self.assertEqual(_names(include, _MATMUL.format(types=types)), ["base", part])

    def test_convolution_brings_what_it_requires(self) -> None:
        """Protects linking: Eigen's convolution calls the asynchronous values, which no header names, and ours nothing."""
        include = '#include "xla/backends/cpu/runtime/convolution_lib.h"\n'
        self.assertEqual(_names(include, _CONVOLUTION), ["base", "convolution_lib_f32_2d"])
        self.assertEqual(_names(include, _HALF_CONVOLUTION), ["base", "convolution_lib_f16_2d", "async_value"])

    def test_common_types_need_no_eigen(self) -> None:
        """Protects build time and speed: the matrix products and convolutions of most models are the kernels of our own."""
        texts = [
            _MATMUL.format(types=types)
            for types in ("float, float, float", "double, double, double", "int32_t, int32_t, int32_t")
        ]
        for part in runtime_parts.parts_for(_BASE + "".join(texts) + _CONVOLUTION):
            if part.name != "base":
                self.assertIn('#include "tfaot/kernels/', part.stub())
                self.assertNotIn('#include "xla/', part.stub())

    def test_sort_and_top_k(self) -> None:
        """Protects the parts that are no templates: sort has a source, top_k is all in its header."""
        text = "       xla::cpu::internal::SortInplace(\n    ::xla::cpu::internal::TopK(1, 8, 2,\n"
        self.assertEqual(_names(text), ["base", "sort_lib", "topk_lib"])

    def test_one_model_has_one_set_of_macros(self) -> None:
        """Protects against two versions of one inline function of Eigen in a program."""
        parts = runtime_parts.parts_for(_BASE + _MATMUL.format(types="float, float, float") + _HALF_CONVOLUTION)
        self.assertEqual({part.defines for part in parts}, {("EIGEN_USE_AVX512_GEMM_KERNELS 0",)})
        for part in parts:
            self.assertIn("#define EIGEN_USE_AVX512_GEMM_KERNELS 0\n#include", part.stub())
        (base, dot) = runtime_parts.parts_for(_BASE + _MATMUL.format(types="float, float, float"))
        self.assertEqual((base.defines, dot.defines), ((), ()))

    def test_unknown_header(self) -> None:
        """Protects the user of another TensorFlow from a linker's error: the header names what is not known."""
        with self.assertRaises(TfaotError) as caught:
            _names('#include "xla/backends/cpu/runtime/fft_lib.h"\n')
        self.assertIn("xla/backends/cpu/runtime/fft_lib.h", str(caught.exception))
        self.assertIn("dot_lib_f32", str(caught.exception))
        self.assertIn("requirements.lock", str(caught.exception))

    def test_unknown_call(self) -> None:
        """Protects the same user where the header is known and a type in it is not."""
        with self.assertRaisesRegex(TfaotError, "TypedMatMul<int16_t, int16_t, int16_t>"):
            _names(_MATMUL.format(types="int16_t, int16_t, int16_t"))

    def test_no_header_of_tfcompile(self) -> None:
        """Protects against a wrong file: without it the answer would be no parts at all."""
        with self.assertRaisesRegex(TfaotError, "no header that tfcompile wrote"):
            runtime_parts.parts_for("int main() {}")


class TargetsTest(unittest.TestCase):
    def test_the_same_parts_as_in_starlark(self) -> None:
        """Protects against a part that is chosen and has no target, or sources that differ between the two tables."""
        targets = json.loads((Path(__file__).parent / "runtime_targets.json").read_text(encoding="utf-8"))
        parts = {
            part.name: {"requires": list(part.requires), "sources": list(part.sources)} for part in runtime_parts.PARTS
        }
        self.assertEqual(parts, targets)


if __name__ == "__main__":
    unittest.main()
