"""Passes that replace kernels of XLA's by calls of the runtime."""
