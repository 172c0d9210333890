"""Reads tfcompile's header: C++ for XLA's own runtime that tells how to run a compiled function.

tfcompile fills in fixed texts, so this module reads the header strictly. Anything that isn't exactly one of the texts
below is an error, never a guess. The texts are those of TensorFlow 2.21 and, where they differ, those of 2.20 and 2.22.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from tfaot.compile.program.thunks.kinds import (
    SIZES,
    Buffer,
    Call,
    CompiledFunction,
    Conditional,
    Convolution,
    Copy,
    Dot,
    For,
    Kernel,
    Rng,
    SizedSlice,
    Slice,
    Sort,
    Thunk,
    TopK,
    While,
    walk,
)
from tfaot.core.errors import TfaotError

_KINDS = ("constant", "temp", "parameter", "thread_local")
_NONE = 2**32 - 1

_FIELDS = {
    "args": r"(?:XLA_CPU_KernelArg\{[^{}]*\}(?:, (?=X))?)*",
    "bool": r"true|false",
    "close": r">?",
    "index": r"\*reinterpret_cast<(?:bool|int32_t)\*>\([^?;{}]*?\)(?: \? 0 : 1)?",
    "int": r"\d+",
    "name": r"\w+",
    "ptr": r"reinterpret_cast<std::byte\*>\(buffer_table\[\d+\]\) \+ \d+",
    "ptrs": r"[^{};]*",
    "sints": r"-?\d+(?:, -?\d+)*",
    "sizes": r"\d+(?:, \d+)*",
    # TensorFlow 2.22 can sort a part, which isn't what it writes.
    "slices": r"(?:/\*start_slice=\*/0, /\*end_slice=\*/static_cast<int64_t>\((?P=higher)\) \* (?P=lower), )?",
    "dtype": "|".join(map(re.escape, SIZES)),
}


def _text(text: str) -> re.Pattern[str]:
    """Compiles a fixed text with fields `@NAME:KIND@`. A repeated name matches the same text again; any white space matches."""
    seen: set[str] = set()

    def field(match: re.Match[str]) -> str:
        name, kind = match[1], match[2]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{_FIELDS[kind]})"

    parts = re.split(r"(@\w+:\w+@)", " ".join(text.split()))
    return re.compile(
        "".join(re.sub(r"@(\w+):(\w+)@", field, part) if part.startswith("@") else re.escape(part) for part in parts)
        + " ?"
    )


def _texts(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Compiles the versions of a text, which have the same fields, except for those that nothing reads."""
    return tuple(map(_text, texts))


_PTR = re.compile(r"reinterpret_cast<std::byte\*>\(buffer_table\[(\d+)\]\) \+ (\d+)")
_KERNEL_ARG = re.compile(rf"XLA_CPU_KernelArg\{{{_PTR.pattern}, (\d+)\}}")
_SORT_VALUE = re.compile(rf"reinterpret_cast<(?:std::byte|char)\*>\({_PTR.pattern}\)")
_INDEX = re.compile(rf"\*reinterpret_cast<(bool|int32_t)\*>\({_PTR.pattern}\)(?P<choice> \? 0 : 1)?")

