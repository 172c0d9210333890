"""The export stage: from a model's Python source to a graph, its config, and the manifest."""
