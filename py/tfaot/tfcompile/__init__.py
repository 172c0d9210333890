"""Runs tfcompile from the wheel: its inputs, the call itself, and error messages for when it dies."""
