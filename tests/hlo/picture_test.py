"""The picture of an HLO module, for handwritten modules."""

from __future__ import annotations

import re
import unittest
from xml.etree import ElementTree

from tests.xla.hlo import parsed
from tfaot.hlo import picture

SVG = "{http://www.w3.org/2000/svg}"


REDUCER = """\
%region_0.1 () -> f32[] {
  %a = f32[2]{0} parameter(0)
  %b = f32[2]{0} parameter(1)
  ROOT %c = f32[2]{0} add(%a, %b)
}
"""


def entry(*lines: str, name: str = "ENTRY %entry") -> str:
    """Returns the text of a computation whose last instruction is its root. `neg = negate(%p)` stands for one on f32[2]."""
    whole = [re.sub(r"^(\w+ =)(?= [a-z-]+\()", r"\1 f32[2]{0}", line) for line in lines]
    return "\n".join([f"{name} () -> f32[] {{", *(f"  %{line}" for line in whole[:-1]), f"  ROOT %{whole[-1]}", "}"])


class PictureTest(unittest.TestCase):
    """Each test draws a module and looks for what a reader must find in it."""

    def draw(self, *computations: str, parameters: tuple[str, ...] = (), results: tuple[str, ...] = ()) -> str:
        """Draws, and checks that the text is XML, that ids are unique, and that links lead to one."""
        module = parsed("\n".join(["HloModule m", *reversed(computations)]))
        text = picture.draw(module, title="a <b> & c", parameters=parameters, results=results)
        root = ElementTree.fromstring(text)
        self.assertEqual(SVG + "svg", root.tag)
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        self.assertEqual(len(ids), len(set(ids)))
        for link in root.iter(SVG + "a"):
            self.assertIn(str(link.get("href"))[1:], ids)
        self.boxes = []
        for group in root.iter(SVG + "g"):
            lines = [line for line in group.iter(SVG + "text") if line.get("class") != "number"]
            for line in lines:
                for extra in (*line.iter(SVG + "title"), *line.iter(SVG + "tspan")):
                    if extra.get("class") != "link":
                        extra.text = ""
            self.boxes.append(["".join(line.itertext()).strip() for line in lines])
        return text

    def test_chain(self) -> None:
        """Instructions that only feed each other share a box, with the parameter and the constant in their lines."""
        self.draw(
            entry(
                "p = parameter(0)",
                "half = f32[] constant(0.5)",
                "spread = broadcast(%half), dimensions={}",
                "scaled = multiply(%p, %spread)",
                "sum = reduce(%scaled, %half), dimensions={0}, to_apply=%region_0.1",
            ),
            REDUCER,
            parameters=("weights/<kernel>",),
            results=("loss",),
        )
        self.assertEqual(
            [["parameter 0 weights/<kernel>", "multiply(·, 0.5)", "reduce(·, 0.5) {0} add", "result 0 loss"]],
            self.boxes,
        )

    def test_results(self) -> None:
        """Each element of the root tuple is marked with its index and name, and the tuple isn't drawn."""
        text = self.draw(
            entry(
                "p = parameter(0)",
                "one = negate(%p)",
                "two = exponential(%p)",
                "all = (f32[2], f32[2]) tuple(%two, %one)",
            ),
            results=("first", "second"),
        )
        self.assertIn("result 0 first", text)
        self.assertIn("result 1 second", text)
        self.assertNotIn("tuple", text.split("</style>")[1])

    def test_loop(self) -> None:
        """A called computation is drawn in its own frame, and named where it is called."""
        body = entry("i0 = parameter(0)", *(f"i{i} = negate(%i{i - 1})" for i in range(1, 6)), name="%body.7")
        text = self.draw(entry("p = parameter(0)", "w = while(%p), body=%body.7"), body)
        self.assertIn(">while body.7", text)
        self.assertIn("called: body.7, 6 instructions", text)

    def test_tuples(self) -> None:
        """A value that is packed only to be unpacked is connected directly."""
        text = self.draw(
            entry(
                "p = parameter(0)",
                "n = negate(%p)",
                "t = (f32[2], f32[2]) tuple(%p, %n)",
                "g = get-tuple-element(%t), index=1",
                "s = sine(%g)",
            )
        )
        self.assertNotIn("tuple", text.split("</style>")[1])
        self.assertEqual(1, len(self.boxes))

    def test_far(self) -> None:
        """A value that is used far below has no line. Instead, both ends name each other."""
        steps = ["p = parameter(0)", "early = negate(%p)"]
        last = "early"
        for index in range(12):  # each step is used twice, so that boxes can't be shared
            steps += [f"a{index} = sine(%{last})", f"b{index} = add(%a{index}, %{last})"]
            last = f"b{index}"
        text = self.draw(entry(*steps, f"late = multiply(%{last}, %early)"))
        self.assertIn(">to <a", text)
        self.assertIn(">from <a", text)

    def test_cut(self) -> None:
        """A module that is too large is cut, and the picture says so in red."""
        steps = ["i0 = parameter(0)", *(f"i{index + 1} = negate(%i{index})" for index in range(picture.LIMIT))]
        text = self.draw(entry(*steps))
        self.assertIn(f"cut: {picture.LIMIT} of {picture.LIMIT + 1} instructions are drawn", text)

    def test_unused(self) -> None:
        """An unused parameter is listed, because a vendor must still pass it."""
        text = self.draw(
            entry("p = parameter(0)", "q = parameter(1)", "n = negate(%p)"),
            parameters=("x", "y"),
        )
        self.assertIn("unused: parameter 1 y", text)

    def test_no_overlap(self) -> None:
        """Boxes don't overlap."""
        steps = ["i0 = parameter(0)"]
        for index in range(40):
            steps.append(f"i{index + 1} = add(%i{max(0, index - 5)}, %i{index * 7 % (index + 1)})")
        text = self.draw(entry(*steps))
        boxes = [
            [float(rect.get(key, 0)) for key in ("x", "y", "width", "height")]
            for rect in ElementTree.fromstring(text).iter(SVG + "rect")
            if rect.get("class") == "box"
        ]
        self.assertGreater(len(boxes), 10)
        for one, (x, y, w, h) in enumerate(boxes):
            for x2, y2, w2, h2 in boxes[:one]:
                self.assertTrue(x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y)


if __name__ == "__main__":
    unittest.main()
