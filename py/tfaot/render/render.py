"""The render stage: C++ from the manifest. This module makes the decisions, and the templates only spell them out."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfaot.core import assembly, caller, dtypes, fingerprint, functions, names, templates
from tfaot.core import manifest as manifests
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import EntryPoint, Input, Manifest, Output, Requirement, Tensor

_TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")

ALIGNMENT = 64
"""The alignment of every tensor in an instance's memory, in bytes, as XLA's kernels require it."""

LARGEST_EMBEDDED = 1_900_000_000
"""The most bytes of variables in a library. To link, code and data must be within 2 GB of each other."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A function that the compile stage compiles, and the class runs."""

    entry_point: str
    """The entry point's name in the manifest; empty for the only one."""
    batch: int
    """One of the entry point's batch sizes; 0 if it has no batches."""
    buckets: tuple[int, ...]
    """A bucket of each of the entry point's open sizes."""
    header: str
    """The path by which to include the compile stage's header."""


def all_in(manifest: Manifest, headers: str) -> tuple[Compiled, ...]:
    """Returns all functions of a model, whose headers are in one folder.

    Args:
      manifest: the model's.
      headers: the path by which to include the folder, in which `tfaot.compile.all` names the files.
    """
    return tuple(
        Compiled(entry.name, *variant, f"{headers}/{functions.stem(entry.name, *variant)}.executor.h")
        for entry in manifest.entry_points
        for variant in entry.variants
    )


@dataclasses.dataclass(frozen=True)
class Request:
    """What to render, and where to write it."""

    manifest: str
    header: str
    """The path by which to include the public header."""
    embed_variables: bool
    """Whether the library contains the variables' initial values. If not, they are loaded from a file."""
    flush_denormals: bool
    """Whether denormals become zeros during a run. If not, they follow the caller's floating-point mode."""
    out_header: str
    out_source: str
    out_variables: str
    """Assembler source that contains the variables' file."""
    out_test: str
    out_benchmark: str
    functions: tuple[Compiled, ...] = ()
    """All functions in the manifest."""
    headers: str = ""
    """In place of `functions`, the path by which to include the folder with the headers of all of them."""
    out_stub: str | None = None
    """The class without its model, with the same header. It needs no toolchain."""
    sources: str | None = None
    """A JSON map from nodes to lines of the user's code. If it is set, outputs' names show both."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A tensor as the templates see it."""

    name: str
    """TensorFlow's name."""
    cpp_name: str
    view: str
    """The type of the view of values that may change."""
    const_view: str
    value: str
    """The type of a value."""
    signature: str
    """Dtype and shape, such as `float32[64, 784]`."""
    rank: int
    bytes: int
    row_bytes: int
    """The bytes in one row of a batch."""
    get: str
    """An expression for a pointer to the values for reading, given `impl`."""
    change: str
    """An expression for a pointer to the values for changing, given `impl`."""
    size: str
    """An expression for a pointer to the true shape, if it is known only at run time; otherwise empty."""
    note: str
    """What to add to the header's comment."""
    batched: bool
    mutable: str = ""
    """The accessor of values that may change, if it isn't the member's name: a variable that the model only reads is shared."""

    place: int = -1
    """Its index among the inputs and outputs that a caller can place."""
    setter: str = ""
    """The function that places it."""
    own: str = ""
    """An expression for a pointer to the memory that the instance has for it, given `impl`."""
    function: str = ""
    """The member of Impl that makes an output, if no copy in the instance's memory is made anyway."""
    result: int = 0
    """Which of that function's results it is."""
    used: tuple[str, ...] = ()
    """Expressions for how many values of each dimension a run uses, given `rows` and `sizes`; empty for all of all rows."""

    @property
    def writer(self) -> str:
        """The name by which to access values that may change."""
        return self.mutable or self.cpp_name


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable's entry in the class's table."""

    member: Member
    dtype: str
    """Its dtype code in safetensors."""
    dims: int
    """The index of its first size among all tensors' sizes."""
    offset: int
    written: bool
    unset: bool
    """Whether the generated test sets it, because the model has no value for it."""
    optional: bool


