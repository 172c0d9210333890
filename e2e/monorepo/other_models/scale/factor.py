"""A constant of another module."""

FACTOR = 10.0
