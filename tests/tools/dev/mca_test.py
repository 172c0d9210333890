"""What the analysis of ARM's kernels looks at."""

from __future__ import annotations

import unittest

from tools.dev import mca

ASSEMBLY = """\
\t.type\tproducts, %function
products:
\tcbz\tx0, .L1
.L2:
\tldr\tq0, [x1], 16
.L3:
\tldp\tq2, q3, [x2], 32
\tfmla\tv4.4s, v2.4s, v0.s[0]\t// a comment
\tfmla\tv5.4s, v3.4s, v0.s[0]
\tfmul\tv6.4s, v3.4s, v3.4s
\tadd\tx3, x3, 1
\tcmp\tx3, x4
\tbne\t.L3
\tcmp\tx1, x5
\tblt\t.L2
.L1:
\tret
\t.size\tproducts, .-products
\t.type\tbranchy, %function
branchy:
.L4:
\tfadd\tv0.2d, v1.2d, v2.2d
\tcbz\tw0, .L5
\tfadd\tv0.2d, v0.2d, v2.2d
.L5:
\tfsub\tv0.2d, v0.2d, v3.2d
\ttbnz\tx1, 3, .L4
\tret
\t.size\tbranchy, .-branchy
\t.type\ttable, %object
"""


class McaTest(unittest.TestCase):
    """Loops in gcc's output."""

    def test_innermost(self) -> None:
        """Protects the page's figures: they are about innermost loops, and count what computes with vectors, and nothing else."""
        products, branchy = mca.loops(ASSEMBLY)
        self.assertEqual((products.function, len(products.body), products.straight), ("products", 7, True))
        self.assertEqual((len(products.arithmetic), products.multiply_adds), (3, 2))
        self.assertEqual(products.body[1], "fmla v4.4s, v2.4s, v0.s[0]")
        self.assertEqual((len(branchy.body), len(branchy.arithmetic), branchy.straight), (5, 3, False))

    def test_hottest(self) -> None:
        """Protects the choice among loops of a template: straight ones first, then most products, then fewest instructions."""

        def loop(name: str, *body: str, straight: bool = True) -> mca.Loop:
            return mca.Loop(
                f"void tfaot::kernels::armv8_a::{name}(tfaot::kernels::armv8_a::Strip<int>)", body, straight
            )

        product, total = "fmla v0.4s, v1.4s, v2.4s", "fadd v0.4s, v1.4s, v2.4s"
        best = loop("Tile<float, 2>", product, product, product)
        functions = mca.hottest(
            [
                loop("Tile<float, 1>", total, total, total, total),
                loop("Tile<float, 3>", product, product, product, "ldr q0, [x0]"),
                best,
                loop("Tile<float, 4>", *[product] * 9, straight=False),
                loop("Tile<double, float __vector(4), 2>", total, total, total),
                loop("Copy", "ldr q0, [x0]", total),
            ]
        )
        self.assertEqual(
            [function.name for function in functions], ["Tile<double, float __vector(4), 2>", "Tile<float, 2>"]
        )
        self.assertIs(functions[1], best)


if __name__ == "__main__":
    unittest.main()
