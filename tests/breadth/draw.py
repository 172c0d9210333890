"""Draws operands: odd shapes, dtypes, and values that are difficult for arithmetic."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Collection, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.breadth.engine import Operand
from tfaot.core import dtypes

Array = npt.NDArray[Any]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")

SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 31, 67)
"""Sizes of dimensions. 0 and large sizes are drawn separately."""


@functools.cache
def types(op: str, attribute: str) -> tuple[str, ...]:
    """Returns the dtypes of an attribute for which TensorFlow has a CPU kernel for the op, and C++ has a type."""
    from tensorflow.python.framework import kernels, op_def_registry

    (allowed,) = [a for a in op_def_registry.get(op).attr if a.name == attribute] or [None]
    if allowed is None:
        raise KeyError(f"{op} has no attribute {attribute}")
    enums: set[int] = set()
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type == "CPU":
            constraints = [c for c in kernel.constraint if c.name == attribute]
            enums.update(*[c.allowed_values.list.type for c in constraints] if constraints else [dtypes.BY_ENUM])
    limits = set(allowed.allowed_values.list.type)
    return tuple(d.name for d in dtypes.ALL if d.enum in enums and (not limits or d.enum in limits))


def literal(value: Array) -> str:
    """Returns Python source for an array, exact to the bit, for a model's file."""
    bits = np.ascontiguousarray(value).tobytes().hex()
    return f'value("{value.dtype}", {list(value.shape)}, "{bits}")'


