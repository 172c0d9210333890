"""Runs the export stage: `export.py --model=model.py … --out_graph=graph.pb …`, or `export.py @params`."""

from __future__ import annotations

from tfaot.core import environment, isolate, requests
from tfaot.export.request import Request


def main() -> None:
    """Exports the model in a child process."""
    request = requests.parse(Request, description=__doc__)
    environment.need_keras(legacy=request.model.legacy_keras)

    def work() -> None:
        environment.prepare(legacy_keras=request.model.legacy_keras)
        from tfaot.export.export import export

        export(request)

    isolate.run_isolated(work, what=f"exporting {request.model.path}")


if __name__ == "__main__":
    isolate.main(main)
