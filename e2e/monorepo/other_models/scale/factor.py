"""A factor that models of this repository share."""

FACTOR = 10.0