@dataclasses.dataclass(frozen=True)
class Listed:
    """A tensor's entry in the table that programs read at run time."""

    slot: int
    """Its index."""
    member: Member
    dtype: int
    """`tensorflow.DataType`."""
    dims: int
    """The index of its first size among all tensors' sizes."""
    bounded: str
    batched: str
    written: str


@dataclasses.dataclass(frozen=True)
class Arg:
    """An argument of a compiled function that is the same in every run."""

    index: int
    get: str
    """An expression for a pointer to its values, given `impl`."""


@dataclasses.dataclass(frozen=True)
class Back:
    """A written variable: its result, and where to copy it."""

    result: int
    get: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class Rows:
    """An input or an output of a compiled function, of which a run uses a part."""

    index: int
    place: int
    row_bytes: int
    padded: int
    batched: bool
    value_bytes: int = 0
    """The bytes of a value, if the size is known only at run time; otherwise 0."""
    whole: tuple[int, ...] = ()
    """An input's sizes."""
    part: tuple[int, ...] = ()
    """Those of the function's argument."""
    used: tuple[str, ...] = ()
    """Expressions for how many values of each dimension a run uses."""
    rank: int = 0
    sizes: int = 0
    """The index of the result that is an output's true size."""
    dims: str = ""
    """An expression for a pointer to the true size in an instance, given `impl`."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A compiled function as the templates see it."""

    member: str
    """The name of the member of Impl."""
    name: str
    """The name of the type that the compile stage's header declares."""
    type: str
    """The type, with its namespace."""
    cost: str
    batch: int
    sizes: tuple[int, ...]
    """The arguments of a run for which it is compiled."""
    allowed: bool
    """Whether the model takes them."""
    num_args: int
    num_results: int
    arg_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]
    """How many bytes of each result this class uses. In a bounded result, the sizes follow the values."""
    args: tuple[Arg, ...]
    back: tuple[Back, ...]
    feeds: tuple[Rows, ...]
    fetches: tuple[Rows, ...]


@dataclasses.dataclass(frozen=True)
class OpenSize:
    """An open size of an entry point as the templates see it."""

    member: Member
    """The input."""
    buckets: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which of several functions to run."""

    name: str
    """The member of Impl."""
    type: str
    functions: tuple[Function, ...]
    buckets: tuple[tuple[int, ...], ...]
    """Those of open sizes. For each, there are as many functions, in this order."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry point as the templates see it."""

    name: str
    cpp_name: str
    first: int
    """The index of its first input in the table of tensors. The other inputs follow it, then the outputs."""
    inputs: tuple[Member, ...]
    outputs: tuple[Member, ...]
    functions: tuple[Function, ...]
    plan: Plan | None
    """None if there is one function, without batches and open sizes."""
    batched: bool
    """Whether it takes batches of any size."""
    writes: bool
    written: tuple[Member, ...]
    sizes: tuple[OpenSize, ...]
    requirements: tuple[Requirement, ...]

    @property
    def args(self) -> str:
        """What a run takes, in a test that has variables of these names."""
        return ", ".join((*["batch"] * self.batched, *(f"sizes[{index}]" for index in range(len(self.sizes)))))

    @property
    def rows(self) -> str:
        """The name of the parameter that is the batch, if there is one."""
        return "" if not self.batched else "rows" if "batch" in self._size_names else "batch"

    @property
    def _size_names(self) -> list[str]:
        return [size.member.cpp_name for size in self.sizes]

    @property
    def parameters(self) -> str:
        """The declarations of what a run takes."""
        names = (*[self.rows] * self.batched, *self._size_names)
        return ", ".join(f"::std::int64_t {name}" for name in names)

    @property
    def bucket(self) -> str:
        """An expression for the index of the least buckets with room for `sizes`."""
        text = ""
        for index, size in enumerate(self.sizes):
            own = f"::tfaot::BucketOf({{{', '.join(map(str, size.buckets))}}}, sizes[{index}])"
            text = f"({text}) * {len(size.buckets)} + {own}" if text else own
        return text


