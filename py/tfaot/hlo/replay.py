"""Runs a bundle's HLO in a compiler other than tfcompile, and compares the results with TensorFlow's numbers.

    python3 replay.py [BUNDLE] [--platform cpu|gpu] [--module hlo|stablehlo|bytecode]

BUNDLE is a .tar.gz, or the folder that it was unpacked to. By default, it is this script's folder. The script needs NumPy
and JAX (`pip install jax`, or `pip install jax[cuda12]` for `--platform gpu`; 0.6 to 0.11 are known to work), but not
rules_tfaot or TensorFlow.

It runs all steps, feeds the written variables of each step to the next, and compares every output and written variable.
The exit status is 0 if all differences are tolerated, 1 if one isn't, 2 if the bundle or the platform can't be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MODULES = {"hlo": "module.hlo.pb", "stablehlo": "module.stablehlo.mlir", "bytecode": "module.stablehlo.mlirbc"}
"""The three forms of the program, by the flag's value."""

MANIFEST_FORMAT = 5

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "C64": "complex64",
    "C128": "complex128",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""NumPy names of safetensors dtypes. ml_dtypes, which JAX requires, provides those that NumPy itself lacks."""


class Unusable(Exception):
    """Explains why no comparison is possible."""


class Bundle:
    """The files in a bundle, and their contents."""

    def __init__(self, path: str) -> None:
        """Opens an archive or a folder.

        Raises:
          Unusable: it is neither, lacks a file, or has another format.
        """
        self._path = path
        self._contents: dict[str, bytes] | None = None
        if not os.path.isdir(path):
            try:
                with tarfile.open(path) as archive:
                    files = ((member.name, archive.extractfile(member)) for member in archive)
                    self._contents = {os.path.basename(name): file.read() for name, file in files if file is not None}
            except (OSError, tarfile.TarError) as error:
                raise Unusable(f"{path} is neither a bundle nor a folder: {error}") from None
        manifest = json.loads(self.read("model.json"))
        if manifest["format"] != MANIFEST_FORMAT:
            raise Unusable(f"model.json has format {manifest['format']}, but this script reads {MANIFEST_FORMAT}")
        self.name: str = os.path.basename(os.path.abspath(path)).removesuffix(".bundle.tar.gz")
        self.steps: int = len(manifest["calls"])
        self.inputs: list[dict[str, Any]] = manifest["entry_points"][0]["inputs"]
        self.outputs: list[dict[str, Any]] = manifest["entry_points"][0]["outputs"]
        self.variables: list[dict[str, Any]] = manifest["variables"]
        if bounded := [output["cpp_name"] for output in self.outputs if output["size"]]:
            raise Unusable(f"can't replay results whose size is known only at run time: {', '.join(bounded)}")
        self.goldens = read_safetensors(self.read("goldens.safetensors"))
        self.initial = read_safetensors(self.read("variables.safetensors"))

    def read(self, name: str) -> bytes:
        """Returns a file's contents.

        Raises:
          Unusable: there is no file with this name.
        """
        if self._contents is not None and name in self._contents:
            return self._contents[name]
        try:
            with open(os.path.join(self._path, name), "rb") as file:
                return file.read()
        except OSError:
            raise Unusable(f"{self._path} isn't a bundle: it has no {name}") from None


def read_safetensors(data: bytes) -> dict[str, Array]:
    """Reads tensors by name: eight bytes of length, a JSON header, then the values."""
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(data[begin:end], _numpy_dtype(entry["dtype"]))
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def _numpy_dtype(code: str) -> np.dtype[Any]:
    if code.startswith(("BF", "F8")):
        try:
            import ml_dtypes  # noqa: F401  (imported to be registered)
        except ImportError as error:
            raise Unusable(f"{error}: pip install jax") from None
    if code not in DTYPES:
        raise Unusable(f"dtype {code} isn't known; the known dtypes are {', '.join(DTYPES)}")
    return np.dtype(DTYPES[code])


@dataclasses.dataclass(frozen=True)
class Expected:
    """An array that a result must match, with a tolerance for each value."""

    part: str
    """The part of the result; empty for the whole result."""
    value: Array
    tolerance: Array
    sees: float
    """By how many tolerances a change to the model moves half of the values or more."""
    checked: float
    """For how many values a wrong one would fail. If there are none, the comparison is blind."""
    of: Callable[[Array], Array]
    """Extracts the same part from a result."""


SAMPLES, BLOCK = 1024, 64
"""For a large result, goldens keep this many samples, and sums over blocks of this size."""


def read_expected(goldens: dict[str, Array], step: int, name: str) -> Iterator[Expected]:
    """Yields what the goldens contain for one result: the whole result, or samples and sums."""
    key = f"step{step}/{name}"

    def golden(suffix: str, part: str, of: Callable[[Array], Array]) -> Expected:
        parts = [goldens[key + suffix + ending] for ending in ("", "/tolerance", "/sees")]
        sees, checked = map(float, parts[2])
        return Expected(part, parts[0], parts[1], sees, checked, of)

    if key + "/blocks" not in goldens:
        yield golden("", "", lambda value: value)
        return
    yield golden("", " (samples)", lambda value: value[(np.arange(SAMPLES) * value.size) // SAMPLES])
    yield golden("/blocks", " (block sums)", block_sums)


def block_sums(flat: Array) -> Array:
    """Returns sums of `BLOCK` consecutive values, with fixed, seemingly random signs: the top bit of i times 2^64/phi."""
    signs = (np.arange(flat.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63)
    padded = np.zeros(-(-flat.size // BLOCK) * BLOCK)
    padded[: flat.size] = np.where(signs, -1.0, 1.0) * flat
    sums: Array = padded.reshape(-1, BLOCK).cumsum(axis=1)[:, -1]  # this order matters for 64-bit integers
    return sums


@dataclasses.dataclass(frozen=True)
class Errors:
    """The largest errors of one comparison."""

    absolute: float
    ulp: float
    """The largest error in units in the last place of the expected value."""
    share: float
    """The largest error as a fraction of the value's tolerance."""
    at: int
    """The flat index of the largest share."""
    tolerated: bool


