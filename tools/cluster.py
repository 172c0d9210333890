"""Runs the cluster stage: `cluster.py --model=model.py … --out_graph=graph.pb …`, or `cluster.py @params`."""

from __future__ import annotations

from tfaot.cluster.request import Request
from tfaot.core import environment, isolate, requests


def main() -> None:
    """Cuts the model in a child process."""
    request = requests.parse(Request, description=__doc__)
    environment.need_keras(legacy=request.model.legacy_keras)

    def work() -> None:
        environment.prepare(legacy_keras=request.model.legacy_keras)
        from tfaot.cluster.cluster import cluster

        cluster(request)

    isolate.run_isolated(work, what=f"finding the clusters of {request.model.path}")


if __name__ == "__main__":
    isolate.main(main)
