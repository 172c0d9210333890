"""What the toolchain installs is complete, and is what tests run on."""

import os
import sys
import unittest
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


class PackagesTest(unittest.TestCase):
    def test_tensorflow_has_its_compiler(self) -> None:
        """Protects the reason for installing the wheel: a TensorFlow without tfcompile's entry point is useless."""
        import tensorflow
        from tensorflow.compiler.tf2xla import tf2xla_pb2
        from tensorflow.python import _pywrap_tfcompile

        self.assertEqual(tensorflow.__version__, "2.21.0")
        self.assertTrue(callable(_pywrap_tfcompile.Compile))
        self.assertEqual(len(tf2xla_pb2.Config().feed), 0)

    def test_what_the_lock_drops_is_not_needed(self) -> None:
        """Protects the short lock: everything that the stages import works without what pyproject.toml omits."""
        import google.protobuf
        import jinja2
        import keras
        import tensorflow
        import tf_keras
        from runfiles import runfiles

        self.assertTrue(tensorflow.keras.layers.Dense(1))
        for module in (google.protobuf, jinja2, keras, tf_keras, runfiles):
            self.assertIsNotNone(module)
        for dropped in ("grpc", "tensorboard", "clang", "setuptools"):
            self.assertNotIn(dropped, sys.modules)

    def test_the_interpreter_is_a_copy(self) -> None:
        """Protects caches that machines share: neither the interpreter nor its library is one that only this machine has."""
        repository = Path(os.__file__).resolve().parents[3]
        self.assertEqual(Path(sys.executable).resolve().parent, repository / "python/bin")
        self.assertTrue((repository / "site-packages/tensorflow").is_dir())

    def test_no_list_of_files_has_scripts(self) -> None:
        """Protects caches that machines share: a script's first line, and so its hash, names an interpreter of one machine."""
        site_packages = Path(os.__file__).resolve().parents[3] / "site-packages"
        records = list(site_packages.glob("*.dist-info/RECORD"))
        self.assertTrue(records)
        self.assertFalse((site_packages / "bin").exists())
        for record in records:
            self.assertNotIn("/bin/", record.read_text(encoding="utf-8"), record)

    def test_bytecode_does_not_depend_on_times(self) -> None:
        """Protects remote caching and startup time: byte code that contains its source's time differs on each machine."""
        import tensorflow

        folder = Path(tensorflow.__file__).parent / "__pycache__"
        (bytecode,) = folder.glob("__init__.*.pyc")
        # Bytes 4 to 8 are flags: 1 means that a hash follows instead of a time, and 2 that it should be checked.
        self.assertEqual(int.from_bytes(bytecode.read_bytes()[4:8], "little"), 1)


if __name__ == "__main__":
    unittest.main()
