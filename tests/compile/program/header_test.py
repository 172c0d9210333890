"""The reader of tfcompile's header."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from tests.compile.program.models import HEAD, MODELS, keeping_header
from tests.stages.harness import StageTest
from tfaot.compile.program.thunks import header
from tfaot.compile.program.thunks.kinds import Buffer, Convolution, Dot, Slice, Sort, TopK
from tfaot.core.errors import TfaotError
from tools.dev.try_tensorflow import HEADER


class SampleTest(unittest.TestCase):
    """What `try_tensorflow` compiles with another TensorFlow, to show how its headers differ."""

    def test_kinds(self) -> None:
        """Protects the move to another version: the sample has each kind of thunk, and the reader knows all of it."""
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-s", "-c", HEADER]
        text = subprocess.run(
            command, env={**os.environ, **paths}, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        header.parse(text)
        self.assertEqual(header.KINDS.keys() - {"Rng Seed"}, {*re.findall(r"// ([\w ]+) Thunk\n", text)})


class OlderTest(unittest.TestCase):
    """The texts of TensorFlow 2.20, which differ from those of the wheel that the other tests use."""

    def test_thunks(self) -> None:
        """Protects users of 2.20: each text that differs has the same meaning."""
        function = header.parse(OLDER)
        self.assertEqual(
            (
                Buffer(1024, "temp", None, 0),
                Buffer(1024, "parameter", 0, None),
                Buffer(4, "constant", None, None),
                Buffer(8272, "temp", None, None),
            ),
            function.buffers,
        )
        self.assertEqual(
            (
                Convolution(
                    "float", Slice(3, 0), Slice(1, 0), Slice(3, 2048), 1, (8, 8), 4, (3, 3), 4, 8, (8, 8), (1, 1),
                    padding_before=(1, 1), padding_after=(1, 1), input_dilation=(1, 1), kernel_dilation=(1, 1), groups=1,
                ),
                Dot("float", 1, Slice(3, 0), Slice(0, 0), Slice(3, 4096), (1024, 128, 512), 16, 64, 8, False, False),
                Sort("compare", (Slice(3, 0),), (4,), (64, 16, 1), True),
                TopK(64, 16, 4, Slice(3, 4096), Slice(0, 0), Slice(3, 0)),
            ),
            function.thunks,
        )  # fmt: skip

    def test_strict(self) -> None:
        """What one thread computes must be what several compute, and a sort must have no other order."""
        for old, new in (
            ("8, false, false);\n          } else", "8, true, false);\n          } else"),
            ("/*prof_counters=*/nullptr", "counters"),
            ("__xla_cpu_runtime_TopKF32", "__xla_cpu_runtime_BottomKF32"),
            ("8, 8, 4, 3, 3, 4, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 );\n      } else", "8 );\n      } else"),
        ):
            with self.subTest(old):
                self.assertEqual(1, OLDER.count(old))
                with self.assertRaisesRegex(TfaotError, "tfcompile's header has a part that the rules don't know"):
                    header.parse(OLDER.replace(old, new))


class NewerTest(unittest.TestCase):
    """The texts of TensorFlow 2.22."""

    def test_sort(self) -> None:
        """Protects users of 2.22: a sort of the whole array is read, and one of a part is refused."""
        begin, end = OLDER.index("// Sort Thunk"), OLDER.index("// TopK Thunk")
        text = OLDER[:begin] + NEWER_SORT + OLDER[end:]
        (sort,) = (each for each in header.parse(text).thunks if isinstance(each, Sort))
        self.assertEqual(sort, Sort("compare", (Slice(3, 0),), (4,), (64, 16, 1), True))
        for old, new in (
            ("/*start_slice=*/0", "/*start_slice=*/1"),
            ("int64_t>(64)", "int64_t>(32)"),
            (">(64) * 1", ">(64) * 2"),
        ):
            with self.subTest(new), self.assertRaisesRegex(TfaotError, "has a part that the rules don't know"):
                self.assertEqual(1, text.count(old))
                header.parse(text.replace(old, new))

    def test_seed(self) -> None:
        """Protects reproducible runs: numbers that XLA seeds from the system are refused, with what to draw in their place."""
        seed = "// Rng Seed Thunk { uint64_t seed = static_cast<uint64_t>(run_options->rng_seed()); if (seed == 0) {"
        with self.assertRaisesRegex(TfaotError, "XLA seeds anew in each run(.|\n)*draw with tf.random or stablehlo"):
            header.parse(OLDER.replace("// Sort Thunk", seed + " } } // Sort Thunk"))


NEWER_SORT = """
     // Sort Thunk
     {
       std::vector<std::byte*> values = {
         reinterpret_cast<std::byte*>(reinterpret_cast<std::byte*>(buffer_table[3]) + 0)
       };
       std::vector<size_t> primitive_sizes = {
         4
       };

       // Type alias compatible with `FunctionLibrary::Comparator`.
       using Comparator = void(bool* result, const void* run_options,
                               const void** params, const void* buffer_table,
                               const void* status, const void* prof_counters);
       Comparator* comparator = reinterpret_cast<Comparator*>(
           compare);

       absl::AnyInvocable<bool(const void** data)> less_than =
           [comparator](const void** data) {
             bool result;
             (*comparator)(&result, nullptr, data, nullptr, nullptr, nullptr);
             ABSL_ANNOTATE_MEMORY_IS_INITIALIZED(&result, sizeof(result));
             return result;
           };

       xla::cpu::internal::SortInplace(
         {
           64,
           16,
           1
         },
         /*start_slice=*/0,
         /*end_slice=*/static_cast<int64_t>(64) * 1,
         values, primitive_sizes, true, &less_than);
     }

     """


OLDER = """
  static constexpr size_t kNumArgs = 1;
  static constexpr size_t kNumResults = 1;
  static constexpr size_t kNumBuffers = 4;
      kBufferInfos[kNumBuffers] = {
::xla::cpu_function_runtime::BufferInfo(::xla::cpu_function_runtime::EncodedBufferInfo{4097ULL, ~0U, 0U}),
::xla::cpu_function_runtime::BufferInfo(::xla::cpu_function_runtime::EncodedBufferInfo{4098ULL, 0U, ~0U}),
::xla::cpu_function_runtime::BufferInfo(::xla::cpu_function_runtime::EncodedBufferInfo{16ULL, ~0U, ~0U}),
::xla::cpu_function_runtime::BufferInfo(::xla::cpu_function_runtime::EncodedBufferInfo{33089ULL, ~0U, ~0U})
      };
    static constexpr ::tensorflow::int32 kResultIndexToBufferIndex[kNumResults] = {
0
    };
    static constexpr ::tensorflow::int32 kArgIndexToBufferIndex[kNumArgs] = {
1
    };
    std::vector<std::unique_ptr<xla::cpu::RngState>>& rng_states) {

     // Convolution Thunk
     {
      if (run_options->intra_op_thread_pool() != nullptr) {
        __xla_cpu_runtime_EigenConv2DF32(
          run_options,
          reinterpret_cast<float*>(@3@ + 0), reinterpret_cast<float*>(@1@ + 0), reinterpret_cast<float*>(@3@ + 2048), 1,
          8, 8, 4, 3, 3, 4, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 );
      } else {
        __xla_cpu_runtime_EigenSingleThreadedConv2DF32(
          nullptr,
          reinterpret_cast<float*>(@3@ + 0), reinterpret_cast<float*>(@1@ + 0), reinterpret_cast<float*>(@3@ + 2048), 1,
          8, 8, 4, 3, 3, 4, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 );
      }
     }

     // Dot Thunk
     {
        for (int64_t i = 0; i < 1; ++i) {
          if (run_options->intra_op_thread_pool() != nullptr) {
            __xla_cpu_runtime_EigenMatMulF32(
              run_options,
              reinterpret_cast<float*>(@3@ + 0) + 1024 * i,
              reinterpret_cast<float*>(@0@ + 0) + 128 * i,
              reinterpret_cast<float*>(@3@ + 4096) + 512 * i,
              16, 64, 8, false, false);
          } else {
            __xla_cpu_runtime_EigenSingleThreadedMatMulF32(
                nullptr,
                reinterpret_cast<float*>(@3@ + 0) + 1024 * i,
                reinterpret_cast<float*>(@0@ + 0) + 128 * i,
                reinterpret_cast<float*>(@3@ + 4096) + 512 * i,
                16, 64, 8, false, false);
          }
        }
     }

     // Sort Thunk
     {
       std::vector<char*> values = {
         reinterpret_cast<char*>(@3@ + 0)
       };
       std::vector<int32_t> values_primitive_type_size_in_bytes = {
         4
       };

       __xla_cpu_runtime_KeyValueSort(
         64, 16, 1,
         values.data(),
         int32_t(values.size()),
         values_primitive_type_size_in_bytes.data(),
         /*is_stable=*/true,
         reinterpret_cast<char*>(run_options),
         /*prof_counters=*/nullptr,
         reinterpret_cast<void(*)(char*, char*, char**, char**, int64_t*)>(compare));
     }

     // TopK Thunk
     {
    __xla_cpu_runtime_TopKF32(64, 16, 4,
                              reinterpret_cast<const float*>(@3@ + 4096),
                              reinterpret_cast<float*>(@0@ + 0),
                              reinterpret_cast<int32_t*>(@3@ + 0));
     }
      return true;
    };
  }

  static std::vector<std::pair<uint64_t, char*>> EmbeddedConstantBuffers() {
    return
{
    [](char* buffer) -> std::pair<uint64_t, char*> {
      uint64_t buffer_size;
      std::memcpy(&buffer_size, buffer, sizeof(uint64_t));
      return {buffer_size, buffer + 64};
    }(constant)
};
;
  }

  static std::vector<int64_t> RngStateDeltas() {
    return {
    };
  }
"""
OLDER = re.sub(r"@(\d)@", r"reinterpret_cast<std::byte*>(buffer_table[\1])", OLDER)


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

              to do: use the TensorFlow that tools/python/requirements.lock names, or extend \
py/tfaot/compile/program/thunks/header.py
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
            the text isn't a header that tfcompile wrote: it has 0 of the function that runs its thunks
              to do: pass the file that tfcompile, of the TensorFlow that tools/python/requirements.lock names, wrote as out_header
            """,
        )


if __name__ == "__main__":
    unittest.main()
