"""The models of definitions.py, in each framework."""
