"""The compile stage: `passes/` rewrite the graph, tfcompile compiles it, and `program/` takes over what tfcompile made."""
