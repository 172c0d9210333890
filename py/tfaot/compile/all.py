"""The compile stage for a model whose functions only the manifest names: all of them, into folders."""

from __future__ import annotations

import dataclasses
import os

from tfaot.compile import compile as single
from tfaot.core import requests
from tfaot.core.functions import stem
from tfaot.core.manifest import Manifest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(single.GraphRequest):
    """What to compile, and the folders to write to. Files are named after entry points and batch sizes."""

    configs: str
    """A folder with `NAME.config.pbtxt` for each entry point, for all of its batch sizes."""
    out_objects: str
    """For the kernels of each level, and the constants."""
    out_headers: str
    out_sources: tuple[str, ...]
    """For the executors, a folder for each level."""
    out_descriptions: str
    """For JSON and HLO."""
    out_fingerprint_source: str
    """A file: the fingerprint is the same for all functions."""


def compile_all(request: Request) -> None:
    """Compiles each entry point, at each of its batch sizes, in a child process.

    Raises:
      TfaotError: the CPU or a flag is unknown, or the compiler refuses a graph.
    """
    with open(request.manifest, encoding="utf-8") as file:
        manifest = Manifest.from_json(file.read(), path=request.manifest)
    for folder in (request.out_objects, request.out_headers, request.out_descriptions, *request.out_sources):
        os.makedirs(folder, exist_ok=True)
    shared = {name: getattr(request, name) for name in requests.names(single.GraphRequest)}
    failed: dict[str, str] = {}
    compiled = [(entry, *variant) for entry in manifest.entry_points for variant in entry.variants]
    for index, (entry, batch, buckets) in enumerate(compiled):
        name = stem(entry.name, batch, buckets)
        described = os.path.join(request.out_descriptions, name)
        failed |= single.compile_one(
            single.Request(
                **shared,
                config=os.path.join(request.configs, f"{entry.name}.config.pbtxt"),
                out_objects=tuple(os.path.join(request.out_objects, f"{name}.{isa}.kernels.o") for isa in request.cpu),
                out_constants=os.path.join(request.out_objects, f"{name}.constants.o"),
                out_header=os.path.join(request.out_headers, f"{name}.executor.h"),
                out_sources=tuple(os.path.join(folder, f"{name}.executor.cc") for folder in request.out_sources),
                out_hlo=f"{described}.hlo_snapshot.pb",
                out_fingerprint=f"{described}.fingerprint.json",
                out_fingerprint_source=request.out_fingerprint_source if index == 0 else f"{described}.fingerprint.S",
                entry_point=entry.name,
                batch=batch,
                buckets=buckets,
                out_passes=f"{described}.passes.json",
            )
        )
    single.warn(failed)
