"""The report on a compiled model."""
