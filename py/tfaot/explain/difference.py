"""Says why two builds differ, component by component, with the first nodes that differ. Pure.

It compares in the manner of JAX's explanations of cache misses: what is new is held against the closest of what was.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from tfaot.core import fingerprint
from tfaot.core.manifest import Manifest, OpenSize, Output, Tensor
from tfaot.explain.build import Array, Build
from tfaot.graph.names import producer
from tfaot.graph.ops import functions_of
from tfaot.graph.structure import Node

SHOWN = 5
"""How many differences of a component are listed."""

_ALWAYS = ("graph", "shapes", "constants", "config")
"""The components that the export stage knows."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A component in which two builds differ."""

    component: str
    lines: tuple[str, ...]
    """Sentences, most important first."""


def differences(old: Build, new: Build) -> tuple[Difference, ...]:
    """Returns the components that differ, in the fingerprint's order. If one build isn't compiled, only the exported ones."""
    was, now = old.components, new.components
    explained: Mapping[str, Callable[[Build, Build], list[str]]] = {
        "graph": _graph,
        "shapes": _shapes,
        "constants": _constants,
        "config": _config,
        "flags": _flags,
        "compiler": _compiler,
        "isa": _isa,
    }
    return tuple(
        Difference(name, tuple(explain(old, new)))
        for name, explain in explained.items()
        if name in was and name in now and was[name] != now[name]
    )


def text(old: Build, new: Build) -> str:
    """Returns the whole explanation, as the tool prints it."""
    differing = differences(old, new)
    names = [difference.component for difference in differing]
    shared = [name for name in new.components if name in old.components]
    lines = []
    if differing:
        lines.append(f"These builds differ in {_and(names)}:")
    elif len(shared) == len(_ALWAYS):
        lines.append("These builds are of the same model, as far as the export stage knows:")
    else:
        lines.append(f"These builds are the same, with the fingerprint {new.stamp and new.stamp.fingerprint}:")
    lines += [f"  old: {old.name}", f"  new: {new.name}"]
    for difference in differing:
        lines += ["", f"{difference.component}:"]
        lines += [f"  * {line}" for line in difference.lines[:SHOWN]]
        if len(difference.lines) > SHOWN:
            lines.append(f"  * and {len(difference.lines) - SHOWN} more")
    lines.append("")
    if differing and (same := [name for name in shared if name not in names]):
        lines.append(f"The same in both: {_and(same)}.")
    if len(shared) == len(_ALWAYS):
        lines.append("Flags, the compiler, and CPU levels aren't compared, because NAME.fingerprint.json is missing.")
    lines += _apart(old, new)
    return "\n".join(lines).rstrip() + "\n"


def _apart(old: Build, new: Build) -> list[str]:
    """Returns sentences on what no fingerprint of the code counts."""
    lines = []
    if changed := [
        name for name in new.weights if name in old.weights and not _equal(old.weights[name], new.weights[name])
    ]:
        lines.append(
            f"{len(changed)} of {_count(len(new.weights), 'variable')} "
            f"{_verb(changed, 'has another initial value', 'have other initial values')}: "
            f"{_listed(changed)}. New values of variables compile no code."
        )
    pairs = _pairs(old, new)
    if pairs is not None:
        renamed = [(before, after) for before, after in pairs if _plain(before.name) != _plain(after.name)]
        moved = [
            (before, after)
            for before, after in pairs
            if old.sources.get(before.name, "") != new.sources.get(after.name, "")
        ]
        if renamed:
            before, after = renamed[0]
            lines.append(
                f"{_count(len(renamed), 'node')} {_verb(renamed, 'has', 'have')} another name, which doesn't count: "
                f"{old.shown(before.name)} is now {new.shown(after.name)}."
            )
        elif moved:
            before, after = moved[0]
            lines.append(
                f"{_count(len(moved), 'node')} {_verb(moved, 'comes', 'come')} from another line, which doesn't count: "
                f"{old.shown(before.name)} is now {new.shown(after.name)}."
            )
    return lines


def _plain(name: str) -> str:
    """Returns a node's name without the function that it is in, which TensorFlow numbers."""
    return name.rpartition("/")[2]


