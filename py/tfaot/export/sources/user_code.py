"""User code that runs TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfaot.core import isolate, user_code
from tfaot.core.errors import TfaotError
from tfaot.export.sources import replicas


def seed_everything() -> None:
    """Seeds every generator that initial values can come from."""
    user_code.seed_everything()
    tf.random.set_seed(user_code.SEED)


class UserCode(user_code.UserCode):
    """A model's Python file, run so that its errors point to lines in it."""

    def __init__(self, path: str) -> None:
        self._warned = False
        replicas.watch(self._reduced)
        super().__init__(path)

    def _reduced(self, strategy: str, frames: Iterable[Any]) -> None:
        """Warns once of a reduction that isn't in the graph."""
        if not self._warned:
            self._warned = True
            isolate.warn(
                f"{self.path}: tf.distribute's {strategy} has one replica here, so the compiled code reduces nothing over "
                f"replicas: at {self.place(frames) or self.path}; to train in several processes, average gradients between "
                "two entry points, in your program"
            )

    def error(self, what: str, error: BaseException) -> TfaotError:
        """Makes an error from an exception in the user's code."""
        if not isinstance(error, tf.errors.OpError) or error.op is None:
            return super().error(what, error)
        # Raised by a session. What counts is where the op was made; TensorFlow's text contains its traceback, twice.
        text = error.message.rpartition("\nNode: ")[2].partition("\n\nOriginal stack trace")[0]
        place = self.place(error.op.traceback) or self.path
        return TfaotError(
            f"{self.path}: {what} raised {type(error).__name__} at {place}", details=text, do=f"fix {place}"
        )
