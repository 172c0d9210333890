"""Gives an untrained Keras model weights that make it respond to its inputs, the same bytes on every machine.

A network with its default initial weights computes nearly the same result for every input: a classifier says 0.001 for
each of 1,000 classes, and a test that compares such numbers would pass whatever the network did. Use `calibrated` where
you have no trained weights, in tests, benchmarks, and examples:

    from tfaot.calibrate import calibrated

    def model():
        return calibrated(keras.applications.MobileNetV2(weights=None))
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core.errors import TfaotError

Array = npt.NDArray[Any]

SAMPLES = 4
"""How many random inputs to compute statistics from, unless the caller provides inputs."""
BITS = 8
"""Bits of a statistic's significand. Statistics are sums, whose last bits differ between machines."""


def calibrated(model: Any, inputs: Any = None, *, seed: int = 7, spread: float = 2.0) -> Any:
    """Replaces the weights of a model, and returns the model.

    - Kernels are normal with He's or Glorot's scale, so signals neither vanish nor explode. Biases, scales, and offsets are
      random too, so leaving one out shows.
    - Moving means and variances of batch norm are those of the values that arrive, computed in one pass from the first
      layer to the last. They are computed in float64 and rounded to a few bits, so they are the same on every machine.
    - The last kernel is scaled so that its layer's results, before an activation, have a standard deviation of `spread`.

    Args:
      model: a Sequential or functional model of Keras 3 or tf-keras.
      inputs: what to call the model with to compute statistics, in the form that `model(inputs)` takes. By default,
        standard normal noise, or zeros and ones for integers.
      seed: seed for the weights. They depend on no other random source.
      spread: the approximate standard deviation of the logits.

    Raises:
      TfaotError: the model is subclassed and can't be rebuilt in float64.
    """
    draw(model, seed=seed)
    twin = _in_float64(model)
    for own, other in zip(model.weights, twin.weights, strict=True):
        other.assign(np.asarray(own).astype(np.asarray(other).dtype))
    for layer in _layers(twin):
        if hasattr(layer, "moving_variance") and hasattr(layer, "moving_mean"):
            _hook(layer, _set_statistics)
    heads = [layer for layer in _layers(twin) if hasattr(layer, "kernel")]
    if heads:
        logits: list[float] = []
        object.__setattr__(heads[-1], "activation", lambda values: values)
        _hook(heads[-1], None, lambda result: logits.append(float(np.std(np.asarray(result)))))
    twin(_noise(model, seed) if inputs is None else inputs, training=False)
    if heads:
        kernel = heads[-1].kernel
        kernel.assign(np.asarray(kernel) * float(rounded(np.array(spread / logits[-1]), 4)))
    for own, other in zip(model.weights, twin.weights, strict=True):
        own.assign(np.asarray(other).astype(np.asarray(own).dtype))
    return model


def draw(model: Any, *, seed: int = 7) -> Any:
    """Replaces the trainable weights of any built Keras model, including subclassed ones, and returns the model."""
    index = 0
    for layer in _layers(model):
        own = layer._trainable_variables if hasattr(layer, "_trainable_variables") else layer._trainable_weights
        for weight in own:
            rng = np.random.default_rng((seed, index))
            index += 1
            name = weight.name.rpartition("/")[2].partition(":")[0]
            values = _drawn(rng, tuple(weight.shape), name, layer)
            weight.assign(values.astype(np.float32).astype(np.asarray(weight).dtype))
    return model


def rounded(values: Array, bits: int = BITS) -> Array:
    """Returns the nearest values whose significands have `bits` bits."""
    fraction, exponent = np.frexp(values)
    result: Array = np.ldexp(np.rint(fraction * 2.0**bits), exponent - bits)
    return result


def _drawn(rng: np.random.Generator, shape: Sequence[int], name: str, layer: Any) -> Array:
    """Returns a weight's new values in float64."""
    if name in ("gamma", "scale"):
        return rng.uniform(0.5, 1.5, shape)
    if len(shape) < 2 or "bias" in name:
        return 0.1 * rng.standard_normal(shape)
    gain, fan_in = 1.0, math.prod(shape[:-1])
    if equation := getattr(layer, "equation", None):  # of EinsumDense: axes that are summed over are not in the result
        operands, result = equation.replace(" ", "").split("->")
        fan_in = math.prod(n for axis, n in zip(operands.split(",")[1], shape, strict=True) if axis not in result)
    elif getattr(layer, "depth_multiplier", None) and (
        name == "depthwise_kernel" or not hasattr(layer, "pointwise_kernel")
    ):
        gain, fan_in = 2.0, math.prod(shape[:-2])
    elif name == "embeddings":
        fan_in = 1
    elif name != "recurrent_kernel":
        gain = 2.0
    return math.sqrt(gain / fan_in) * rng.standard_normal(shape)


