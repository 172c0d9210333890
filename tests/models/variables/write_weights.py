"""Writes the weights files for this folder's tests: `write_weights.py KIND OUT`. No binary file is committed."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from tfaot.core import dtypes
from tfaot.core import safetensors as tfaot_safetensors

BFLOAT16 = dtypes.BY_NAME["bfloat16"].numpy()

Tensors = dict[str, npt.NDArray[Any]]

MIXER: Tensors = {
    "dense/kernel": np.ones((4, 16), np.float32),
    "dense/bias": np.arange(16, dtype=np.float32),
    "keep": np.arange(16) % 2 == 0,
    "scale": np.array(-1.5, BFLOAT16),
    "total": np.full(16, 100, np.float32),
    "steps": np.array(41, np.int64),
}
"""For mixer.py, without the random state, which is optional in a file."""

MISFIT: Tensors = {
    "dense/kernel": np.ones((16, 4), np.float32),  # another shape
    "dense/offset": np.zeros(16, np.float32),  # another name
    "keep": np.ones(16, np.uint8),  # another dtype
    "scale": np.array(-1.5, BFLOAT16),
    "total": np.zeros(16, np.float32),
    "steps": np.array([41], np.int64),  # not a scalar
}

SERVED: Tensors = {
    "body/kernel": np.eye(4, 16, dtype=np.float32),
    "body/bias": np.full(16, 1, np.float32),
    "head/kernel": np.array([[1, -1]] * 16, np.float32),
    "head/bias": np.array([0, 10], np.float32),
}
"""For served.py."""

HEAD = {name: value * 2 for name, value in SERVED.items() if name.startswith("head/")}


def main() -> None:
    """Writes one file: with the rules' own writer, or with the format's Python library."""
    kind, out = sys.argv[1:]
    if kind in ("mixer", "misfit"):
        with open(out, "wb") as file:
            tfaot_safetensors.write(file, MIXER if kind == "mixer" else MISFIT, aligned=True)
    else:
        safetensors.numpy.save_file({"plain": MIXER, "served": SERVED, "head": HEAD}[kind], out)


if __name__ == "__main__":
    main()
