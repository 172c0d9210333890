"""Notices Keras layers that drop the mask of their input, so that later layers take padding for values. Keras 2 doesn't tell."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def watched(lost: Callable[[str, str], None]) -> Iterator[None]:
    """Calls `lost` with the name of a layer and its class, for each call of a layer of either Keras that drops a mask."""
    owners = [
        getattr(module, name)
        for path, name in (
            ("keras.src.ops.operation", "Operation"),  # layers of Keras 3, and functions between them
            ("tf_keras.src.engine.base_layer", "Layer"),
        )
        if (module := sys.modules.get(path)) is not None
    ]
    originals = [owner.__call__ for owner in owners]
    for owner, original in zip(owners, originals, strict=True):
        owner.__call__ = _watching(original, lost)
    try:
        yield
    finally:
        for owner, original in zip(owners, originals, strict=True):
            owner.__call__ = original


def _watching(original: Any, lost: Callable[[str, str], None]) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        masked = _is_masked(args[:1])  # before the call, which can take the mask away
        outputs = original(self, *args, **kwargs)
        keeps = getattr(self, "supports_masking", False)
        takes = getattr(self, "_call_has_mask_arg", False) or getattr(self, "_expects_mask_arg", False)
        if masked and not keeps and not takes and not _is_masked(outputs):
            lost(self.name, type(self).__name__)
        return outputs

    return call


def _is_masked(tensors: Any) -> bool:
    return any(getattr(tensor, "_keras_mask", None) is not None for tensor in tf.nest.flatten(tensors))
