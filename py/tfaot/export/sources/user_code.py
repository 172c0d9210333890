"""User code that runs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tfaot.core import caller, isolate, user_code
from tfaot.core.errors import TfaotError
from tfaot.export.sources import distribution


def seed_everything() -> None:
    """Seeds every generator that initial values can come from."""
    user_code.seed_everything()
    tf.random.set_seed(user_code.SEED)


class UserCode(user_code.UserCode):
    """A model's Python file, run so that its errors point to lines in it."""

    def __init__(self, path: str, replicas: int = 0) -> None:
        """Runs the file. A `tf.distribute` strategy has this number of replicas; 0 if the target doesn't say."""
        self._warned = False
        self._unmasked: set[str] = set()
        self._refusal: TfaotError | None = None
        distribution.refuse(self._several)
        if replicas > 1:
            distribution.distribute(replicas)
        elif not replicas:
            distribution.watch(self._reduced)
        super().__init__(path)

    def _reduced(self, strategy: str, frames: Iterable[Any]) -> None:
        """Warns once of a reduction that isn't in the graph."""
        if not self._warned:
            self._warned = True
            isolate.warn(
                f"{self.path}: tf.distribute's {strategy} has one replica here, so the compiled code reduces nothing over "
                f"replicas: at {self.place(frames) or self.path}; to train in several processes, say how many replicas there are: "
                f"{caller.setting('replicas', 4)}"
            )

    def lost_mask(self, layer: str, kind: str) -> None:
        """Warns once of a Keras layer that drops its input's mask."""
        if layer not in self._unmasked:
            self._unmasked.add(layer)
            isolate.warn(
                f"{self.path}: the Keras layer {layer} ({kind}) drops the mask of its input, so later layers take padding for "
                "values; if it keeps values in their places, set supports_masking = True in it; otherwise, give it "
                "call(self, inputs, mask=None), and compute_mask, or pass the mask to later layers yourself"
            )

    def _several(self, strategy: str, replicas: int, frames: Iterable[Any]) -> None:
        """Refuses a strategy with all of its replicas in this process."""
        self._refusal = TfaotError(
            f"{self.path}: tf.distribute's {strategy} runs {replicas} replicas at {self.place(frames) or self.path}",
            exists="the graph of all replicas together; each one is to be an instance of the compiled class",
            do=f"give the strategy one device, such as MirroredStrategy(['CPU:0']), and the target "
            f"{caller.setting('replicas', replicas)}",
        )
        raise self._refusal

    def run(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls user code; see the class that this one extends."""
        try:
            return super().run(what, function, *args)
        except TfaotError:
            # AutoGraph makes another exception of the refusal.
            if self._refusal is not None:
                raise self._refusal from None
            raise

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
