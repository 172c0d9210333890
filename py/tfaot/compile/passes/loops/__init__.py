"""The loops of a graph, as passes see and change them: `loops` is the way in."""
