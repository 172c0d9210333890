"""The flags that say where a model is, for the mains of stages that open it. Without TensorFlow."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from tfaot.core.errors import TfaotError
from tfaot.export.sources.model import Model


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the flags to a parser."""
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", help="the model's Python file")
    model.add_argument("--saved_model", help="the model's folder")
    model.add_argument("--graph", help="the model's GraphDef, .pb or .pbtxt")
    model.add_argument("--stablehlo", help="the model's StableHLO")
    parser.add_argument("--signature", action="append", type=pair, help="PARAMETER=dtype[sizes] of a Python file")
    parser.add_argument("--saved_model_tag", action="append", help="a tag of the meta graph in a SavedModel")
    parser.add_argument("--graph_config", help="a complete tf2xla config of --graph")
    parser.add_argument("--input", action="append", help="a feed of --graph")
    parser.add_argument("--output", action="append", help="a fetch of --graph")
    parser.add_argument("--checkpoint", help="values of the variables of --graph")
    parser.add_argument("--saver", help="a SaverDef that describes how to restore --checkpoint")
    parser.add_argument("--debug_info", help="a GraphDebugInfo of --graph")
    parser.add_argument("--golden_inputs", help="a Python file with golden_fn, or arrays, .npz or .safetensors")
    parser.add_argument("--entry_point", action="append", type=pair, help="C++ name=the model's own name")
    parser.add_argument(
        "--dims", action="append", type=pair, help="INPUT=32,?,3: sizes for the dimensions that the model leaves open"
    )
    parser.add_argument("--batch_size", action="append", type=int, help="a batch size to compile for")
    parser.add_argument("--freeze", choices=("default", "listed"), default="default", help="what --frozen means")
    parser.add_argument("--frozen", action="append", help="a pattern of variables that become constants")


def model_of(flags: Any) -> Model:
    """Returns the model that parsed flags name."""
    return Model(
        model=flags.model,
        signature=dict(flags.signature or ()),
        saved_model=flags.saved_model,
        saved_model_tags=tuple(flags.saved_model_tag or ("serve",)),
        graph=flags.graph,
        graph_config=flags.graph_config,
        inputs=tuple(flags.input or ()),
        outputs=tuple(flags.output or ()),
        checkpoint=flags.checkpoint,
        saver=flags.saver,
        debug_info=flags.debug_info,
        stablehlo=flags.stablehlo,
        golden_inputs=flags.golden_inputs,
    )


def frozen_of(flags: Any) -> tuple[str, ...] | None:
    """Returns the patterns of variables that become constants, or None for the rules' choice."""
    return None if flags.freeze == "default" else tuple(flags.frozen or ())


def dims_of(pairs: Sequence[tuple[str, str]] | None) -> Mapping[str, tuple[int | None, ...]]:
    """Returns sizes by input. `?` keeps the model's own size.

    Raises:
      TfaotError: a size is neither `?` nor a number of 0 or more.
    """
    for name, sizes in pairs or ():
        if wrong := [
            size for size in sizes.split(",") if size and size != "?" and not (size.isascii() and size.isdigit())
        ]:
            raise TfaotError(
                f"dims has a size of {name} that isn't a number",
                exists=", ".join(wrong),
                do="give a number of 0 or more for each dimension, or ? (None in a BUILD file) for the model's own size",
            )
    return {
        name: tuple(None if size == "?" else int(size) for size in sizes.split(",") if size)
        for name, sizes in pairs or ()
    }


def pair(text: str) -> tuple[str, str]:
    """Parses NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} isn't NAME=VALUE")
    return name, value
