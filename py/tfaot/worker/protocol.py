"""The lines that Bazel and a persistent worker exchange.

Each is an object in JSON, in the format of Bazel's `src/main/protobuf/worker_protocol.proto`. Fields with their default
values are missing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Request:
    """What Bazel asks for."""

    number: int
    """0 if Bazel sends one request at a time."""
    arguments: tuple[str, ...]
    inputs: tuple[str, ...]
    """Files and folders, relative to `folder`."""
    folder: str
    """Where inputs and outputs are, relative to the worker's own folder; usually that folder itself."""
    cancel: bool
    """Whether this cancels the request with this number, and is otherwise empty."""

    @staticmethod
    def of(line: str) -> Request:
        """Reads a line."""
        fields = json.loads(line)
        return Request(
            number=fields.get("requestId", 0),
            arguments=tuple(fields.get("arguments", ())),
            inputs=tuple(entry["path"] for entry in fields.get("inputs", ())),
            folder=fields.get("sandboxDir", ""),
            cancel=fields.get("cancel", False),
        )

    def line(self) -> str:
        """Writes the line that `of` reads."""
        return json.dumps(
            {
                "requestId": self.number,
                "arguments": self.arguments,
                "inputs": [{"path": path} for path in self.inputs],
                "sandboxDir": self.folder,
                "cancel": self.cancel,
            }
        )


@dataclasses.dataclass(frozen=True)
class Response:
    """What a worker answers, once for each request."""

    number: int
    status: int
    """The exit status of the stage."""
    output: str
    """What the stage printed."""
    cancelled: bool = False

    @staticmethod
    def of(line: str) -> Response:
        """Reads a line."""
        fields = json.loads(line)
        return Response(fields["requestId"], fields["exitCode"], fields["output"], fields["wasCancelled"])

    def line(self) -> str:
        """Writes the line that Bazel reads. JSON escapes line breaks."""
        return json.dumps(
            {"requestId": self.number, "exitCode": self.status, "output": self.output, "wasCancelled": self.cancelled}
        )


def sealed(token: str, line: str) -> bytes:
    """Returns a line between a worker's processes, with their token. User code can write other lines to their pipes."""
    return f"\n{token} {line}\n".encode()


def unsealed(token: str, lines: Iterable[bytes]) -> list[str]:
    """Returns those lines that have the token, without it."""
    start = f"{token} "
    return [text.removeprefix(start) for line in lines if (text := line.decode(errors="replace")).startswith(start)]