def render(request: Request) -> None:
    """Writes every C++ source that derives from the manifest alone.

    Raises:
      TfaotError: the variables are too large for a library, or the functions don't match the manifest.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    if request.sources:
        with open(request.sources, encoding="utf-8") as file:
            manifest = placed(manifest, json.load(file))
    total = sum(variable.bytes for variable in manifest.variables)
    if request.embed_variables and total > LARGEST_EMBEDDED:
        raise TfaotError(
            f"{manifest.cpp_class}: its variables take {total:,} bytes, too many to embed in a C++ library",
            exists=f"code can address data within 2 GB; a library can contain {LARGEST_EMBEDDED:,} bytes of variables",
            do=f"keep them in a file: {caller.setting('embed_variables', False)}, and call Load(path) in the program",
        )
    context = context_of(
        manifest,
        header=request.header,
        compiled=all_in(manifest, request.headers) if request.headers else request.functions,
        embed=request.embed_variables,
        flush_denormals=request.flush_denormals,
    )
    environment = templates.environment(_TEMPLATES)
    for template, path in (
        ("class.h.jinja", request.out_header),
        ("class.cc.jinja", request.out_source),
        ("test.cc.jinja", request.out_test),
        ("benchmark.cc.jinja", request.out_benchmark),
    ):
        text = environment.get_template(template).render(context)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    with open(request.out_variables, "w", encoding="utf-8") as file:
        file.write(_embedded(context["variables_symbol"] if request.embed_variables and manifest.variables else None))
    if request.out_stub:
        with open(request.out_stub, "w", encoding="utf-8") as file:
            file.write(environment.get_template("class.cc.jinja").render({**context, "stub": True}))


def _embedded(symbol: str | None) -> str:
    """Returns the source that puts the variables' file into the library, or nothing."""
    what = ("// TFAOT_VARIABLES is the path of the variables' file, which the build passes.", ".incbin TFAOT_VARIABLES")
    return assembly.source((symbol,) if symbol else (), what, alignment=ALIGNMENT)


def placed(manifest: Manifest, sources: Mapping[str, str]) -> Manifest:
    """Adds to outputs' names the line of the user's code that made them, where it is known."""

    def shown(output: Output) -> Output:
        node = output.name.partition(":")[0]
        place = sources.get(node) or sources.get(node.removesuffix("/stored"))
        return dataclasses.replace(output, name=f"{output.name} at {place}") if place else output

    entries = tuple(
        dataclasses.replace(entry, outputs=tuple(map(shown, entry.outputs))) for entry in manifest.entry_points
    )
    return dataclasses.replace(manifest, entry_points=entries)