_THUNKS: dict[str, tuple[re.Pattern[str], ...]] = {
    "Kernel": _texts(
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
    "Dot": _texts(
        # For complex dtypes, tfcompile writes no `>`.
        """
        { absl::BlockingCounter done(@batch:int@);
          for (int64_t i = 0; i < @batch:int@; ++i) {
            ::xla::cpu::internal::TypedMatMul<@dtype:dtype@, @dtype:dtype@, @dtype:dtype@@close:close@(
              run_options->intra_op_thread_pool(),
              reinterpret_cast<@dtype:dtype@*>(@out:ptr@) + @out_step:int@ * i,
              reinterpret_cast<@dtype:dtype@*>(@lhs:ptr@) + @lhs_step:int@ * i,
              reinterpret_cast<@dtype:dtype@*>(@rhs:ptr@) + @rhs_step:int@ * i,
              @m:int@, @n:int@, @k:int@, @transpose_lhs:bool@, @transpose_rhs:bool@,
              [&done] { done.DecrementCount(); } );
          }
          done.Wait(); }""",
        # TensorFlow 2.20.
        """
        { for (int64_t i = 0; i < @batch:int@; ++i) {
            if (run_options->intra_op_thread_pool() != nullptr) {
              @threaded:name@(
                run_options,
                reinterpret_cast<@dtype:dtype@*>(@out:ptr@) + @out_step:int@ * i,
                reinterpret_cast<@dtype:dtype@*>(@lhs:ptr@) + @lhs_step:int@ * i,
                reinterpret_cast<@dtype:dtype@*>(@rhs:ptr@) + @rhs_step:int@ * i,
                @m:int@, @n:int@, @k:int@, @transpose_lhs:bool@, @transpose_rhs:bool@);
            } else {
              @single:name@(
                nullptr,
                reinterpret_cast<@dtype:dtype@*>(@out:ptr@) + @out_step:int@ * i,
                reinterpret_cast<@dtype:dtype@*>(@lhs:ptr@) + @lhs_step:int@ * i,
                reinterpret_cast<@dtype:dtype@*>(@rhs:ptr@) + @rhs_step:int@ * i,
                @m:int@, @n:int@, @k:int@, @transpose_lhs:bool@, @transpose_rhs:bool@);
        } } }""",
    ),
    "Convolution": _texts(
        """
        { absl::Notification done;
          xla::cpu::internal::EigenConv2D<@dtype:dtype@>(
            run_options->intra_op_thread_pool(),
            reinterpret_cast<@dtype:dtype@*>(@out:ptr@), reinterpret_cast<@dtype:dtype@*>(@input:ptr@),
            reinterpret_cast<@dtype:dtype@*>(@kernel:ptr@), @sizes:sints@,
            [&done] { done.Notify(); } );
          done.WaitForNotification(); }""",
        # TensorFlow 2.20.
        """
        { if (run_options->intra_op_thread_pool() != nullptr) {
            @threaded:name@(
              run_options,
              reinterpret_cast<@dtype:dtype@*>(@out:ptr@), reinterpret_cast<@dtype:dtype@*>(@input:ptr@),
              reinterpret_cast<@dtype:dtype@*>(@kernel:ptr@), @sizes:sints@ );
          } else {
            @single:name@(
              nullptr,
              reinterpret_cast<@dtype:dtype@*>(@out:ptr@), reinterpret_cast<@dtype:dtype@*>(@input:ptr@),
              reinterpret_cast<@dtype:dtype@*>(@kernel:ptr@), @sizes:sints@ );
        } }""",
    ),
    "Copy": _texts(
        """
        { std::memcpy(reinterpret_cast<char*>(@out:ptr@), reinterpret_cast<char*>(@input:ptr@), @size:int@); }""",
    ),
    "Sort": _texts(
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
            @slices:slices@values, primitive_sizes, @stable:bool@, &less_than); }""",
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
    "TopK": _texts(
        """
        { ::xla::cpu::internal::TopK(@batch:int@, @size:int@, @k:int@,
            reinterpret_cast<const float*>(@values:ptr@),
            reinterpret_cast<float*>(@out_values:ptr@),
            reinterpret_cast<int32_t*>(@out_indices:ptr@)); }""",
        # TensorFlow 2.20.
        """
        { __xla_cpu_runtime_TopKF32(@batch:int@, @size:int@, @k:int@,
            reinterpret_cast<const float*>(@values:ptr@),
            reinterpret_cast<float*>(@out_values:ptr@),
            reinterpret_cast<int32_t*>(@out_indices:ptr@)); }""",
    ),
    "Rng": _texts(
        """
        { rng_states[@state:int@]->GetAndUpdateState(reinterpret_cast<uint64_t*>(@out:ptr@)); }""",
    ),
    # TensorFlow 2.22. It is refused: no two runs would draw the same.
    "Rng Seed": _texts("{ uint64_t seed = static_cast<uint64_t>(run_options->rng_seed());"),
    "Call": _texts("{"),
    "For Loop": _texts("{ for (int64_t loop_counter = 0; loop_counter < @trips:int@; ++loop_counter) {"),
    "While Loop": _texts("{"),
    "Conditional": _texts(
        """
        { size_t branch_index = @index:index@;
          CHECK(branch_index < @count:int@) << "branch_index is out of bounds";
          switch (branch_index) {""",
    ),
}
"""What stands after `// KIND Thunk`, or where the body of a thunk begins, for each kind: the versions of its text."""

_KIND = re.compile(r"// (\w+(?: \w+)*) Thunk ")
_FOR_END = _text("; } }")
_WHILE_TEST = _text("; while (*reinterpret_cast<bool*>(@flag:ptr@)) {")
_WHILE_NEXT = _text(";")
_CASE = _text("case @case:int@: {")
_CASE_END = _text("break; }")
_CONDITIONAL_END = _text("} }")
_END = _text("}")


def parse(header: str) -> CompiledFunction:
    """Reads a header that tfcompile wrote. A part that is unknown, or contradicts the rest, is an error."""
    numbers = {name: _number(header, name) for name in ("kNumArgs", "kNumResults", "kNumBuffers")}
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
    for name, count in (
        ("kNumArgs", len(function.arguments)),
        ("kNumResults", len(function.results)),
        ("kNumBuffers", len(function.buffers)),
    ):
        if numbers[name] != count:
            _contradicts(f"{name} is {numbers[name]}, but {count} are listed")
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
        if isinstance(thunk, Rng) and thunk.state >= len(function.rng_deltas):
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
        kind = _KINDS[int(packed) & 3]
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


def _number(header: str, name: str) -> int:
    return int(_only(header, rf"static constexpr size_t {name} = (\d+);", name))


def _constants(header: str) -> tuple[str, ...]:
    text = _only(
        header,
        r"EmbeddedConstantBuffers\(\) \{\s*return\s*\{(.*?)\};\s*;?\s*\}\s*static std::vector<int64_t>",
        "constants",
    )
    one = _text(
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
            reader.need(_text(","))
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

    def need(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Reads a pattern that must come next."""
        match = self._take(pattern)
        if not match:
            _unknown(self._text[self._at :])
        return match

    def _take(self, *patterns: re.Pattern[str]) -> re.Match[str] | None:
        for pattern in patterns:
            if match := pattern.match(self._text, self._at):
                self._at = match.end()
                return match
        return None

    def _sequence(self) -> tuple[Thunk, ...]:
        thunks = []
        while self._text.startswith("//", self._at):
            thunks.append(self._thunk())
        return tuple(thunks)

    def _thunk(self) -> Thunk:
        kind = _KIND.match(self._text, self._at)
        if not kind or kind[1] not in _THUNKS:
            _unknown(self._text[self._at :])
        at = self._at
        self._at = kind.end()
        text = self._take(*_THUNKS[kind[1]])
        if not text:
            _unknown(self._text[at:])
        return _READERS[kind[1]](self, text)

    def rng_seed(self, _: re.Match[str]) -> Thunk:
        raise TfaotError(
            "the model draws random numbers that XLA seeds anew in each run",
            exists="a Rng Seed Thunk in tfcompile's header",
            do="draw with tf.random or stablehlo.rng_bit_generator, whose seed is yours, or use TensorFlow 2.21",
        )

    def call(self, _: re.Match[str]) -> Call:
        body = self._sequence()
        self.need(_END)
        return Call(body)

    def for_loop(self, text: re.Match[str]) -> For:
        body = self._sequence()
        self.need(_FOR_END)
        return For(int(text["trips"]), body)

    def while_loop(self, _: re.Match[str]) -> While:
        condition = self._sequence()
        flag = _slice(self.need(_WHILE_TEST)["flag"])
        body = self._sequence()
        self.need(_WHILE_NEXT)
        if self._sequence() != condition:
            _contradicts("a loop computes its condition in two ways")
        self.need(_FOR_END)
        return While(flag, condition, body)

    def conditional(self, match: re.Match[str]) -> Conditional:
        index = _INDEX.fullmatch(match["index"])
        if not index or (index[1] == "bool") != bool(index["choice"]):
            _unknown(match["index"])
        branches = []
        for case in range(int(match["count"])):
            if int(self.need(_CASE)["case"]) != case:
                _contradicts(f"branch {case} of a conditional is missing")
            branches.append(self._sequence())
            self.need(_CASE_END)
        self.need(_CONDITIONAL_END)
        return Conditional(Slice(int(index[2]), int(index[3])), index[1] == "bool", tuple(branches))


def _kernel(match: re.Match[str]) -> Kernel:
    args = _split(match["args"], _KERNEL_ARG)
    if len(args) != int(match["count"]):
        _contradicts(f"{match['symbol']} has {len(args)} arguments and wants {match['count']}")
    return Kernel(
        match["symbol"],
        tuple(SizedSlice(Slice(int(arg[1]), int(arg[2])), int(arg[3])) for arg in args),
        (int(match["x"]), int(match["y"]), int(match["z"])),
    )


def _dot(match: re.Match[str]) -> Dot:
    return Dot(
        dtype=match["dtype"],
        batch=int(match["batch"]),
        out=_slice(match["out"]),
        lhs=_slice(match["lhs"]),
        rhs=_slice(match["rhs"]),
        strides=(int(match["out_step"]), int(match["lhs_step"]), int(match["rhs_step"])),
        m=int(match["m"]),
        n=int(match["n"]),
        k=int(match["k"]),
        transpose_lhs=match["transpose_lhs"] == "true",
        transpose_rhs=match["transpose_rhs"] == "true",
    )


def _convolution(match: re.Match[str]) -> Convolution:
    sizes = _numbers(match["sizes"])
    if len(sizes) != 21:
        _contradicts(f"a convolution has {len(sizes)} sizes, not 21")
    return Convolution(
        dtype=match["dtype"],
        out=_slice(match["out"]),
        input=_slice(match["input"]),
        kernel=_slice(match["kernel"]),
        batch=sizes[0],
        input_size=(sizes[1], sizes[2]),
        input_channels=sizes[3],
        kernel_size=(sizes[4], sizes[5]),
        kernel_channels=sizes[6],
        filters=sizes[7],
        output_size=(sizes[8], sizes[9]),
        stride=(sizes[10], sizes[11]),
        padding_before=(sizes[12], sizes[14]),
        padding_after=(sizes[13], sizes[15]),
        input_dilation=(sizes[16], sizes[17]),
        kernel_dilation=(sizes[18], sizes[19]),
        groups=sizes[20],
    )


def _sort(match: re.Match[str]) -> Sort:
    values = _split(match["values"], _SORT_VALUE)
    sizes = _numbers(match["value_sizes"])
    if len(values) != len(sizes):
        _contradicts(f"a sort has {len(values)} buffers and {len(sizes)} sizes of values")
    return Sort(
        match["comparator"],
        tuple(Slice(int(value[1]), int(value[2])) for value in values),
        sizes,
        (int(match["higher"]), int(match["elements"]), int(match["lower"])),
        match["stable"] == "true",
    )


def _copy(text: re.Match[str]) -> Copy:
    return Copy(_slice(text["out"]), _slice(text["input"]), int(text["size"]))


def _top_k(text: re.Match[str]) -> TopK:
    values, out_values, out_indices = (_slice(text[name]) for name in ("values", "out_values", "out_indices"))
    return TopK(int(text["batch"]), int(text["size"]), int(text["k"]), values, out_values, out_indices)


_READERS: dict[str, Callable[[_Reader, re.Match[str]], Thunk]] = {
    "Kernel": lambda _, text: _kernel(text),
    "Dot": lambda _, text: _dot(text),
    "Convolution": lambda _, text: _convolution(text),
    "Copy": lambda _, text: _copy(text),
    "Sort": lambda _, text: _sort(text),
    "TopK": lambda _, text: _top_k(text),
    "Rng": lambda _, text: Rng(int(text["state"]), _slice(text["out"])),
    "Rng Seed": _Reader.rng_seed,
    "Call": _Reader.call,
    "For Loop": _Reader.for_loop,
    "While Loop": _Reader.while_loop,
    "Conditional": _Reader.conditional,
}
"""What reads a thunk of each kind, from its match and what follows."""


def _split(text: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Splits a list whose items must all match one pattern."""
    matches = []
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if not match:
            _unknown(text[at:])
        matches.append(match)
        at = match.end()
        if at < len(text):
            if not text.startswith(", ", at):
                _unknown(text[at:])
            at += 2
    return matches


def _slice(text: str) -> Slice:
    match = _PTR.fullmatch(text)
    if not match:
        _unknown(text)
    return Slice(int(match[1]), int(match[2]))


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
