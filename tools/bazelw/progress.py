"""Reports the current step and its progress on standard error."""

from __future__ import annotations

import sys
import time
from typing import TextIO

# Without a terminal (as in a CI log), minimum seconds between two lines.
_LOG_INTERVAL = 5.0
_TERMINAL_INTERVAL = 0.1


class Progress:
    """Writes plain lines, plus one updating line if `stream` is a terminal. Not thread-safe."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._last = 0.0
        self._moving = False

    def say(self, text: str) -> None:
        """Writes a permanent line."""
        self._clear()
        self._stream.write(f"bazelw: {text}\n")
        self._stream.flush()

    def move(self, text: str) -> None:
        """Shows `text` until the next call, no more often than is useful to a reader."""
        now = time.monotonic()
        if now - self._last < (_TERMINAL_INTERVAL if self._terminal else _LOG_INTERVAL):
            return
        self._last = now
        if self._terminal:
            self._stream.write(f"\r\x1b[Kbazelw: {text}")
            self._moving = True
        else:
            self._stream.write(f"bazelw: {text}\n")
        self._stream.flush()

    def _clear(self) -> None:
        if self._moving:
            self._stream.write("\r\x1b[K")
            self._moving = False


def megabytes(count: float) -> str:
    """Formats `count` bytes in megabytes (10^6 bytes)."""
    return f"{count / 1e6:.1f} MB"