class _Arena:
    """Places tensors in an instance's memory."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, size: int) -> int:
        """Returns the offset of a new block."""
        offset = self.size
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return offset


def context_of(
    manifest: Manifest, *, header: str, compiled: Sequence[Compiled], embed: bool, flush_denormals: bool = True
) -> dict[str, Any]:
    """Returns everything that the templates use."""
    namespaces, class_name = names.split_class(manifest.cpp_class)
    symbol = names.symbol(manifest.cpp_class)
    compiled_functions = functions.functions(manifest, [(one.entry_point, one.batch, one.buckets) for one in compiled])
    arena = _Arena()
    variables = _variables(manifest, class_name)
    setters = _setters(manifest, class_name)
    places = itertools.count()
    entries: list[Entry] = []
    for entry in manifest.entry_points:
        first = entries[-1].first + len(entries[-1].inputs) + len(entries[-1].outputs) if entries else 0
        own = [function for function in compiled_functions if function.entry_point == entry]
        entries.append(_entry(manifest, entry, first, own, variables, arena, setters, places))
    members = [member for entry in entries for member in (*entry.inputs, *entry.outputs)]
    members += [variable.member for variable in variables]
    values = {member.value for member in members}
    calls = _calls(manifest, entries, variables)
    return {
        "stub": False,
        "class_name": class_name,
        "full_name": manifest.cpp_class.removeprefix("::"),
        "namespace": "::".join(namespaces),
        "guard": "TFAOT_GENERATED_" + symbol + "_H_",
        "header": header,
        "header_digest": fingerprint.digest(header),
        "only": fingerprint.MODELS,
        "private_headers": [one.header for one in compiled],
        "variables_symbol": f"tfaot_{symbol}_variables",
        "tensorflow": manifest.tensorflow,
        "entries": entries,
        "functions": [function for entry in entries for function in entry.functions],
        "plans": [entry.plan for entry in entries if entry.plan],
        "open_sizes": any(entry.sizes for entry in entries),
        "single": len(entries) == 1,
        "variables": variables,
        "members": members,
        "tensors": _listed(manifest, members),
        "dims": ", ".join(str(dim) for tensor in _tensors(manifest) for dim in (*tensor.shape, 0)),
        "manifest": _escaped(described(manifest)),
        "input_places": {member.place for entry in entries for member in entry.inputs},
        "edges": [member for member in members if member.setter],
        "embed": embed and bool(variables),
        "fingerprint_symbol": fingerprint.symbol(manifest.cpp_class),
        "weights_symbol": fingerprint.weights_symbol(manifest.cpp_class),
        "flush_denormals": flush_denormals,
        "random_state": next((v.member for v in variables if v.optional), None),
        "max_batch": manifest.max_batch,
        "replicas": manifest.replicas,
        "gradients": [
            (
                gradient.variable,
                entries[gradient.computed_by].first + len(entries[gradient.computed_by].inputs) + gradient.output,
                entries[gradient.applied_by].first + gradient.input,
            )
            for gradient in manifest.gradients
        ],
        "alignment": ALIGNMENT,
        "arena_bytes": arena.size,
        "calls": calls,
        "free": manifest.free_run,
        "deviations": deviations(manifest),
        "weights_dtype": manifest.weights.rounded_to,
        "calls_text": f"{len(calls)} step" + ("s" if len(calls) != 1 else ""),
        "uses_half": bool(values & {"::tfaot::Float16", "::tfaot::BFloat16"}),
        "uses_complex": any("complex" in value for value in values),
        "uses_bounds": any(member.size for member in members),
    }


def deviations(manifest: Manifest) -> list[str]:
    """Returns the outputs that rounded weights may change, in the goldens' order: `ENTRY_POINT/OUTPUT`."""
    if not manifest.weights.names:
        return []
    entries = [manifest.entry_point(call.entry_point) for call in manifest.calls]
    floating = (
        f"{entry.name}/{output.cpp_name}"
        for entry in entries
        for output in entry.outputs
        if dtypes.BY_NAME[output.dtype].floating
    )
    return list(dict.fromkeys(floating))


def _taken(manifest: Manifest) -> set[str]:
    """Returns the names of a class's members, other than those that render adds."""
    taken = {variable.cpp_name for variable in manifest.variables} | names.MEMBERS
    taken |= {entry.cpp_name for entry in manifest.entry_points}
    for entry in manifest.entry_points:
        taken |= {tensor.cpp_name for tensor in (*entry.inputs, *entry.outputs)}
    return taken


def _setters(manifest: Manifest, class_name: str) -> dict[str, str]:
    """Returns the functions that place inputs and outputs, by the C++ names of these."""
    tensors = [tensor.cpp_name for entry in manifest.entry_points for tensor in (*entry.inputs, *entry.outputs)]
    taken = _taken(manifest) | set(_mutable(manifest, class_name))
    setters = names.unique_identifiers([f"set_{name}_data" for name in tensors], taken=taken, class_name=class_name)
    return dict(zip(tensors, setters, strict=True))


def _mutable(manifest: Manifest, class_name: str) -> list[str]:
    """Returns the accessors that copy shared values, one for each variable."""
    wanted = ["mutable_" + variable.cpp_name for variable in manifest.variables]
    return names.unique_identifiers(wanted, taken=_taken(manifest), class_name=class_name)


