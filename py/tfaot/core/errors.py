"""The only kind of error that a user of the rules sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TfaotError(Exception):
    """Says what was asked, what exists, and what to do, in that order.

    Mains print it without a traceback and exit with status 1. Any other exception that escapes is a bug in rules_tfaot.
    """

    def __init__(self, asked: str, *, exists: str = "", do: str, details: str = "") -> None:
        super().__init__(asked, exists, do, details)
        self.asked = asked
        self.exists = exists
        self.do = do
        self.details = details

    def __reduce__(self) -> tuple[Callable[..., TfaotError], tuple[str, str, str, str]]:
        return _restore, (self.asked, self.exists, self.do, self.details)

    def __str__(self) -> str:
        lines = [self.asked]
        if self.details:
            lines += ["", *("    " + line if line.strip() else "" for line in self.details.rstrip().splitlines()), ""]
        if self.exists:
            lines.append("  found: " + self.exists)
        lines.append("  to do: " + self.do)
        return "\n".join(lines)


def _restore(asked: str, exists: str, do: str, details: str) -> TfaotError:
    """Unpickles an error that crosses from a child process to its parent."""
    return TfaotError(asked, exists=exists, do=do, details=details)


def listed(names: Sequence[str], *, limit: int = 12) -> str:
    """Returns `a, b, c`, cut after `limit` names and followed by a count of the rest, or `nothing`."""
    if not names:
        return "nothing"
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