def compare(got: Array, want: Array, tolerance: Array) -> Errors:
    """Compares values. NaN equals NaN, and an infinity equals only itself. An infinite tolerance accepts anything."""
    if not want.size:
        return Errors(0.0, 0.0, 0.0, 0, True)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        accepted = (got == want) | np.isinf(tolerance)
        difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
        unit: Any = 1.0
        if want.dtype.kind not in "biu":
            accepted |= np.isnan(got) & np.isnan(want)
            unit = np.spacing(np.maximum(np.abs(want), _smallest_normal(want.dtype))).astype(np.float64)
        difference = np.where(accepted, 0.0, np.where(np.isnan(difference), np.inf, difference))
        share = np.where(difference == 0, 0.0, difference / tolerance.astype(np.float64))
    share = np.where(np.isnan(share), np.inf, share)
    at = int(share.argmax())
    bad = difference > tolerance
    return Errors(float(difference.max()), float((difference / unit).max()), float(share[at]), at, not bad.any())


def _smallest_normal(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.finfo(dtype).tiny
    import ml_dtypes

    return ml_dtypes.finfo(dtype).smallest_normal


def pairs(value: Array) -> Array:
    """Returns the values flattened, with complex numbers as pairs of reals."""
    flat = np.ascontiguousarray(value).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


class Program:
    """A module, compiled for one device."""

    def __init__(self, code: bytes, *, platform: str, tf32: bool) -> None:
        """Compiles the module.

        Args:
          code: a serialized HloModuleProto, or StableHLO as text or bytecode.
          platform: JAX's name for it.
          tf32: whether an accelerator may round the factors of matrix products.

        Raises:
          Unusable: JAX is too old, or has no such platform.
        """
        try:
            import jax
            import jax.extend.backend
            from jaxlib import xla_client
            from jaxlib._jax import mlir
        except ImportError as error:
            raise Unusable(f"{error}: pip install jax (0.6 to 0.11 are known to work)") from None
        jax.config.update("jax_enable_x64", True)
        try:
            client = jax.extend.backend.get_backend(platform)
        except RuntimeError as error:
            raise Unusable(f"JAX {jax.__version__} can't use the platform {platform!r}: {error}") from None
        self.device = client.local_devices()[0]
        self._jax = jax
        if not code.startswith((b"ML\xefR", b"//", b"module")):
            code = mlir.hlo_to_stablehlo(code)
        if not tf32:
            code = _with_full_precision(code)
        devices = xla_client.DeviceList((self.device,))
        self._executable: Any = client.compile_and_load(code, devices, xla_client.CompileOptions())

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        """Runs once, and returns the results."""
        buffers = [self._jax.device_put(value, self.device) for value in arguments]
        return [np.asarray(result) for result in self._executable.execute(buffers)]


def _with_full_precision(code: bytes) -> bytes:
    """Requests that no matrix product rounds its factors, as some accelerators do by default."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    def ask(operation: Any) -> Any:
        if operation.name in ("stablehlo.convolution", "stablehlo.dot", "stablehlo.dot_general"):
            highest = stablehlo.PrecisionAttr.get("HIGHEST")
            operation.attributes["precision_config"] = ir.ArrayAttr.get([highest, highest])
        return ir.WalkResult.ADVANCE

    with mlir.make_ir_context() as context:
        if b"StableHLO_v" in code[:64]:
            module = stablehlo.deserialize_portable_artifact(context, code)
        else:
            module = ir.Module.parse(code)
        module.operation.walk(ask)
        bytecode = io.BytesIO()
        module.operation.write_bytecode(bytecode)
        return bytecode.getvalue()


def main() -> int:
    """Parses the flags, replays the bundle, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument(
        "bundle", nargs="?", default=here, help="a .tar.gz file, or a folder; default: the folder of this script"
    )
    parser.add_argument("--platform", default="cpu", help="JAX's name: cpu, gpu, cuda, rocm, tpu; default: cpu")
    parser.add_argument("--module", action="append", choices=MODULES, help="may be repeated; default: all of them")
    parser.add_argument(
        "--tf32",
        action="store_true",
        help="let an accelerator round the factors of matrix products, as it does by default",
    )
    flags = parser.parse_args()
    try:
        bundle = Bundle(flags.bundle)
        failed = [replay(bundle, module, flags.platform, tf32=flags.tf32) for module in flags.module or MODULES]
    except Unusable as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    return 1 if any(failed) else 0


def replay(bundle: Bundle, module: str, platform: str, *, tf32: bool) -> int:
    """Runs one form of the program through all steps, prints a line per tensor, and returns how many failed."""
    program = Program(bundle.read(MODULES[module]), platform=platform, tf32=tf32)
    device = program.device
    print(f"{bundle.name}, {MODULES[module]} on {device.platform} ({device.device_kind}), against TensorFlow")
    print(f"{'step':<5} {'tensor':<44} {'max abs':>10} {'max ulp':>10} {'tolerance':>10} {'sees':>10} {'checked':>8}")
    compared = failed = blind = 0
    for variable in bundle.variables:
        compared += 1
        value = bundle.initial[variable["name"]]
        if zlib.crc32(value.reshape(-1).view(np.uint8).data) != bundle.goldens[f"initial/{variable['cpp_name']}"]:
            failed += 1
            print(f"      {variable['cpp_name']:<44} isn't TensorFlow's initial value  FAILED")
    values = dict(bundle.initial)
    written = [variable for variable in bundle.variables if variable["written"]]
    for step in range(bundle.steps):
        # Each step starts from TensorFlow's own variables, if the goldens contain them, and from those that callers set.
        values |= {
            v["name"]: bundle.goldens[key]
            for v in bundle.variables
            if (key := f"step{step}/{v['cpp_name']}/before") in bundle.goldens
        }
        inputs = [to_stored(bundle.goldens[f"step{step}/{tensor['cpp_name']}"], tensor) for tensor in bundle.inputs]
        results = program([*inputs, *(to_stored(values[v["name"]], v) for v in bundle.variables)])
        checked = [*bundle.outputs, *written]
        if len(results) != len(checked):
            raise Unusable(f"{MODULES[module]} returns {len(results)} results, but model.json names {len(checked)}")
        results = [from_stored(result, tensor) for tensor, result in zip(checked, results, strict=True)]
        for tensor, result in zip(checked, results, strict=True):
            if (str(result.dtype), list(result.shape)) != (tensor["dtype"], tensor["shape"]):
                raise Unusable(
                    f"{MODULES[module]} returns {result.dtype}{list(result.shape)} for {tensor['cpp_name']}, "
                    f"which model.json says is {tensor['dtype']}{tensor['shape']}"
                )
            for expected in read_expected(bundle.goldens, step, tensor["cpp_name"]):
                tolerated = _check(step, tensor["cpp_name"], result, expected)
                failed += not tolerated
                if tolerated and not expected.checked and expected.value.size:
                    blind += 1
                else:
                    compared += 1
        values |= {v["name"]: result for v, result in zip(written, results[len(bundle.outputs) :], strict=True)}
    for line in bytes(bundle.goldens["unverified"]).decode().splitlines():
        print(f"      {line:<44} NOT VERIFIED")
    print(f"{bundle.name}: {failed} of {compared} comparisons failed" + (f"; {blind} more are blind" if blind else ""))
    return failed


def to_stored(value: Array, tensor: Mapping[str, Any]) -> Array:
    """Returns a value's bits as the program takes them, if model.json says that it takes another dtype."""
    if tensor["stored"] == tensor["dtype"]:
        return value
    stored = np.dtype(tensor["stored"])
    parts = value.dtype.itemsize // stored.itemsize
    bits: Array = np.ascontiguousarray(value).reshape(-1).view(stored)
    return bits.reshape((*value.shape, *((parts,) if parts > 1 else ())))


def from_stored(value: Array, tensor: Mapping[str, Any]) -> Array:
    """Returns the value whose bits the program returns."""
    if tensor["stored"] == tensor["dtype"]:
        return value
    if tensor["dtype"] == "bfloat16":
        _numpy_dtype("BF16")  # registers it
    dtype = np.dtype(tensor["dtype"])
    shape = value.shape[:-1] if dtype.itemsize > value.dtype.itemsize else value.shape
    values: Array = np.ascontiguousarray(value).reshape(-1).view(dtype)
    return values.reshape(shape)


def _check(step: int, name: str, result: Array, expected: Expected) -> bool:
    """Compares, prints a line, and returns whether the differences are tolerated."""
    got, want, tolerance = expected.of(pairs(result)), pairs(expected.value), expected.tolerance.reshape(-1)
    errors = compare(got, want, tolerance)
    blind = not expected.checked and want.size > 0
    share = 100 * expected.checked / max(want.size, 1) if want.size else 100
    print(
        f"{step:<5} {name + expected.part:<44} {errors.absolute:>10.3g} {errors.ulp:>10.3g} {100 * errors.share:>9.3g}% "
        f"{expected.sees:>10.3g} {share:>7.4g}%{'  FAILED' if not errors.tolerated else '  BLIND' if blind else ''}"
    )
    if not errors.tolerated:
        at = errors.at
        print(f"      at index {at}: got {got[at]:.9g}, expected {want[at]:.9g} +- {tolerance[at]:.3g}")
    return errors.tolerated


if __name__ == "__main__":
    sys.exit(main())