def _variables(manifest: Manifest, class_name: str) -> list[Variable]:
    mutable = _mutable(manifest, class_name)
    dims = _dims(manifest)[-len(manifest.variables) :]
    return [
        Variable(
            _member(
                variable,
                get=f"impl.variables.data({index})",
                change=f"impl.variables.{'own' if variable.written else 'mutable'}_data({index})",
                note=(", starts at zero" if variable.unset else "")
                + ("" if variable.written else f", shared. {mutable[index]}() copies the values for this instance"),
                mutable="" if variable.written else mutable[index],
            ),
            dtypes.BY_NAME[variable.dtype].safetensors,
            dims[index],
            variable.offset,
            variable.written,
            variable.unset,
            variable.name == manifest.random_state,
        )
        for index, variable in enumerate(manifest.variables)
    ]


def _calls(manifest: Manifest, entries: Sequence[Entry], variables: Sequence[Variable]) -> list[dict[str, Any]]:
    """Returns what the generated test calls, with the variables that it sets before each call."""
    by_name = {variable.name: variables[index] for index, variable in enumerate(manifest.variables)}
    restored = [[by_name[variable.name] for variable in before] for before in manifest.restored()]
    return [
        {
            "entry": entry,
            "batch": call.batch,
            "sizes": call.sizes,
            "args": "".join(
                [f", {call.batch}" * (call.batch > 0), f", {{{', '.join(map(str, call.sizes))}}}" * bool(call.sizes)]
            ),
            "step": step,
            "restored": restored[step],
        }
        for step, call in enumerate(manifest.calls)
        for entry in entries
        if entry.name == call.entry_point
    ]


def described(manifest: Manifest) -> str:
    """Returns the part of `model.json` that a class contains, on one line.

    What only the build uses isn't in it, so a change there doesn't compile the class again.
    """
    fields = dataclasses.asdict(manifest)
    for name in ("calls", "fingerprints", "weights"):
        del fields[name]
    if fields["replicas"] == 1:
        del fields["replicas"]
    if not fields["gradients"]:
        del fields["gradients"]
    for frozen in fields["frozen"]:
        del frozen["sha256"]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def _tensors(manifest: Manifest) -> list[Tensor]:
    """Returns all tensors that have an accessor, in the order of the class's table."""
    edges: list[Tensor] = [
        tensor for entry in manifest.entry_points for group in (entry.inputs, entry.outputs) for tensor in group
    ]
    return [*edges, *manifest.variables]


def _dims(manifest: Manifest) -> list[int]:
    """Returns, for each of these tensors, the index of its first size among all their sizes, each followed by a zero."""
    counts = [len(tensor.shape) + 1 for tensor in _tensors(manifest)]
    return [0, *itertools.accumulate(counts)][:-1]


def _listed(manifest: Manifest, members: Sequence[Member]) -> list[Listed]:
    tensors = zip(_tensors(manifest), members, _dims(manifest), strict=True)
    return [
        Listed(
            slot=slot,
            member=member,
            dtype=dtypes.BY_NAME[tensor.dtype].enum,
            dims=dims,
            bounded=_boolean(bool(member.size)),
            batched=_boolean(member.batched),
            written=_boolean(isinstance(tensor, manifests.Variable) and tensor.written),
        )
        for slot, (tensor, member, dims) in enumerate(tensors)
    ]


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _entry(
    manifest: Manifest,
    entry: EntryPoint,
    first: int,
    compiled: Sequence[functions.Function],
    variables: Sequence[Variable],
    arena: _Arena,
    setters: Mapping[str, str],
    places: Iterator[int],
) -> Entry:
    inputs = []
    for tensor in entry.inputs:
        offset, place = arena.place(tensor.bytes), next(places)
        member = _member(tensor, get=f"impl.places[{place}]", batched=tensor.batched)
        member = dataclasses.replace(member, place=place, setter=setters[tensor.cpp_name], own=f"impl.arena + {offset}")
        if tensor.axes:
            used = [f"*{entry.sizes[axis.size].name}() in dimension {axis.dim}" for axis in tensor.axes]
            note = f", of which a run uses the first {', '.join(used)}"
            member = dataclasses.replace(member, note=note, used=_used(tensor))
        elif (index := entry.open_size(tensor)) is not None:
            largest = entry.sizes[index].buckets[-1]
            member = dataclasses.replace(member, note=f", 1 to {largest}, which it is at the start")
        inputs.append(_Edge(member, tensor))
    outputs = _outputs(entry, compiled[0], arena, setters, places)
    written = [use for use in entry.variables if use.written]
    made = tuple(_function(function, inputs, outputs, variables, arena) for function in compiled)
    # A function's name never ends in a digit, because an underscore follows.
    plan = Plan(
        f"plan{manifest.entry_points.index(entry)}",
        f"::tfaot::BatchPlan<{len(made)}, {len(entry.buckets)}, {len(entry.sizes)}>",
        made,
        entry.buckets,
    )
    members = {edge.member.cpp_name: edge.member for edge in inputs}
    return Entry(
        entry.name,
        entry.cpp_name,
        first,
        tuple(edge.member for edge in inputs),
        tuple(edge.member for edge in outputs),
        made,
        plan if entry.batch_sizes or entry.sizes else None,
        bool(entry.batch_sizes),
        bool(written),
        tuple(variables[use.variable].member for use in written),
        tuple(OpenSize(members[size.name], size.buckets) for size in entry.sizes),
        tuple(dataclasses.replace(own, text=_escaped(own.text)) for own in entry.requirements),
    )


