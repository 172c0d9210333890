"""Reads tfcompile's header: C++ for XLA's own runtime that tells how to run a compiled function.

tfcompile fills in fixed texts, so this module reads the header strictly. Anything that isn't exactly one of the texts
below is an error, never a guess. The texts are those of TensorFlow 2.21 and, where they differ, those of 2.20 and 2.22.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from tfaot.compile.program.thunks import kinds
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Place, Slice, Thunk, walk
from tfaot.core.errors import TfaotError

_BUFFER_KINDS = ("constant", "temp", "parameter", "thread_local")
_NONE = 2**32 - 1

_PTR = r"reinterpret_cast<std::byte\*>\(buffer_table\[\d+\]\) \+ \d+"
_FIELDS = {
    "args": rf"(?:XLA_CPU_KernelArg\{{{_PTR}, \d+\}}(?:, (?=X))?)*",
    "bool": r"true|false",
    "close": r">?",
    "dtype": "|".join(map(re.escape, kinds.SIZES)),
    "index": rf"\*reinterpret_cast<bool\*>\({_PTR}\) \? 0 : 1|\*reinterpret_cast<int32_t\*>\({_PTR}\)",
    "int": r"\d+",
    "name": r"\w+",
    "ptr": _PTR,
    "ptrs": rf"(?:reinterpret_cast<(?:std::byte|char)\*>\({_PTR}\)(?:, (?=r))?)*",
    "sints": r"-?\d+(?:, -?\d+)*",
    "sizes": r"\d+(?:, \d+)*",
    # TensorFlow 2.22 can sort a part, which isn't what it writes.
    "slices": r"(?:/\*start_slice=\*/0, /\*end_slice=\*/static_cast<int64_t>\((?P=higher)\) \* (?P=lower), )?",
}
"""What fields look like. `_VALUES` has what they mean."""


class _Text:
    """A fixed text with fields `@NAME:KIND@`. A repeated name is the same text again. Any white space matches."""

    def __init__(self, text: str) -> None:
        self._kinds: dict[str, str] = {}

        def field(match: re.Match[str]) -> str:
            name, kind = match[1], match[2]
            if name in self._kinds:
                return f"(?P={name})"
            self._kinds[name] = kind
            return f"(?P<{name}>{_FIELDS[kind]})"

        parts = re.split(r"(@\w+:\w+@)", " ".join(text.split()))
        pattern = (re.sub(r"@(\w+):(\w+)@", field, part) if part[:1] == "@" else re.escape(part) for part in parts)
        self._pattern = re.compile("".join(pattern) + " ?")

    def read(self, text: str, at: int) -> tuple[int, dict[str, Any]] | None:
        """Returns where it ends if it begins at a place, and its fields, without those whose names begin with an underscore."""
        match = self._pattern.match(text, at)
        if match is None:
            return None
        values = {name: _VALUES.get(kind, str)(match[name]) for name, kind in self._kinds.items() if name[0] != "_"}
        return match.end(), values


def _kind(read: Callable[..., Thunk], *texts: str) -> tuple[Callable[..., Thunk], tuple[_Text, ...]]:
    """Returns what reads a kind of thunk, and the versions of its text, which have the same fields."""
    return read, tuple(map(_Text, texts))


def _made(kind: Callable[..., Thunk]) -> Callable[..., Thunk]:
    """Returns what reads a thunk that is nothing but its fields."""
    return lambda _, **fields: kind(**fields)


_KIND = re.compile(r"// (\w+(?: \w+)*) Thunk ")
_FOR_END = _Text("; } }")
_WHILE_TEST = _Text("; while (*reinterpret_cast<bool*>(@flag:ptr@)) {")
_WHILE_NEXT = _Text(";")
_CASE = _Text("case @case:int@: {")
_CASE_END = _Text("break; }")
_CONDITIONAL_END = _Text("} }")
_END = _Text("}")


def parse(header: str) -> CompiledFunction:
    """Reads a header that tfcompile wrote. A part that is unknown, or contradicts the rest, is an error."""
    body = _only(
        header,
        r"std::vector<std::unique_ptr<xla::cpu::RngState>>& rng_states\) \{(.*?)return true;\s*\};\s*\}\s*"
        r"static std::vector<std::pair<uint64_t, char\*>> EmbeddedConstantBuffers",
        "the function that runs its thunks",
    )
    function = CompiledFunction(
        buffers=_buffers(_only(header, r"kBuffer(?:Allocation)?Infos\[kNumBuffers\] = \{(.*?)\};", "its buffers")),
        arguments=_table(header, "ArgIndexToBufferIndex"),
        results=_table(header, "ResultIndexToBufferIndex"),
        constants=_constants(header),
        rng_deltas=_numbers(
            _only(header, r"std::vector<int64_t> RngStateDeltas\(\) \{\s*return \{(.*?)\};", "its random states")
        ),
        thunks=_Reader(body).all(),
    )
    tables = {"kNumArgs": function.arguments, "kNumResults": function.results, "kNumBuffers": function.buffers}
    for name, table in tables.items():
        number = _only(header, rf"static constexpr size_t {name} = (\d+);", name)
        if int(number) != len(table):
            _contradicts(f"{name} is {number}, but {len(table)} are listed")
    _check(function)
    return function


def _check(function: CompiledFunction) -> None:
    """Checks that the parts agree with each other."""
    count = len(function.buffers)
    for what, table in (("argument", function.arguments), ("result", function.results)):
        for index, buffer in enumerate(table):
            if buffer >= count:
                _contradicts(f"{what} {index} is in buffer {buffer} of {count}")
    for index, buffer in enumerate(function.arguments):
        held = function.buffers[buffer].argument
        if held != index:
            _contradicts(f"argument {index} is in buffer {buffer}, which contains argument {held}")
    filled = [buffer for buffer in function.buffers if buffer.kind == "constant" and buffer.size]
    if len(filled) != len(function.constants):
        _contradicts(f"{len(filled)} constant buffers aren't empty, but there are {len(function.constants)} constants")
    for thunk in walk(function.thunks):
        for at, size in thunk.places:
            if at.buffer >= count or at.offset + size > function.buffers[at.buffer].size:
                _contradicts(
                    f"a {type(thunk).__name__} uses bytes {at.offset} to {at.offset + size} of buffer {at.buffer}"
                )
            if function.buffers[at.buffer].kind == "thread_local":
                _contradicts(f"a {type(thunk).__name__} uses buffer {at.buffer}, which has no memory")
        if isinstance(thunk, kinds.Rng) and thunk.state >= len(function.rng_deltas):
            _contradicts(f"random state {thunk.state} is used of {len(function.rng_deltas)}")


def _buffers(text: str) -> tuple[Buffer, ...]:
    info = (
        r"(?:static_cast<::xla::cpu::BufferAllocationInfo>\(::xla::cpu::EncodedBufferAllocationInfo"
        r"|::xla::cpu_function_runtime::BufferInfo\(::xla::cpu_function_runtime::EncodedBufferInfo)"
        r"\{(\d+)ULL, (~?\d+)U, (~?\d+)U\}\),?\s*"
    )
    if not re.fullmatch(rf"\s*(?:{info})*", text):
        _unknown(text)
    buffers = []
    for packed, argument, result in re.findall(info, text):
        kind = _BUFFER_KINDS[int(packed) & 3]
        buffers.append(Buffer(int(packed) >> 2, kind, _optional(argument), _optional(result)))
    return tuple(buffers)


def _optional(number: str) -> int | None:
    value = _NONE - int(number[1:]) if number.startswith("~") else int(number)
    return None if value == _NONE else value


def _table(header: str, name: str) -> tuple[int, ...]:
    return _numbers(_only(header, rf"::tensorflow::int32 k{name}\[\w+\] = \{{(.*?)\}};", f"the table {name}"))


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\s*(?:-?\d+(?:\s*,\s*-?\d+)*)?\s*", text):
        _unknown(text)
    return tuple(map(int, re.findall(r"-?\d+", text)))


def _constants(header: str) -> tuple[str, ...]:
    text = _only(
        header,
        r"EmbeddedConstantBuffers\(\) \{\s*return\s*\{(.*?)\};\s*;?\s*\}\s*static std::vector<int64_t>",
        "constants",
    )
    one = _Text(
        """[](char* buffer) -> std::pair<uint64_t, char*> {
             uint64_t buffer_size;
             std::memcpy(&buffer_size, buffer, sizeof(uint64_t));
             return {buffer_size, buffer + 64};
           }(@symbol:name@)"""
    )
    reader = _Reader(text)
    symbols = []
    while not reader.at_end():
        symbols.append(reader.need(one)["symbol"])
        if not reader.at_end():
            reader.need(_Text(","))
    return tuple(symbols)


def _only(header: str, pattern: str, what: str) -> str:
    matches = re.findall(pattern, header, re.DOTALL)
    if len(matches) != 1:
        raise TfaotError(
            f"the text isn't a header that tfcompile wrote: it has {len(matches)} of {what}",
            do="pass the file that tfcompile, of the TensorFlow that tools/python/requirements.lock names, wrote as out_header",
        )
    text: str = matches[0]
    return text


class _Reader:
    """Reads a text from start to end, with any white space."""

    def __init__(self, text: str) -> None:
        self._text = " ".join(text.split())
        self._at = 0

    def at_end(self) -> bool:
        """Returns whether nothing is left."""
        return self._at == len(self._text)

    def all(self) -> tuple[Thunk, ...]:
        """Reads thunks up to the end of the text."""
        thunks = self._sequence()
        if not self.at_end():
            _unknown(self._text[self._at :])
        return thunks

    def need(self, text: _Text) -> dict[str, Any]:
        """Reads a text that must come next. Returns its fields."""
        fields = self._take(text)
        if fields is None:
            _unknown(self._text[self._at :])
        return fields

    def _take(self, *texts: _Text) -> dict[str, Any] | None:
        for text in texts:
            if taken := text.read(self._text, self._at):
                self._at, fields = taken
                return fields
        return None

    def _sequence(self) -> tuple[Thunk, ...]:
        thunks = []
        while self._text.startswith("//", self._at):
            thunks.append(self._thunk())
        return tuple(thunks)

    def _thunk(self) -> Thunk:
        kind = _KIND.match(self._text, self._at)
        if not kind or kind[1] not in KINDS:
            _unknown(self._text[self._at :])
        at = self._at
        self._at = kind.end()
        read, texts = KINDS[kind[1]]
        fields = self._take(*texts)
        if fields is None:
            _unknown(self._text[at:])
        return read(self, **fields)

    def rng_seed(self) -> Thunk:
        raise TfaotError(
            "the model draws random numbers that XLA seeds anew in each run",
            exists="a Rng Seed Thunk in tfcompile's header",
            do="draw with tf.random or stablehlo.rng_bit_generator, whose seed is yours, or use TensorFlow 2.21",
        )

    def call(self) -> Thunk:
        body = self._sequence()
        self.need(_END)
        return kinds.Call(body)

    def for_loop(self, trips: int) -> Thunk:
        body = self._sequence()
        self.need(_FOR_END)
        return kinds.For(trips, body)

    def while_loop(self) -> Thunk:
        condition = self._sequence()
        flag = self.need(_WHILE_TEST)["flag"]
        body = self._sequence()
        self.need(_WHILE_NEXT)
        if self._sequence() != condition:
            _contradicts("a loop computes its condition in two ways")
        self.need(_FOR_END)
        return kinds.While(flag, condition, body)

    def conditional(self, index: tuple[Slice, bool], count: int) -> Thunk:
        branches = []
        for case in range(count):
            if self.need(_CASE)["case"] != case:
                _contradicts(f"branch {case} of a conditional is missing")
            branches.append(self._sequence())
            self.need(_CASE_END)
        self.need(_CONDITIONAL_END)
        return kinds.Conditional(*index, tuple(branches))


def _kernel(_: _Reader, count: int, args: tuple[Place, ...], x: int, y: int, z: int, symbol: str) -> Thunk:
    if len(args) != count:
        _contradicts(f"{symbol} has {len(args)} arguments and wants {count}")
    return kinds.Kernel(symbol, args, (x, y, z))


def _dot(_: _Reader, out_step: int, lhs_step: int, rhs_step: int, **fields: Any) -> Thunk:
    return kinds.Dot(strides=(out_step, lhs_step, rhs_step), **fields)


_SIZES = {"batch": 0, "input_channels": 3, "kernel_channels": 6, "filters": 7, "groups": 20}
_PAIRS = {"input_size": (1, 2), "kernel_size": (4, 5), "output_size": (8, 9), "stride": (10, 11)}
_PAIRS |= {
    "padding_before": (12, 14),
    "padding_after": (13, 15),
    "input_dilation": (16, 17),
    "kernel_dilation": (18, 19),
}
"""Where the sizes of a convolution are among the 21 that tfcompile writes."""


def _convolution(_: _Reader, sizes: tuple[int, ...], **fields: Any) -> Thunk:
    if len(sizes) != 21:
        _contradicts(f"a convolution has {len(sizes)} sizes, not 21")
    fields |= {name: sizes[at] for name, at in _SIZES.items()}
    fields |= {name: (sizes[x], sizes[y]) for name, (x, y) in _PAIRS.items()}
    return kinds.Convolution(**fields)


def _sort(_: _Reader, higher: int, elements: int, lower: int, **fields: Any) -> Thunk:
    sort = kinds.Sort(shape=(higher, elements, lower), **fields)
    if len(sort.values) != len(sort.value_sizes):
        _contradicts(f"a sort has {len(sort.values)} buffers and {len(sort.value_sizes)} sizes of values")
    return sort


_DOT = """
    reinterpret_cast<@dtype:dtype@*>(@out:ptr@) + @out_step:int@ * i,
    reinterpret_cast<@dtype:dtype@*>(@lhs:ptr@) + @lhs_step:int@ * i,
    reinterpret_cast<@dtype:dtype@*>(@rhs:ptr@) + @rhs_step:int@ * i,
    @m:int@, @n:int@, @k:int@, @transpose_lhs:bool@, @transpose_rhs:bool@"""
_CONVOLUTION = """
    reinterpret_cast<@dtype:dtype@*>(@out:ptr@), reinterpret_cast<@dtype:dtype@*>(@input:ptr@),
    reinterpret_cast<@dtype:dtype@*>(@kernel:ptr@), @sizes:sints@"""
_TOP_K = """@batch:int@, @size:int@, @k:int@, reinterpret_cast<const float*>(@values:ptr@),
    reinterpret_cast<float*>(@out_values:ptr@), reinterpret_cast<int32_t*>(@out_indices:ptr@)"""

KINDS: dict[str, tuple[Callable[..., Thunk], tuple[_Text, ...]]] = {
    "Kernel": _kind(
        _kernel,
        """
        { std::array<XLA_CPU_KernelArg, @count:int@> args = {@args:args@};
          XLA_CPU_NumWorkGroups kernel_thread_dims = { @x:int@, @y:int@, @z:int@, };
          for (uint64_t z = 0; z < @z:int@; ++z) {
            for (uint64_t y = 0; y < @y:int@; ++y) {
              for (uint64_t x = 0; x < @x:int@; ++x) {
                XLA_CPU_WorkGroupId kernel_thread = {x, y, z};
                XLA_CPU_KernelCallFrame call_frame = { &kernel_thread_dims, &kernel_thread, args.size(), args.data()};
                XLA_CPU_KernelError* error = (*@symbol:name@)(&call_frame);
                if (ABSL_PREDICT_FALSE(error != nullptr)) { return false; }
        } } } }""",
    ),
    "Dot": _kind(
        _dot,
        # For complex dtypes, tfcompile writes no `>`.
        f"""
        {{ absl::BlockingCounter done(@batch:int@);
          for (int64_t i = 0; i < @batch:int@; ++i) {{
            ::xla::cpu::internal::TypedMatMul<@dtype:dtype@, @dtype:dtype@, @dtype:dtype@@_close:close@(
              run_options->intra_op_thread_pool(), {_DOT}, [&done] {{ done.DecrementCount(); }} );
          }}
          done.Wait(); }}""",
        # TensorFlow 2.20.
        f"""
        {{ for (int64_t i = 0; i < @batch:int@; ++i) {{
            if (run_options->intra_op_thread_pool() != nullptr) {{ @_threaded:name@( run_options, {_DOT});
            }} else {{ @_single:name@( nullptr, {_DOT});
        }} }} }}""",
    ),
    "Convolution": _kind(
        _convolution,
        f"""
        {{ absl::Notification done;
          xla::cpu::internal::EigenConv2D<@dtype:dtype@>(
            run_options->intra_op_thread_pool(), {_CONVOLUTION}, [&done] {{ done.Notify(); }} );
          done.WaitForNotification(); }}""",
        # TensorFlow 2.20.
        f"""
        {{ if (run_options->intra_op_thread_pool() != nullptr) {{ @_threaded:name@( run_options, {_CONVOLUTION} );
          }} else {{ @_single:name@( nullptr, {_CONVOLUTION} );
        }} }}""",
    ),
    "Copy": _kind(
        _made(kinds.Copy),
        """
        { std::memcpy(reinterpret_cast<char*>(@out:ptr@), reinterpret_cast<char*>(@input:ptr@), @size:int@); }""",
    ),
    "Sort": _kind(
        _sort,
        """
        { std::vector<std::byte*> values = { @values:ptrs@ };
          std::vector<size_t> primitive_sizes = { @value_sizes:sizes@ };
          // Type alias compatible with `FunctionLibrary::Comparator`.
          using Comparator = void(bool* result, const void* run_options, const void** params, const void* buffer_table,
                                  const void* status, const void* prof_counters);
          Comparator* comparator = reinterpret_cast<Comparator*>( @comparator:name@);
          absl::AnyInvocable<bool(const void** data)> less_than = [comparator](const void** data) {
            bool result;
            (*comparator)(&result, nullptr, data, nullptr, nullptr, nullptr);
            ABSL_ANNOTATE_MEMORY_IS_INITIALIZED(&result, sizeof(result));
            return result;
          };
          xla::cpu::internal::SortInplace( { @higher:int@, @elements:int@, @lower:int@ },
            @_slices:slices@values, primitive_sizes, @stable:bool@, &less_than); }""",
        # TensorFlow 2.20.
        """
        { std::vector<char*> values = { @values:ptrs@ };
          std::vector<int32_t> values_primitive_type_size_in_bytes = { @value_sizes:sizes@ };
          __xla_cpu_runtime_KeyValueSort(
            @higher:int@, @elements:int@, @lower:int@,
            values.data(),
            int32_t(values.size()),
            values_primitive_type_size_in_bytes.data(),
            /*is_stable=*/@stable:bool@,
            reinterpret_cast<char*>(run_options),
            /*prof_counters=*/nullptr,
            reinterpret_cast<void(*)(char*, char*, char**, char**, int64_t*)>(@comparator:name@)); }""",
    ),
    # The second one is TensorFlow 2.20's.
    "TopK": _kind(
        _made(kinds.TopK), f"{{ ::xla::cpu::internal::TopK({_TOP_K}); }}", f"{{ __xla_cpu_runtime_TopKF32({_TOP_K}); }}"
    ),
    "Rng": _kind(
        _made(kinds.Rng),
        """
        { rng_states[@state:int@]->GetAndUpdateState(reinterpret_cast<uint64_t*>(@out:ptr@)); }""",
    ),
    # TensorFlow 2.22. It is refused: no two runs would draw the same.
    "Rng Seed": _kind(_Reader.rng_seed, "{ uint64_t seed = static_cast<uint64_t>(run_options->rng_seed());"),
    "Call": _kind(_Reader.call, "{"),
    "For Loop": _kind(
        _Reader.for_loop, "{ for (int64_t loop_counter = 0; loop_counter < @trips:int@; ++loop_counter) {"
    ),
    "While Loop": _kind(_Reader.while_loop, "{"),
    "Conditional": _kind(
        _Reader.conditional,
        """
        { size_t branch_index = @index:index@;
          CHECK(branch_index < @count:int@) << "branch_index is out of bounds";
          switch (branch_index) {""",
    ),
}
"""For each kind of thunk, what reads one from its fields and what follows, and the versions of the text after `// KIND Thunk`, or
of its begin if it has a body."""


def _slices(text: str) -> tuple[Slice, ...]:
    return tuple(Slice(int(buffer), int(offset)) for buffer, offset in re.findall(r"\[(\d+)\]\) \+ (\d+)", text))


def _args(text: str) -> tuple[Place, ...]:
    return tuple(zip(_slices(text), map(int, re.findall(r"(\d+)\}", text)), strict=True))


_VALUES: dict[str, Callable[[str], Any]] = {
    "args": _args,
    "bool": "true".__eq__,
    "index": lambda text: (_slices(text)[0], "<bool*>" in text),
    "int": int,
    "ptr": lambda text: _slices(text)[0],
    "ptrs": _slices,
    "sints": _numbers,
    "sizes": _numbers,
}
"""What fields mean, if not just their text."""


def _unknown(text: str) -> NoReturn:
    shown = " ".join(text.split())
    raise TfaotError(
        "tfcompile's header has a part that the rules don't know",
        details=shown[:200] + ("…" if len(shown) > 200 else ""),
        do="use the TensorFlow that tools/python/requirements.lock names, or extend py/tfaot/compile/program/thunks/header.py",
    )


def _contradicts(what: str) -> NoReturn:
    raise TfaotError(
        f"tfcompile's header contradicts itself: {what}",
        do="use the TensorFlow that tools/python/requirements.lock names; if it is that one, this is a bug of rules_tfaot",
    )