def _set_statistics(layer: Any, values: Array) -> None:
    """Sets the moving mean and variance of a batch norm layer to those of its inputs."""
    axes = layer.axis if isinstance(layer.axis, list | tuple) else [layer.axis]
    others = tuple(axis for axis in range(values.ndim) if axis not in [a % values.ndim for a in axes])
    layer.moving_mean.assign(rounded(values.mean(others)))
    layer.moving_variance.assign(rounded(np.maximum(values.var(others), 1e-4)))


def _hook(layer: Any, before: Any, after: Any = None) -> None:
    """Wraps a layer's call: passes its inputs to `before` and its result to `after`."""
    call = layer.call

    def hooked(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(layer, np.asarray(inputs))
        result = call(inputs, *args, **kwargs)
        if after is not None:
            after(result)
        return result

    object.__setattr__(layer, "call", hooked)


def _layers(model: Any) -> list[Any]:
    """Returns all layers, including nested ones, each once, in the order in which they were added."""
    layers: list[Any] = list(model._flatten_layers(recursive=True, include_self=True))
    return list({id(layer): layer for layer in layers}.values())


def _in_float64(model: Any) -> Any:
    """Returns the same network in float64, with other weights."""
    classes = {type(layer).__name__: type(layer) for layer in _layers(model)[1:]}
    # The functions of Lambda layers are in this process anyway, so nothing is less safe with them.
    with _safe_mode_off(model):
        try:
            return type(model).from_config(_widened(model.get_config()), custom_objects=classes)
        except (NotImplementedError, TypeError, ValueError) as error:
            # Some configs can't be read back, such as that of an operation with a number between its operands.
            twin = _cloned(model)
            if twin is not None:
                return twin
            raise TfaotError(
                f"calibrated() can't rebuild the model {model.name} in float64",
                details=str(error),
                exists=f"{type(model).__name__}, a subclass of Model, has no config that describes its layers",
                do="build the model with Sequential or the functional API; or call tfaot.calibrate.draw(model), which "
                "draws weights but doesn't set statistics",
            ) from None


def _cloned(model: Any) -> Any:
    """Returns the same network in float64, built layer by layer, or None if Keras can't do that."""

    def clone(layer: Any) -> Any:
        return type(layer).from_config(_widened(layer.get_config()))

    try:
        models = importlib.import_module(_package(model) + ".models")
        return models.clone_model(model, clone_function=clone, **({"recursive": True} if _is_keras_3(model) else {}))
    except (NotImplementedError, TypeError, ValueError):
        return None


def _safe_mode_off(model: Any) -> contextlib.AbstractContextManager[Any]:
    library = importlib.import_module(_package(model) + ".src.saving.serialization_lib")
    scope: contextlib.AbstractContextManager[Any] = library.SafeModeScope(safe_mode=False)
    return scope


def _package(model: Any) -> str:
    """Returns the Keras of a model: `keras` or `tf_keras`."""
    return next(kind.__module__.split(".")[0] for kind in type(model).__mro__ if "keras" in kind.__module__)


def _is_keras_3(model: Any) -> bool:
    return _package(model) == "keras"


def _widened(config: Any, key: str = "") -> Any:
    """Replaces every floating dtype, and every policy of one, in a layer's config with float64."""
    if isinstance(config, dict):
        inner = config.get("config")
        if key == "dtype" and isinstance(inner, dict) and "float" in str(inner.get("name", "")):
            return "float64"
        return {name: _widened(value, name) for name, value in config.items()}
    if isinstance(config, list | tuple):
        return type(config)(_widened(value, key) for value in config)
    return "float64" if key == "dtype" and isinstance(config, str) and "float" in config else config


def _noise(model: Any, seed: int) -> Any:
    """Returns random inputs for a model, in the order of its inputs."""
    rng = np.random.default_rng(seed)
    result = []
    for tensor in model.inputs:
        shape = [SAMPLES, *(1 if size is None else size for size in tuple(tensor.shape)[1:])]
        dtype = getattr(tensor.dtype, "name", tensor.dtype)
        result.append(rng.standard_normal(shape) if "float" in dtype else rng.integers(0, 2, shape).astype(dtype))
    return result[0] if len(result) == 1 else result