def _used(tensor: Input) -> tuple[str, ...]:
    """Returns expressions for the sizes that a run uses of an input."""
    used = ["rows" if tensor.batched else str(tensor.shape[0]), *map(str, tensor.shape[1:])]
    for axis in tensor.axes:
        used[axis.dim] = f"sizes[{axis.size}]"
    return tuple(used)


@dataclasses.dataclass(frozen=True)
class _Edge:
    """An input or an output, and its member."""

    member: Member
    tensor: Input | Output

    def bytes(self, batch: int, buckets: Sequence[int]) -> int:
        """Returns its size in a compiled function, or 0 if that is known only at run time, and there are several functions."""
        if isinstance(self.tensor, Input):
            return math.prod(self.tensor.at(batch, buckets)) * dtypes.BY_NAME[self.tensor.dtype].bytes
        if self.tensor.size and buckets:
            return 0
        return self.member.row_bytes * batch if self.member.batched else self.member.bytes


def _outputs(
    entry: EntryPoint, compiled: functions.Function, arena: _Arena, setters: Mapping[str, str], places: Iterator[int]
) -> list[_Edge]:
    """Returns an entry point's outputs: in an instance's memory if there are several functions; otherwise in the function."""
    outputs = []
    function = _function_name(compiled)
    sizes = {output.name: len(entry.outputs) + index for index, output in enumerate(entry.sized)}
    for index, output in enumerate(entry.outputs):
        copied = output.batched or bool(entry.sizes)
        offset, place = arena.place(output.bytes) if copied else -1, next(places)
        result = f"impl.{function}.result_data({index})"
        size = ""
        if output.size and copied:
            size = f"impl.arena + {arena.place(4 * len(output.shape))}"
        elif output.size:
            size = f"impl.{function}.result_data({sizes[output.name]})"
        member = _member(
            output,
            get=f"impl.places[{place}]" if copied else f"impl.Placed({place}, {result})",
            size=size,
            note=" at most; the actual size is known after the run" if output.size else "",
            batched=output.batched,
        )
        member = dataclasses.replace(
            member,
            place=place,
            setter=setters[output.cpp_name],
            own=f"impl.arena + {offset}" if copied else "nullptr",
            function="" if copied else function,
            result=index,
        )
        outputs.append(_Edge(member, output))
    return outputs


