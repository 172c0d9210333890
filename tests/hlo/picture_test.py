"""The picture of an HLO module, for handwritten modules."""

from __future__ import annotations

import unittest
from xml.etree import ElementTree

from tfaot.hlo import picture
from tfaot.hlo.module import Computation, Instruction, Module

SVG = "{http://www.w3.org/2000/svg}"


def instruction(
    name: str,
    opcode: str,
    *operands: int,
    called: tuple[str, ...] = (),
    detail: str = "",
    number: int = 0,
    value: str | None = None,
) -> Instruction:
    """Returns an instruction on f32[2]."""
    return Instruction(name, opcode, detail, "f32[2]", operands, called, f"scope/{name}", number, value)


def entry(*instructions: Instruction) -> Computation:
    """Returns a computation whose last instruction is its root."""
    return Computation("entry", instructions, len(instructions) - 1)


REDUCER = Computation(
    "region_0.1",
    (instruction("a", "parameter"), instruction("b", "parameter", number=1), instruction("c", "add", 0, 1)),
    2,
)


class PictureTest(unittest.TestCase):
    """Each test draws a module and looks for what a reader must find in it."""

    def draw(self, *computations: Computation, parameters: tuple[str, ...] = (), results: tuple[str, ...] = ()) -> str:
        """Draws, and checks that the text is XML, that ids are unique, and that links lead to one."""
        text = picture.draw(Module(computations), title="a <b> & c", parameters=parameters, results=results)
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
                instruction("p", "parameter"),
                instruction("half", "constant", value="0.5"),
                instruction("spread", "broadcast", 1),
                instruction("scaled", "multiply", 0, 2),
                instruction("sum", "reduce", 3, 1, called=("region_0.1",), detail="{0}"),
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
                instruction("p", "parameter"),
                instruction("one", "negate", 0),
                instruction("two", "exponential", 0),
                instruction("all", "tuple", 2, 1),
            ),
            results=("first", "second"),
        )
        self.assertIn("result 0 first", text)
        self.assertIn("result 1 second", text)
        self.assertNotIn("tuple", text.split("</style>")[1])

    def test_loop(self) -> None:
        """A called computation is drawn in its own frame, and named where it is called."""
        body = Computation(
            "body.7",
            tuple(instruction(f"i{i}", "negate" if i else "parameter", *([i - 1] if i else [])) for i in range(6)),
            5,
        )
        text = self.draw(entry(instruction("p", "parameter"), instruction("w", "while", 0, called=("body.7",))), body)
        self.assertIn(">while body.7", text)
        self.assertIn("called: body.7, 6 instructions", text)

    def test_tuples(self) -> None:
        """A value that is packed only to be unpacked is connected directly."""
        text = self.draw(
            entry(
                instruction("p", "parameter"),
                instruction("n", "negate", 0),
                instruction("t", "tuple", 0, 1),
                instruction("g", "get-tuple-element", 2, detail="1"),
                instruction("s", "sine", 3),
            )
        )
        self.assertNotIn("tuple", text.split("</style>")[1])
        self.assertEqual(1, len(self.boxes))

    def test_far(self) -> None:
        """A value that is used far below has no line. Instead, both ends name each other."""
        steps = [instruction("p", "parameter"), instruction("early", "negate", 0)]
        for index in range(12):  # each step is used twice, so that boxes can't be shared
            steps += [
                instruction(f"a{index}", "sine", len(steps) - 1),
                instruction(f"b{index}", "add", len(steps), len(steps) - 1),
            ]
        steps.append(instruction("late", "multiply", len(steps) - 1, 1))
        text = self.draw(entry(*steps))
        self.assertIn(">to <a", text)
        self.assertIn(">from <a", text)

    def test_cut(self) -> None:
        """A module that is too large is cut, and the picture says so in red."""
        steps = [instruction("p", "parameter")]
        steps += [instruction(f"i{index}", "negate", index) for index in range(picture.LIMIT)]
        text = self.draw(entry(*steps))
        self.assertIn(f"cut: {picture.LIMIT} of {picture.LIMIT + 1} instructions are drawn", text)

    def test_unused(self) -> None:
        """An unused parameter is listed, because a vendor must still pass it."""
        text = self.draw(
            entry(
                instruction("p", "parameter"), instruction("q", "parameter", number=1), instruction("n", "negate", 0)
            ),
            parameters=("x", "y"),
        )
        self.assertIn("unused: parameter 1 y", text)

    def test_no_overlap(self) -> None:
        """Boxes don't overlap."""
        steps = [instruction("p", "parameter")]
        for index in range(40):
            steps.append(instruction(f"i{index}", "add", max(0, index - 5), max(0, index * 7 % (index + 1))))
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
