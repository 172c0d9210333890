"""Random nets: passes keep TensorFlow's numbers, whatever the inputs, and threads don't change a bit."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np

from tests.nets import campaign, grammar, nets
from tests.stages import harness

DIFFERENT = {
    11: "XLA fuses a product with a sum, which then has digits that TensorFlow rounds away: here, of rows of -1e30",
}
"""Nets in which the program without passes differs from TensorFlow, and why."""


def _texts(faults: list[campaign.Fault]) -> str:
    return "\n".join(
        f"net {fault.net}, {fault.variant}: {fault.what}: {fault.inputs}, {fault.where}"
        for fault in nets.summary(faults)
    )


class NetsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls) -> None:
        harness.warm()

    def test_first_nets(self) -> None:
        """No pass changes a number of a net, on any input, and no number of threads changes a bit."""
        tally = nets.run(range(nets.TOGETHER), each_pass=False)
        faults = [fault for fault in tally.faults if fault.what != campaign.XLA or fault.net not in DIFFERENT]
        self.assertEqual(_texts(faults), "")
        self.assertEqual({*tally.counts}, {*grammar.FAMILIES})

    def test_algebra(self) -> None:
        """Decompositions, linear systems, and Fourier transforms have TensorFlow's numbers inside random nets, on any threads."""
        first = grammar.ALGEBRA
        self.assertEqual(_texts(nets.run(range(first, first + nets.TOGETHER), each_pass=False).faults), "")

    def test_products_that_cancel(self) -> None:
        """A norm of equal values of -1e9 is its offset in row sweeps, too: their products are rounded before they cancel."""
        self.assertEqual(_texts(nets.run(range(748, 749), each_pass=False).faults), "")

    def test_wrong_values_show(self) -> None:
        """The comparison sees a value that is off by more than rounding, one from another place, a bit of a thread, and NaN."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        group = campaign.Group(folder, [grammar.net(0)])
        program = group.program((), campaign.LEVELS[:1], optimize="-O1")
        results = group.results(program, (1, 2))
        self.assertEqual(list(campaign._bits(results)), [])
        right = results["normal", campaign.LEVELS[0], 1]["n0_0"]
        reference = group.reference["normal"]
        self.assertFalse(reference.wrong("n0_0", right).any())
        self.assertTrue(reference.wrong("n0_0", right + np.float32(1e-3)).all())
        self.assertTrue(reference.wrong("n0_0", np.full_like(right, np.nan)).all())
        self.assertTrue(reference.wrong("n0_0", np.roll(right, 1, -1)).any())
        results["normal", campaign.LEVELS[0], 2]["n0_0"].view(np.int32)[0, 0] ^= 1
        self.assertEqual([fault.what for fault in campaign._bits(results)], ["threads"])


if __name__ == "__main__":
    unittest.main()
