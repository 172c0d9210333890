"""Rewrites of the whole graph, pure functions of a GraphDef; `export.py` puts them in order."""
