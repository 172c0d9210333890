"""What replay.py, which imports none of our code, must know by itself."""

import unittest

from tfaot.core import dtypes, manifest
from tfaot.hlo import replay
from tfaot.verify import digest


class NumbersTest(unittest.TestCase):
    """Its numbers compared with ours."""

    def test_same(self) -> None:
        """Protects bundles: the script can read the output of the other stages."""
        self.assertEqual(replay.MANIFEST_FORMAT, manifest.FORMAT)
        self.assertEqual((replay.SAMPLES, replay.BLOCK), (digest.SAMPLES, digest.BLOCK))

    def test_dtypes(self) -> None:
        """Protects values of rare dtypes: the script knows each that a model can have, by its NumPy name."""
        name_of = {dtype.safetensors: dtype.name for dtype in dtypes.BY_NAME.values()}
        self.assertEqual({code: name for code, name in replay.DTYPES.items() if code in name_of}, name_of)


if __name__ == "__main__":
    unittest.main()
