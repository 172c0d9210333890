"""The one way in which stages read their templates."""

from __future__ import annotations

import functools

import jinja2


@functools.cache
def environment(folder: str) -> jinja2.Environment:
    """Returns the environment for C++ templates in a folder. A name that a template lacks is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
