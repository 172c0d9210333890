"""Fourier transforms of the runtime beside ducc0, the library of TensorFlow, JAX, and SciPy, on one core.

    python3 benchmarks/fourier.py [--level x86-64-v4]

It compiles both with the same flags, in an environment with TensorFlow, and prints the table of docs/measured/kernels.md: the
least time of each of interleaved rounds, and ducc's as a multiple of it.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "py")]

from tests.compile.program import fourier_test  # noqa: E402
from tests.stages.native import LEVELS  # noqa: E402
from tfaot.compile.program.thunks.fourier_plan import along  # noqa: E402
from tfaot.core.isa import TARGETS  # noqa: E402

LENGTHS = (64, 100, 127, 128, 256, 384, 512, 625, 1000, 1021, 1024, 1536, 2048, 2187, 4096, 4099, 12288, 16384, 65536)
ROUNDS = 9

DUCC = """
#define DUCC0_NO_LOWLEVEL_THREADING
#include <vector>
#include "ducc0/fft/fft1d_impl.h"

namespace ducc0::detail_threading {
struct One : Scheduler {
  explicit One(size_t count) : count(count) {}
  size_t num_threads() const override { return 1; }
  size_t thread_num() const override { return 0; }
  Range getNext() override {
    const Range range = done ? Range() : Range(0, count);
    done = true;
    return range;
  }
  size_t count;
  bool done = false;
};
void execStatic(size_t count, size_t, size_t, std::function<void(Scheduler&)> run) {
  One one(count);
  run(one);
}
}  // namespace ducc0::detail_threading

template <typename Plan, typename Value, typename T>
void Repeat(size_t length, int count) {
  static Plan* plan = nullptr;
  static size_t planned = 0;
  if (planned != length) plan = new Plan(planned = length);
  static std::vector<Value> values, room;
  values.resize(length);
  room.resize(plan->bufsize());
  for (int i = 0; i < count; ++i) plan->exec_copyback(values.data(), room.data(), T(1), true);
}

extern "C" void Ducc(int bytes, int real, size_t length, int count) {
  using namespace ducc0;
  using namespace detail_fft;
  if (bytes == 4 && real) return Repeat<pocketfft_r<float>, float, float>(length, count);
  if (bytes == 4) return Repeat<pocketfft_c<float>, Cmplx<float>, float>(length, count);
  if (real) return Repeat<pocketfft_r<double>, double, double>(length, count);
  Repeat<pocketfft_c<double>, Cmplx<double>, double>(length, count);
}
"""
TIMED = """
#include <time.h>

static double Now() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

extern "C" void Ducc(int bytes, int real, size_t length, int count);

extern "C" void Times(int bytes, int kind, int inverse, int method, int lanes, const long* sizes, double scale, int stages,
                      const unsigned char* radices, const void* roots, void* scratch, void* data, int count, double* times) {
  const double start = Now();
  for (int i = 0; i < count; ++i) {
    Run(bytes, kind, inverse, method, lanes, sizes, scale, stages, radices, roots, scratch, data);
  }
  const double middle = Now();
  Ducc(bytes, kind, sizes[1], count);
  times[0] = (middle - start) / count;
  times[1] = (Now() - middle) / count;
}
"""


SOURCES = "".join(f'#include "tfaot/kernels/fourier_{dtype}.cc"\n' for dtype in ("f32", "f64"))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="x86-64-v3", choices=sorted(LEVELS), help="the CPU level")
    level = parser.parse_args().level
    import tensorflow as tf

    ducc = Path(tf.sysconfig.get_include()) / "external/ducc"
    with tempfile.TemporaryDirectory() as folder:
        flags = ["c++", "-std=c++17", "-O3", f"-march={level}", "-shared", "-fPIC", "-w"]
        for name, source in (("ducc", DUCC), ("run", SOURCES + fourier_test.POOL + fourier_test.SOURCE + TIMED)):
            (Path(folder) / f"{name}.cc").write_text(source)
        includes = [f"-I{ROOT}/runtime", f"-I{ducc}/src", f"-I{ducc}"]
        library = f"{folder}/run.so"
        subprocess.check_call([*flags, *includes, f"{folder}/ducc.cc", "-c", "-o", f"{folder}/ducc.o"])
        subprocess.check_call(
            [*flags, "-ffp-contract=off", *includes, f"{folder}/run.cc", f"{folder}/ducc.o", "-o", library]
        )
        times = ctypes.CDLL(library).Times
    columns = [f"{kind} | / ducc0" for kind in ("float32, µs", "real, µs", "float64, µs", "real, µs")]
    print(f"| length | {' | '.join(columns)} |\n" + "|---" * 9 + "|")
    for length in LENGTHS:
        cells = [
            f"{1e6 * ours:.2f} | {theirs / ours:.2f}"
            for dtype in (np.float32, np.float64)
            for real in (False, True)
            for ours, theirs in [measured(times, level, length, np.dtype(dtype), real=real)]
        ]
        print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


def measured(
    times: ctypes._NamedFuncPointer, level: str, length: int, dtype: np.dtype[Any], *, real: bool
) -> tuple[float, float]:
    """Returns the seconds that one transform takes here and in ducc0."""
    size = dtype.itemsize
    (plan,) = along(
        "RealToComplex" if real else "Complex", False, 1, [length], TARGETS[level].vector_bytes // size, size
    )
    memory = [fourier_test.guarded(count, dtype) for count in (plan.roots().size, plan.scratch, 2 * plan.values)]
    memory[0][fourier_test.GUARD : -fourier_test.GUARD] = plan.roots()
    memory[2][:] = 0
    best = [1.0, 1.0]
    for _ in range(ROUNDS):
        results = (ctypes.c_double * 2)()
        times(
            size,
            int(real),
            0,
            fourier_test.METHODS.index(plan.method),
            plan.lanes,
            fourier_test.sizes_of(plan),
            ctypes.c_double(plan.scale),
            len(plan.radices),
            (ctypes.c_ubyte * len(plan.radices))(*plan.radices),
            *(ctypes.c_void_p(part[fourier_test.GUARD :].ctypes.data) for part in memory),
            max(3, 200_000 // length),
            results,
        )
        best = [min(pair) for pair in zip(best, results, strict=True)]
    return best[0], best[1]


if __name__ == "__main__":
    main()
