"""Programs of several devices, in each of which a replica runs the same code on its own part: `jax.shard_map`.

Such a program takes and returns arrays of all devices together, and says where the code of one device starts and ends. A class
is one replica, so its program is the code in between, with the shapes of one part. What stands around it must compute the same
in all replicas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tfaot.core.errors import TfaotError
from tfaot.export.sources import locations, mlir
from tfaot.export.sources.mlir import MlirError, Signature, Type
from tfaot.graph import collectives

OPERATIONS = frozenset(
    f"stablehlo.{name}"
    for name in (
        "all_gather",
        "all_reduce",
        "all_to_all",
        "collective_broadcast",
        "collective_permute",
        "partition_id",
        "reduce_scatter",
        "replica_id",
    )
)
"""Those in which replicas exchange values, or ask for their rank."""

_START, _END, _HINT = "SPMDFullToShardShape", "SPMDShardToFullShape", "Sharding"
_CALL = re.compile(
    rf"\s*({mlir.VALUE}) = stablehlo\.custom_call @({_START}|{_END}|{_HINT})\(({mlir.VALUE}(?:#\d+)?)\).*? : "
    r"\((tensor<.*?>)\) -> (tensor<[^>]*(?:<\w+>)?>)"
)
_SHARDING = re.compile(rf"mhlo\.sharding = ({mlir.STRING})")
_NOT_CUT = re.compile(r'"\{(?:replicated|maximal[^}]*|manual)\}"')
"""The sharding of values that each device has whole."""


def devices(text: str) -> int:
    """Returns how many devices a program is for."""
    return _count(text, "partitions") * _count(text, "replicas")


def _count(text: str, name: str) -> int:
    number = re.search(rf"mhlo\.num_{name} = (\d+)", text)
    return int(number[1]) if number else 1


def of_one(text: str, path: str) -> str:
    """Returns the program of one replica, given that of all, with locations.

    Raises:
      TfaotError: it computes with parts of several replicas outside of the code of one.
    """
    for name in ("partition", "replica"):
        if _count(text, name + "s") == 1:
            text = text.replace(f"stablehlo.{name}_id : ", "stablehlo.constant dense<0> : ")
    if f"@{_START}(" not in text and f"@{_END}(" not in text:
        return text
    text = mlir.run(text, "inline{default-pipeline=},symbol-dce", locations=True)
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if (made := Signature.of(line)) and made.name == "main")
    end = next(number for number in range(start, len(lines)) if re.match(r"    return\b", lines[number]))
    return _Main(lines, start, end, path).rewritten()


class _Main:
    """The function that a program starts at, which has all of its code."""

    def __init__(self, lines: Sequence[str], start: int, end: int, path: str) -> None:
        signature = Signature.of(lines[start])
        assert signature is not None
        self._lines, self._start, self._end, self._path = lines, start, end, path
        self._arguments = {argument.value: argument for argument in signature.arguments}
        self._results = signature.results
        self._names: dict[str, str] = {}
        """The values that others are only other names of."""
        self._own = set[str]()
        """The values of one replica that are only other names of arguments."""
        self._cuts: dict[str, str] = {}
        """How a value is cut into parts, by its name."""
        self._parts: dict[str, Type] = {}
        """Of the arguments of which a replica has a part, that part's type."""
        self._wholes: dict[str, tuple[str, Type, str]] = {}
        """Of the values that are put together from parts, the part, its type, and how they are cut."""

    def rewritten(self) -> str:
        """Returns the whole text."""
        body = [number for number in range(self._start + 1, self._end) if not self._passes(number)]
        for number in body:
            used = {*mlir.operands(self._lines[number])} - self._own
            if {self._names.get(value, value) for value in used} & (self._parts.keys() | self._wholes.keys()):
                raise self._refused(number)
        returned, location = (half[0] for half in locations.split(self._lines[self._end]))
        results, types = list[str](), list[str]()
        for value, result in zip(mlir.operands(returned.partition(" : ")[0]), self._results, strict=True):
            name = self._names.get(value, value)
            part, type_, _ = self._wholes.get(name, (name, self._parts.get(name, result.type), ""))
            self._check(result.attributes, type_ != result.type, f"result {len(types)}")
            results.append(part)
            types.append(str(type_))
        for value, argument in self._arguments.items():
            self._check(argument.attributes, value in self._parts, f"argument {argument.location or value}")
        lines = [
            *self._lines[: self._start],
            self._signature(types),
            *(self._renamed(self._lines[number]) for number in body),
            f"    return {', '.join(results)} : {', '.join(types)} {location}",
            *self._lines[self._end + 1 :],
        ]
        return "\n".join(lines) + "\n"

    def _passes(self, number: int) -> bool:
        """Notes what a line says about parts. Returns whether it does nothing else."""
        call = _CALL.match(self._lines[number])
        if call is None:
            return False
        value, target, name = call[1], call[2], call[3]
        operand = self._names.get(name, name)
        before, after = Type.of(call[4]), Type.of(call[5])
        sharding = _SHARDING.search(self._lines[number])
        cut = sharding[1] if sharding else ""
        whole = self._wholes.get(operand)
        self._names[value] = operand
        if target == _HINT:
            self._cuts[value] = cut
        elif target == _END and before != after:
            self._names[value] = value
            self._wholes[value] = operand, before, cut
        elif target == _START and whole is not None and whole[1:] == (after, self._cuts.get(name, "")):
            self._names[value] = whole[0]
        elif before != after:
            self._own.add(value)
            if operand not in self._arguments or self._parts.setdefault(operand, after) != after:
                raise self._refused(number)
        return True

    def _signature(self, results: Sequence[str]) -> str:
        """Returns the first line, with the types of parts."""
        line = self._lines[self._start]
        for value, type_ in self._parts.items():
            line = line.replace(f"{value}: {self._arguments[value].type}", f"{value}: {type_}", 1)
        head, arrow, tail = line.partition(" -> ")
        for result, made in zip(self._results, results, strict=True):
            before, shown, tail = tail.partition(str(result.type))
            head += arrow + before + made
            arrow = "" if shown else arrow
        text = f"mhlo\\.sharding = {mlir.STRING}"
        return re.sub(rf"{text}, |, {text}| \{{{text}\}}", "", head + tail)

    def _renamed(self, line: str) -> str:
        return re.sub(rf"{mlir.STRING}|{mlir.VALUE}(?:#\d+)?", lambda match: self._names.get(match[0], match[0]), line)

    def _check(self, attributes: str, cut: bool, what: str) -> None:
        """Checks that a value that is cut into parts is one of parts that the code of one device has."""
        sharding = _SHARDING.search(attributes)
        if sharding and not cut and not _NOT_CUT.fullmatch(sharding[1]):
            raise TfaotError(
                f"{self._path}: the {what} is split over devices, but not by jax.shard_map",
                exists=sharding[1].strip('"'),
                do="compute with it inside of the function that you give jax.shard_map",
            )

    def _refused(self, number: int) -> TfaotError:
        line = self._lines[number]
        places = locations.places("\n".join(self._lines), locations.split(line)[1], self._path)
        return TfaotError(
            f"{self._path} computes with values that are split over devices outside of jax.shard_map"
            + (f", at {places[0]}" if places[0] else ""),
            exists=locations.split(line)[0][0].strip()[:120],
            do="compute it inside of the function that you give jax.shard_map, where each replica has its own part",
        )