def _graph(old: Build, new: Build) -> list[str]:
    """Compares ops, attributes, and edges. A node differs if its operands don't, so all that follow from it are left out."""
    were, are = _roots(old, new), _roots(new, old)
    lines = _freezing(old, new)
    before = {node.name: node for node in old.structure.nodes}
    after = {node.name: node for node in new.structure.nodes}
    # Nodes that still have their name and op aren't what another node was.
    lost = [node for node in were if node.name not in after or after[node.name].proto.op != node.proto.op]
    inside = any(_function(node.name, new) for node in are)
    for node in are:
        match = before.get(node.name)
        if match is None or match.proto.op != node.proto.op:
            match = _closest(node, lost, old, new)
        if match in lost:
            lost.remove(match)
        if match is None:
            lines.append(f"{new.shown(node.name)} ({node.proto.op}) is new: it takes {_inputs(node.proto)}")
            continue
        if changes := _changes(match, node):
            other = "" if match.name == node.name else f"; it was {old.shown(match.name)}"
            lines.append(f"{new.shown(node.name)}: {'; '.join(changes)}{other}")
        elif not inside:
            lines.append(f"{new.shown(node.name)} ({node.proto.op}) calls a function that differs")
    lines += [f"{old.shown(node.name)} ({node.proto.op}) is gone" for node in lost]
    earlier = {node.key for node in old.structure.nodes}
    following = sum(node.key not in earlier for node in new.structure.nodes) - len(are)
    if lines and following > 0:
        lines.append(f"what follows from there differs, too: {_count(following, 'node')}")
    return lines or _connections(old, new)


def _freezing(old: Build, new: Build) -> list[str]:
    """Says which variables have become constants, or are none anymore."""
    was, now = ({variable.name for variable in build.manifest.frozen} for build in (old, new))
    fed = [{variable.name for variable in build.manifest.variables} for build in (old, new)]
    lines = [f"the variable '{name}' is frozen, was fed: it is a constant of the code" for name in sorted(now & fed[0])]
    return lines + [f"the variable '{name}' is fed, was frozen" for name in sorted(was & fed[1])]


def _function(name: str, build: Build) -> bool:
    """Returns whether a node is inside a function."""
    functions = {function.signature.name for function in build.graph.library.function}
    return name.partition("/")[0] in functions


def _roots(build: Build, other: Build) -> list[Node]:
    """Returns the nodes that the other build lacks although it has all that they are computed from."""
    own = {node.key for node in build.structure.nodes}
    others = {node.key for node in other.structure.nodes}
    return [
        node
        for node in build.structure.nodes
        if node.key not in others and all(key in others for key in node.operands if key in own)
    ]


def _closest(node: Node, candidates: Sequence[Node], old: Build, new: Build) -> Node | None:
    """Returns the old node that a new one most likely was: by name, by operands, or by the line that made it."""
    place = new.sources.get(node.name)
    tests: tuple[Callable[[Node], bool], ...] = (
        lambda old_node: old_node.name == node.name,
        lambda old_node: old_node.operands == node.operands and old_node.proto.op == node.proto.op,
        lambda old_node: old_node.operands == node.operands and bool(node.operands),
        lambda old_node: bool(place) and old.sources.get(old_node.name) == place,
        lambda old_node: old_node.proto.op == node.proto.op and _plain(old_node.name) == _plain(node.name),
    )
    return next((candidate for test in tests for candidate in candidates if test(candidate)), None)


def _changes(before: Node, after: Node) -> list[str]:
    """Says how a node differs from what it was, apart from the functions that it calls."""
    changes = []
    if before.proto.op != after.proto.op:
        changes.append(f"the op is {after.proto.op}, was {before.proto.op}")
    else:
        ignored = {key for proto in (before.proto, after.proto) for key, _ in functions_of(proto)}
        for key in sorted({*before.proto.attr, *after.proto.attr} - ignored):
            was, now = (node.proto.attr.get(key, None) for node in (before, after))
            if not key.startswith("_") and _counts(was) and _counts(now) and was != now:
                changes.append(f"the attribute {key} is {_value(now)}, was {_value(was)}")
    if before.operands != after.operands:
        changes.append(f"it takes {_inputs(after.proto)}, took {_inputs(before.proto)}")
    return changes


def _counts(value: attr_value_pb2.AttrValue | None) -> bool:
    """Returns whether an attribute is part of the graph component: shapes and tensors have their own."""
    return value is None or not (value.HasField("shape") or value.HasField("tensor") or value.list.shape)


def _inputs(node: node_def_pb2.NodeDef) -> str:
    return _and([f"'{operand}'" for operand in node.input]) or "nothing"


def _value(value: attr_value_pb2.AttrValue | None) -> str:
    if value is None:
        return "not set"
    kind = value.WhichOneof("value")
    if kind == "type":
        return str(types_pb2.DataType.Name(value.type))
    if kind == "s":
        return repr(value.s.decode(errors="replace"))
    if kind == "list":
        return str([item for _, items in value.list.ListFields() for item in items])
    if kind == "b":
        return str(value.b)
    return f"{value.f:.9g}" if kind == "f" else str(value.i)


