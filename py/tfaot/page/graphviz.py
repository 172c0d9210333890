"""Draws graphs with Graphviz, from the wheel of pygraphviz.

It calls the C library without the wheel's plugin for fonts. So text has Graphviz's own estimate of its size, which is the same on
every machine.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

from tfaot.core.errors import TfaotError

_PLUGINS = ("gvplugin_core_LTX_library", "gvplugin_dot_layout_LTX_library")


class _Symbol(ctypes.Structure):
    """Graphviz's `lt_symlist_t`."""

    _fields_ = (("name", ctypes.c_char_p), ("address", ctypes.c_void_p))


@functools.cache
def _library() -> tuple[Any, int]:
    """Returns Graphviz, and a context with the plugins that lay out and write SVG."""
    from pygraphviz import _graphviz

    library = ctypes.CDLL(_graphviz.__file__)
    address, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("gvContextPlugins", address, (address, ctypes.c_int)),
        ("agmemread", address, (text,)),
        ("gvLayout", ctypes.c_int, (address, address, text)),
        ("gvRenderData", ctypes.c_int, (address, address, text, address, address)),
        ("gvFreeLayout", ctypes.c_int, (address, address)),
        ("agclose", ctypes.c_int, (address,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.agseterr(1)  # errors, and no warnings of characters whose width it doesn't know
    at = (ctypes.addressof(ctypes.c_char.in_dll(library, name)) for name in _PLUGINS)
    symbols = [_Symbol(name.encode(), address) for name, address in zip(_PLUGINS, at, strict=True)]
    context: int = library.gvContextPlugins((_Symbol * (len(symbols) + 1))(*symbols), 0)
    return library, context


def draw(dot: str) -> str:
    """Returns a graph as SVG that can be part of an HTML page.

    Args:
      dot: the graph in Graphviz's language.

    Raises:
      TfaotError: it isn't one.
    """
    library, context = _library()
    graph = library.agmemread(dot.encode())
    if not graph:
        raise TfaotError(
            "Graphviz can't read a graph of the report", do="this is a bug of rules_tfaot: please report it"
        )
    out, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.gvLayout(context, graph, b"dot")
    library.gvRenderData(context, graph, b"svg", ctypes.byref(out), ctypes.byref(size))
    svg = ctypes.string_at(out.value or 0, size.value).decode()
    library.gvFreeLayout(context, graph)
    library.agclose(graph)
    svg = svg[svg.index("<svg") :]
    # Graphviz writes tooltips as links to nowhere, names as tooltips, and the same identifiers in each picture.
    svg = re.sub(
        r'<!--.*?-->\n|<title>.*?</title>\n| id="[^"]*"| font-(?:family|size)="[^"]*"', "", svg, flags=re.DOTALL
    )
    svg = re.sub(r'<a xlink:title="([^"]*)">', r"<g><title>\1</title>", svg).replace("</a>", "</g>")
    return svg.replace("<g><title> </title>", "<g>")
