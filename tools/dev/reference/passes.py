"""The page of passes, from the table of passes and the docstrings of their modules."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.dev.reference.markdown import linked, notice, sentence

PAGE = "docs/reference/passes.md"
TABLE = "py/tfaot/compile/table.py"
_ABOUT = """\
# Passes

```starlark
passes = ["*"],                        # the default: all
passes = ["*", "!fold_batch_norm"],    # all but one
passes = [],                           # none
```
Passes rewrite a model so that a CPU runs it faster. Patterns are globs over the names below. Later patterns win, and a
pattern that matches no pass is an error. A pass changes no input, output, or variable.
[How passes work](../internals/passes.md) says how to write one.

Times are the least of many calls on one core of an AMD EPYC (Zen 5) at x86-64-v4, unless a pass says otherwise, while other
work ran on the other core. `python3 benchmarks/flags.py --models MODEL --without PASS` measures a model with and without a
pass, and [performance](../measured/performance.md) has whole models.

## What the passes did

The output group `manifest` has a `NAME.passes.json` for each entry point and batch size. The file gives the number of
places that each pass changed: 0 if it changed none, and `null` if it is off. `failed` has
what a pass said that raised an exception: the build goes on without it, and warns. `packed` lists the packed constants, with
their shapes and their bytes before and after. `kernels` lists the runtime's sources that the code calls; programs link
them for the code's CPU levels. `remaining` has the number of XLA's kernels that the code still calls, by CPU level.

`missed` lists near misses: what a pass is for, but left as it is. Each has the `pass`, `what` it left (the symbol of a kernel
or a constant, a product's sizes, or a node of the graph), the node that it comes from (`origin`), and the `reason`: something
else reads the value, a write or a loop is in between, or it is too small. `./bazelw run //tools/dev:profile` and `tfaot profile`
show them below the time of the kernel.

Only the compile stage applies passes. HLO, StableHLO, bundles, and TensorFlow's own numbers come from the graph as it was
exported. Every generated test therefore compares rewritten code with the original.
"""


def pages(root: Path) -> dict[str, str]:
    """Returns the page by its path."""
    parts = [f"\n## {name}\n\n{linked(text)}\n" for name, text in passes(root).items()]
    return {PAGE: notice(f"{TABLE} and the modules of the passes") + _ABOUT + "".join(parts)}


def passes(root: Path) -> dict[str, str]:
    """Returns what the module of each pass says, by the pass's name and in the order in which they run."""
    tree = ast.parse((root / TABLE).read_text(encoding="utf-8"))
    modules = {
        name.name: f"py/{node.module.replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Pass"
    ]
    texts = {}
    for call in calls:
        name, function = ast.literal_eval(call.args[0]), ast.unparse(call.args[2])
        text = ast.get_docstring(ast.parse((root / modules[function]).read_text(encoding="utf-8"))) or ""
        first, *others = (" ".join(part.split()) for part in text.split("\n\n"))
        first = sentence(first.removeprefix(f"The pass `{name}`: "))
        conditions = next((i for i, other in enumerate(others) if other.startswith("Applies")), len(others))
        texts[name] = "\n\n".join(
            filter(None, (" ".join([first, *others[:conditions]]), " ".join(others[conditions:])))
        )
    return texts
