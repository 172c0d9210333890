"""Checks that the rows of a batch are independent. The entry point is `check`, which also explains the method."""
