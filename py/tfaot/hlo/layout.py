"""Places the boxes of a picture in layers, each below the boxes that it uses.

Distant boxes aren't connected by a line. Instead, each names the other's number, and links to it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tfaot.hlo.boxes import Box, Row

_FAR = 6
"""An edge across more layers than this becomes a pair of references."""
_NAME = 44
"""The most characters of a name to show. The tooltip has the whole name."""

# Pixels.
CHARACTER, LINE, PADDING = 6.65, 15, 6
_BETWEEN_BOXES, _BETWEEN_LAYERS = 28, 34


@dataclasses.dataclass
class Drawing:
    """A computation's boxes with their places."""

    boxes: list[Box]
    paths: list[list[Box]]
    """Each edge, from its source through its bends to its user."""
    width: float
    height: float


def lay_out(boxes: list[Box], first: int) -> Drawing:
    """Places boxes.

    Args:
      boxes: sources before users.
      first: the number of the first box in the picture, for references.
    """
    _choose_layers(boxes)
    near = _refer(boxes, first)
    for box in boxes:
        longest = max(len(cut(row.left)) + (2 + len(row.right) if row.right else 0) for row in box.rows)
        box.width = 2 * PADDING + 8 + CHARACTER * longest
        box.height = 2 * PADDING + LINE * len(box.rows) + 10
    layers: list[list[Box]] = [[] for _ in range(1 + max((box.layer for box in boxes), default=0))]
    for box in boxes:
        layers[box.layer].append(box)
    paths = [_path(boxes[source], boxes[user], layers) for source, user in near]
    _arrange(layers, paths)
    left = min((box.x - box.width / 2 for layer in layers for box in layer), default=0)
    y = 0.0
    for layer in layers:
        height = max((box.height for box in layer), default=0)
        for box in layer:
            box.x -= left
            box.y = y
            if not box.rows:
                box.height = height
        y += height + _BETWEEN_LAYERS
    width = max((box.x + box.width / 2 for layer in layers for box in layer), default=0)
    return Drawing(boxes, paths, width, max(y - _BETWEEN_LAYERS, 0))


def _choose_layers(boxes: Sequence[Box]) -> None:
    """Chooses a layer for each box: below its sources, and right above its users if it has no sources."""
    users: list[list[int]] = [[] for _ in boxes]
    for number, box in enumerate(boxes):
        box.layer = 1 + max((boxes[source].layer for source in box.sources), default=-1)
        for source in box.sources:
            users[source].append(number)
    for number in reversed(range(len(boxes))):  # boxes without sources move down to their users
        if not boxes[number].sources and users[number]:
            boxes[number].layer = min(boxes[user].layer for user in users[number]) - 1


def _refer(boxes: Sequence[Box], first: int) -> list[tuple[int, int]]:
    """Adds rows with references where a line would be too long, and returns the other edges: sources and users."""
    near: list[tuple[int, int]] = []
    to: dict[int, list[int]] = defaultdict(list)
    since: dict[int, list[int]] = defaultdict(list)
    """Users (in `to`) and sources (in `since`) that are too far away."""
    for number, box in enumerate(boxes):
        for source in box.sources:
            if box.layer - boxes[source].layer > _FAR:
                to[source].append(number)
                since[number].append(source)
            else:
                near.append((source, number))
    for number, box in enumerate(boxes):
        if number in since:
            box.rows.insert(0, Row("from " + _references(since[number], first), "", "reference", ""))
        if number in to:
            box.rows.append(Row("to " + _references(to[number], first), "", "reference", ""))
    return near


def _path(source: Box, user: Box, layers: list[list[Box]]) -> list[Box]:
    """Returns an edge, with a bend in each layer that it crosses. Adds the bends to the layers."""
    bends = [Box(layer=level, width=8) for level in range(source.layer + 1, user.layer)]
    for bend in bends:
        layers[bend.layer].append(bend)
    return [source, *bends, user]


def _references(numbers: Iterable[int], first: int) -> str:
    return " ".join(f"#{first + number}" for number in numbers)


def cut(text: str) -> str:
    """Shortens a name for display."""
    return text if len(text) <= _NAME else text[: _NAME // 2] + "…" + text[-(_NAME // 2 - 1) :]


def _arrange(layers: list[list[Box]], paths: Sequence[Sequence[Box]]) -> None:
    """Orders each layer for few crossings, and places its boxes near the boxes that they are connected to."""
    above: dict[int, list[Box]] = defaultdict(list)
    below: dict[int, list[Box]] = defaultdict(list)
    """Neighbors of each box, by its identity, in the adjacent layers."""
    for path in paths:
        for upper, lower in itertools.pairwise(path):
            above[id(lower)].append(upper)
            below[id(upper)].append(lower)
    for layer in layers:
        for index, box in enumerate(layer):
            box.x = float(index)
    for sweep in range(8):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for layer in layers if down else reversed(layers):
            keys = {id(box): _middle(neighbours.get(id(box), ()), box.x) for box in layer}
            layer.sort(key=lambda box: (keys[id(box)], box.x))
            for index, box in enumerate(layer):
                box.x = float(index)
    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(16):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for layer in layers if down else reversed(layers):
            _spread(layer, [_middle(neighbours.get(id(box), ()), box.x) for box in layer])


def _middle(boxes: Sequence[Box], otherwise: float) -> float:
    return sum(box.x for box in boxes) / len(boxes) if boxes else otherwise


def _spread(layer: list[Box], wanted: Sequence[float]) -> None:
    """Places boxes in order, without overlap, as close as possible (in least squares) to their wanted places.

    Without the boxes' widths, this is isotonic regression: neighbors in the wrong order get their common mean.
    """
    offsets = [0.0]
    for one, other in itertools.pairwise(layer):
        gap = _BETWEEN_BOXES if one.rows and other.rows else _BETWEEN_BOXES / 2
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + gap)
    pools: list[tuple[float, int]] = []
    """For each pool, the sum and the count."""
    for place, offset in zip(wanted, offsets, strict=False):
        total, count = place - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            more, many = pools.pop()
            total, count = total + more, count + many
        pools.append((total, count))
    places = [total / count for total, count in pools for _ in range(count)]
    for box, place, offset in zip(layer, places, offsets, strict=False):
        box.x = place + offset
