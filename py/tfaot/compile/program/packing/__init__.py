"""Passes that store constants in the order in which kernels read them."""
