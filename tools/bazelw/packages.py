"""Which Debian packages Bazel needs to run from a private prefix, derived from the packages' own dependencies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import WayFailed

# The package that everything is derived from.
BAZEL = "bazel-bootstrap"
# With what it needs without saying so, and the tool that adapts its programs.
_ROOTS = (BAZEL, "bazel-rules-shell", "libblake3-0", "patchelf")

# Dependencies that are not followed: an installed bazel-bootstrap needs them, running Bazel does not.
_LEFT_OUT = re.compile(
    "|".join(
        (
            r"build-essential",  # The C toolchain: actions use the machine's own.
            r".*-dev",
            r".*-jdk-.*",  # The JDK: the server needs the runtime alone, see _java_runtime.
            r"python3",  # Actions use the machine's own.
            r"unzip",
            r"util-linux",  # Wanted by package installation scripts, which do not run.
            r"java-common",
            r"ca-certificates.*",
            r"openssl-provider-legacy",
            r"protobuf-compiler.*",  # Wanted to build Java code, not to run it.
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
    """One binary package as apt's signed list describes it."""

    name: str
    version: str
    # Path of the .deb below the mirror's address.
    filename: str
    # Size of the .deb in bytes.
    size: int
    sha256: str
    # Names that it depends on; the first of each group of alternatives.
    depends: tuple[str, ...]
    # Names of virtual packages that it stands in for.
    provides: tuple[str, ...]

    @property
    def file(self) -> str:
        """Name of the .deb once `apt-get download` has fetched it: the version is spelt with its epoch there."""
        architecture = self.filename.rpartition("_")[2]
        return f"{self.name}_{self.version.replace(':', '%3a')}_{architecture}"


def parse(text: str) -> dict[str, Package]:
    """Returns the packages in `apt-cache dumpavail` output, by name."""
    found: dict[str, Package] = {}
    for paragraph in text.split("\n\n"):
        fields = {}
        for line in paragraph.split("\n"):
            key, colon, value = line.partition(": ")
            if colon and not key.startswith(" "):
                fields[key] = value
        if "Filename" not in fields or "SHA256" not in fields:
            continue
        name = fields["Package"]
        found[name] = Package(
            name=name,
            version=fields["Version"],
            filename=fields["Filename"],
            size=int(fields["Size"]),
            sha256=fields["SHA256"],
            depends=_names(fields.get("Pre-Depends", "")) + _names(fields.get("Depends", "")),
            provides=_names(fields.get("Provides", "")),
        )
    return found


def closure(available: Mapping[str, Package]) -> list[Package]:
    """Returns every package that Bazel needs to run, sorted by name.

    Raises WayFailed when the suite lacks one of them.
    """
    virtual: dict[str, str] = {}
    for package in available.values():
        for name in package.provides:
            virtual.setdefault(name, package.name)
    wanted = [*_ROOTS, _java_runtime(available)]
    chosen: dict[str, Package] = {}
    while wanted:
        name = wanted.pop()
        name = name if name in available else virtual.get(name, name)
        if name in chosen:
            continue
        if name not in available:
            raise WayFailed(f"the Debian suite has no package {name}")
        chosen[name] = available[name]
        wanted += [other for other in available[name].depends if not _LEFT_OUT.fullmatch(other)]
    return [chosen[name] for name in sorted(chosen)]


def _java_runtime(available: Mapping[str, Package]) -> str:
    """Returns the Java runtime behind the default one: it carries the suite's Java version in its name."""
    default = available.get("default-jre-headless")
    for name in default.depends if default else ():
        if re.fullmatch(r"openjdk-\d+-jre-headless", name):
            return name
    raise WayFailed("the Debian suite names no default Java runtime")


def _names(relation: str) -> tuple[str, ...]:
    """Returns the package names in a Depends-like field, without versions, architectures and second choices."""
    groups = (group.partition("|")[0].strip() for group in relation.split(","))
    return tuple(group.partition(" ")[0].partition(":")[0] for group in groups if group)
