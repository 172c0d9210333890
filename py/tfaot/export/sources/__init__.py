"""Ways to read a model. Each returns it as a `Source` (`export/traced.py`)."""
