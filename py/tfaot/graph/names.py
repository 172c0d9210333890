"""Names in a graph: how operands name tensors, and names that nothing has yet. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator


def tensor_name(name: str) -> tuple[str, int]:
    """Splits an input of a GraphDef's node, `node` or `node:port`; a control input `^node` has port -1."""
    if name.startswith("^"):
        return name[1:], -1
    node, _, port = name.partition(":")
    return node, int(port or 0)


def canonical(tensor: str) -> str:
    """A tensor's name with its port, `node:0` for `node`."""
    name, port = tensor_name(tensor)
    return f"{name}:{port}"


def producer(operand: str) -> str:
    """The node or argument that an input names, control inputs included; in a graph's notation or in a function's."""
    return operand.removeprefix("^").partition(":")[0]


def numbered(name: str, first: int = 1) -> Iterator[str]:
    """`name_1`, `name_2`, and so on."""
    return (f"{name}_{number}" for number in itertools.count(first))


def underscored(name: str) -> Iterator[str]:
    """`name_`, `name__`, and so on: how variables are told apart whose names are the same."""
    return (name + "_" * count for count in itertools.count(1))


def first_unused(candidates: Iterable[str], taken: Container[str]) -> str:
    """The first candidate that is not taken; there must be one."""
    return next(candidate for candidate in candidates if candidate not in taken)


def unused(name: str, taken: Container[str], variations: Callable[[str], Iterator[str]] = numbered) -> str:
    """Returns the name, or the first of its variations that is not taken."""
    return first_unused(itertools.chain([name], variations(name)), taken)


def take(name: str, taken: set[str], variations: Callable[[str], Iterator[str]] = numbered) -> str:
    """Like `unused`, and adds what it returns to the taken names."""
    result = unused(name, taken, variations)
    taken.add(result)
    return result
