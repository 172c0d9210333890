"""TensorFlow models ahead of time: export, compile, render, link, verify. See ARCHITECTURE.md.

A program that runs compiled models needs `tfaot.load` and nothing else of this package (docs/guide/embedding.md):

    model = tfaot.load("libscorer_shared.so")
    print(model.run(x=batch).score)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfaot.run import LiveWeights as LiveWeights
    from tfaot.run import Model as Model
    from tfaot.run import ModelError as ModelError
    from tfaot.run import RunCancelled as RunCancelled
    from tfaot.run import Weights as Weights
    from tfaot.run import aligned_empty as aligned_empty
    from tfaot.run import load as load

_RUN = ("LiveWeights", "Model", "ModelError", "RunCancelled", "Weights", "aligned_empty", "load")


def __getattr__(name: str) -> Any:
    """Imports `tfaot.run` on first use, because the stages don't need it."""
    if name not in _RUN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("tfaot.run"), name)
