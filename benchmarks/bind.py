"""Generates the C++ main of a model's driver from its model.json, which says which accessors are inputs and outputs.

bind.py MODEL.JSON… HEADER OUT.CC, with a library's output group `manifest`
"""

from __future__ import annotations

import json
import sys
from typing import Any

_SOURCE = """\
// Generated from {manifest}; do not edit.
#include "benchmarks/driver.h"
#include "{header}"

namespace {{

using Model = ::{model};

struct Bound {{
  Model model;
  bool Run() {{ return model.{run}(); }}
  const char* error() const {{ return model.error(); }}
  template <typename Visit>
  void Inputs(Visit visit) {{
{inputs}
  }}
  template <typename Visit>
  void Outputs(Visit visit) {{
{outputs}
  }}
}};

}}  // namespace

int main(int argc, char** argv) {{
  return tfaot::benchmarks::Serve<Bound>(argc, argv);
}}
"""


def source(manifest: dict[str, Any], name: str, header: str) -> str:
    """Returns the source of a driver for a manifest's first entry point."""
    entry = manifest["entry_points"][0]

    def visits(tensors: list[dict[str, Any]]) -> str:
        return "\n".join(f"    visit(model.{tensor['cpp_name']}());" for tensor in tensors)

    return _SOURCE.format(
        manifest=name,
        header=header,
        model=manifest["cpp_class"],
        run=entry["cpp_name"],
        inputs=visits(entry["inputs"]),
        outputs=visits(entry["outputs"]),
    )


def main() -> None:
    """Reads the manifest, and writes the source."""
    *files, header, out = sys.argv[1:]
    (manifest,) = (file for file in files if file.endswith(".model.json"))
    with open(manifest, encoding="utf-8") as file:
        parsed = json.load(file)
    with open(out, "w", encoding="utf-8") as file:
        file.write(source(parsed, manifest.rpartition("/")[2], header))


if __name__ == "__main__":
    main()
