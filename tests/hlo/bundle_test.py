"""A bundle contains what a vendor needs, and describes itself."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from tfaot.core import version
from tfaot.core.manifest import Manifest
from tfaot.hlo import bundle

ARCHIVE, REPLAY, MODULE, *GROUPS = map(Path, sys.argv[1:])


class BundleTest(unittest.TestCase):
    """All tests use one bundle, of a target named `any/name.c-1`."""

    def setUp(self) -> None:
        with tarfile.open(ARCHIVE) as archive:
            self.members = archive.getmembers()
            self.files = {member.name: archive.extractfile(member).read() for member in self.members}  # type: ignore[union-attr]
        self.names = {name.rpartition("/")[2]: data for name, data in self.files.items()}

    def test_contents(self) -> None:
        """One folder, named after the target, with every part."""
        self.assertEqual({"any_name.c-1"}, {name.rpartition("/")[0] for name in self.files})
        self.assertEqual(
            {
                "README.md",
                "SHA256SUMS",
                "VERSION",
                "goldens.safetensors",
                "model.json",
                "module.hlo.pb",
                "module.hlo.dot",
                "module.hlo.txt",
                "module.optimized_hlo.txt",
                "module.stablehlo.mlir",
                "module.stablehlo.mlirbc",
                "replay.py",
                "variables.safetensors",
            },
            set(self.names),
        )
        self.assertEqual(REPLAY.read_bytes(), self.names["replay.py"])

    def test_checksums(self) -> None:
        """A vendor can tell a damaged bundle from a wrong compiler."""
        sums = {line[66:]: line[:64] for line in self.names["SHA256SUMS"].decode().splitlines()}
        self.assertEqual(set(self.names) - {"SHA256SUMS"}, set(sums))
        for name, checksum in sums.items():
            self.assertEqual(checksum, hashlib.sha256(self.names[name]).hexdigest(), name)

    def test_version(self) -> None:
        """The stamp names the rules' version, which is the one in MODULE.bazel, TensorFlow's version, and the graph."""
        declared = re.search(r'^    version = "([^"]+)"', MODULE.read_text(), re.MULTILINE)
        assert declared is not None
        self.assertEqual(declared[1], version.RULES)
        manifest = Manifest.from_json(self.names["model.json"].decode())
        self.assertEqual(
            f"rules_tfaot: {version.RULES}\ntensorflow: {manifest.tensorflow}\n"
            f"graph: {manifest.fingerprints.graph}\nshapes: {manifest.fingerprints.shapes}\n"
            f"constants: {manifest.fingerprints.constants}\nconfig: {manifest.fingerprints.config}\n",
            self.names["VERSION"].decode(),
        )

    def test_goldens(self) -> None:
        """Inputs, results, and tolerances of every step are there, under the manifest's names."""
        manifest = Manifest.from_json(self.names["model.json"].decode())
        data = self.names["goldens.safetensors"]
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        entry = manifest.entry_points[0]
        for step in range(len(manifest.calls)):
            for tensor in entry.inputs:
                self.assertEqual(list(tensor.shape), header[f"step{step}/{tensor.cpp_name}"]["shape"])
            for tensor in (*entry.outputs, *manifest.written):
                self.assertIn(f"step{step}/{tensor.cpp_name}", header)
                self.assertIn(f"step{step}/{tensor.cpp_name}/tolerance", header)

    def test_readme(self) -> None:
        """The README lists parameters and results in order, by TensorFlow's names."""
        text = self.names["README.md"].decode()
        manifest = Manifest.from_json(self.names["model.json"].decode())
        places = [text.index(f"| `{variable.name}` |") for variable in manifest.variables]
        self.assertEqual(places, sorted(places))
        self.assertIn("| 0 | output | `half` |", text)

    def test_reproducible(self) -> None:
        """The archive doesn't say when or by whom it was packed, and packing again gives the same bytes."""
        for member in self.members:
            self.assertEqual((0, 0, 0, "", ""), (member.mtime, member.uid, member.gid, member.uname, member.gname))
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            for name in bundle.FILES.values():
                (Path(folder) / name).write_bytes(self.names[name])
            files = {field: str(Path(folder) / name) for field, name in bundle.FILES.items()}
            again = Path(folder) / "again.tar.gz"
            bundle.pack(bundle.Request(name="any/name.c-1", out_archive=str(again), **files))
            self.assertEqual(ARCHIVE.read_bytes(), again.read_bytes())

    def test_groups(self) -> None:
        """The output groups are exactly the files in the bundle."""
        suffixes = (".hlo.pb", ".hlo.txt", ".hlo.dot", ".optimized_hlo.txt", ".stablehlo.mlir", ".stablehlo.mlirbc")
        self.assertEqual({"name.c-1" + suffix for suffix in suffixes}, {path.name for path in GROUPS})
        for path in GROUPS:
            self.assertEqual(path.read_bytes(), self.names["module" + path.name.removeprefix("name.c-1")], path.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
