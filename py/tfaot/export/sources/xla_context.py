"""Building a graph that knows it will be compiled by XLA, so that gradients of loops can be.

`while_v2` sizes what it saves for the gradient either by a bound known beforehand or by a growing list. XLA takes only
the first, and TensorFlow chooses it when the graph is built inside an XLA context. A finished graph cannot be
repaired. Entering `XLAControlFlowContext` itself makes `tf.Variable(tensor)` raise, so the question is answered instead.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

_MODULES = ("tensorflow.python.ops.control_flow_util", "tf_keras.src.utils.control_flow_util")
"""TensorFlow's own, and the copy that Keras 2 keeps."""


@contextlib.contextmanager
def xla_context() -> Iterator[None]:
    """Every graph that is built inside believes it is in an XLA context; restored on leaving, whatever happens."""
    modules: list[Any] = []
    for name in _MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            modules.append(importlib.import_module(name))
    saved = [(module, module.GraphOrParentsInXlaContext) for module in modules]
    try:
        for module in modules:
            module.GraphOrParentsInXlaContext = lambda graph: True
        yield
    finally:
        for module, function in saved:
            module.GraphOrParentsInXlaContext = function
