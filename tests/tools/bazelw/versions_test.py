import unittest

from tools.bazelw import versions


class VersionsTest(unittest.TestCase):
    def test_patch_release_fits(self) -> None:
        """Protects users of another patch release from an unnecessary download."""
        self.assertTrue(versions.fits("bazel 7.7.0", "7.7.1"))
        self.assertTrue(versions.fits("7.7.1", "7.7.1"))

    def test_other_minor_release_does_not_fit(self) -> None:
        """Protects builds from a Bazel whose flags and rules differ."""
        for version in ("bazel 7.6.1", "bazel 8.7.1", "bazel 7.70.1", "bazel 17.7.1"):
            with self.subTest(version):
                self.assertFalse(versions.fits(version, "7.7.1"))

    def test_unreleased_or_unknown_version_does_not_fit(self) -> None:
        """Protects builds from a Bazel that can't report its version."""
        for version in ("bazel no_version", "", "bazel 7.7.1rc1", "bazel 7.7.1- (@non-git)", "bazelisk 7.7"):
            with self.subTest(version):
                self.assertFalse(versions.fits(version, "7.7.1"))


if __name__ == "__main__":
    unittest.main()