def _function(
    compiled: functions.Function,
    inputs: Sequence[_Edge],
    outputs: Sequence[_Edge],
    variables: Sequence[Variable],
    arena: _Arena,
) -> Function:
    entry, batch, buckets = compiled.entry_point, compiled.batch, compiled.buckets
    results = len(outputs) + len(entry.sized)
    uses = [(variables[use.variable].member, use.written) for use in entry.variables]
    written = [member for member, is_written in uses if is_written]
    # Each function has its own memory for the rows of a padded part.
    feeds = tuple(_feed(index, edge, compiled, arena) for index, edge in enumerate(inputs) if _in_parts(edge))
    sizes = {output.name: len(outputs) + index for index, output in enumerate(entry.sized)}
    return Function(
        member=_function_name(compiled),
        name=compiled.internal_class.rpartition("::")[2],
        type="::" + compiled.internal_class,
        cost="::" + compiled.cost,
        batch=batch,
        sizes=(*[batch] * (batch > 0), *buckets),
        allowed=entry.allows(buckets),
        num_args=len(inputs) + len(uses),
        num_results=results + len(written),
        arg_bytes=(*(edge.bytes(batch, buckets) for edge in inputs), *(member.bytes for member, _ in uses)),
        result_bytes=(
            *(edge.bytes(batch, buckets) for edge in outputs),
            *(4 * len(output.shape) for output in entry.sized),
            *(member.bytes for member in written),
        ),
        args=(
            *(Arg(index, edge.member.get) for index, edge in enumerate(inputs) if not _in_parts(edge)),
            *(
                Arg(len(inputs) + index, member.change if is_written else member.get)
                for index, (member, is_written) in enumerate(uses)
            ),
        ),
        back=tuple(Back(results + index, member.change, member.bytes) for index, member in enumerate(written)),
        feeds=feeds,
        fetches=tuple(
            Rows(
                index,
                edge.member.place,
                edge.member.row_bytes,
                0,
                edge.member.batched,
                value_bytes=dtypes.BY_NAME[edge.tensor.dtype].bytes if edge.member.size else 0,
                rank=len(edge.tensor.shape),
                sizes=sizes.get(edge.tensor.name, 0),
                dims=edge.member.size,
            )
            for index, edge in enumerate(outputs)
            if not edge.member.function
        ),
    )


def _in_parts(edge: _Edge) -> bool:
    """Returns whether a run uses a part of an input."""
    return edge.member.batched or bool(edge.member.used)


def _feed(index: int, edge: _Edge, compiled: functions.Function, arena: _Arena) -> Rows:
    member, padded = edge.member, arena.place(edge.bytes(compiled.batch, compiled.buckets))
    assert isinstance(edge.tensor, Input)
    if not member.used:
        return Rows(index, member.place, member.row_bytes, padded, member.batched)
    return Rows(
        index,
        member.place,
        member.row_bytes,
        padded,
        member.batched,
        value_bytes=dtypes.BY_NAME[edge.tensor.dtype].bytes,
        whole=edge.tensor.shape,
        part=edge.tensor.at(compiled.batch, compiled.buckets),
        used=member.used,
    )


def _function_name(function: functions.Function) -> str:
    return functions.stem(function.entry_point.cpp_name, function.batch, function.buckets).replace(".", "_") + "_"


def _member(
    tensor: Tensor,
    *,
    get: str,
    change: str = "",
    size: str = "",
    note: str = "",
    batched: bool = False,
    mutable: str = "",
) -> Member:
    value = dtypes.BY_NAME[tensor.dtype].cpp
    kind = "BoundedView" if size else "View"
    rows = tensor.shape[0] if isinstance(tensor, (Input, Output)) and batched else 1
    return Member(
        name=_escaped(tensor.name),
        cpp_name=tensor.cpp_name,
        view=_view(kind, value, tensor.shape),
        const_view=_view(kind, "const " + value, tensor.shape),
        value=value,
        signature=f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]",
        rank=len(tensor.shape),
        bytes=tensor.bytes,
        row_bytes=tensor.bytes // rows,
        get=get,
        change=change or get,
        size=size,
        note=note,
        batched=batched,
        mutable=mutable,
    )


def _view(kind: str, value: str, shape: Sequence[int]) -> str:
    return f"::tfaot::{kind}<{', '.join((value, *map(str, shape)))}>"


def _escaped(name: str) -> str:
    """Escapes a TensorFlow name for a C++ string literal or comment: a shared_name may contain anything."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in name.encode()
    )
