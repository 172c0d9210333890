"""Replays a bundle from this repository: `PYTHONPATH=py python3 tools/replay.py BUNDLE …`. Bundles contain the script itself."""

from __future__ import annotations

import sys

from tfaot.hlo import replay

if __name__ == "__main__":
    sys.exit(replay.main())
