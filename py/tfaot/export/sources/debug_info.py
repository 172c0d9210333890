"""Finds the line of user code that made a node, from the debug information that TensorFlow saves with a graph."""

from __future__ import annotations

import os
from collections.abc import Iterable

from google.protobuf import message, text_format
from tensorflow.core.framework import graph_debug_info_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError

_PACKAGES = ("/site-packages/", "/dist-packages/", "/tensorflow/python/", "/keras/src/")
"""Parts of paths that aren't user code."""


def read(path: str) -> graph_debug_info_pb2.GraphDebugInfo:
    """Reads a GraphDebugInfo, binary or text.

    Raises:
      TfaotError: the file isn't one.
    """
    with open(path, "rb") as file:
        data = file.read()
    info = graph_debug_info_pb2.GraphDebugInfo()
    try:
        info.ParseFromString(data)
        if info.files or not data:
            return info
    except message.DecodeError:
        pass
    try:
        text_format.Parse(data.decode(), info)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise TfaotError(
            f"{path} isn't a GraphDebugInfo",
            details=str(error),
            do="use the file that TensorFlow wrote (tensorflow.GraphDebugInfo, as a binary or a text proto), or remove "
            + caller.option("debug_info"),
        ) from None
    return info


def sources(info: graph_debug_info_pb2.GraphDebugInfo) -> dict[str, str]:
    """Returns `file:line` by node name, or by `function/node` inside functions.

    Among the stack frames of a node, the innermost one outside installed packages counts. Files below the working directory
    have relative paths. TensorFlow has written the frames of `traces` in both orders, so for those, both ends are shown.
    """
    files = [shown(file) for file in info.files]

    def places_of(frames: Iterable[graph_debug_info_pb2.GraphDebugInfo.FileLineCol]) -> list[str]:
        return [
            f"{files[frame.file_index]}:{frame.line}"
            for frame in frames
            if frame.file_index < len(files) and files[frame.file_index]
        ]

    def place(frames: Iterable[graph_debug_info_pb2.GraphDebugInfo.FileLineCol]) -> str:
        return next(reversed(places_of(frames)), "")

    def ends(frames: Iterable[graph_debug_info_pb2.GraphDebugInfo.FileLineCol]) -> str:
        frame_places = places_of(frames)
        return ", ".join(dict.fromkeys([*frame_places[:1], *frame_places[-1:]]))

    by_id = {
        key: place([info.frames_by_id[i] for i in trace.frame_id if i in info.frames_by_id] or trace.file_line_cols)
        for key, trace in info.traces_by_id.items()
    }
    places = {name: by_id.get(key, "") for name, key in info.name_to_trace_id.items()}
    # For TensorFlow up to 2.15.
    places |= {name: ends(trace.file_line_cols) for name, trace in info.traces.items()}
    return {_node(name): line for name, line in places.items() if line}


def _node(key: str) -> str:
    """Converts TensorFlow's `node@function` and `node@`."""
    node, _, function = key.partition("@")
    return f"{function}/{node}" if function else node


def shown(file: str) -> str:
    """Returns a file's path as errors show it, or nothing if it isn't user code."""
    if file.startswith("<") or any(part in file for part in _PACKAGES):
        return ""
    root = os.getcwd() + os.sep
    return file[len(root) :] if file.startswith(root) else file
