"""Names the class of an exported model: `name.py --manifest export.json --cpp_class a::B …`, or `name.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate, naming


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.core.naming.Request`, and names the class."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--manifest", required=True, help="the manifest of a model whose class has no name")
    parser.add_argument("--weights", required=True, help="the digits of the fingerprint of its variables' values")
    parser.add_argument("--cpp_class", required=True, help="the generated class with its namespaces, a::b::Class")
    parser.add_argument("--out_manifest", required=True, help="output file")
    parser.add_argument("--out_weights", required=True, help="output file: assembler code with the fingerprint")
    naming.name(naming.Request(**vars(parser.parse_args())))


if __name__ == "__main__":
    isolate.main(main)
