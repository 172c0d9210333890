"""Compiles our stablehlo stage's output with IREE for this machine's CPU: `to_iree.py IN.mlir OUT.vmfb`."""

from __future__ import annotations

import sys

from iree import compiler


def main() -> None:
    """Compiles for the local task runtime, at the highest optimization level."""
    source, out = sys.argv[1:]
    compiler.compile_file(
        source,
        input_type="stablehlo",
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        output_file=out,
    )


if __name__ == "__main__":
    main()
