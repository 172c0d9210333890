"""Shows what the command does: a line that moves on a terminal, and a line for each step in a log."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn


class Progress:
    """Steps of a command, on standard error. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar: Bar | None = None
        self._last: tuple[str, float] | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Bar(*columns, console=self._console, transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._finish()

    def step(self, what: str) -> None:
        """Ends the last step, and starts one."""
        self._finish()
        self._last = (what, time.monotonic())
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task(what)

    def _finish(self) -> None:
        if self._last is not None:
            what, start = self._last
            self._console.print(f"{what}: {time.monotonic() - start:.1f} s", markup=False)
            self._last = None
