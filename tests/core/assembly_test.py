"""Assembler sources with data: one text for all formats of object files, of which the preprocessor chooses a part."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path

from tfaot.core import assembly

_WANTED = {
    "__APPLE__": """\
.section __TEXT, __const
.balign 64
.globl _a_b
.private_extern _a_b
_a_b:
.incbin "values"
""",
    "_WIN32": """\
.section .rdata, "dr"
.balign 64
.globl a_b
a_b:
.incbin "values"
""",
    "__ELF__": """\
.section .rodata.a_b, "a", @progbits
.balign 64
.globl a_b
.hidden a_b
.type a_b, @object
a_b:
.incbin "values"
.size a_b, . - a_b
.section .note.GNU-stack, "", @progbits
""",
}


class AssemblyTest(unittest.TestCase):
    """The source that embeds a file."""

    def test_formats(self) -> None:
        """Protects builds for macOS and Windows: each gets directives that its assembler knows, and names as its C has them."""
        text = assembly.source(["a_b"], ['.incbin "values"'], alignment=64)
        for system, wanted in _WANTED.items():
            command = ["cc", "-E", "-P", "-x", "assembler-with-cpp", "-U__ELF__", f"-D{system}=1", "-"]
            done = subprocess.run(command, check=True, capture_output=True, input=text, text=True)
            self.assertEqual("".join(f"{line.strip()}\n" for line in done.stdout.splitlines() if line.strip()), wanted)

    def test_links(self) -> None:
        """Protects the data: a program finds them, aligned, under each of their names."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "data.S").write_text(
                assembly.source(["one", "two"], [".quad 42"], alignment=64, before=[".quad 7"] * 8)
            )
            (folder / "main.c").write_text(
                "extern const long long one[], two[];\n"
                "int main() { return one == two && (unsigned long)one % 64 == 0 && *one == 42 && one[-1] == 7 ? 0 : 1; }\n"
            )
            program = str(folder / "program")
            subprocess.run(["cc", folder / "main.c", folder / "data.S", "-o", program], check=True)
            self.assertEqual(subprocess.run([program], check=False).returncode, 0)

    def test_nothing(self) -> None:
        """Protects libraries without embedded values: their source assembles to nothing."""
        text = assembly.source([], [".incbin MISSING"], alignment=64)
        done = subprocess.run(
            ["cc", "-c", "-x", "assembler-with-cpp", "-o", "/dev/null", "-"], check=False, input=text, text=True
        )
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
