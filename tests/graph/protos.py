"""Handwritten graphs, for what real graphs don't contain."""

from __future__ import annotations

from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2


def parse(*texts: str) -> graph_pb2.GraphDef:
    """Parses nodes and parts of a library, which the text format requires in one piece."""
    graph = graph_pb2.GraphDef()
    for text in "".join(texts).splitlines():
        text_format.Merge(text, graph)
    return graph


def node(name: str, op: str, *inputs: str, **attributes: str) -> str:
    """Returns a node in text format. Attributes are the text of their values."""
    lines = [f'name: "{name}" op: "{op}"', *(f'input: "{operand}"' for operand in inputs)]
    lines += [f'attr {{ key: "{key}" value {{ {value} }} }}' for key, value in attributes.items()]
    return "node { " + " ".join(lines) + " }\n"


def variable(name: str, shared: str | None = None, shape: str = "dim { size: 2 }") -> str:
    """Returns a variable's handle."""
    shared_name = f's: "{name if shared is None else shared}"'
    return node(name, "VarHandleOp", shared_name=shared_name, dtype="type: DT_FLOAT", shape=f"shape {{ {shape} }}")


def function(name: str, args: str, nodes: str, returns: str = "", result: str = "") -> str:
    """Returns a function with resource arguments, and optionally one result."""
    inputs = " ".join(f'input_arg {{ name: "{arg}" type: DT_RESOURCE }}' for arg in args.split())
    output = f'output_arg {{ name: "{result}" type: DT_RESOURCE }}' if result else ""
    ret = f'ret {{ key: "{result}" value: "{returns}" }}' if result else ""
    body = nodes.replace("node {", "node_def {").replace("\n", " ")
    return f'library {{ function {{ signature {{ name: "{name}" {inputs} {output} }} {body} {ret} }} }}\n'
