"""TensorFlow 2 SavedModels: functions and variables of a saved object.

Everything comes straight from the file. Loading the model with TensorFlow would rebuild each of its functions under names
that differ every time, and read all weights. A saved function can be used as it is.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_object_graph_pb2
from tensorflow.python.saved_model import constants, nested_structure_coder, signature_constants

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.export.sources import tables
from tfaot.export.sources.checkpoint import Checkpoint, Key, Wanted
from tfaot.export.sources.functions import Leaf, leaves_of, output_label
from tfaot.export.sources.subgraph import add_done, add_placeholder, check_form, imported, operand, unused_name
from tfaot.export.traced import Array, Dims, Edge, Function, shown
from tfaot.graph.attributes import dtype_shown, shape_of
from tfaot.graph.names import take, tensor_name
from tfaot.graph.prune import prune

_DEFAULT = signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_SIGNATURES = "signatures"
"""The attribute of the saved object that contains its signatures."""

_VALUE = "VARIABLE_VALUE"
"""A checkpoint's name for a variable's value among an object's other attributes."""


@dataclasses.dataclass(frozen=True)
class _Variant:
    """One concrete function of an entry point."""

    function: function_pb2.FunctionDef
    bound: tuple[int, ...]
    """The objects that are its last arguments."""
    inputs: tuple[Edge, ...]
    """Without the bound arguments. They have no name."""
    outputs: tuple[Edge, ...]
    """In the function's order. They have no name."""

    @property
    def takes(self) -> str:
        """Its inputs, for messages."""
        return ", ".join(f"{e.label}: {dtype_shown(e.dtype)}{shown(e.shape)}" for e in self.inputs)