def _connections(old: Build, new: Build) -> list[str]:
    """Says how two graphs of the same nodes differ."""
    was, now = (Counter(node.key for node in build.structure.nodes) for build in (old, new))
    for node in new.structure.nodes:
        if was[node.key] != now[node.key]:
            verb = _verb(range(now[node.key]), "is", "are")
            return [f"there {verb} {now[node.key]} like {new.shown(node.name)} ({node.proto.op}), were {was[node.key]}"]
    lines = []
    keys = [{node.name: node.key for node in build.structure.nodes} for build in (old, new)]
    for one, two in zip(_outputs(old.manifest), _outputs(new.manifest), strict=False):
        if keys[0].get(producer(one.name)) != keys[1].get(producer(two.name)):
            lines.append(f"output {two.cpp_name} comes from {new.shown(producer(two.name))}, came from another node")
    return lines or ["the nodes are the same, and are connected or ordered differently"]


def _outputs(manifest: Manifest) -> list[Output]:
    return [output for entry in manifest.entry_points for output in entry.outputs]


def _pairs(old: Build, new: Build) -> list[tuple[Node, Node]] | None:
    """Returns the nodes of two graphs with the same structure, or None if it isn't the same."""
    if old.structure.graph != new.structure.graph:
        return None
    pairs = [*zip(old.structure.nodes, new.structure.nodes, strict=False)]
    return pairs if all(before.key == after.key for before, after in pairs) else None


def _constants(old: Build, new: Build) -> list[str]:
    pairs = _pairs(old, new)
    if pairs is None:
        before = {node.name: node for node in old.structure.nodes}
        pairs = [(before[node.name], node) for node in new.structure.nodes if node.name in before]
    frozen = {variable.sha256: variable.name for variable in new.manifest.frozen}
    lines = []
    for one, two in pairs:
        if one.proto.op != "Const" or two.proto.op != "Const":
            continue
        if one.proto.attr["value"].tensor == two.proto.attr["value"].tensor:
            continue
        was, now = constant(one.proto), constant(two.proto)
        if (name := frozen.get(fingerprint.of_value(now))) and name not in _written(new):
            lines.append(
                f"the frozen variable '{name}', {_type(now)}: {_values(was, now)}; it is a constant, so that each change "
                f'compiles the code again. To do, if it changes often: frozen = ["*", "!{name}"] on the target'
            )
        else:
            lines.append(f"{new.shown(two.name)}, {_type(now)}: {_values(was, now)}")
    return lines or ["constants are new, gone, or in another place: see graph and shapes"]


def _written(build: Build) -> set[str]:
    return {variable.name for variable in build.manifest.written}


def constant(node: node_def_pb2.NodeDef) -> Array:
    """Returns the value of a Const."""
    value: Array = tensor_util.MakeNdarray(node.attr["value"].tensor)
    return value


def _values(was: Array, now: Array) -> str:
    if was.shape != now.shape or was.dtype != now.dtype:
        return f"was {_type(was)}"
    if now.size <= 4:
        return f"{_numbers(now)}, was {_numbers(was)}"
    different = int(np.count_nonzero(_bits(was) != _bits(now)))
    return f"{different:,} of {now.size:,} values differ"


def _numbers(value: Array) -> str:
    return np.array2string(value, separator=", ").replace("\n", "")


def _bits(value: Array) -> Array:
    """Returns values as they are compared: bit by bit."""
    return np.ascontiguousarray(value).reshape(-1).view(f"V{value.dtype.itemsize}")


def _equal(one: Array, two: Array) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


def _type(value: Array) -> str:
    return f"{value.dtype}{list(value.shape)}"


def _shapes(old: Build, new: Build) -> list[str]:
    lines = []
    was, now = _tensors(old.manifest), _tensors(new.manifest)
    for (kind, name), tensor in now.items():
        if (before := was.get((kind, name))) and (_shown(before) != _shown(tensor)):
            lines.append(f"{kind} {name} is {_shown(tensor)}, was {_shown(before)}")
    lines += [
        f"{kind} {name}, {_shown(tensor)}, is new" for (kind, name), tensor in now.items() if (kind, name) not in was
    ]
    lines += [
        f"{kind} {name}, {_shown(tensor)}, is gone" for (kind, name), tensor in was.items() if (kind, name) not in now
    ]
    for one, two in zip(old.manifest.entry_points, new.manifest.entry_points, strict=False):
        if one.batch_sizes != two.batch_sizes:
            lines.append(
                f"{two.cpp_name} is compiled for {_batches(two.batch_sizes)}, was for {_batches(one.batch_sizes)}"
            )
        if one.sizes != two.sizes:
            lines.append(f"{two.cpp_name} has {_open_sizes(two.sizes)}, had {_open_sizes(one.sizes)}")
    if old.manifest.max_batch != new.manifest.max_batch:
        lines.append(f"the largest batch is {new.manifest.max_batch}, was {old.manifest.max_batch}")
    return lines or ["shapes inside the graph differ, not those of inputs, outputs, and variables"]


def _batches(sizes: Sequence[int]) -> str:
    return "batches of " + _and([str(size) for size in sizes]) if sizes else "no batches"


