"""A build of a model, stage by stage, in a folder of its own. The rules in `rules/private/` do the same in Bazel."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfaot import starlark
from tfaot.command import cxx, options
from tfaot.command.files import RULES
from tfaot.command.stages import Stages
from tfaot.core.errors import TfaotError, listed
from tfaot.pack import kernels, package

_LIBRARY_ONLY = {"cpp_class": "hlo::Model"}
"""Values of what `tf_aot_hlo` hasn't."""
_WEIGHTS = {"file": "weights", "dtype": "weights_dtype", "tolerance": "weights_tolerance"}
"""The export stage's flags for the keys of the attribute `weights`."""
_INTERFACE = "interface.o"
_NOTICES = ("LICENSE", "NOTICE")


@dataclasses.dataclass(frozen=True)
class Function:
    """What one run of the compiler makes."""

    stem: str
    entry_point: str
    batch: int
    config: str


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
        self._kind = options.kind_of(self._values["source"])
        options.check(self._values, self._kind)
        self.levels = levels(self._values, platform or cxx.HERE)
        """The CPU levels, lowest first."""
        self._platform = _platforms()[platform or cxx.HERE]
        (folder / self._prefix).mkdir(parents=True, exist_ok=True)
        self._rules = starlark.execute(RULES, "runtime/package.bzl")

    @property
    def cpp_class(self) -> str:
        """The generated class, with its namespaces."""
        return str(self._values["cpp_class"])

    @property
    def entries(self) -> list[Function]:
        """The entry points."""
        names = list(self._values["entry_points"]) or ["Run"]
        return [
            Function(stem, name, 0, self.path(".config.pbtxt", stem))
            for name in names
            for stem in [f"{self._name}.{name}" if len(names) > 1 else self._name]
        ]

    @property
    def functions(self) -> list[Function]:
        """The entry points, for each batch size."""
        return [
            dataclasses.replace(entry, stem=entry.stem + (f".b{batch}" if batch else ""), batch=batch)
            for entry in self.entries
            for batch in self._values["batch_sizes"] or [0]
        ]

    @property
    def header(self) -> str:
        """The path by which programs include the class's header."""
        return f"{self._prefix}{self._name}.h"

    def path(self, ending: str, stem: str | None = None) -> str:
        """Returns the path of a file in the build's folder."""
        return str(self._root / self._prefix / ((stem or self._name) + ending))

    def export(self, *, edge: str = "cpp") -> None:
        """Runs the export stage."""
        values = self._values
        self.step("exporting the graph")
        flags = [f"--cpp_class={values['cpp_class']}", f"--edge={edge}", f"--golden_steps={values['golden_steps']}"]
        flags.append(f"--{self._kind}={values['source']}")
        config = "graph_config" if self._kind == "graph" else "user_config"
        for flag, attribute in (
            (config, "config"),
            ("debug_info", "debug_info"),
            ("golden_inputs", "golden_inputs"),
            ("max_batch", "max_batch"),
            ("saver", "saver"),
        ):
            if values[attribute]:
                flags.append(f"--{flag}={values[attribute]}")
        for key, value in (values["weights"] or {}).items():
            if key not in _WEIGHTS:
                raise TfaotError(
                    f"--weights {key}={value}: weights has no {key}",
                    exists=listed([*_WEIGHTS]),
                    do="name a file, or set some of these: --weights dtype=bfloat16",
                )
            flags.append(f"--{_WEIGHTS[key]}={value}")
        for flag, attribute in (
            ("batch_size", "batch_sizes"),
            ("call", "golden_calls"),
            ("checkpoint", "checkpoint"),
            ("frozen", "frozen"),
            ("input", "inputs"),
            ("output", "outputs"),
            ("saved_model_tag", "saved_model_tags"),
        ):
            flags += [f"--{flag}={value}" for value in values[attribute] or ()]
        for flag, attribute in (("dims", "dims"), ("entry_point", "entry_points"), ("signature", "signature")):
            flags += [f"--{flag}={name}={value}" for name, value in (values[attribute] or {}).items()]
        if values["frozen"] is not None:
            flags.append("--freeze=listed")
        if values["rows_independent"]:
            flags.append("--rows_independent")
        flags += [f"--out_config={entry.config}" for entry in self.entries]
        flags += [
            f"--out_{output}={self.path(ending)}"
            for output, ending in {
                "graph": ".pb",
                "manifest": ".model.json",
                "variables": ".variables.safetensors",
                "golden_inputs": ".golden_inputs.safetensors",
                "sources": ".sources.json",
                "weights": ".weights.S",
            }.items()
        ]
        self._stages.run("export", flags)

    def compile(self) -> None:
        """Runs the compile stage for each function."""
        warned: set[str] = set()
        for function in self.functions:
            stem = function.stem
            self.step(f"compiling {function.entry_point}{f' for batches of {function.batch}' * bool(function.batch)}")
            flags = [*self._graph_flags(), f"--config={function.config}"]
            flags += [f"--entry_point={function.entry_point}", f"--batch={function.batch}"]
            flags += [f"--isa={level}" for level in self.levels]
            flags += [f"--target_triple={self._platform.triple}"] if self._platform.triple else []
            flags += [f"--xla_flags={flag}" for flag in self._values["xla_flags"]]
            flags += [f"--passes={pattern}" for pattern in self._values["passes"]] + ["--tolerant"]
            flags += [f"--out_objects={self.path(f'.{level}.kernels.o', stem)}" for level in self.levels]
            flags += [f"--out_sources={self.path(f'.{level}.executor.cc', stem)}" for level in self.levels]
            flags += [
                f"--out_{output}={self.path(ending, stem)}"
                for output, ending in {
                    "constants": ".constants.o",
                    "header": ".executor.h",
                    "hlo": ".hlo_snapshot.pb",
                    "fingerprint": ".fingerprint.json",
                    "fingerprint_source": ".fingerprint.S",
                    "passes": ".passes.json",
                }.items()
            ]
            # Of a stage that succeeds, nothing else is shown. Functions of a model have the same warnings.
            for warning in re.findall(r"(?m)^warning: the pass .*\n  to do: .*$", self._stages.run("compile", flags)):
                if warning not in warned:
                    sys.stderr.write(f"{warning}\n")
                warned.add(warning)

    def render(self) -> None:
        """Runs the render stage."""
        self.step("rendering the C++ class")
        flags = [f"--manifest={self.path('.model.json')}", f"--header={self.header}"]
        for function in self.functions:
            header = f"{self._prefix}{function.stem}.executor.h"
            flags += ["--function", function.entry_point, str(function.batch), header]
        flags += ["--embed"] if self._values["embed_variables"] else []
        flags += [] if self._values["flush_denormals"] else ["--keep_denormals"]
        flags += [
            f"--out_{output}={self.path(ending)}"
            for output, ending in {
                "header": ".h",
                "source": ".cc",
                "variables": ".variables.S",
                "test": "_test.cc",
                "benchmark": "_benchmark.cc",
            }.items()
        ]
        self._stages.run("render", flags)

    def verify(self) -> None:
        """Runs the verify stage."""
        self.step("computing TensorFlow's numbers")
        flags = [*self._graph_flags(), f"--variables={self.path('.variables.safetensors')}"]
        flags += [f"--golden_inputs={self.path('.golden_inputs.safetensors')}"]
        flags += [f"--unseen={pattern}" for pattern in self._values["unseen"]]
        flags += ["--strict"] if self._values["strict"] else []
        flags += [f"--program={self._values['source']}"] if self._kind == "stablehlo" else []
        self._stages.run("verify", [*flags, f"--out_goldens={self.path('.goldens.safetensors')}"])

    def hlo(self) -> list[str]:
        """Runs the HLO stage for each entry point, and returns its files."""
        made = list[str]()
        for entry in self.entries:
            self.step(f"lowering {entry.entry_point} to HLO")
            files = {
                "hlo": self.path(".hlo.pb", entry.stem),
                "hlo_text": self.path(".hlo.txt", entry.stem),
                "optimized_hlo": self.path(".optimized_hlo.txt", entry.stem),
                "picture": self.path(".hlo.svg", entry.stem),
                "optimized_picture": self.path(".optimized_hlo.svg", entry.stem),
            }
            flags = [*self._graph_flags(), f"--config={entry.config}", f"--entry_point={entry.entry_point}"]
            flags += [f"--name={entry.stem}", f"--cpu={self.levels[-1]}"]
            flags += [f"--xla_flags={flag}" for flag in self._values["xla_flags"]]
            self._stages.run("hlo", [*flags, *(f"--out_{output}={path}" for output, path in files.items())])
            made += files.values()
        return made

    def stablehlo(self) -> list[str]:
        """Runs the StableHLO stage for each entry point, and returns its files."""
        made = list[str]()
        for entry in self.entries:
            self.step(f"translating {entry.entry_point} to StableHLO")
            files = {
                "text": self.path(".stablehlo.mlir", entry.stem),
                "bytecode": self.path(".stablehlo.mlirbc", entry.stem),
            }
            flags = [*self._graph_flags(), f"--entry_point={entry.entry_point}", f"--name={entry.stem}"]
            self._stages.run("stablehlo", [*flags, *(f"--out_{output}={path}" for output, path in files.items())])
            made += files.values()
        return made

    def bundle(self) -> str:
        """Packs the files of `verify`, `hlo`, and `stablehlo`, and returns the archive.

        Raises:
          TfaotError: the model has more than one program.
        """
        if len(self.functions) > 1 or self._values["batch_sizes"]:
            raise TfaotError(
                "a bundle contains one program, but the model has several",
                exists=", ".join(self._names()),
                do="bundle one of its entry points, without --batch-sizes",
            )
        self.step("bundling")
        files = {
            "goldens.safetensors": self.path(".goldens.safetensors"),
            "model.json": self.path(".model.json"),
            "module.hlo.pb": self.path(".hlo.pb"),
            "module.hlo.svg": self.path(".hlo.svg"),
            "module.hlo.txt": self.path(".hlo.txt"),
            "module.optimized_hlo.txt": self.path(".optimized_hlo.txt"),
            "module.stablehlo.mlir": self.path(".stablehlo.mlir"),
            "module.stablehlo.mlirbc": self.path(".stablehlo.mlirbc"),
            "replay.py": str(Path(__file__).parents[1] / "hlo/replay.py"),
            "variables.safetensors": self.path(".variables.safetensors"),
        }
        archive = self.path(".bundle.tar.gz")
        flags = [f"--name={self._name}", f"--out_archive={archive}"]
        self._stages.run("bundle", [*flags, *(f"--file={name}={path}" for name, path in files.items())])
        return archive

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
        flags = self._rules["package_copts"](list(self._values["copts"]))
        source = cxx.Source(self.path(f"_{kind}.cc"), out + ".o", (*flags, "-O1", *includes))
        cxx.compile_all(tools.compiler, [source])
        cxx.link(tools.compiler, [out + ".o", *_library(objects).values()], out=out, flags=self._values["linkopts"])
        embedded = self._values["embed_variables"]
        return [out, self.path(".goldens.safetensors"), *([] if embedded else [self.path(".variables.safetensors")])]

    def _names(self) -> list[str]:
        return [
            entry.entry_point + (f" for batches of {entry.batch}" if entry.batch else "") for entry in self.functions
        ]

    def objects(self, tools: cxx.Tools, *, interface: bool = False) -> dict[str, str]:
        """Compiles the C++, and returns the objects of the library by name, and with `interface`, that of the C interface."""
        copts = list(self._values["copts"])
        includes = ["-I", str(self._root), "-isystem", str(RULES / "runtime")]
        made, sources = dict[str, str](), list[cxx.Source]()

        def add(name: str, path: str, flags: list[str]) -> None:
            made[name] = str(self._root / "objects" / name)
            sources.append(cxx.Source(path, made[name], (*flags, *includes)))

        (self._root / "objects").mkdir(exist_ok=True)
        plain = self._rules["package_copts"](copts)
        add(f"{self._name}.o", self.path(".cc"), plain)
        for level in self.levels:
            for function in self.functions:
                path = self.path(f".{level}.executor.cc", function.stem)
                add(f"{function.stem}.{level}.executor.o", path, self._rules["package_copts"](copts, level))
        if self._values["embed_variables"]:
            define = f'-DTFAOT_VARIABLES="{self.path(".variables.safetensors")}"'
            add(f"{self._name}.variables.o", self.path(".variables.S"), [*plain, define])
            add(f"{self._name}.weights.o", self.path(".weights.S"), plain)
        else:
            add(f"{self._name}.variables.o", self.path(".variables.S"), plain)
        add(f"{self._name}.fingerprint.o", self.path(".fingerprint.S", self.functions[0].stem), plain)
        for path in self._rules["PACKAGE_SOURCES"]:
            name = path.removesuffix(".cc").replace("/", ".") + ".o"
            add(name, str(RULES / "runtime" / path), self._rules["package_copts"]())
        for path in kernels.called(self._rules["PACKAGE_KERNELS"], self._passes()):
            for level in self.levels:
                name = f"{path.removesuffix('.cc').replace('/', '.')}.{level}.o"
                add(name, str(RULES / "runtime" / path), self._rules["package_copts"]([], level))
        if interface:
            flags = self._rules["interface_copts"](self._values["cpp_class"], self.header)
            add(_INTERFACE, str(RULES / "runtime" / self._rules["PACKAGE_INTERFACE"]), flags)
        for function in self.functions:
            made[f"{function.stem}.constants.o"] = self.path(".constants.o", function.stem)
            for level in self.levels:
                made[f"{function.stem}.{level}.kernels.o"] = self.path(f".{level}.kernels.o", function.stem)
        self.step(f"compiling {len(sources)} C++ files")
        cxx.compile_all(tools.compiler, sources)
        return made

    def _passes(self) -> list[str]:
        return [self.path(".passes.json", function.stem) for function in self.functions]

    def passes(self) -> list[str]:
        """Returns what the passes did, as text, for each function."""
        return [Path(path).read_text(encoding="utf-8") for path in self._passes()]

    def pack(self, tools: cxx.Tools, objects: Mapping[str, str], *, folder: str | None, archive: str | None) -> None:
        """Writes the package of `objects`, with that of the C interface."""
        self.step("packing")
        headers = {self.header: self.path(".h")}
        headers |= {path: str(RULES / "runtime" / path) for path in self._rules["PACKAGE_HEADERS"]}
        files = {"model.json": self.path(".model.json")}
        files[f"{self._name}.variables.safetensors"] = self.path(".variables.safetensors")
        for function in self.functions:
            for ending in (".fingerprint.json", ".passes.json"):
                files[function.stem + ending] = self.path(ending, function.stem)
        package.pack(
            package.Request(
                name=self._name,
                header=self.header,
                headers=tuple(headers.items()),
                objects=tuple(_library(objects).items()),
                interface=objects[_INTERFACE],
                # Other linkers' flags are for those who try them.
                link=(*tools.compiler, *self._rules["PACKAGE_LINK"]) if self._platform.tested else (),
                system=self._platform.title.partition(" on ")[0],
                files=tuple(files.items()),
                notices=tuple((name, str(RULES / name)) for name in _NOTICES),
                linkopts=tuple(self._values["linkopts"]),
                ar=tools.archiver,
                out_folder=folder,
                out_archive=archive,
            )
        )

    def _graph_flags(self) -> list[str]:
        return [
            f"--manifest={self.path('.model.json')}",
            f"--graph={self.path('.pb')}",
            f"--sources={self.path('.sources.json')}",
        ]


def _library(objects: Mapping[str, str]) -> dict[str, str]:
    """Returns the objects of the C++ library."""
    return {name: path for name, path in objects.items() if name != _INTERFACE}


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
        exists="tested are " + ", ".join(name for name, each in platforms.items() if each.tested),
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
            exists=", ".join(f"{name} ({each.title})" for name, each in platforms.items() if each.tested),
            do="give one of these: --platform " + next(iter(platforms)),
        )
    known = platforms[platform].levels
    default = starlark.execute(RULES, "runtime/copts.bzl")["DEFAULT_LEVEL"]
    given = values["cpu"]
    found = platforms[platform].defaults if not given or given == [default] else given
    for level in found:
        others = [name for name, each in platforms.items() if level in each.levels and each.tested]
        if level not in known:
            raise TfaotError(
                f"{level} isn't a CPU level" + (f" of {platforms[platform].title}" if others else ""),
                exists=", ".join(known),
                do="name one or more of these" + "".join(f", or give --platform {name}" for name in others),
            )
    return [level for level in known if level in found]
