"""Runs compiled models from Python, through the C interface of a shared library.

It needs NumPy, and nothing of TensorFlow.
"""

from tfaot.run.library import ModelError, RunCancelled
from tfaot.run.model import Edges, EntryPoint, Model, Outputs, Tensors, load
from tfaot.run.values import aligned_empty
from tfaot.run.weights import LiveWeights, Weights

__all__ = [
    "Edges",
    "EntryPoint",
    "LiveWeights",
    "Model",
    "ModelError",
    "Outputs",
    "RunCancelled",
    "Tensors",
    "Weights",
    "aligned_empty",
    "load",
]