_CAST = {
    tf.bfloat16: tf.float32,
    tf.bool: tf.int32,
    tf.float16: tf.float32,
    tf.int16: tf.int32,
    tf.int8: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
    tf.uint8: tf.int32,
}
"""The dtypes in which TensorFlow's collectives have the values of others."""
_REDUCTIONS = {"add": "Add", "and": "Min", "maximum": "Max", "minimum": "Min", "multiply": "Mul", "or": "Max"}


def results(text: str, operands: Sequence[Any], replicas: int) -> list[Any]:
    """Returns the results of one of `OPERATIONS` in TensorFlow's ops.

    Args:
      text: the operation.
      operands: its operands.
      replicas: how many devices the program is for.

    Raises:
      MlirError: TensorFlow has no such op.
    """
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    name = re.search(r"stablehlo\.(\w+)", text)
    assert name is not None
    if name[1] in ("partition_id", "replica_id"):
        return [tf.bitcast(_of_all(gen_xla_ops.xla_replica_id(), replicas), tf.uint32)]
    if name[1] == "collective_permute":
        pairs = _numbers(text, "source_target_pairs")
        sent = {"source_target_pairs": pairs}
        return [_as(x, lambda x: _of_all(tf.raw_ops.CollectivePermute(input=x, **sent), replicas)) for x in operands]
    groups = _numbers(text, "replica_groups")
    if len(groups[0]) == 1:
        return [tf.identity(x) for x in operands]
    ranks = [rank for group in groups for rank in group]
    if sorted(ranks) != [*range(replicas)]:
        raise MlirError(f"error: {name[1]} in the groups {groups}, in which not each of {replicas} replicas is once")
    if name[1] == "all_to_all":
        axes = {f"{axis}_dimension": _integer(text, f"{axis}_dimension") for axis in ("split", "concat")}
        dealt = {"group_assignment": groups, "split_count": len(groups[0]), **axes}
        return [_as(x, lambda x: tf.raw_ops.AllToAll(input=x, **dealt)) for x in operands]
    group: dict[str, Any] = {"group_size": len(groups[0]), "group_key": 1, "instance_key": 0}

    def among(x: Any) -> Any:
        return _noted(x, collectives.IN_GROUPS, list=attr_value_pb2.AttrValue.ListValue(i=ranks))

    if name[1] == "collective_broadcast":
        return [_as(x, lambda x: among(tf.raw_ops.CollectiveBcastSendV2(input=x, **group))) for x in operands]
    if name[1] == "all_gather":
        axis = _integer(text, "all_gather_dim")
        return [_as(x, lambda x: _first(x, axis, lambda x: among(_gathered(x, group)))) for x in operands]
    reduced = re.findall(r"stablehlo\.(\w+)", text.partition("\n")[2])
    if not reduced or reduced[0] not in _REDUCTIONS or reduced[1:] != ["return"]:
        raise MlirError(f"error: {name[1]} by {', '.join(reduced)} isn't a sum, a product, a minimum, or a maximum")
    group |= {"ordering_token": [], "merge_op": _REDUCTIONS[reduced[0]], "final_op": "Id"}
    if name[1] == "all_reduce":
        return [_as(x, lambda x: among(tf.raw_ops.CollectiveReduceV2(input=x, **group))) for x in operands]
    axis = _integer(text, "scatter_dimension")

    def scattered(x: Any) -> Any:
        # Its shape isn't inferred.
        shape = [x.shape[0] // group["group_size"], *x.shape[1:]]
        return tf.ensure_shape(among(tf.raw_ops.CollectiveReduceScatterV2(input=x, **group)), shape)

    return [_as(x, lambda x: _first(x, axis, scattered)) for x in operands]


def _numbers(text: str, name: str) -> Any:
    value = re.search(rf"{name} = (dense<.*?> : tensor<[^>]*>)", text)
    assert value is not None, text
    return mlir.constant(value[1]).tolist()


def _integer(text: str, name: str) -> int:
    value = re.search(rf"{name} = (\d+)", text)
    assert value is not None, text
    return int(value[1])


def _as(x: Any, exchange: Callable[[Any], Any]) -> Any:
    """Exchanges values in a dtype that TensorFlow's collectives have."""
    if x.dtype.is_complex:
        parts = exchange(tf.stack([tf.math.real(x), tf.math.imag(x)], -1))
        return tf.complex(parts[..., 0], parts[..., 1])
    if x.dtype not in {*_CAST, *_CAST.values(), tf.float64}:
        raise MlirError(f"error: TensorFlow has no collectives of {x.dtype.name} values")
    dtype = _CAST.get(x.dtype)
    return exchange(x) if dtype is None else tf.cast(exchange(tf.cast(x, dtype)), x.dtype)


def _first(x: Any, axis: int, exchange: Callable[[Any], Any]) -> Any:
    """Exchanges values along an axis."""
    order = [axis, *(other for other in range(x.shape.rank) if other != axis)]
    back = sorted(range(len(order)), key=order.__getitem__)
    return tf.transpose(exchange(tf.transpose(x, order)), back) if axis else exchange(x)


def _gathered(x: Any, group: Mapping[str, Any]) -> Any:
    shape = [x.shape[0] * group["group_size"], *x.shape[1:]]
    return tf.raw_ops.CollectiveGather(input=x, shape=shape, **group)


def _of_all(x: Any, replicas: int) -> Any:
    """Returns the result of an op that doesn't say how many replicas there are, after noting it."""
    return _noted(x, collectives.REPLICAS, i=replicas)


def _noted(x: Any, name: str, **value: Any) -> Any:
    """Returns the result of an op, which gets an attribute."""
    x.op._set_attr(name, attr_value_pb2.AttrValue(**value))
    return x
