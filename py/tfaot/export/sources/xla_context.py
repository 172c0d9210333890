"""Makes graphs believe that XLA will compile them, so that gradients of loops can be compiled.

For the gradient, `while_v2` saves values either in a list of known maximum size or in a growing list. XLA accepts only the
former, and TensorFlow chooses it when the graph is built inside an XLA context. A finished graph can't be repaired. Entering
`XLAControlFlowContext` itself makes `tf.Variable(tensor)` raise an exception, so we override the check instead.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

_MODULES = ("tensorflow.python.ops.control_flow_util", "tf_keras.src.utils.control_flow_util")
"""TensorFlow's own module, and the copy in Keras 2."""


@contextlib.contextmanager
def xla_context() -> Iterator[None]:
    """Makes every graph that is built inside believe that it is in an XLA context. Always restores the original."""
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
