"""The loops of a graph, as passes see and edit them; `loops` is the entry point."""
