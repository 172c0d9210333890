"""A build of a model, as its output files describe it."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from tensorflow.core.framework import graph_pb2

from tfaot.core import functions, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.core.fingerprint import Stamp
from tfaot.core.manifest import Manifest
from tfaot.graph import structure

Array = npt.NDArray[Any]

_MANIFEST = ".model.json"


@dataclasses.dataclass(frozen=True)
class Build:
    """What the export and compile stages made of a model."""

    name: str
    """What the user calls it: a label, a path, or a commit."""
    manifest: Manifest
    graph: graph_pb2.GraphDef
    sources: Mapping[str, str]
    """`file:line` by node, or by `function/node` inside functions."""
    weights: Mapping[str, Array]
    """The initial values of variables, by name."""
    stamp: Stamp | None
    """What the compile stage adds; None if it hasn't run."""

    @functools.cached_property
    def structure(self) -> structure.Structure:
        """The graph, independent of names."""
        runs = [(entry.feeds, entry.fetches) for entry in self.manifest.entry_points]
        return structure.structure(self.graph, runs, [variable.name for variable in self.manifest.variables])

    @property
    def components(self) -> dict[str, str]:
        """The components of the fingerprint that are known, by name."""
        if self.stamp:
            return dataclasses.asdict(self.stamp.components)
        prints = self.manifest.fingerprints
        return {name: getattr(prints, name) for name in ("graph", "shapes", "constants", "config")}

    def shown(self, node: str) -> str:
        """Returns a node's name, and its line if that is known."""
        # Nodes that the export stage adds are named after the user's.
        names = (node, node.removesuffix("/stored"), node.partition("/random/")[0])
        place = next((self.sources[name] for name in names if name in self.sources), "")
        return f"'{node}'" + (f" at {place}" if place else "")


def read(path: str, name: str) -> Build:
    """Reads a manifest, and the other files of the build, which are next to it.

    Args:
      path: `NAME.model.json`.
      name: what the user calls the build.

    Raises:
      TfaotError: the file isn't a manifest, or the graph isn't next to it.
    """
    stem = path.removesuffix(_MANIFEST)
    if stem == path or not os.path.isfile(path):
        raise TfaotError(
            f"{path} isn't the manifest of a build",
            exists="no such file" if not os.path.exists(path) else f"a manifest's name ends in {_MANIFEST}",
            do="name a tf_aot_library, or the file NAME.model.json of its output group explain",
        )
    manifest = Manifest.from_json(_text(path), path=path)
    graph = graph_pb2.GraphDef()
    if not os.path.isfile(stem + ".pb"):
        raise TfaotError(
            f"{path}: the graph of this build is missing",
            exists=listed(
                sorted(file for file in os.listdir(os.path.dirname(path) or ".") if not file.startswith("."))
            ),
            do=f"put {os.path.basename(stem)}.pb next to the manifest; the output group explain has both",
        )
    with open(stem + ".pb", "rb") as file:
        graph.ParseFromString(file.read())
    sources, weights = stem + ".sources.json", stem + ".variables.safetensors"
    # Each function has a stamp, under the name that the rules give its files, and all are the same.
    entry = manifest.entry_points[0]
    function = functions.stem(f".{entry.name}" if len(manifest.entry_points) > 1 else "", *entry.variants[0])
    stamp = f"{stem}{function}.fingerprint.json"
    return Build(
        name,
        manifest,
        graph,
        json.loads(_text(sources)) if os.path.isfile(sources) else {},
        safetensors.read(weights) if os.path.isfile(weights) else {},
        Stamp.from_json(_text(stamp), path=stamp) if os.path.isfile(stamp) else None,
    )


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
