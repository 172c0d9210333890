"""Ways in: each gives a model as a `Source` (`export/traced.py`)."""
