"""Goldens don't depend on the machine that computes them."""

from __future__ import annotations

import os
import unittest

from tests.stages.harness import StageTest, run_main

MODEL = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def input_fn():
    return v1.placeholder(tf.float32, [8, 16, 16, 3], "x"), v1.placeholder(tf.float32, [8, 10], "y")


def model_fn(features, labels):
    filters = v1.get_variable("filters", initializer=0.2 * draw(0, 3, 3, 3, 32))
    weights = v1.get_variable("weights", initializer=0.02 * draw(1, 16 * 16 * 32, 10))
    x = tf.nn.relu(tf.nn.conv2d(features, filters, 1, "SAME"))
    out = tf.tanh(tf.reshape(x, [8, -1]) @ weights)
    loss = tf.reduce_mean(tf.exp(out) * labels) + tf.reduce_mean(tf.sin(x))
    return v1.train.AdamOptimizer(0.01).minimize(loss), loss
"""
"""A training step. The goldens contain TensorFlow's own float32 variables, which depend on the order of its sums."""

SETTINGS: dict[str, dict[str, str]] = {
    "this machine": {},
    "oneDNN for SSE4.1": {"ONEDNN_MAX_CPU_ISA": "SSE41", "DNNL_MAX_CPU_ISA": "SSE41"},
    "oneDNN for AVX2, asked for": {"ONEDNN_MAX_CPU_ISA": "AVX2", "TF_ENABLE_ONEDNN_OPTS": "1"},
    "the C library without AVX-512, AVX2, and FMA": {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-FMA,-AVX2_Usable,-FMA_Usable"
    },
}


class MachinesTest(StageTest):
    """The stage's program, while it believes that it runs on other CPUs."""

    def test_same_bytes(self) -> None:
        """Goldens made on a CPU with AVX-512 work on one without, so a cache can share them."""
        exported = self.export(MODEL, golden_steps=2)
        flags = [f"--{name}={exported.path(name)}" for name in ("manifest", "graph", "variables", "golden_inputs")]
        goldens = {}
        for name, setting in SETTINGS.items():
            result = run_main("verify", *flags, f"--out_goldens={exported.path('goldens')}", env=setting)
            self.assertEqual(result.returncode, 0, result.stderr)
            goldens[name] = (exported.folder / "goldens").read_bytes()
            os.remove(exported.path("goldens"))
        for name, data in goldens.items():
            self.assertTrue(data == goldens["this machine"], f"{name} gives other goldens")


if __name__ == "__main__":
    unittest.main()
