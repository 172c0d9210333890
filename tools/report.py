"""Runs the report stage: `report.py --model=model.py … --out_text=report.txt …`, or `report.py @params`."""

from __future__ import annotations

from tfaot.core import environment, isolate, requests
from tfaot.preflight import run


def main() -> None:
    """Checks the model in a child process, and writes the report. A bad model isn't an error here."""
    request = requests.parse(run.Request, description=__doc__)
    environment.need_keras(legacy=request.model.legacy_keras)

    def work() -> None:
        environment.prepare(legacy_keras=request.model.legacy_keras)
        run.write(run.isolated(request), request)

    isolate.run_isolated(work, what=f"checking {request.model.path}")


if __name__ == "__main__":
    isolate.main(main)