class SavedObjects:
    """A meta graph that describes an object."""

    def __init__(self, folder: str, meta_graph: meta_graph_pb2.MetaGraphDef, sources: Mapping[str, str]) -> None:
        """Finds its entry points and names its variables.

        Args:
          folder: the SavedModel's folder.
          meta_graph: has an object graph.
          sources: `file:line` in the user's code, by `function/node`.
        """
        self._folder = folder
        self._graph = meta_graph.graph_def
        self._objects = meta_graph.object_graph_def
        self._assets = meta_graph.asset_file_def
        self._constants = {node.name: node for node in self._graph.node if node.op == "Const"}
        self._sources = sources
        self._library = {function.signature.name: function for function in self._graph.library.function}
        self._check_objects()
        self._paths = self._walk()
        self._variables = self._name_variables()

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signatures, `serving_default` first."""
        return tuple(sorted(self._children(self._child(0, _SIGNATURES)), key=lambda name: (name != _DEFAULT, name)))

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions of the object itself. Those of its children have longer names."""
        return tuple(
            sorted(
                name
                for name, node in self._children(0).items()
                if not name.startswith("_") and self._concrete_names(node)
            )
        )

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Returns a signature, or a function: `name`, `child.name`, or `name[index]` if it has several variants."""
        variant = self._find(entry_point, dims)
        what = f"{self._folder}, {entry_point}"
        graph = graph_pb2.GraphDef(versions=self._graph.versions, library=self._graph.library)
        used: set[str] = set()
        inputs = []
        for edge in dims.fix(what, variant.inputs):
            name = unused_name(edge.label, used)
            add_placeholder(graph, name, edge.dtype, edge.shape)
            inputs.append(dataclasses.replace(edge, name=f"{name}:0"))
        captures, resources = self._captures(graph, variant, used)
        call = unused_name("call", used)
        outputs = self._call(graph, call, variant, [operand(edge.name) for edge in inputs] + captures, used)
        pruned = prune(graph, [tensor_name(edge.name)[0] for edge in outputs])
        check_form(pruned, what)
        if dims.sizes or any(edge.shape is None or None in edge.shape for edge in outputs):
            typed = imported(pruned, what)
            outputs = [dataclasses.replace(e, shape=shape_of(typed.get_tensor_by_name(e.name).shape)) for e in outputs]
        called = {function.signature.name for function in pruned.library.function}
        sources = {name: place for name, place in self._sources.items() if name.partition("/")[0] in called}
        left = {node.name for node in pruned.node}
        resources = {name: text for name, text in resources.items() if name in left}
        return Function(entry_point, pruned, tuple(inputs), tuple(outputs), sources, resources)

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns values from `variables/`; see `traced.Source`."""
        if not names:
            return {}
        prefix = os.path.join(self._folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME)
        checkpoint = Checkpoint(prefix, what=self._folder)
        keys = self._checkpoint_keys(checkpoint)
        wanted = []
        for node in (node for node, name in self._variables.items() if name in names):
            variable = self._objects.nodes[node].variable
            shape = shape_of(tf.TensorShape(variable.shape))
            wanted.append(
                Wanted(
                    self._variables[node],
                    (Key(keys[node]),) if node in keys else (),
                    variable.dtype,
                    None if shape is None else tuple(-1 if size is None else size for size in shape),
                )
            )
        return checkpoint.values(wanted, do="save the model again: its variables/ doesn't belong to its saved_model.pb")

    def _check_objects(self) -> None:
        """Checks that all references to objects lead to one."""
        nodes, saved = self._objects.nodes, self._objects.concrete_functions
        referred = [child.node_id for node in nodes for child in node.children]
        referred += [node for function in saved.values() for node in function.bound_inputs]
        wrong = [f"object {number}" for number in referred if not 0 <= number < len(nodes)]
        if wrong or not nodes:
            raise self._contradiction(f"it lacks {listed(wrong, limit=5)}" if wrong else "it has no objects")

    def _contradiction(self, what: str) -> TfaotError:
        return TfaotError(
            f"{self._folder}: the SavedModel contradicts itself",
            exists=what,
            do="save the model again; no version of TensorFlow writes such a file",
        )

    def _children(self, node: int | None) -> dict[str, int]:
        if node is None:
            return {}
        return {child.local_name: child.node_id for child in self._objects.nodes[node].children}

    def _child(self, node: int, name: str) -> int | None:
        return self._children(node).get(name)

    def _walk(self) -> dict[int, str]:
        """Returns the shortest path from the saved object to each other object, joined by `/`."""
        paths = {0: ""}
        queue = deque([0])
        while queue:
            node = queue.popleft()
            for name, child in self._children(node).items():
                if child not in paths:
                    paths[child] = f"{paths[node]}/{name}".lstrip("/")
                    queue.append(child)
        return paths

    def _name_variables(self) -> dict[int, str]:
        """Names the variables that functions use, by object: their own names if unique, or else their paths.

        Keras 3 saves a second copy of each variable, which nothing uses.
        """
        bound = {node for function in self._objects.concrete_functions.values() for node in function.bound_inputs}
        nodes = [node for node in sorted(bound) if self._objects.nodes[node].HasField("variable")]
        plain = {node: self._objects.nodes[node].variable.name.partition(":")[0] for node in nodes}
        count = Counter(plain.values())
        result: dict[int, str] = {}
        taken: set[str] = set()
        for node in nodes:
            path = "/".join(part.strip("_") for part in self._paths.get(node, "").split("/"))
            candidate = plain[node] if plain[node] and count[plain[node]] == 1 else path or "variable"
            result[node] = take(candidate, taken)
        return result

    def _checkpoint_keys(self, checkpoint: Checkpoint) -> dict[int, str]:
        """Returns where the checkpoint stores each variable. It describes the same objects again, with keys."""
        theirs = checkpoint.objects().nodes
        pairs = {0: 0}
        pending = [0] if theirs else []
        while pending:
            node = pending.pop()
            children = self._children(node)
            for child in theirs[pairs[node]].children:
                mine = children.get(child.local_name)
                if mine is not None and mine not in pairs:
                    pairs[mine] = child.node_id
                    pending.append(mine)
        return {
            mine: attribute.checkpoint_key
            for mine, their in pairs.items()
            if theirs
            for attribute in theirs[their].attributes
            if attribute.name == _VALUE
        }

    def _concrete_names(self, node: int | None) -> list[str]:
        """Returns the concrete functions of an object that is a function."""
        if node is None:
            return []
        saved = self._objects.nodes[node]
        if saved.HasField("bare_concrete_function"):
            return [saved.bare_concrete_function.concrete_function_name]
        return list(saved.function.concrete_functions) if saved.HasField("function") else []

    def _find(self, entry_point: str, dims: Dims) -> _Variant:
        path, _, index = entry_point.removesuffix("]").partition("[")
        signatures = self._child(0, _SIGNATURES)
        node = None if signatures is None else self._child(signatures, path)
        if node is None:
            node = 0
            for part in path.split("."):
                node = None if node is None else self._child(node, part)
        saved = [] if node is None else self._concrete_names(node)
        if node is None or not saved:
            raise TfaotError(
                f"{self._folder} has no signature or function {entry_point!r}",
                exists=listed(list(dict.fromkeys([*self.signatures, *self.functions]))),
                do=f"name one of these in {caller.the('entry_points')}; functions of a part are named part.function",
            )
        variants = [self._variant(name, node, entry_point) for name in dict.fromkeys(saved)]
        if index:
            variants = [variant for number, variant in enumerate(variants) if str(number) == index]
        elif len(variants) > 1 and dims.sizes:
            variants = [variant for variant in variants if _fits(variant, dims)] or variants
        if len(variants) != 1:
            all_variants = [self._variant(name, node, entry_point) for name in dict.fromkeys(saved)]
            raise TfaotError(
                f"{self._folder}: {path} was traced {len(all_variants)} times, so {entry_point!r} is ambiguous",
                exists="; ".join(f"{path}[{number}]({variant.takes})" for number, variant in enumerate(all_variants)),
                do="name one of these, for example " + caller.setting("entry_points", [f"{path}[0]"]),
            )
        return variants[0]

    def _variant(self, name: str, node: int, entry_point: str) -> _Variant:
        if name not in self._library or name not in self._objects.concrete_functions:
            raise self._contradiction(f"it lacks the function {name}, which {entry_point} calls")
        function = self._library[name]
        edges = [*function.signature.input_arg, *function.signature.output_arg]
        if untyped := [arg.name for arg in edges if not arg.type]:
            raise self._contradiction(f"{untyped[0]} of the function {name}, which {entry_point} calls, has no dtype")
        saved = self._objects.concrete_functions[name]
        bound = tuple(saved.bound_inputs)
        arguments = list(function.signature.input_arg)[: len(function.signature.input_arg) - len(bound)]
        labelled = self._inputs(saved, node, entry_point)
        if len(labelled) != len(arguments):  # the file describes fewer arguments than the function takes
            labelled = [Leaf((arg.name,), tf.TensorSpec(None, arg.type)) for arg in arguments]
        lone = len({leaf.keys[0] for leaf in labelled}) == 1 and all(len(leaf.keys) > 1 for leaf in labelled)
        inputs = tuple(
            Edge("", "/".join(leaf.keys[1:] if lone else leaf.keys), arg.type, shape_of(leaf.value.shape))
            for leaf, arg in zip(labelled, arguments, strict=True)
        )
        results = list(function.signature.output_arg)
        leaves = [leaf for leaf in leaves_of(_decoded(saved.output_signature)) if leaf.value is not None]
        self._check_dense(entry_point, "output", leaves)
        if len(leaves) != len(results):
            leaves = [Leaf((str(index),), tf.TensorSpec(None, arg.type)) for index, arg in enumerate(results)]
        outputs = tuple(
            Edge("", output_label(leaf.keys), arg.type, shape_of(leaf.value.shape))
            for leaf, arg in zip(leaves, results, strict=True)
        )
        return _Variant(function, bound, inputs, outputs)

    def _inputs(self, saved: saved_object_graph_pb2.SavedConcreteFunction, node: int, entry_point: str) -> list[Leaf]:
        """Returns each tensor that a function takes, with the name of its parameter and the keys below it."""
        structure = _decoded(saved.canonicalized_input_signature)
        if structure is None:
            return []
        positional, keywords = structure
        owner = self._objects.nodes[node]
        names: list[str] = []
        if owner.HasField("function"):
            spec = _decoded(owner.function.function_spec.fullargspec)
            names = list(spec.args)[1 if owner.function.function_spec.is_method else 0 :]
        names += [f"args_{index}" for index in range(len(names), len(positional))]
        nests = [*zip(names, positional, strict=False), *sorted(keywords.items())]
        leaves = [
            leaf for name, nest in nests for leaf in leaves_of(nest, (name,)) if isinstance(leaf.value, tf.TypeSpec)
        ]
        self._check_dense(entry_point, "input", leaves)
        order = list(owner.bare_concrete_function.argument_keywords)
        by_name = {"/".join(leaf.keys): leaf for leaf in leaves}
        return [by_name[name] for name in order] if sorted(order) == sorted(by_name) else leaves

    def _check_dense(self, entry_point: str, kind: str, leaves: Sequence[Leaf]) -> None:
        if strange := [leaf for leaf in leaves if not isinstance(leaf.value, tf.TensorSpec)]:
            raise TfaotError(
                f"{self._folder}, {entry_point}: {len(strange)} {kind}(s) aren't dense tensors",
                exists="; ".join(f"{'/'.join(leaf.keys)} is {type(leaf.value).__name__}" for leaf in strange),
                do="save a signature that takes and returns dense tensors, and builds the other kinds inside",
            )

    def _captures(
        self, graph: graph_pb2.GraphDef, variant: _Variant, used: set[str]
    ) -> tuple[list[str], dict[str, str]]:
        """Adds a function's captures from its object: handles of variables, constants, tables, and other resources.

        Returns:
          Their nodes, and the resources other than variables; see `Function`.
        """
        names, resources = list[str](), dict[str, str]()
        parameters = variant.function.signature.input_arg[len(variant.inputs) :]
        for node, parameter in zip(variant.bound, parameters, strict=True):
            saved = self._objects.nodes[node]
            constant = self._constant(node)
            path = self._paths.get(node) or str(node)
            name = unused_name(self._variables.get(node) or (saved.constant.operation if constant else path), used)
            names.append(name)
            if node in self._variables:
                handle = graph.node.add(name=name, op="VarHandleOp")
                handle.attr["dtype"].type = saved.variable.dtype
                handle.attr["shape"].shape.CopyFrom(saved.variable.shape)
                handle.attr["shared_name"].s = self._variables[node].encode()
            elif constant is not None:
                graph.node.add().CopyFrom(constant)
                graph.node[-1].name = name
            else:
                add_placeholder(graph, name, parameter.type, None)
                resources[name] = f"{path} ({saved.WhichOneof('kind')})"
                if (contents := self._table(node)) is not None:
                    tables.fill(graph, graph.node[-1], contents)
                    used |= {made.name for made in graph.node}
        return names, resources

    def _constant(self, node: int, *, assets: bool = False) -> node_def_pb2.NodeDef | None:
        """Returns the node of a captured constant, and with `assets`, of the path of a file; None for other objects."""
        saved = self._objects.nodes[node]
        made = node_def_pb2.NodeDef()
        if assets and saved.HasField("asset"):
            file = self._assets[saved.asset.asset_file_def_index].filename
            made.op = "Const"
            made.attr["dtype"].type = types_pb2.DT_STRING
            made.attr["value"].tensor.CopyFrom(
                tf.make_tensor_proto(os.path.join(self._folder, constants.ASSETS_DIRECTORY, file))
            )
            return made
        if not saved.HasField("constant") or saved.constant.operation not in self._constants:
            return None
        made.CopyFrom(self._constants[saved.constant.operation])
        made.ClearField("input")
        return made

    def _table(self, node: int) -> tables.Contents | None:
        """Returns the contents of a table; None for other objects."""
        functions = [self._concrete_names(self._child(node, name)) for name in ("_create_resource", "_initialize")]
        if not all(len(names) == 1 and names[0] in self._library for names in functions):
            return None
        (creator,), (initializer,) = functions
        bound = self._objects.concrete_functions[initializer].bound_inputs
        captures = [(other, self._constant(other, assets=True)) for other in bound]
        if any(made is None and other != node for other, made in captures):
            return None
        path = f"{self._paths.get(node)} of {self._folder}"
        return tables.saved(self._library, creator, initializer, [made for _, made in captures], path)

    def _call(
        self, graph: graph_pb2.GraphDef, name: str, variant: _Variant, operands: Sequence[str], used: set[str]
    ) -> list[Edge]:
        """Adds the call, which ends after all of its side effects, and a node for each output."""
        signature = variant.function.signature
        call = graph.node.add(name=name, op="StatefulPartitionedCall", input=operands)
        call.attr["f"].func.name = signature.name
        call.attr["Tin"].list.type.extend(arg.type for arg in signature.input_arg)
        call.attr["Tout"].list.type.extend(arg.type for arg in signature.output_arg)
        for key in ("config", "config_proto", "executor_type"):
            call.attr[key].s = b""
        outputs = []
        for index, edge in enumerate(variant.outputs):
            output = graph.node.add(
                name=unused_name(edge.label, used), op="Identity", input=[operand(f"{name}:{index}")]
            )
            output.attr["T"].type = edge.dtype
            outputs.append(dataclasses.replace(edge, name=f"{output.name}:0"))
        return outputs or [add_done(graph, [f"^{name}"], used)]


def _fits(variant: _Variant, dims: Dims) -> bool:
    """Returns whether a variant takes everything that `dims` names, in these shapes."""
    shapes = {edge.label: edge.shape for edge in variant.inputs}
    for label, asked in dims.sizes.items():
        if label not in shapes:
            return False
        shape = shapes[label]
        if shape is not None and (
            len(shape) != len(asked)
            or any(a is not None and b is not None and a != b for a, b in zip(shape, asked, strict=True))
        ):
            return False
    return True


def _decoded(value: Any) -> Any:
    """Returns a structure of specs, or None if there is none or this TensorFlow doesn't know its kind."""
    if value.WhichOneof("kind") is None:
        return None
    try:
        return nested_structure_coder.decode_proto(value)
    except (ValueError, TypeError, nested_structure_coder.NotEncodableError):
        return None
