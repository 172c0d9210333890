"""A build of a model, stage by stage, in a folder of its own. The rules in `rules/private/` do the same in Bazel."""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfaot import starlark
from tfaot.command import cxx, options
from tfaot.command.files import RULES
from tfaot.command.objects import Objects, kept_in
from tfaot.command.stages import Stages
from tfaot.core import pass_names
from tfaot.core.errors import TfaotError, listed
from tfaot.core.functions import sizes_of
from tfaot.pack import kernels, package

_FILES = types.SimpleNamespace(**starlark.execute(RULES, "rules/private/files.bzl"))
_LIBRARY_ONLY = {"cpp_class": "hlo::Model"}
"""Values of what `tf_aot_hlo` hasn't."""
_ALSO_EXPORT = ("config", "cpp_class", "golden_steps", "weights")
"""Attributes that are fields of the export stage's request, besides those in the tables."""
_NOTICES = ("LICENSE", "NOTICE")


class Build:
    """A model, its attributes, and the files that the stages make of it."""

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        name: str,
        header_folder: str,
        folder: Path,
        stages: Stages,
        step: Callable[[str], None],
        platform: str | None = None,
    ) -> None:
        """Checks the attributes.

        Args:
          values: attributes of `tf_model` and `tf_aot_library`, by name.
          name: the name of the library.
          header_folder: the folder in the header's path, or nothing.
          folder: where to put files.
          stages: runs stages.
          step: called before each step with what it does.
          platform: what to compile for, one of `PLATFORMS` in `runtime/copts.bzl`. By default, this machine's.

        Raises:
          TfaotError: attributes contradict each other.
        """
        self._values = {**_LIBRARY_ONLY, **values}
        self._name = name
        self._prefix = f"{header_folder.strip('/')}/" if header_folder.strip("/") else ""
        self._root = folder
        self._stages = stages
        self.step = step
        self._kind = options.kind_of(self._values["source"], self._values["framework"])
        options.check(self._values, self._kind)
        self.levels = levels(self._values, platform or cxx.HERE)
        """The CPU levels, lowest first."""
        self._platform = _platforms()[platform or cxx.HERE]
        (folder / self._prefix).mkdir(parents=True, exist_ok=True)
        self._rules = types.SimpleNamespace(**starlark.execute(RULES, "runtime/package.bzl"))

    @property
    def cpp_class(self) -> str:
        """The generated class, with its namespaces."""
        return str(self._values["cpp_class"])

    @property
    def entries(self) -> list[Any]:
        """The entry points: `stem` of their files, and `entry_point`."""
        return list(_FILES.entries_of(self._entry_points, self._name))

    @property
    def functions(self) -> list[Any]:
        """The same for each batch size and product of buckets: what one run of the compiler makes."""
        sizes = (self._values["sizes"] or {}).values()
        buckets = [[int(bucket) for bucket in text.split(",") if bucket.isdigit()] for text in sizes]
        return list(_FILES.functions_of(self._entry_points, self._values["batch_sizes"] or [], buckets, self._name))

    @property
    def header(self) -> str:
        """The path by which programs include the class's header."""
        return f"{self._prefix}{self._name}.h"

    def path(self, ending: str, stem: str | None = None) -> str:
        """Returns the path of a file in the build's folder."""
        return str(self._root / self._prefix / ((stem or self._name) + ending))

    def check_flags(self, tools: cxx.Tools) -> None:
        """Compiles and links an empty program, and looks for the passes, to find wrong flags before the stages run.

        Raises:
          TfaotError: the compiler refuses copts or linkopts, or there is no such pass.
        """
        pass_names.chosen(self._values["passes"])
        copts, linkopts = self._values["copts"], self._values["linkopts"]
        if (copts or linkopts) and self._platform.tested:
            source = self._root / "empty.cc"
            source.write_text("int main() {}\n")
            flags = [*self._rules.package_copts(list(copts)), str(source), *linkopts, "-pthread", "-o"]
            what = f"an empty program with the copts {listed(copts)} and the linkopts {listed(linkopts)}"
            cxx.run([*tools.compiler, *flags, str(self._root / "empty")], what=what)

    def export(self, *, edge: str = "cpp") -> None:
        """Runs the export stage."""
        if self._values["framework"] == "jax":
            self.step("exporting it from JAX")
            names = ("entry_points", "golden_calls", "golden_steps", "replicas", "sizes", "state")
            wanted = {name: self._values[name] for name in names}
            wanted = {name: value for name, value in wanted.items() if value} | {"model": self._values["source"]}
            self._run("jax_export", wanted, _FILES.JAX)
        self.step("exporting the graph")
        values = {name: value for name, value in self._values.items() if value}
        for key, value in values.pop("weights", {}).items():
            if key not in ("file", *_FILES.WEIGHTS):
                raise TfaotError(
                    f"--weights {key}={value}: weights has no {key}",
                    exists=listed(["file", *_FILES.WEIGHTS]),
                    do="name a file, or set some of these: --weights dtype=bfloat16",
                )
            values["weights" if key == "file" else f"weights_{key}"] = value
        named = [*_FILES.MODEL, *_FILES.MODEL_EXPORT, *_ALSO_EXPORT, *(f"weights_{key}" for key in _FILES.WEIGHTS)]
        request = {name: values[name] for name in named if name in values}
        request |= {self._kind: self._source, "edge": edge, "frozen": self._values["frozen"]}
        request["out_configs"] = [self.path(_FILES.CONFIG, entry.stem) for entry in self.entries]
        self._run("export", request, _FILES.EXPORT | _FILES.NAME)

    def compile(self) -> None:
        """Runs the compile stage for each function."""
        warned: set[str] = set()
        configs = {entry.entry_point: self.path(_FILES.CONFIG, entry.stem) for entry in self.entries}
        for function in self.functions:
            self.step(f"compiling {function.entry_point}{sizes_of(function.batch, function.buckets)}")
            request = {
                "config": configs[function.entry_point],
                "entry_point": function.entry_point,
                "batch": function.batch,
                "buckets": function.buckets,
                "cpu": self.levels,
                "target_triple": self._platform.triple,
                "xla_flags": self._values["xla_flags"],
                "passes": self._values["passes"],
                "tolerant": True,
            }
            for name in _FILES.COMPILE_LEVEL:
                request[f"out_{name}"] = [self._of_level(name, function, level) for level in self.levels]
            # Of a stage that succeeds, nothing else is shown. Functions of a model have the same warnings.
            printed = self._run("compile", request, _FILES.COMPILE, function.stem)
            for warning in re.findall(r"(?m)^warning: the pass .*\n  to do: .*$", printed):
                if warning not in warned:
                    sys.stderr.write(f"{warning}\n")
                warned.add(warning)

    def render(self) -> None:
        """Runs the render stage."""
        self.step("rendering the C++ class")
        header = _FILES.COMPILE["header"]
        request = {
            "header": self.header,
            "functions": [
                (function.entry_point, function.batch, function.buckets, f"{self._prefix}{function.stem}{header}")
                for function in self.functions
            ],
            "embed_variables": self._values["embed_variables"],
            "flush_denormals": self._values["flush_denormals"],
        }
        self._run("render", request, _FILES.RENDER)

    def verify(self) -> None:
        """Runs the verify stage."""
        self.step("computing TensorFlow's numbers")
        request = {
            "unseen": self._values["unseen"],
            "strict": self._values["strict"],
            "program": self._source if self._kind in ("jax", "stablehlo") else None,
            "entry_points": self._values["entry_points"],
        }
        self._run("verify", request, _FILES.VERIFY)

    def hlo(self) -> list[str]:
        """Runs the HLO stage for each entry point, and returns its files."""
        made = list[str]()
        for entry in self.entries:
            self.step(f"lowering {entry.entry_point} to HLO")
            request = {
                "config": self.path(_FILES.CONFIG, entry.stem),
                "entry_point": entry.entry_point,
                "name": entry.stem,
                "cpu": self.levels[-1],
                "xla_flags": self._values["xla_flags"],
            }
            self._run("hlo", request, _FILES.HLO, entry.stem)
            made += [self.path(ending, entry.stem) for ending in _FILES.HLO.values()]
        return made

    def stablehlo(self) -> list[str]:
        """Runs the StableHLO stage for each entry point, and returns its files."""
        made = list[str]()
        for entry in self.entries:
            self.step(f"translating {entry.entry_point} to StableHLO")
            request = {"entry_point": entry.entry_point, "name": entry.stem}
            self._run("stablehlo", request, _FILES.STABLEHLO, entry.stem)
            made += [self.path(ending, entry.stem) for ending in _FILES.STABLEHLO.values()]
        return made

    def bundle(self) -> str:
        """Packs the files of `verify`, `hlo`, and `stablehlo`, and returns the archive.

        Raises:
          TfaotError: the model has more than one program.
        """
        if len(self.functions) > 1 or self._values["batch_sizes"] or self._values["sizes"]:
            raise TfaotError(
                "a bundle contains one program, but the model has several",
                exists=", ".join(self._names()),
                do="bundle one of its entry points, without --batch-sizes and --sizes",
            )
        self.step("bundling")
        files = _FILES.HLO | _FILES.STABLEHLO | _FILES.VERIFY
        request = {
            **{name: self.path(ending) for name, ending in files.items() if name != "optimized_drawing"},
            "name": self._name,
            "replay": str(Path(__file__).parents[1] / "hlo/replay.py"),
        }
        self._run("bundle", request, _FILES.BUNDLE)
        return self.path(_FILES.BUNDLE["archive"])

    def program(self, kind: str, *, tools: cxx.Tools, objects: Mapping[str, str]) -> list[str]:
        """Compiles and links the generated test or benchmark, and returns the command that runs it.

        Args:
          kind: `test` or `benchmark`.
          tools: the compiler.
          objects: from `objects`, with that of the C interface or without it.
        """
        self.step(f"linking the {kind}")
        out = self.path(f"_{kind}")
        includes = ["-I", str(self._root), "-isystem", str(RULES / "runtime")]
        flags = self._rules.package_copts(list(self._values["copts"]))
        source = cxx.Source(self.path(f"_{kind}.cc"), out + ".o", (*flags, "-O1", *includes))
        cxx.compile_all(tools.compiler, [source])
        cxx.link(
            tools.compiler, [out + ".o", *self._library(objects).values()], out=out, flags=self._values["linkopts"]
        )
        embedded = self._values["embed_variables"]
        return [out, self.path(".goldens.safetensors"), *([] if embedded else [self.path(".variables.safetensors")])]

    def _names(self) -> list[str]:
        return [function.entry_point + sizes_of(function.batch, function.buckets) for function in self.functions]

    def objects(self, tools: cxx.Tools, *, interface: bool = False) -> dict[str, str]:
        """Compiles the C++, and returns the objects of the library by name, and with `interface`, that of the C interface."""
        includes = ["-I", str(self._root), "-isystem", str(RULES / "runtime")]
        sources = list[cxx.Source]()
        ends = _FILES.RENDER | {"fingerprint": _FILES.COMPILE["fingerprint_source"], "weights": _FILES.NAME["weights"]}

        def add(name: str, path: str, flags: list[str], *, shared: bool = False) -> str:
            out = str(self._root / "objects" / name)
            sources.append(cxx.Source(path, out, (*flags, *(includes[2:] if shared else includes)), shared))
            return out

        def part(name: str, kind: str, flags: list[str], function: Any = None, level: str = "") -> str:
            if function:
                return add(name, self._of_level("sources", function, level), flags)
            return add(name, self.path(ends[kind], self.functions[0].stem if kind == "fingerprint" else None), flags)

        def made(function: Any, level: str = "") -> str:
            if level:
                return self._of_level("objects", function, level)
            return self.path(_FILES.COMPILE["constants"], function.stem)

        (self._root / "objects").mkdir(exist_ok=True)
        objects: dict[str, str] = self._rules.package_objects(
            stem=self._name,
            functions=self.functions,
            levels=self.levels,
            embed_variables=self._values["embed_variables"],
            copts=list(self._values["copts"]),
            variables=self.path(_FILES.EXPORT["variables"]),
            compile=part,
            made=made,
        )
        runtime: list[tuple[str, str | None]] = [(path, None) for path in self._rules.PACKAGE_SOURCES]
        runtime += [
            (path, level)
            for path in kernels.called(self._rules.PACKAGE_KERNELS, self._passes())
            for level in self.levels
        ]
        for path, level in runtime:
            name = self._rules.package_object(path, level)
            objects[name] = add(name, str(RULES / "runtime" / path), self._rules.package_copts([], level), shared=True)
        if interface:
            flags = self._rules.interface_copts(self._values["cpp_class"], self.header)
            path = str(RULES / "runtime" / self._rules.PACKAGE_INTERFACE)
            objects[self._rules.INTERFACE] = add(self._rules.INTERFACE, path, flags)
        earlier = Objects(kept_in(os.environ), tools.compiler, RULES / "runtime")
        sources = [source for source in sources if not earlier.recall(source)]
        self.step(f"compiling {len(sources)} C++ files")
        cxx.compile_all(tools.compiler, sources)
        earlier.keep(sources)
        return objects

    def _passes(self) -> list[str]:
        return [self.path(_FILES.COMPILE["passes"], function.stem) for function in self.functions]

    def passes(self) -> list[str]:
        """Returns what the passes did, as text, for each function."""
        return [Path(path).read_text(encoding="utf-8") for path in self._passes()]

    def pack(self, tools: cxx.Tools, objects: Mapping[str, str], *, folder: str | None, archive: str | None) -> None:
        """Writes the package of `objects`, with that of the C interface."""
        self.step("packing")
        headers = {self.header: self.path(_FILES.RENDER["header"])}
        headers |= {path: str(RULES / "runtime" / path) for path in self._rules.PACKAGE_HEADERS}
        variables = _FILES.EXPORT["variables"]
        files = {"model.json": self.path(_FILES.NAME["manifest"]), self._name + variables: self.path(variables)}
        for function in self.functions:
            for ending in (_FILES.COMPILE["fingerprint"], _FILES.COMPILE["passes"]):
                files[function.stem + ending] = self.path(ending, function.stem)
        package.pack(
            package.Request(
                name=self._name,
                header=self.header,
                headers=tuple(headers.items()),
                objects=tuple(self._library(objects).items()),
                interface=objects[self._rules.INTERFACE],
                # Other linkers' flags are for those who try them.
                link=(*tools.compiler, *self._rules.PACKAGE_LINK) if self._platform.tested else (),
                system=self._platform.title.partition(" on ")[0],
                files=tuple(files.items()),
                notices=tuple((name, str(RULES / name)) for name in _NOTICES),
                linkopts=tuple(self._values["linkopts"]),
                ar=tools.archiver,
                out_folder=folder,
                out_archive=archive,
            )
        )

    @property
    def _source(self) -> str:
        """The file or folder that export reads."""
        of_jax = self._values["framework"] == "jax"
        return self.path(_FILES.JAX["programs"]) if of_jax else str(self._values["source"])

    @property
    def _entry_points(self) -> list[str]:
        return list(self._values["entry_points"]) or ["Run"]

    def _library(self, objects: Mapping[str, str]) -> dict[str, str]:
        """Returns the objects of the C++ library."""
        return {name: path for name, path in objects.items() if name != self._rules.INTERFACE}

    def _of_level(self, name: str, function: Any, level: str) -> str:
        """Returns the path of a file of the compile stage for a CPU level."""
        return self.path(f".{level}{_FILES.COMPILE_LEVEL[name]}", function.stem)

    def _run(self, stage: str, request: Mapping[str, Any], outputs: Mapping[str, str], stem: str | None = None) -> str:
        """Runs a stage that makes the files of a table. Returns what it printed."""
        exported = _FILES.EXPORT | _FILES.NAME
        files = {name: self.path(exported[name]) for name in _FILES.READS.get(stage, ())}
        files |= {f"out_{name}": self.path(ending, stem) for name, ending in outputs.items()}
        return self._stages.run(stage, {**files, **request})


