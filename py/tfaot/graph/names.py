"""Names in a graph: how operands name tensors, and how to find unused names. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator


def tensor_name(name: str) -> tuple[str, int]:
    """Splits an input of a GraphDef's node, `node` or `node:port`. A control input `^node` has port -1."""
    if name.startswith("^"):
        return name[1:], -1
    node, _, port = name.partition(":")
    return node, int(port or 0)


def canonical(tensor: str) -> str:
    """Adds the port to a tensor's name if it is missing: `node:0` for `node`."""
    name, port = tensor_name(tensor)
    return f"{name}:{port}"


def producer(operand: str) -> str:
    """Returns the node or argument that an input names. Accepts control inputs, and both graph and function notation."""
    return operand.removeprefix("^").partition(":")[0]


def numbered(name: str, first: int = 1) -> Iterator[str]:
    """Yields `name_1`, `name_2`, and so on."""
    return (f"{name}_{number}" for number in itertools.count(first))


def underscored(name: str) -> Iterator[str]:
    """Yields `name_`, `name__`, and so on. These names distinguish variables with the same name."""
    return (name + "_" * count for count in itertools.count(1))


def first_unused(candidates: Iterable[str], taken: Container[str]) -> str:
    """Returns the first candidate that isn't taken. There must be one."""
    return next(candidate for candidate in candidates if candidate not in taken)


def unused(name: str, taken: Container[str], variations: Callable[[str], Iterator[str]] = numbered) -> str:
    """Returns the name, or its first variation that isn't taken."""
    return first_unused(itertools.chain([name], variations(name)), taken)


def take(name: str, taken: set[str], variations: Callable[[str], Iterator[str]] = numbered) -> str:
    """Does the same as `unused`, and adds the result to the taken names."""
    result = unused(name, taken, variations)
    taken.add(result)
    return result
