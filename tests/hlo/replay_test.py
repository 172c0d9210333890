"""replay.py: what it accepts, and that it can fail."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ARCHIVE, REPLAY, MAIN = map(os.path.abspath, sys.argv[1:])


def replay(*arguments: str, script: str = REPLAY) -> subprocess.CompletedProcess[str]:
    """Runs the script like a vendor, in a separate process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, check=False, env=environment, text=True
    )


class ReplayTest(unittest.TestCase):
    """Each test starts from an unpacked bundle."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        with tarfile.open(ARCHIVE) as archive:
            for member in archive:
                file = archive.extractfile(member)
                assert file is not None
                (Path(folder.name) / os.path.basename(member.name)).write_bytes(file.read())
        self.bundle = Path(folder.name)

    def test_archive(self) -> None:
        """An archive doesn't need to be unpacked, and every form of the program in it is verified."""
        result = replay(ARCHIVE)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        for form in ("module.hlo.pb on cpu", "module.stablehlo.mlir on cpu", "module.stablehlo.mlirbc on cpu"):
            self.assertIn(form, result.stdout)
        self.assertEqual(3, result.stdout.count("name.c-1: 0 of "))

    def test_one_weight(self) -> None:
        """A single wrong weight fails: both its checksum, and the resulting numbers."""
        path = self.bundle / "variables.safetensors"
        data = bytearray(path.read_bytes())
        length = struct.unpack_from("<Q", data)[0]
        entry = json.loads(data[8 : 8 + length])["layer.0/a-b/w"]
        place = 8 + length + entry["data_offsets"][0]
        value = struct.unpack_from("<f", data, place)[0]
        struct.pack_into("<f", data, place, value + 0.01)
        path.write_bytes(data)
        result = replay(str(self.bundle), "--module=hlo")
        self.assertEqual(1, result.returncode, result.stdout + result.stderr)
        failed = [line for line in result.stdout.splitlines() if line.endswith("FAILED")]
        self.assertIn("isn't TensorFlow's initial value", failed[0])
        self.assertTrue(any(line.startswith("0     loss ") for line in failed), result.stdout)
        self.assertTrue(any(line.startswith("0     layer_0_a_b_w ") for line in failed), result.stdout)

    def test_one_instruction(self) -> None:
        """A program with another computation fails, though all data is correct."""
        path = self.bundle / "module.stablehlo.mlir"
        text = path.read_text()
        self.assertIn("stablehlo.subtract", text)
        path.write_text(text.replace("stablehlo.subtract", "stablehlo.add"))
        result = replay(str(self.bundle), "--module=stablehlo")
        self.assertEqual(1, result.returncode, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"(?m)^0     layer_0_a_b_w .* FAILED$")
        self.assertRegex(result.stdout, r"(?m)^      at index \d+: got [-.e\d]+, expected [-.e\d]+ \+- [.e\d]+$")

    def test_swapped_results(self) -> None:
        """Results in a different order from the manifest's are unusable, rather than a mismatch."""
        path = self.bundle / "model.json"
        manifest = json.loads(path.read_text())
        manifest["entry_points"][0]["outputs"].reverse()
        path.write_text(json.dumps(manifest))
        result = replay(str(self.bundle), "--module=bytecode")
        self.assertEqual(2, result.returncode, result.stdout + result.stderr)
        self.assertIn("which model.json says is complex64[8, 4]", result.stderr)

    def test_no_bundle(self) -> None:
        """A folder that isn't a bundle, and a file that isn't an archive, are distinguished from a failure."""
        (self.bundle / "model.json").unlink()
        result = replay(str(self.bundle))
        self.assertEqual(2, result.returncode)
        self.assertEqual(f"replay: {self.bundle} isn't a bundle: it has no model.json\n", result.stderr)
        result = replay(str(self.bundle / "README.md"))
        self.assertEqual(2, result.returncode)
        self.assertIn("README.md is neither a bundle nor a folder", result.stderr)

    def test_main(self) -> None:
        """The repository's own main behaves like the bundle's script."""
        result = replay(str(self.bundle / "README.md"), script=MAIN)
        self.assertEqual(2, result.returncode)
        self.assertIn("README.md is neither a bundle nor a folder", result.stderr)

    def test_no_platform(self) -> None:
        """A platform that JAX can't use here is named, with those that it can use."""
        result = replay(str(self.bundle), "--platform=tpu", "--module=hlo")
        self.assertEqual(2, result.returncode)
        self.assertIn("can't use the platform 'tpu'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
