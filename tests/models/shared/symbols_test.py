"""The symbols of a model's shared library."""

import subprocess
import unittest

FOLDER = "tests/models/link"
LIBRARIES = {f"{FOLDER}/libone_aot_shared.so": "tfaot_get_api", "tests/models/shared/libaffine_linked.so": "affine_api"}


class SymbolsTest(unittest.TestCase):
    """What a dynamic linker sees."""

    def test_one_symbol(self) -> None:
        """Protects processes with several libraries: nothing of one can replace anything of another."""
        for library, symbol in LIBRARIES.items():
            listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
            self.assertEqual([line.split()[1:] for line in listed.stdout.splitlines()], [["T", symbol]])

    def test_needs(self) -> None:
        """Protects programs from dependencies: a library needs the C and C++ libraries alone."""
        for library in LIBRARIES:
            listed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
            needed = {line.split("[")[1].split(".so")[0] for line in listed.splitlines() if "(NEEDED)" in line}
            self.assertLessEqual(needed, {"libc", "libgcc_s", "libm", "libpthread", "libstdc++", "ld-linux-x86-64"})


if __name__ == "__main__":
    unittest.main()
