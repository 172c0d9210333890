"""Reads HLO's text, as far as tests write it: TensorFlow's wheel has no Python function for that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfaot.xla import module as xla

if TYPE_CHECKING:  # importing TensorFlow sets its environment
    from tensorflow.compiler.xla.service import hlo_pb2

_COMPUTATION = re.compile(r"(ENTRY )?%(\S+) \(.*\) -> .* \{")
_INSTRUCTION = re.compile(r"  (ROOT )?%(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(, .*)?")
_CALLED = re.compile(r"(calls|to_apply|body|condition)=%([^\s,}]+)")
_LITERALS = {"f32": "f32s", "f64": "f64s", "s32": "s32s", "pred": "preds"}


def parsed(text: str) -> xla.Module:
    """Returns a module."""
    return xla.read(proto(text))


_REGIONS = "\n".join(
    f"%{name} () -> f32[] {{\n  %{name}.a = f32[] parameter(0)\n  %{name}.b = f32[] parameter(1)\n"
    f"  ROOT %{name}.r = f32[] {opcode}(%{name}.a, %{name}.b)\n}}"
    for name, opcode in (("sum", "add"), ("largest", "maximum"))
)
"""Computations with which a kernel of the next functions can reduce: `to_apply=%sum`, for example."""


def kernel(*lines: str, parameters: Sequence[str], root: str) -> str:
    """Returns the text of a module with a kernel `m_k`; see `kernels`."""
    return kernels({"k": (parameters, lines, root)})


def kernels(computations: Mapping[str, tuple[Sequence[str], Sequence[str], str]]) -> str:
    """Returns the text of a module with some kernels `m_NAME`.

    Args:
      computations: for each name, the shapes of the parameters, which are `%p0` and so on, the instructions after them, the root
        last, and the result's shape.
    """
    text, entry = ["HloModule m, is_scheduled=true", _REGIONS], list[str]()
    for name, (parameters, lines, root) in computations.items():
        *others, last = lines
        inside = [f"  %p{index} = {shape} parameter({index})" for index, shape in enumerate(parameters)]
        text += [f"%f.{name} () -> f32[] {{", *inside, *(f"  %{line}" for line in others)]
        text += [f'  ROOT %{last}, metadata={{op_type="Add"}}', "}"]
        entry += [line.replace("%p", f"%{name}.p") for line in inside]
        passed = ", ".join(f"%{name}.p{index}" for index in range(len(inside)))
        entry.append(f"  ROOT %{name} = {root} fusion({passed}), kind=kLoop, calls=%f.{name}")
    return "\n".join([*text, "ENTRY %main () -> f32[] {", *entry, "}"])


def proto(text: str) -> hlo_pb2.HloModuleProto:
    """Returns the proto of a module, in which instructions run in the order of the text."""
    from tensorflow.compiler.xla.service import hlo_pb2

    lines = text.splitlines()
    result = hlo_pb2.HloModuleProto(name=lines[0].removeprefix("HloModule ").partition(",")[0])
    called: list[tuple[Any, list[str]]] = []
    ids: dict[str, int] = {}
    for line in lines[1:]:
        if start := _COMPUTATION.fullmatch(line):
            computation = result.computations.add(name=start[2], id=len(result.computations) + 1)
            numbers: dict[str, int] = {}
            ids[computation.name] = computation.id
            if start[1]:
                result.entry_computation_id = computation.id
        elif match := _INSTRUCTION.fullmatch(line):
            instruction = computation.instructions.add(
                name=match[2], opcode=match[4], id=computation.id << 32 | len(numbers)
            )
            _read_shape(match[3], instruction.shape)
            numbers[instruction.name] = instruction.id
            if match[4] == "parameter":
                instruction.parameter_number = int(match[5])
            elif match[4] == "constant":
                _read_literal(match[5], match[3].partition("[")[0], instruction.literal)
            else:
                instruction.operand_ids.extend(numbers[name] for name in re.findall(r"%([^\s,]+)", match[5]))
            _read_attributes(match[6] or "", instruction)
            # A loop has its body first in the proto, and last in the text.
            called.append((instruction, [name for _, name in sorted(_CALLED.findall(match[6] or ""))]))
            result.schedule.sequences[computation.id].instruction_ids.append(instruction.id)
            if match[1]:
                computation.root_id = instruction.id
        else:
            assert line in ("", "}"), line
    fused = {name for instruction, names in called if instruction.opcode == "fusion" for name in names}
    for computation in result.computations:
        computation.is_fusion_computation = computation.name in fused
    for instruction, names in called:
        instruction.called_computation_ids.extend(map(ids.__getitem__, names))
    return result


def _read_shape(text: str, shape: Any) -> None:
    from tensorflow.compiler.xla import xla_data_pb2

    if text.startswith("("):
        shape.element_type = xla_data_pb2.TUPLE
        for part in re.findall(r"\w+\[[\d,]*\](?:\{[\d,]*\})?", text):
            _read_shape(part, shape.tuple_shapes.add())
        return
    match = re.fullmatch(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)\})?", text)
    assert match, text
    shape.element_type = xla_data_pb2.PrimitiveType.Value(match[1].upper())
    shape.dimensions.extend(_numbers(match[2]))
    shape.is_dynamic_dimension.extend([False] * len(shape.dimensions))
    shape.layout.minor_to_major.extend(_numbers(match[3] or ""))


def _read_literal(text: str, dtype: str, literal: Any) -> None:
    if text != "{...}":
        number = {"true": 1, "false": 0}.get(text)
        values = getattr(literal, _LITERALS[dtype])
        values.append(float(text) if number is None and dtype != "s32" else int(text) if number is None else number)


def _read_attributes(text: str, instruction: Any) -> None:
    def numbers(name: str) -> list[int]:
        match = re.search(rf", {name}=\{{([\d,]*)\}}", text)
        return _numbers(match[1]) if match else []

    def word(name: str) -> str:
        match = re.search(rf"[, {{]{name}=\"?([^\s,\"}}]+)", text)
        return match[1] if match else ""

    instruction.dimensions.extend(numbers("dimensions"))
    instruction.fusion_kind = word("kind")
    instruction.comparison_direction = word("direction")
    instruction.tuple_index = int(word("index") or 0)
    instruction.metadata.op_name = word("op_name")
    if match := re.search(r"backend_config=(\{.*\})", text):
        instruction.backend_config = match[1].encode()
    if match := re.search(r"slice=\{(.*?)\}", text):
        for start, limit, stride in re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", match[1]):
            instruction.slice_dimensions.add(start=int(start), limit=int(limit), stride=int(stride or 1))
    if match := re.search(r"window=\{(.*?)\}", text):
        parts = dict(part.split("=") for part in match[1].split())
        sizes = parts["size"].split("x")
        strides, pads = (parts[name].split("x") if name in parts else [] for name in ("stride", "pad"))
        for axis, size in enumerate(sizes):
            low, high = map(int, pads[axis].split("_")) if pads else (0, 0)
            stride = int(strides[axis]) if strides else 1
            instruction.window.dimensions.add(size=int(size), stride=stride, padding_low=low, padding_high=high)
    for side in ("lhs", "rhs"):
        for long, short in (("contracting", "contracting"), ("batch", "batch")):
            field = getattr(instruction.dot_dimension_numbers, f"{side}_{long}_dimensions")
            field.extend(numbers(f"{side}_{short}_dims"))
    if labels := word("dim_labels"):
        kernel = labels.partition("_")[2].partition("->")[0]
        instruction.convolution_dimension_numbers.kernel_output_feature_dimension = kernel.index("o")


def _numbers(text: str) -> list[int]:
    return [*map(int, text.split(","))] if text else []
