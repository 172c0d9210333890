"""Which parts of XLA's CPU runtime a compiled model calls.

The header that tfcompile writes calls into C++ that the wheel ships as source. A model compiles the parts that it calls, and only
those: each costs from three seconds to a minute. For matrix products and convolutions of common types, kernels of our own define
the same symbols (docs/kernels.md). The targets of the same names are in tools/runtime/targets.bzl.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .errors import TfaotError, listed

# What must come before any header of XLA or abseil: XLA's use std::string without its header, and gcc 12 wants the whole of
# immintrin.h before abseil includes a piece of it.
PRELUDE = """\
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
"""

_CPU = "xla/backends/cpu/runtime/"
# Sources of ours, which need nothing of Eigen.
_OWN = "tfaot/kernels/"


@dataclass(frozen=True)
class RuntimePart:
    """One piece of the runtime, compiled as one translation unit."""

    name: str
    # The .cc files, as they are included; none if all lies in a header.
    sources: tuple[str, ...]
    # The part is needed if tfcompile's header has any of these in it.
    needed_when: tuple[str, ...]
    # Parts that this one calls.
    requires: tuple[str, ...] = ()
    # Macros that this part needs defined, and with it all parts of the same model.
    defines: tuple[str, ...] = ()

    def stub(self) -> str:
        """Returns the translation unit that compiles this part, or nothing if there is nothing to compile."""
        if not self.sources:
            return ""
        defines = [f"#define {define}" for define in self.defines]
        includes = [f'#include "{source}"' for source in self.sources]
        return PRELUDE + "\n".join([*defines, *includes, ""])


def _dot(name: str, types: str, folder: str = _CPU) -> RuntimePart:
    return RuntimePart(
        name=f"dot_lib_{name}",
        sources=(f"{folder}dot_lib_{name}.cc",),
        needed_when=(f"::xla::cpu::internal::TypedMatMul<{types}>",),
    )


def _convolution(name: str, function: str) -> RuntimePart:
    return RuntimePart(
        name=f"convolution_lib_{name}",
        sources=(f"{_CPU}convolution_lib_{name}.cc",),
        needed_when=(f"xla::cpu::internal::{function}",),
        requires=("async_value",),
        # gcc 12 fails on Eigen's own AVX-512 kernels here.
        defines=("EIGEN_USE_AVX512_GEMM_KERNELS 0",),
    )


PARTS: tuple[RuntimePart, ...] = (
    RuntimePart(
        name="base",
        sources=(
            "tensorflow/compiler/tf2xla/allocator.cc",
            "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
            "xla/executable_run_options.cc",
            f"{_CPU}rng_state_lib.cc",
        ),
        needed_when=('#include "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.h"',),
    ),
    _dot("c128", "std::complex<double>, std::complex<double>, std::complex<double>"),
    _dot("c64", "std::complex<float>, std::complex<float>, std::complex<float>"),
    _dot("f16", "Eigen::half, Eigen::half, Eigen::half"),
    _dot("f32", "float, float, float", _OWN),
    _dot("f64", "double, double, double", _OWN),
    _dot("s32", "int32_t, int32_t, int32_t", _OWN),
    _dot("s8", "int8_t, int8_t, int32_t"),
    _convolution("f16_2d", "EigenConv2D<Eigen::half>"),
    _convolution("f16_3d", "EigenConv3D<Eigen::half>"),
    RuntimePart(
        name="convolution_lib_f32_2d",
        sources=(f"{_OWN}convolution_lib_f32_2d.cc",),
        needed_when=("xla::cpu::internal::EigenConv2D<float>",),
    ),
    _convolution("f32_3d", "EigenConv3D<float>"),
    RuntimePart(
        name="async_value",
        sources=("xla/tsl/concurrency/async_value.cc", "xla/tsl/concurrency/async_value_ref.cc"),
        needed_when=(),
    ),
    RuntimePart(
        name="sort_lib",
        sources=(f"{_CPU}sort_lib.cc",),
        needed_when=("xla::cpu::internal::SortInplace",),
    ),
    RuntimePart(name="topk_lib", sources=(), needed_when=("::xla::cpu::internal::TopK",)),
)

_BY_NAME: Mapping[str, RuntimePart] = {part.name: part for part in PARTS}

# Headers that tfcompile includes, of XLA and TensorFlow: the first two belong to parts that are found by their calls.
_KNOWN_HEADERS = frozenset(
    {
        f"{_CPU}convolution_lib.h",
        f"{_CPU}dot_lib.h",
        f"{_CPU}kernel_c_api.h",
        f"{_CPU}sort_lib.h",
        f"{_CPU}topk_lib.h",
        "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.h",
        "tensorflow/core/platform/types.h",
        "xla/types.h",
    }
)
_INCLUDE = re.compile(r'^#include "((?:tensorflow|tsl|xla)/[^"]+)"', re.MULTILINE)
# A call or an instantiation: tfcompile qualifies all that it calls in the runtime.
_CALL = re.compile(r"(?:::)?xla::cpu::internal::\w+(?:<[^()]*?>)?(?=\s*\()")


def parts_for(header_text: str) -> tuple[RuntimePart, ...]:
    """Returns the parts that a model calls, with all that they require, in the order of PARTS.

    Args:
      header_text: The header that tfcompile wrote.
    """
    unknown = [header for header in dict.fromkeys(_INCLUDE.findall(header_text)) if header not in _KNOWN_HEADERS]
    calls = dict.fromkeys(match[0] for match in _CALL.finditer(header_text))
    unknown += [
        call for call in calls if not any(sign.lstrip(":") in call for part in PARTS for sign in part.needed_when)
    ]
    if unknown:
        raise TfaotError(
            f"tfcompile's header uses parts of XLA's runtime that are not known here: {listed(unknown)}",
            exists=listed([part.name for part in PARTS], limit=len(PARTS)),
            do="use the TensorFlow that tools/python/requirements.lock names, or add the part to py/tfaot/runtime_parts.py "
            "and tools/runtime/targets.bzl",
        )
    needed = {part.name for part in PARTS if any(sign in header_text for sign in part.needed_when)}
    needed |= {required for name in needed for required in _BY_NAME[name].requires}
    if "base" not in needed:
        raise TfaotError(
            "the text is no header that tfcompile wrote: it does not include xla_compiled_cpu_function.h",
            do="pass the file that tfcompile wrote as out_header",
        )
    parts = [part for part in PARTS if part.name in needed]
    # Inline functions of Eigen that two parts share must be the same in both, so their macros must be.
    defines = tuple(dict.fromkeys(define for part in parts for define in part.defines))
    return tuple(replace(part, defines=defines) for part in parts)
