"""Runs compiled models from Python, through the C interface of a shared library.

It needs NumPy, and nothing of TensorFlow.
"""

from tfaot.run.library import ModelError
from tfaot.run.model import EntryPoint, Model, Outputs, Tensors, load

__all__ = ["EntryPoint", "Model", "ModelError", "Outputs", "Tensors", "load"]
