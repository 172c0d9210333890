"""What the compiler planned for a run: its instructions in order, their arithmetic and traffic, and the memory of each value. Pure.

Only the report on a model reads the result.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping

from tfaot.xla.memory import Memory
from tfaot.xla.module import Computation, Instruction, Module

_FREE = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "bitcast-convert",
        "reshape",
        "broadcast",
        "iota",
        "copy",
        "slice",
        "dynamic-slice",
        "dynamic-update-slice",
        "transpose",
        "concatenate",
        "pad",
        "reverse",
        "gather",
        "convert",
        "after-all",
        "domain",
        "rng-get-and-update-state",
    ]
)
"""Instructions without arithmetic."""


def plan(module: Module, memory: Memory) -> str:
    """Returns JSON: the steps of the entry computation, and the working memory's values with their places and lives."""
    entry = module.entry
    steps = [
        {
            "name": each.name,
            "opcode": each.opcode,
            "flops": _flops(each, entry, module.computations),
            "bytes": sum(entry.instructions[name].type.bytes for name in each.operands) + each.type.bytes,
            "origin": each.attributes.metadata.op_name,
        }
        for each in entry.instructions.values()
        if each.opcode not in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
    ]
    values = [dataclasses.asdict(value) | {"shape": str(value.shape)} for value in memory.values]
    plan = {"steps": steps, "memory": memory.size, "length": memory.length, "values": values}
    return json.dumps(plan, indent=1) + "\n"


def _flops(instruction: Instruction, computation: Computation, all_: Mapping[str, Computation]) -> int:
    """Returns the arithmetic operations of an instruction. A loop whose number of steps isn't known counts as one step."""
    out = instruction.count
    shapes = [computation.instructions[name].type for name in instruction.operands]
    if instruction.opcode in ("dot", "ragged-dot"):
        axes = instruction.attributes.dot_dimension_numbers.lhs_contracting_dimensions
        return 2 * out * int(math.prod(shapes[0].dims[axis] for axis in axes))
    if instruction.opcode == "convolution":
        features = shapes[1].dims[instruction.attributes.convolution_dimension_numbers.kernel_output_feature_dimension]
        return 2 * out * shapes[1].count // max(1, int(features))
    if instruction.opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort"):
        return max(shapes[0].count, out)
    inner = sum(
        _flops(each, all_[name], all_) for name in instruction.called for each in all_[name].instructions.values()
    )
    if instruction.opcode == "while":
        loop = json.loads(instruction.attributes.backend_config or "{}")
        return inner * int(loop.get("known_trip_count", {}).get("n", 1))
    if instruction.called and instruction.opcode not in ("custom-call", "map"):
        return inner
    return 0 if instruction.opcode in _FREE else out
