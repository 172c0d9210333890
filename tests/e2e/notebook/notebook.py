"""Runs a notebook that loads, shows, and trains the model of examples/fc, and checks what its cells show."""

from __future__ import annotations

import sys
from typing import Any

import nbclient
import nbformat

CELLS = (
    'import numpy as np\nimport tfaot\n\nmodel = tfaot.load("libfc_aot_shared.so")\nmodel',
    "print(model)",
    "model.variables",
    "y = np.eye(10)[np.arange(64) % 10]\n"
    "x = np.random.default_rng(0).standard_normal((64, 784)) + 3 * np.repeat(y, 79, axis=1)[:, :784]\n"
    "losses = [float(model.run(x=x, y=y).loss) for _ in range(20)]\n"
    "losses[-1] < losses[0]",
    "model.run(x=x[:3], y=y)",
    'import sys\n"tensorflow" in sys.modules',
)
SIGNATURE = "Run(x: float32[64, 784], y: float32[64, 10]) -> loss: float32[]"


def shown(output: Any) -> dict[str, str]:
    """Returns what a cell shows, by MIME type; for an error, its text."""
    if output["output_type"] == "error":
        return {"error": f"{output['ename']}: {output['evalue']}"}
    if output["output_type"] == "stream":
        return {"stdout": output["text"]}
    return dict(output["data"])


def main() -> None:
    """Runs the notebook, and fails unless each cell shows what it should."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    cells = [[shown(output) for output in cell["outputs"]] for cell in notebook["cells"]]
    for source, outputs in zip(CELLS, cells, strict=True):
        print(f"In:  {source}\nOut: {outputs}\n"[:2000])
    (model,), (printed,), (variables,), (learned,), (refused,), (imported,) = cells
    checks = {
        "text shows the signature": SIGNATURE in model["text/plain"],
        "HTML is a table": "<table>" in model["text/html"] and "<td>float32[64, 784]</td>" in model["text/html"],
        "HTML shows the class": "<b>examples::fc::Fc</b>" in model["text/html"],
        "print shows the signature": SIGNATURE in printed["stdout"],
        "variables are listed": "fc_hidden0_kernel: float32[784, 256]" in variables["text/plain"],
        "the model learns": learned["text/plain"] == "True",
        "an error says what the input is": "'x' can't have the shape [3, 784]" in refused["error"],
        "without TensorFlow": imported["text/plain"] == "False",
    }
    if wrong := [name for name, right in checks.items() if not right]:
        sys.exit(f"failed: {wrong}")
    print("passed")


if __name__ == "__main__":
    main()