def _platforms() -> dict[str, Any]:
    return dict(starlark.execute(RULES, "runtime/copts.bzl")["PLATFORMS"])


def check_tested(platform: str, *, untested: bool) -> None:
    """Checks that tests have run on a platform, unless untested ones are allowed.

    Raises:
      TfaotError: nobody has run a model there.
    """
    platforms = _platforms()
    if platforms[platform].tested or untested:
        return
    raise TfaotError(
        f"models would be compiled for {platforms[platform].title}, where nobody has run one yet",
        exists="tested are " + ", ".join(name for name, described in platforms.items() if described.tested),
        do="give one of these, or try it with --untested-platforms",
    )


def levels(values: Mapping[str, Any], platform: str) -> list[str]:
    """Returns the CPU levels that attributes name, lowest first.

    Raises:
      TfaotError: there is no such platform or level.
    """
    platforms = _platforms()
    if platform not in platforms:
        raise TfaotError(
            f"models can't be compiled for the platform {platform}",
            exists=", ".join(
                f"{name} ({described.title})" for name, described in platforms.items() if described.tested
            ),
            do="give one of these: --platform " + next(iter(platforms)),
        )
    possible = platforms[platform].levels
    default = starlark.execute(RULES, "runtime/copts.bzl")["DEFAULT_LEVEL"]
    asked = values["cpu"]
    chosen = platforms[platform].defaults if not asked or asked == [default] else asked
    for level in chosen:
        others = [name for name, described in platforms.items() if level in described.levels and described.tested]
        if level not in possible:
            raise TfaotError(
                f"{level} isn't a CPU level" + (f" of {platforms[platform].title}" if others else ""),
                exists=", ".join(possible),
                do="name one or more of these" + "".join(f", or give --platform {name}" for name in others),
            )
    return [level for level in possible if level in chosen]