class Draw:
    """Random choices for one case, and its operands so far."""

    def __init__(self, seed: Sequence[int], *, special: bool | None = None) -> None:
        """One seed gives one case. `special` says whether to draw values that are difficult for arithmetic."""
        self.rng = np.random.default_rng(list(seed))
        self.special = bool(self.rng.random() < 0.4) if special is None else special
        self.operands: list[Operand] = []
        self.setup = ""

    def flip(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def int(self, low: int, high: int) -> int:
        """Returns an integer; `high` is inclusive."""
        return int(self.rng.integers(low, high + 1))

    def dtype(self, op: str, attribute: str = "T", among: Collection[str] | None = None) -> str:
        """Returns a dtype for which TensorFlow has a kernel. Half of the time it is the first one, mostly float32."""
        choices = [dtype for dtype in types(op, attribute) if among is None or dtype in among]
        if not choices:
            raise LookupError(f"TensorFlow has no CPU kernel of {op} for {attribute}")
        return choices[0] if self.flip(0.4) else str(self.pick(choices))

    def shape(
        self, *, rank: builtins.int | None = None, empty: bool = True, low: builtins.int = 0
    ) -> list[builtins.int]:
        """Returns a shape with up to about 2,000 values, and occasionally none."""
        rank = self.int(low, 4) if rank is None else rank
        limit = 2000
        shape = []
        for _ in range(rank):
            size = int(self.pick([s for s in SIZES if s <= max(1, limit)]))
            limit //= size
            shape.append(size)
        if shape and empty and self.flip(0.06):
            shape[self.int(0, rank - 1)] = 0
        if rank == 1 and self.flip(0.1):
            shape = [int(self.pick([1031, 4099]))]
        return shape

    def broadcast(self, shape: Sequence[builtins.int]) -> list[builtins.int]:
        """Returns a shape that broadcasts to `shape`."""
        if self.flip():
            return list(shape)
        cut = list(shape[self.int(0, len(shape)) :]) if self.flip(0.3) else list(shape)
        return [1 if self.flip(0.3) else size for size in cut]

    def values(self, dtype: str, shape: Sequence[builtins.int], kind: str = "any") -> Array:
        """Returns values of a kind.

        - `any`: any value of the dtype. NaN, infinities, and the like appear only in special cases.
        - `tame`: on the order of 1, with both signs.
        - `positive`: between 0.1 and 3, or integers from 1 on.
        - `unit`: between -1 and 1.
        - `nonzero`: like `any`, but without 0 for integers.
        - `distinct`: all different, in no order.
        """
        numpy = dtypes.BY_NAME[dtype].numpy()
        count = int(np.prod(shape))
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(numpy)
        if dtype in COMPLEX:
            return (self.rng.normal(size=shape) + 1j * self.rng.normal(size=shape)).astype(numpy)
        if kind == "distinct":
            return (self.rng.permutation(count).reshape(shape) - (count // 2 if dtype in FLOATS else 0)).astype(numpy)
        flat: Array
        if dtype in FLOATS:
            if kind == "positive":
                flat = self.rng.uniform(0.1, 3, count)
            elif kind == "unit":
                flat = self.rng.uniform(-1, 1, count)
            elif kind == "tame" or not self.special:
                flat = self.rng.normal(size=count)
            else:
                flat = self.rng.normal(size=count) * 10.0 ** self.rng.integers(-6, 7, count)
            flat = flat.astype(numpy)
            if kind in ("any", "nonzero") and self.special:
                info = ml_dtypes.finfo(numpy)
                odd = [np.nan, np.inf, -np.inf, -0.0, 0.0, float(info.max), -float(info.max), 1.0, -1.0]
                odd += [
                    float(info.smallest_normal),
                    -float(info.smallest_normal),
                    float(info.smallest_subnormal),
                    0.5,
                    -2.5,
                ]
                marks = self.rng.random(count) < 0.5
                flat[marks] = self.rng.choice(np.array(odd, np.float64), count)[marks].astype(numpy)
        else:
            info = np.iinfo(numpy)
            low = 1 if kind == "positive" else max(info.min, -9)
            flat = self.rng.integers(low, 9, count, endpoint=True).astype(numpy)
            if kind in ("any", "nonzero") and self.special:
                marks = self.rng.random(count) < 0.5
                flat[marks] = self.rng.choice(np.array([info.min, info.max, 0, 1, info.max - 1], numpy), count)[marks]
            if kind == "nonzero":
                flat[flat == 0] = 1
        return flat.reshape(shape)

    def add(self, value: Any, *, fed: bool | None = None) -> str:
        """Makes an operand from a value, and returns its placeholder in an expression."""
        array = np.asarray(value)
        if array.dtype == np.float64 and not isinstance(value, np.ndarray):
            array = array.astype(np.float32)
        self.operands.append(Operand(array, self.flip(0.75) if fed is None else fed))
        return f"{{{len(self.operands) - 1}}}"

    def const(self, value: Any, dtype: str = "int32") -> str:
        """Returns an operand that the compiler must know."""
        return self.add(np.array(value, dtype), fed=False)

    def of(self, dtype: str, shape: Sequence[builtins.int], kind: str = "any", *, fed: bool | None = None) -> str:
        """Returns an operand with values of a kind."""
        return self.add(self.values(dtype, shape, kind), fed=fed)

    def variable(self, value: Array) -> str:
        """Returns Python source for a new variable, which the model's file creates."""
        name = f"v{{n}}_{self.setup.count('tf.Variable')}"
        self.setup += f"{name} = tf.Variable({literal(value)})\n"
        return name


def call(op: str, *operands: str, **attributes: Any) -> str:
    """Returns Python source that calls an op, with operands in the order of its definition."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    attributes_ = {attribute.name for attribute in op_def_registry.get(op).attr}
    names = [name for name in inspect.signature(getattr(tf.raw_ops, op)).parameters if name not in attributes_]
    arguments = [f"{name}={operand}" for name, operand in zip(names, operands, strict=False)]
    arguments += [f"{name}={value if isinstance(value, Code) else repr(value)}" for name, value in attributes.items()]
    return f"tf.raw_ops.{op}({', '.join(arguments)})"


class Code(str):
    """Literal Python source."""


def tf_type(dtype: str) -> Code:
    """Returns Python source for a dtype."""
    return Code(f"tf.{dtype}")
