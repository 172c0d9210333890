"""Makes node attributes from Python values, and reads them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, op_def_pb2, tensor_shape_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from tfaot.graph.names import tensor_name
from tfaot.graph.ops import IDENTITIES

Array = npt.NDArray[Any]
Shape = tuple[int | None, ...] | None
"""The sizes of a tensor. An unknown size is None, and so is a shape of unknown rank."""

FLOATS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE)


def attribute(value: object) -> attr_value_pb2.AttrValue:
    """Converts a value to a node's attribute.

    Args:
      value: an AttrValue, which is copied; a bool, int, float, or str; a numpy dtype; an array, which becomes a tensor;
        a TensorShapeProto; or a list of ints or dtypes (pass ints that mean `tensorflow.DataType` as AttrValue).
    """
    result = attr_value_pb2.AttrValue()
    if isinstance(value, attr_value_pb2.AttrValue):
        result.CopyFrom(value)
    elif isinstance(value, bool):
        result.b = value
    elif isinstance(value, int):
        result.i = value
    elif isinstance(value, float):
        result.f = value
    elif isinstance(value, str):
        result.s = value.encode()
    elif isinstance(value, np.dtype):
        result.type = dtype_enum(value)
    elif isinstance(value, np.ndarray):
        result.tensor.CopyFrom(tensor_util.make_tensor_proto(value, shape=value.shape))
    elif isinstance(value, tensor_shape_pb2.TensorShapeProto):
        result.shape.CopyFrom(value)
    elif isinstance(value, list):
        result.list.i.extend(value)
        result.list.SetInParent()
    else:
        raise TypeError(f"no attribute can be made of {value!r}")
    return result


def type_attribute(dtype: int) -> attr_value_pb2.AttrValue:
    """Returns an attribute that is a dtype, a `tensorflow.DataType`."""
    return attr_value_pb2.AttrValue(type=dtype)


def types_attribute(dtypes: Iterable[int]) -> attr_value_pb2.AttrValue:
    """Returns an attribute that is a list of `tensorflow.DataType`."""
    return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(type=dtypes))


def write_attributes(node: node_def_pb2.NodeDef, values: Mapping[str, Any], defined: op_def_pb2.OpDef) -> None:
    """Writes attributes with the types in their op's definition. A dtype is an int of `tensorflow.DataType`."""
    kinds = {attr.name: attr.type for attr in defined.attr}
    for name, value in values.items():
        kind = kinds[name]
        if kind == "type":
            node.attr[name].type = value
        elif kind == "shape":
            node.attr[name].shape.SetInParent()
            for size in value:
                node.attr[name].shape.dim.add(size=size)
        elif kind == "tensor":
            node.attr[name].tensor.CopyFrom(value)
        elif kind == "string":
            node.attr[name].s = value.encode()
        else:
            node.attr[name].i = value


def dtype_enum(dtype: np.dtype[Any]) -> int:
    """Returns the `tensorflow.DataType` of a numpy dtype."""
    import tensorflow as tf

    result: int = tf.as_dtype(dtype).as_datatype_enum
    return result


def numpy_dtype(enum: int) -> np.dtype[Any]:
    """Returns the numpy dtype of a `tensorflow.DataType`."""
    import tensorflow as tf

    result: np.dtype[Any] = np.dtype(tf.as_dtype(enum).as_numpy_dtype)
    return result


def dtype_name(enum: int) -> str:
    """Returns a dtype's name for messages, such as `DT_FLOAT`."""
    return str(types_pb2.DataType.Name(enum))


def dtype_shown(enum: int) -> str:
    """Returns a dtype's name as users write it, such as `float32`; the number if no such dtype exists."""
    import tensorflow as tf

    try:
        return str(tf.as_dtype(enum).name)
    except TypeError:
        return dtype_name(enum) if enum in types_pb2.DataType.values() else str(enum)


def shape_of(shape: Any) -> Shape:
    """Converts a `tf.TensorShape` to a tuple."""
    return None if shape.rank is None else tuple(shape.as_list())


def shape_proto(shape: Shape) -> tensor_shape_pb2.TensorShapeProto:
    """Converts a shape to a proto."""
    if shape is None:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    dims = [tensor_shape_pb2.TensorShapeProto.Dim(size=-1 if size is None else size) for size in shape]
    return tensor_shape_pb2.TensorShapeProto(dim=dims)


def complete(shape: Shape) -> tuple[int, ...] | None:
    """Returns the shape if all its sizes are known, otherwise None."""
    if shape is None or any(size is None or size < 0 for size in shape):
        return None
    return tuple(size for size in shape if size is not None)


def literal(node: node_def_pb2.NodeDef) -> Array:
    """Returns the value of a Const."""
    value: Array = tensor_util.MakeNdarray(node.attr["value"].tensor)
    return value


def constant_of(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str, fed: Collection[str] = ()) -> Array | None:
    """Returns the value of an operand that is a constant, possibly behind identities; otherwise None.

    Args:
      nodes: the graph's nodes, by name.
      tensor: the operand.
      fed: tensors whose values come from outside, `node:port`.
    """
    while True:
        name, port = tensor_name(tensor)
        node = nodes.get(name)
        if node is None or port != 0 or f"{name}:0" in fed:
            return None
        if node.op == "Const":
            return literal(node)
        if node.op not in IDENTITIES:
            return None
        tensor = node.input[0]
