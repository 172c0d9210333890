"""Points Bazel at local copies of the rule sets that it would otherwise fetch from hosts that are blocked here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import cache, prefix

# Where Debian's packages put rule sets, one folder per repository.
_RULES = prefix.BAZEL_DATA / "rules"


# Bazel rejects an override of a module that no other module names. Its own tools always name this one. Here, it is a stub
# that names all the others.
_HUB = "buildozer"


@dataclass(frozen=True)
class Stub:
    """An empty module that stands in for a dependency that isn't built here."""

    # Additional files of the module, by path.
    files: Mapping[str, str] = field(default_factory=dict)


_BUILDOZER = '''"""Stands in for buildozer, which `bazel mod tidy` alone needs."""

def _empty_impl(ctx):
    ctx.file("BUILD", "")

_empty = repository_rule(implementation = _empty_impl)

def _extension_impl(_module_ctx):
    _empty(name = "buildozer_binary")

buildozer_binary = module_extension(implementation = _extension_impl)
'''

_EMSCRIPTEN = """
config_setting(
    name = "emscripten",
    flag_values = {"@rules_cc//cc/private/toolchain:compiler": "emscripten"},
)
"""

# Modules that Bazel's built-in tools and Abseil name in their MODULE.bazel files, but no target here needs.
STUBS: Mapping[str, Stub] = {
    "apple_support": Stub(),
    "buildozer": Stub({"buildozer_binary.bzl": _BUILDOZER}),
    "google_benchmark": Stub(),
    "googletest": Stub(),
    "protobuf": Stub(),
    "zlib": Stub(),
}


def rc_file(folder: Path) -> Path:
    """Returns the path of the bazelrc in `folder` that contains the redirections."""
    return folder / "redirect.bazelrc"


def write(part: Path, final: Path) -> None:
    """Writes stubs and bazelrc into `part`, which contains `prefix` and `abseil-cpp` and is later renamed to `final`."""
    supplement(part / "prefix")
    modules = {name: final / path.relative_to(part) for name, path in rule_sets(part / "prefix").items()}
    modules["abseil-cpp"] = final / "abseil-cpp"
    for name, stub in STUBS.items():
        others = sorted({*modules, *STUBS} - {_HUB}) if name == _HUB else []
        files = {"MODULE.bazel": module_text(name, others), "WORKSPACE": "", "BUILD": "", **stub.files}
        for path, text in files.items():
            cache.write_text(part / "stubs" / name / path, text)
    (part / "registry").mkdir(exist_ok=True)
    stubs = {name: final / "stubs" / name for name in STUBS}
    cache.write_text(rc_file(part), rc_text(modules, stubs, final / "registry"))


def supplement(tree: Path) -> None:
    """Adds to the rule sets in `tree` what Abseil uses but Debian's versions don't have yet. Idempotent."""
    build = prefix.one(tree, f"{_RULES}/cc/cc/compiler/BUILD")
    text = build.read_text(encoding="utf-8")
    if 'name = "emscripten"' not in text:
        cache.write_text(build, text + _EMSCRIPTEN)


def module_text(name: str, depends: Sequence[str]) -> str:
    """Returns the MODULE.bazel of a stub that names `depends`. Versions don't matter, because all are overridden."""
    return f'module(name = "{name}")\n' + "".join(f'bazel_dep(name = "{other}", version = "0")\n' for other in depends)


def rule_sets(tree: Path) -> dict[str, Path]:
    """Returns the folder of each rule set in the prefix, by the module name that its MODULE.bazel declares."""
    folders = {}
    for module in sorted((tree / prefix.BAZEL_DATA).glob("*/*/MODULE.bazel")):
        name = re.search(r'^module\(\s*name\s*=\s*"([^"]+)"', module.read_text(encoding="utf-8"), re.MULTILINE)
        if name:
            folders[name[1]] = module.parent
    return folders


def rc_text(modules: Mapping[str, Path], stubs: Mapping[str, Path], registry: Path) -> str:
    """Returns the lines of the bazelrc.

    Args:
      modules: Folders of complete modules, by name. Used with and without bzlmod.
      stubs: Folders of stub modules, by name. Used only with bzlmod, because a WORKSPACE names its dependencies itself.
      registry: An empty folder.
    """
    lines = [
        "# Written by bazelw.",
        # Bazel would look up any other module on an unreachable host. With an empty registry, it reports the missing module
        # at once instead of after minutes.
        f"common --registry=file://{registry}",
        # Redirections must not get into a workspace's own lock file.
        "common --lockfile_mode=off",
    ]
    lines += [f"common --override_module={name}={path}" for name, path in sorted({**modules, **stubs}.items())]
    repositories = dict(modules)
    if "rules_java" in modules:
        # The name that Bazel's own WORKSPACE prelude loads it by.
        repositories["rules_java_builtin"] = modules["rules_java"]
    lines += [f"common --override_repository={name}={path}" for name, path in sorted(repositories.items())]
    return "\n".join(lines) + "\n"
