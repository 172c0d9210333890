"""Checks that the rows of a batch are independent; `check` is the entry point, and explains the method."""
