"""The error function that StableHLO modules contain, run with JAX."""

from __future__ import annotations

import math
import unittest
from typing import Any

import jax
import jax.extend.backend
import ml_dtypes
import numpy as np
import numpy.typing as npt
from jaxlib import xla_client

from tfaot.hlo import erf

X = np.concatenate(
    [
        np.linspace(-9, 9, 4001),
        np.sign(np.linspace(-1, 1, 400)) * 10.0 ** np.linspace(-37, 0, 400),
        [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan],
    ]
)


class ErfTest(unittest.TestCase):
    """Each dtype is compared with Python's math.erf."""

    def run_erf(self, element: str, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Calls the function in a separate module."""
        kind = f"tensor<{x.size}x{element}>"
        text = (
            f"module @m {{\n{erf.function('e', [x.size], element)}"
            f"  func.func @main(%x: {kind}) -> {kind} {{\n    %0 = func.call @e(%x) : ({kind}) -> {kind}\n"
            f"    return %0 : {kind}\n  }}\n}}\n"
        )
        jax.config.update("jax_enable_x64", True)
        client = jax.extend.backend.get_backend("cpu")
        device = client.local_devices()[0]
        devices = xla_client.DeviceList((device,))
        executable = client.compile_and_load(text.encode(), devices, xla_client.CompileOptions())
        return np.asarray(executable.execute([jax.device_put(x, device)])[0])

    def test_exactness(self) -> None:
        """Results are correct to a few units in the last place, including for NaN and infinities."""
        for element, name, units in (
            ("f64", "float64", 4),
            ("f32", "float32", 4),
            ("bf16", "bfloat16", 1),
            ("f16", "float16", 1),
        ):
            with self.subTest(element):
                x = X.astype(np.dtype(name))
                got = self.run_erf(element, x)
                self.assertEqual(x.dtype, got.dtype)
                want = np.array([math.erf(float(value)) for value in x]).astype(x.dtype)
                np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
                finite = ~np.isnan(want)
                magnitude = np.maximum(np.abs(want[finite]), ml_dtypes.finfo(x.dtype).smallest_normal)
                off = np.abs(got[finite].astype(np.float64) - want[finite].astype(np.float64))
                self.assertLessEqual(np.max(off / np.spacing(magnitude).astype(np.float64)), units)


if __name__ == "__main__":
    unittest.main()
