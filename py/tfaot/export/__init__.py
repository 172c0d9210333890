"""The export stage: turns a model into a graph, its config, and the manifest."""
