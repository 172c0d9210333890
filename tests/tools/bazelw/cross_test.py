"""Setting up the C++ compiler for 64-bit ARM, without the network."""

from __future__ import annotations

import platform
import unittest
from unittest import mock

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import cross
from tools.bazelw.errors import WayFailed

_PLAN = """\
NOTE: This is only a simulation!
Inst qemu-user (1:7.2 Debian:12/stable [amd64])
Inst libc6-arm64-cross (2.36 Debian:12/stable [all])
Inst liburing2:amd64 (2.3 Debian:12/stable [amd64])
Conf qemu-user (1:7.2 Debian:12/stable [amd64])
"""


class CrossTest(ScratchTest):
    """What bazelw downloads for ARM, and when it refuses to."""

    def test_missing(self) -> None:
        """Protects downloads: exactly the packages that apt would install, each once."""
        self.assertEqual(cross.missing(_PLAN), ["libc6-arm64-cross", "liburing2", "qemu-user"])

    def test_other_machine(self) -> None:
        """Protects users of other distributions: the error says what they have, and what to do instead."""
        release = {"ID": "fedora", "PRETTY_NAME": "Fedora 40"}
        with (
            mock.patch.object(platform, "freedesktop_os_release", return_value=release),
            mock.patch.object(platform, "machine", return_value="x86_64"),
            self.assertRaises(WayFailed) as caught,
        ):
            cross.set_up(self.folder, self.progress)
        self.assertEqual(
            str(caught.exception),
            "this machine is Fedora 40 on x86_64, and the packages are for Debian on x86-64; declare a C++ toolchain of "
            "your own for the platform (docs/guide/arm.md)",
        )

    def test_missing_tool(self) -> None:
        """Protects users when a package has changed its layout: the error names the program, and nothing counts as ready."""
        with self.assertRaisesRegex(WayFailed, "the Debian packages don't contain usr/bin/aarch64-linux-gnu-"):
            cross._programs(self.folder / "part", self.folder / "final")
        self.assertFalse((self.folder / "part/bin").exists())


if __name__ == "__main__":
    unittest.main()
