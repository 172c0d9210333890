"""The interface of a model's shared library: its symbols, and its table of functions."""

import hashlib
import re
import subprocess
import unittest
from pathlib import Path

FOLDER = "tests/models/link"
LIBRARIES = {f"{FOLDER}/libone_aot_shared.so": "tfaot_get_api", "tests/models/shared/libaffine_linked.so": "affine_api"}
HEADER = Path("runtime/tfaot/c_api.h")
TABLES = {1: (24, "421202be1432"), 2: (45, "e2aa023726db"), 3: (47, "960716b49eea")}
"""The number of members that the table has in each version, and the hash of their declarations."""
STRUCTS = {
    "tfaot_tensor": "c32bf12063da",
    "tfaot_entry_point": "6d14f519c9e3",
    "tfaot_description": "d7ba819f0368",
    "tfaot_thread_pool": "f4eada61ff1b",
    "tfaot_source": "e00cb5d80589",
    "tfaot_value": "674701da77a9",
    "tfaot_allocator": "a76f1a2ac942",
    "tfaot_hooks": "18d9fa55b7cb",
    "tfaot_gradient": "39c1d4db376b",
}
NUMBERS = """OK=0 INVALID_ARGUMENT=1 FILE_ACCESS=2 BAD_FILE=3 MISMATCH=4 NO_WEIGHTS=5 UNSUPPORTED_CPU=6 OUT_OF_MEMORY=7 CANCELLED=8
KERNEL_FAILED=9 EXCHANGE_FAILED=10 UNKNOWN_INPUT=100 UNSUPPORTED=101 FAILED=102 FLOAT32=1 FLOAT64=2 INT32=3 UINT8=4 INT16=5 INT8=6
COMPLEX64=8 INT64=9 BOOL=10 BFLOAT16=14 UINT16=17 COMPLEX128=18 FLOAT16=19 UINT32=22 UINT64=23 BATCHED=1 BOUNDED=2 WRITTEN=4"""


def hashed(text: str) -> str:
    """Returns what tells a text apart from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class HeaderTest(unittest.TestCase):
    """The header, without comments and line breaks."""

    def test_only_grows(self) -> None:
        """Protects compiled programs: versions start as they did, and structs and numbers stay. Add new ones here."""
        text = " ".join(re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL).split())
        structs = dict(re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text))
        table = [member.strip() for member in structs.pop("tfaot_api").split(";")][:-1]
        version = int(re.findall(r"TFAOT_API_VERSION (\d+)", text)[0])
        self.assertEqual((version, len(table)), (max(TABLES), TABLES[max(TABLES)][0]))
        for number, (members, wanted) in TABLES.items():
            self.assertEqual(hashed(";".join(table[:members])), wanted, f"version {number}")
        self.assertEqual({name: hashed(body) for name, body in structs.items()}, STRUCTS)
        self.assertEqual(re.findall(r"TFAOT_(\w+) = (\d+)", text), re.findall(r"(\w+)=(\d+)", NUMBERS))


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
