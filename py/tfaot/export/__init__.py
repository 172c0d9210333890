"""The export stage: from a model to a graph, its config, and the manifest."""