def _open_sizes(sizes: Sequence[OpenSize]) -> str:
    if not sizes:
        return "no open size"
    return "open sizes: " + "; ".join(
        f"{size.name} with the buckets {_and([*map(str, size.buckets)])}" for size in sizes
    )


def _shown(tensor: Tensor) -> str:
    batched = ", batched" if getattr(tensor, "batched", False) else ""
    bounded = ", of unknown size" if getattr(tensor, "size", "") else ""
    stored = f" as {tensor.stored}" if tensor.stored != tensor.dtype else ""
    return f"{tensor.dtype}{list(tensor.shape)}{stored}{batched}{bounded}"


def _tensors(manifest: Manifest) -> dict[tuple[str, str], Tensor]:
    tensors: dict[tuple[str, str], Tensor] = {}
    for entry in manifest.entry_points:
        tensors |= {("input", tensor.cpp_name): tensor for tensor in entry.inputs}
        tensors |= {("output", tensor.cpp_name): tensor for tensor in entry.outputs}
    return tensors | {("variable", variable.name): variable for variable in manifest.variables}


def _config(old: Build, new: Build) -> list[str]:
    one, two = old.manifest, new.manifest
    lines = []
    if one.cpp_class != two.cpp_class:
        lines.append(f"the class is {two.cpp_class}, was {one.cpp_class}")
    kinds: tuple[tuple[str, Callable[[Manifest], Iterable[str]]], ...] = (
        ("entry point", lambda m: [entry.cpp_name for entry in m.entry_points]),
        ("input", lambda m: [tensor.cpp_name for entry in m.entry_points for tensor in entry.inputs]),
        ("output", lambda m: [tensor.cpp_name for tensor in _outputs(m)]),
        ("variable", lambda m: [variable.name for variable in m.variables]),
    )
    for kind, names in kinds:
        lines += _renamed(kind, [*names(one)], [*names(two)])
    before = {variable.name: variable for variable in one.variables}
    for variable in two.variables:
        if (was := before.get(variable.name)) is None:
            continue
        if was.written != variable.written:
            verb = "writes" if variable.written else "only reads"
            lines.append(
                f"the model {verb} variable {variable.name}, {'wrote' if was.written else 'only read'} it before"
            )
        if was.cpp_name != variable.cpp_name:
            lines.append(f"variable {variable.name} is {variable.cpp_name}() in C++, was {was.cpp_name}()")
    if one.random_state != two.random_state:
        lines.append(
            "the model draws random numbers" if two.random_state else "the model draws no random numbers anymore"
        )
    return lines or ["which variables an entry point uses or writes, or in which order, differs"]


def _renamed(kind: str, was: Sequence[str], now: Sequence[str]) -> list[str]:
    gone, new = [name for name in was if name not in now], [name for name in now if name not in was]
    if len(gone) == len(new) == 1 and len(was) == len(now):
        return [f"{kind} {new[0]} was called {gone[0]}"]
    lines = [f"{kind} {name} is new" for name in new] + [f"{kind} {name} is gone" for name in gone]
    if not lines and list(was) != list(now):
        lines.append(f"the order of {kind}s is {', '.join(now)}, was {', '.join(was)}")
    return lines


def _flags(old: Build, new: Build) -> list[str]:
    assert old.stamp and new.stamp
    one, two = old.stamp, new.stamp
    lines = [f"the pass {name} is on, was off" for name in two.passes if name not in one.passes]
    lines += [f"the pass {name} is off, was on" for name in one.passes if name not in two.passes]
    lines += [f"the XLA flag {flag} is new" for flag in two.xla_flags if flag not in one.xla_flags]
    lines += [f"the XLA flag {flag} is gone" for flag in one.xla_flags if flag not in two.xla_flags]
    return lines or [f"XLA's flags are {' '.join(two.xla_flags)}, were {' '.join(one.xla_flags)}"]


def _compiler(old: Build, new: Build) -> list[str]:
    assert old.stamp and new.stamp
    pairs = (
        ("TensorFlow", old.stamp.tensorflow, new.stamp.tensorflow),
        ("rules_tfaot", old.stamp.rules, new.stamp.rules),
    )
    return [f"{name} is {now}, was {was}" for name, was, now in pairs if was != now]


def _isa(old: Build, new: Build) -> list[str]:
    assert old.stamp and new.stamp
    return [f"the code is for {_and(new.stamp.isa)}, was for {_and(old.stamp.isa)}"]


def _and(words: Sequence[Any]) -> str:
    *others, last = map(str, words or ("",))
    if len(others) > 1:
        return ", ".join(others) + f", and {last}"
    return f"{others[0]} and {last}" if others else last


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _verb(things: Sequence[Any], one: str, many: str) -> str:
    return one if len(things) == 1 else many
