"""The bundle: one archive that lets compiler authors test their compiler without TensorFlow or these rules.

It is byte-identical wherever it is packed: the files are in order of their names, without times and owners.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import tarfile

from tfaot.core import drawn, safetensors, version
from tfaot.core.manifest import Manifest, Tensor
from tfaot.hlo import hlo


@dataclasses.dataclass(frozen=True)
class Request:
    """What to pack, and where to write it."""

    name: str
    """The model's name. The archive has one folder of this name, with slashes replaced."""
    goldens: str
    manifest: str
    variables: str
    hlo: str
    hlo_text: str
    optimized_hlo: str
    drawing: str
    text: str
    """StableHLO."""
    bytecode: str
    replay: str
    """`replay.py`."""
    out_archive: str


FILES = {
    "goldens": "goldens.safetensors",
    "manifest": "model.json",
    "variables": "variables.safetensors",
    "hlo": "module.hlo.pb",
    "hlo_text": "module.hlo.txt",
    "optimized_hlo": "module.optimized_hlo.txt",
    "drawing": "module.hlo.dot",
    "text": "module.stablehlo.mlir",
    "bytecode": "module.stablehlo.mlirbc",
    "replay": "replay.py",
}
"""The names in the folder of a request's files."""


def pack(request: Request) -> None:
    """Writes the archive: the given files, a README, a VERSION, and checksums."""
    contents = {}
    for field, name in FILES.items():
        with open(getattr(request, field), "rb") as file:
            contents[name] = file.read()
    manifest = Manifest.from_json(contents["model.json"].decode(), path="model.json")
    goldens = io.BytesIO()
    safetensors.write(goldens, drawn.filled(manifest, safetensors.read(request.goldens)))
    contents["goldens.safetensors"] = goldens.getvalue()
    contents["README.md"] = readme(request.name, manifest).encode()
    contents["VERSION"] = stamp(manifest).encode()
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(contents.items())]
    contents["SHA256SUMS"] = "".join(sums).encode()
    folder = request.name.replace("/", "_")
    with (
        open(request.out_archive, "wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(contents.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            entry.mode = 0o755 if name.endswith(".py") else 0o644
            archive.addfile(entry, io.BytesIO(data))


def stamp(manifest: Manifest) -> str:
    """Describes what made the bundle, in `key: value` lines."""
    return (
        f"rules_tfaot: {version.RULES}\n"
        f"tensorflow: {manifest.tensorflow}\n"
        f"graph: {manifest.fingerprints.graph}\n"
        f"shapes: {manifest.fingerprints.shapes}\n"
        f"constants: {manifest.fingerprints.constants}\n"
        f"config: {manifest.fingerprints.config}\n"
    )


def readme(name: str, manifest: Manifest) -> str:
    """Describes what is in the bundle and how to use it."""

    def table(rows: list[tuple[str, Tensor]]) -> str:
        lines = [
            f"| {index} | {role} | `{tensor.cpp_name}` | `{tensor.name}` | {tensor.dtype}{list(tensor.shape)} |"
            for index, (role, tensor) in enumerate(rows)
        ]
        return "\n".join(["| # | role | name | TensorFlow's name | type |", "|---|---|---|---|---|", *lines])

    return _README.format(
        name=name,
        parameters=table(hlo.parameters(manifest)),
        results=table(hlo.results(manifest)),
        steps=len(manifest.calls),
        tensorflow=manifest.tensorflow,
        version=version.RULES,
    )


_README = """\
# {name}

A TensorFlow model as HLO, with TensorFlow's own numbers for it.
Made by rules_tfaot {version} with TensorFlow {tensorflow}.

| file | what it is |
|---|---|
| `module.hlo.pb` | `xla.HloModuleProto`, before optimization |
| `module.hlo.txt` | the same as text |
| `module.hlo.dot` | the same as a graph: `dot -Tsvg module.hlo.dot -o module.svg` draws it |
| `module.optimized_hlo.txt` | after XLA's optimization for x86-64 CPUs, to read; not portable |
| `module.stablehlo.mlir` | the program as StableHLO text |
| `module.stablehlo.mlirbc` | the same as a portable artifact, which StableHLO's compatibility guarantee covers |
| `model.json` | names, dtypes, shapes, and order of inputs, outputs, and variables |
| `variables.safetensors` | initial values of the variables, by TensorFlow's name |
| `goldens.safetensors` | for each of {steps} steps, the inputs, the expected values, and their tolerances |
| `replay.py` | runs all steps of the program with JAX, and compares the results |
| `VERSION`, `SHA256SUMS` | what made this bundle, and checksums: `sha256sum -c SHA256SUMS` |

## Parameters
{parameters}

## Results
{results}

A written variable's result becomes its parameter of the next run, unless `goldens.safetensors` sets it.

## Replaying
```sh
python3 -m venv jax && jax/bin/pip install jax
jax/bin/python replay.py
```

JAX 0.6 to 0.11 are known to work. On a GPU, install `jax[cuda12]` and add `--platform gpu`. For other flags, see `--help`.
The exit status is 0 only if all differences are tolerated.

## The numbers
`goldens.safetensors` contains these tensors:

- `stepN/NAME` is an input or a result in step N. Complex results are stored as pairs of reals.
- `stepN/NAME/tolerance` is the largest absolute difference that each value of the result may have.
- `stepN/NAME/before` is the value that a written variable is set to before the step.
- `stepN/NAME/sees` has two numbers: by how many tolerances half of the result's values move if the inputs or weights of the
  model change, and for how many values a wrong one would be noticed.
- `unverified` is text: a line for each output or variable of which most values could be wrong without being noticed.
- `initial/NAME` is the CRC-32 of a variable's initial value.

If a result has more than 16384 values, `stepN/NAME` contains 1024 samples: sample i is the value at `i * size // 1024` in
row-major order. `stepN/NAME/blocks` then contains sums of 64 consecutive values, with the signs from `block_sums` in
`replay.py`.

The tolerances come from the model itself: it ran in float64, and many more times with random float32 rounding errors after
each operation. A correct implementation may differ from TensorFlow by as much as these errors move a value.
"""
