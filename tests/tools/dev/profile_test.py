"""The profile's table, from the output of perf and a benchmark. What perf measures depends on the machine."""

import json
import os
import subprocess
import unittest

from tfaot import profile


class ProfileTest(unittest.TestCase):
    def test_table(self) -> None:
        """Samples are counted by function, whatever the offset. Kernels lose their prefix, and near misses follow them."""
        script = "\n".join(
            [
                "    55d0c0de tfcompile_xla_generated_tfcompile_12_tfaot_internal__M1a_add_fusion+0x10 (/a/driver)",
                "    55d0c0ff tfcompile_xla_generated_tfcompile_12_tfaot_internal__M1a_add_fusion+0x31 (/a/driver)",
                "    7f00 [unknown] (/lib/c)",
                "",
            ]
        )
        prefix = "tfcompile_xla_generated_tfcompile_12_tfaot_internal__"
        missed = [
            {"pass": "epilogues", "what": f"{prefix}M1a_add_fusion", "origin": "net/add", "reason": "it is in a loop"},
            {"pass": "row_fusion", "what": f"{prefix}M1a_other", "origin": "", "reason": "something reads it"},
        ]
        self.assertEqual(
            profile.table(script, 9.0, profile.near_misses([json.dumps({"missed": missed})])),
            [
                "  share    us/step  function",
                "  66.7%       6.00  M1a_add_fusion",
                "                    left by epilogues: it is in a loop (net/add)",
                "  33.3%       3.00  [unknown]",
            ],
        )

    def test_medians(self) -> None:
        """Every entry point of a class, and every function for several sizes, has its own line in a benchmark's output."""
        printed = (
            "INFO: noise\n"
            "a::B::Train, x86-64-v3: 10 steps, min 1.50 us, median 2.25 us, max 9.00 us\n"
            "a::B::Read, x86-64-v3: 10 steps, min 0.10 us, median 0.20 us, max 0.30 us\n"
            "a::B[8, 32], x86-64-v3: 10 steps, min 0.10 us, median 0.50 us, max 0.90 us\n"
        )
        self.assertEqual(profile.medians(printed), {"a::B::Train": 2.25, "a::B::Read": 0.20, "a::B[8, 32]": 0.50})

    def test_real_benchmark(self) -> None:
        """The profile can read the output of a generated benchmark."""
        benchmark, goldens = (os.path.join(os.path.dirname(__file__), "half_aot" + end) for end in ENDS)
        done = subprocess.run([benchmark, goldens, "--steps=10"], capture_output=True, check=True, text=True)
        self.assertEqual(list(profile.medians(done.stdout)), ["tests::Half"])


ENDS = ("_benchmark", ".goldens.safetensors")

if __name__ == "__main__":
    unittest.main()
