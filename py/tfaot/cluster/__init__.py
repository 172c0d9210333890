"""The cluster stage: finds the parts of a graph that compile, and cuts them out."""
