"""The environment that TensorFlow reads once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tfaot.core import environment

YNN = "--xla_cpu_experimental_ynn_fusion_type="
FTZ = "--xla_cpu_ftz=false"


class EnvironmentTest(unittest.TestCase):
    def flags(self, packages: dict[str, str]) -> list[str]:
        """Returns XLA's flags where certain versions of packages are installed."""
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            for name, version in packages.items():
                metadata = Path(folder, f"{name.replace('-', '_')}-{version}.dist-info", "METADATA")
                metadata.parent.mkdir()
                metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
            root = Path(environment.__file__).parents[2]
            code = "import os; from tfaot.core import environment as e; e.prepare(); print(os.environ['XLA_FLAGS'])"
            return subprocess.run(
                [sys.executable, "-S", "-c", code],
                env={"PYTHONPATH": os.pathsep.join([str(root), folder])},
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()

    def test_flags_of_a_version(self) -> None:
        """Protects other wheels: an unknown flag kills the compiler, and without the flag 2.21 refuses its own output."""
        for packages, expected in (
            ({"tensorflow-cpu": "2.20.0"}, set()),
            ({"tensorflow": "2.20.1"}, set()),
            ({"tensorflow-cpu": "2.21.0"}, {YNN}),
            ({"tf-nightly-cpu": "2.22.0.dev20260905"}, {YNN, FTZ}),
            ({"tensorflow": "3.0.0rc1"}, {YNN, FTZ}),
            ({}, {YNN}),
        ):
            with self.subTest(packages):
                flags = self.flags(packages)
                self.assertEqual(expected, {YNN, FTZ} & {*flags})
                self.assertIn("--xla_cpu_enable_fast_min_max=false", flags)


if __name__ == "__main__":
    unittest.main()
