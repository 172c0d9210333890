"""Which Debian packages a program needs to run from a private prefix, derived from the packages' own dependencies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import WayFailed

# The package that all others are derived from.
BAZEL = "bazel-bootstrap"
# Including undeclared dependencies, and the tool that adapts its programs.
_ROOTS = (BAZEL, "bazel-rules-shell", "libblake3-0", "patchelf")

# Dependencies that we don't follow: an installed bazel-bootstrap needs them, but running Bazel doesn't.
_LEFT_OUT = re.compile(
    "|".join(
        (
            r"build-essential",  # The C toolchain: actions use the machine's.
            r".*-dev",
            r".*-jdk-.*",  # The JDK: the server needs only the runtime, see _java_runtime.
            r"python3",  # Actions use the machine's.
            r"unzip",
            r"util-linux",  # Needed by package installation scripts, which don't run.
            r"java-common",
            r"ca-certificates.*",
            r"openssl-provider-legacy",
            r"protobuf-compiler.*",  # Needed to build Java code, not to run it.
            r"lib.*-parent-java",
            r"libmaven.*",
            r"libplexus.*",
            r"libeclipse-jdt.*",
            r"libjgit-java",
            r"libjavaparser-java",
            r"junit4",
            r"libjs-.*",  # Documentation.
            r"node-.*",
        )
    )
)


@dataclass(frozen=True)
class Package:
    """One binary package as described by apt's signed list."""

    name: str
    version: str
    # Path of the .deb, relative to the mirror's address.
    filename: str
    # Size of the .deb in bytes.
    size: int
    sha256: str
    # Names of its dependencies: the first of each group of alternatives.
    depends: tuple[str, ...]
    # Names of virtual packages that it provides.
    provides: tuple[str, ...]

    @property
    def file(self) -> str:
        """Name of the .deb that `apt-get download` fetches, which spells the version with its epoch."""
        architecture = self.filename.rpartition("_")[2]
        return f"{self.name}_{self.version.replace(':', '%3a')}_{architecture}"


def parse(text: str) -> dict[str, Package]:
    """Returns the packages in `apt-cache dumpavail` output, by name."""
    by_name: dict[str, Package] = {}
    for paragraph in text.split("\n\n"):
        fields = {}
        for line in paragraph.split("\n"):
            key, colon, value = line.partition(": ")
            if colon and not key.startswith(" "):
                fields[key] = value
        if "Filename" not in fields or "SHA256" not in fields:
            continue
        name = fields["Package"]
        by_name[name] = Package(
            name=name,
            version=fields["Version"],
            filename=fields["Filename"],
            size=int(fields["Size"]),
            sha256=fields["SHA256"],
            depends=_names(fields.get("Pre-Depends", "")) + _names(fields.get("Depends", "")),
            provides=_names(fields.get("Provides", "")),
        )
    return by_name


def bazel(available: Mapping[str, Package]) -> list[Package]:
    """Returns every package that Bazel needs to run, sorted by name.

    Raises WayFailed if the suite lacks one of them.
    """
    return closure(available, [*_ROOTS, _java_runtime(available)], _LEFT_OUT)


def closure(available: Mapping[str, Package], roots: Sequence[str], left_out: re.Pattern[str]) -> list[Package]:
    """Returns the packages `roots` and all that they depend on, sorted by name.

    Args:
      available: The suite's packages, by name.
      roots: The names to start from.
      left_out: Names of dependencies that aren't followed.

    Raises WayFailed if the suite lacks one of them.
    """
    virtual: dict[str, str] = {}
    for package in available.values():
        for name in package.provides:
            virtual.setdefault(name, package.name)
    wanted = list(roots)
    chosen: dict[str, Package] = {}
    while wanted:
        name = wanted.pop()
        name = name if name in available else virtual.get(name, name)
        if name in chosen:
            continue
        if name not in available:
            raise WayFailed(f"the Debian suite has no package {name}")
        chosen[name] = available[name]
        wanted += [other for other in available[name].depends if not left_out.fullmatch(other)]
    return [chosen[name] for name in sorted(chosen)]


def _java_runtime(available: Mapping[str, Package]) -> str:
    """Returns the Java runtime behind the default one. Its name contains the suite's Java version."""
    default = available.get("default-jre-headless")
    for name in default.depends if default else ():
        if re.fullmatch(r"openjdk-\d+-jre-headless", name):
            return name
    raise WayFailed("the Debian suite has no default Java runtime")


def _names(relation: str) -> tuple[str, ...]:
    """Returns the package names in a Depends-like field, without versions, architectures, and alternatives."""
    groups = (group.partition("|")[0].strip() for group in relation.split(","))
    return tuple(group.partition(" ")[0].partition(":")[0] for group in groups if group)
