"""The rules' side of stages: what Starlark passes to them, and which files it expects of them."""

from __future__ import annotations

import ast
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tfaot
from tfaot import starlark
from tfaot.cluster.request import Request as Cluster
from tfaot.compile.all import Request as CompileAll
from tfaot.compile.compile import Request as Compile
from tfaot.core import requests
from tfaot.core.naming import Request as Name
from tfaot.export.request import ModelRequest
from tfaot.export.request import Request as Export
from tfaot.hlo.bundle import Request as Bundle
from tfaot.hlo.hlo import Request as Hlo
from tfaot.hlo.stablehlo import Request as Stablehlo
from tfaot.pack.package import Request as Package
from tfaot.page.page import Request as Page
from tfaot.preflight.run import Request as Report
from tfaot.render.render import Request as Render
from tfaot.verify.request import Request as Verify

ROOT = Path(tfaot.__file__).parents[2]
FILES = starlark.execute(ROOT, "rules/private/files.bzl")
STAGES = {
    "Bundle": (Bundle,),
    "Cluster": (Cluster,),
    "Compile": (Compile, CompileAll),
    "Export": (Export,),
    "Hlo": (Hlo,),
    "Name": (Name,),
    "Package": (Package,),
    "Page": (Page,),
    "Render": (Render,),
    "Report": (Report,),
    "Stablehlo": (Stablehlo,),
    "Verify": (Verify,),
}
"""The requests of an action, by its mnemonic without Tfaot."""


def jax_fields() -> set[str]:
    """Returns the fields of the request of JAX's stage, whose module imports JAX."""
    tree = ast.parse((ROOT / "py/tfaot/jax/file.py").read_text(encoding="utf-8"))
    (request,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Request")
    return {
        node.target.id for node in request.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def outputs(kind: type[Any]) -> set[str]:
    """Returns the fields for files that a stage writes, without `out_`."""
    return {name.removeprefix("out_") for name in requests.names(kind) if name.startswith("out_")}


def actions() -> Iterator[tuple[str, set[str]]]:
    """Yields the mnemonic of each `run_stage` in the rules, and the fields that stand in its `request`."""
    for file in sorted((ROOT / "rules/private").glob("*.bzl")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run_stage":
                keywords = {str(keyword.arg): keyword.value for keyword in node.keywords}
                dicts = [part for part in ast.walk(keywords["request"]) if isinstance(part, ast.Dict)]
                fields = {key.value for part in dicts[:1] for key in part.keys if isinstance(key, ast.Constant)}
                yield ast.literal_eval(keywords["mnemonic"]).removeprefix("Tfaot"), fields


class RequestsTest(unittest.TestCase):
    """Starlark and Python have the same names."""

    def test_files(self) -> None:
        """Protects both callers of a stage, Bazel and the command: the table of its files has what its request writes."""
        for kind, tables in (
            (Bundle, ["BUNDLE"]),
            (Compile, ["COMPILE", "COMPILE_LEVEL"]),
            (Hlo, ["HLO"]),
            (Name, ["NAME"]),
            (Render, ["RENDER"]),
            (Stablehlo, ["STABLEHLO"]),
            (Verify, ["VERIFY"]),
        ):
            self.assertEqual({name for table in tables for name in FILES[table]}, outputs(kind), tables)
        self.assertEqual({*FILES["EXPORT"], "configs"}, outputs(Export))
        self.assertLess({*FILES["NAME"]}, {*FILES["EXPORT"]})

    def test_reads(self) -> None:
        """Protects the same on the other side: what a stage reads of export is a field, and export makes it."""
        for stage, names in FILES["READS"].items():
            self.assertLessEqual({*names}, {*requests.names(STAGES[stage.capitalize()][0])} & {*FILES["EXPORT"]})

    def test_model(self) -> None:
        """Protects a model's description: each attribute that the rules pass on under its own name is a field."""
        self.assertLessEqual({*FILES["MODEL"]}, {*requests.names(ModelRequest)})
        own = {*FILES["MODEL_EXPORT"], *(f"weights_{key}" for key in FILES["WEIGHTS"])}
        self.assertLessEqual(own, {*requests.names(Export)})

    def test_actions(self) -> None:
        """Protects builds from a name that a stage refuses: what a rule passes to it are fields of its request."""
        found = list(actions())
        accepted = {mnemonic: [{*requests.names(kind)} for kind in kinds] for mnemonic, kinds in STAGES.items()}
        accepted["Jax"] = [jax_fields()]
        self.assertEqual({mnemonic for mnemonic, _ in found}, {*accepted})
        for mnemonic, fields in found:
            self.assertTrue(any(fields <= names for names in accepted[mnemonic]), (mnemonic, fields))


if __name__ == "__main__":
    unittest.main()
