"""The compile stage: `passes/` rewrite the graph, tfcompile compiles it, and `program/` changes and renders the result."""
