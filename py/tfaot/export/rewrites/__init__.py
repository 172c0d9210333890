"""Rewrites of the whole graph, as pure functions of a GraphDef. `export.py` determines their order."""
