"""Packs a compiled model: `package.py --name fc --object fc.o=path … --out_archive fc.package.tar.gz`, or `package.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate
from tfaot.pack.kernels import called
from tfaot.pack.package import Request, pack

_GROUPS = {"include": "headers", "object": "objects", "file": "files", "notice": "notices"}


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.pack.package.Request`, and packs the model."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--name", required=True, help="the package's name")
    parser.add_argument("--header", required=True, help="the path that #include uses for the class's header")
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        nargs=3,
        metavar=("SOURCE", "NAME", "PATH"),
        help="an object that becomes one of the package's if a --file NAME.passes.json lists its source; may be repeated",
    )
    for group, field in _GROUPS.items():
        parser.add_argument(f"--{group}", action="append", default=[], help=f"NAME=PATH, one of the package's {field}")
    parser.add_argument("--interface", required=True, help="the object of the shared library's C interface")
    parser.add_argument("--link", action="append", required=True, help="a word of the command that links; repeated")
    parser.add_argument("--linkopt", action="append", default=[], help="a flag for linking programs; may be repeated")
    parser.add_argument("--ar", required=True, help="the program that makes static libraries")
    parser.add_argument("--out_archive", required=True, help="output file")
    flags = parser.parse_args()

    def named(group: str) -> tuple[tuple[str, str], ...]:
        return tuple((name, path) for name, _, path in (entry.partition("=") for entry in getattr(flags, group)))

    passes = [path for name, path in named("file") if name.endswith(".passes.json")]
    wanted = called([source for source, _, _ in flags.kernel], passes)
    pack(
        Request(
            name=flags.name,
            header=flags.header,
            headers=named("include"),
            objects=(*named("object"), *((name, path) for source, name, path in flags.kernel if source in wanted)),
            interface=flags.interface,
            link=tuple(flags.link),
            files=named("file"),
            notices=named("notice"),
            linkopts=tuple(flags.linkopt),
            ar=flags.ar,
            out_archive=flags.out_archive,
        )
    )


if __name__ == "__main__":
    isolate.main(main)
