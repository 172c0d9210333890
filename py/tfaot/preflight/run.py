"""Runs a check in a child process, so that a report comes out whatever the model does to TensorFlow."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfaot.core import isolate, requests
from tfaot.core.errors import TfaotError, listed
from tfaot.export.request import ModelRequest
from tfaot.export.sources.model import Model

if TYPE_CHECKING:  # TensorFlow is imported in the child
    from tfaot.preflight.report import Report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(ModelRequest):
    """What the report stage checks, and where it writes. `entry_points` is by default all of a SavedModel's signatures."""

    out_text: str
    out_json: str
    out_html: str


def of_path(
    path: str,
    *,
    shown: str,
    tags: Sequence[str] = ("serve",),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    entry_points: Sequence[str] = (),
    dims: Mapping[str, tuple[int | str | None, ...]] | None = None,
) -> Report:
    """Checks a file or folder.

    Args:
      path: a SavedModel's folder, a model's Python file, or else a GraphDef.
      shown: the path to write into the report.
      tags: tags of the SavedModel's meta graph.
      inputs: feeds of a GraphDef.
      outputs: fetches of a GraphDef.
      entry_points: the model's own names of what to check; by default, all signatures of a SavedModel, or the first entry
        point of other models.
      dims: sizes that inputs leave open, by label.

    Raises:
      TfaotError: there is no such file or folder.
    """
    if not os.path.exists(path):
        raise TfaotError(
            f"{shown} doesn't exist", do="name a SavedModel's folder, a GraphDef, or a model's Python file"
        )
    path, here = os.path.abspath(path), os.getcwd()
    if os.path.isdir(path):
        model = Model(saved_model=path, saved_model_tags=tuple(tags))
    elif path.endswith(".py"):
        model = Model(model=path)
    else:
        model = Model(graph=path, inputs=tuple(inputs), outputs=tuple(outputs))
    pairs = tuple((name, name) for name in entry_points)
    request = ModelRequest(model=model, entry_points=pairs, dims=dims or {})
    # Lines of user code are those of files below the working directory.
    root = here if path.startswith(os.path.join(here, "")) else os.path.dirname(path)
    return dataclasses.replace(isolated(request, root=root), model=shown)


def isolated(request: ModelRequest, *, root: str = ".") -> Report:
    """Checks a model in a child process. If that dies, the report says so.

    Args:
      request: what to check.
      root: the folder in which the model's own code runs.
    """
    from tfaot.preflight import check

    def work() -> Report:
        os.chdir(root)
        return check.check(request)

    try:
        return isolate.run_isolated(work, what=f"checking {request.model.path}")
    except TfaotError as error:
        died = error
    return isolate.run_isolated(lambda: check.recursive(request) or check.failed(request, died), what="reporting")


def ops_page() -> str:
    """Returns the op table of the installed TensorFlow as Markdown."""
    import tensorflow as tf

    from tfaot.preflight import ops

    return ops.markdown(tf.__version__)


def ops_json() -> str:
    """Returns the op table of the installed TensorFlow as JSON."""
    import tensorflow as tf

    from tfaot.preflight import ops

    return ops.to_json(tf.__version__)


def write(report: Report, request: Request) -> None:
    """Writes a report to files in its three forms."""
    from tfaot.preflight import page

    for path, content in (
        (request.out_text, report.to_text()),
        (request.out_json, report.to_json()),
        (request.out_html, page.html(report)),
    ):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)


def parsed_dims(flags: Sequence[str]) -> dict[str, tuple[int | str | None, ...]]:
    """Parses sizes as flags have them: `x=32,?,3`.

    Raises:
      TfaotError: a flag has another form.
    """
    result: dict[str, tuple[int | str | None, ...]] = {}
    for flag in flags:
        name, _, sizes = flag.rpartition("=")
        if not name:
            raise TfaotError(
                f"--dims {flag} isn't an input with its sizes",
                do="write an input's name and a size for each of its dimensions, such as x=32,?,3; ? keeps the model's own size",
            )
        result[name] = requests.sizes("dims", name, sizes)
        if names := [size for size in result[name] if isinstance(size, str)]:
            raise TfaotError(
                f"--dims {flag} names {listed(names)}",
                exists="a check is for one size, and has no buckets",
                do="write the largest size that you would compile for, such as x=?,256, or ? to keep the model's own size",
            )
    return result
