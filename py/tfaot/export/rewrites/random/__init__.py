"""Random ops of a graph, made to follow one variable: `state` is the way in."""
