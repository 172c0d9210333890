"""The pitch of a tone: the first high peak of the autocorrelation, by Fourier transforms."""

import jax
import jax.numpy as jnp

LENGTH, RATE = 2048, 16000
LEAST, MOST = 70, 1000  # Hz


def model(samples):
    """Returns the frequency."""
    power = jnp.abs(jnp.fft.rfft(samples - samples.mean(), 2 * LENGTH)) ** 2
    similar = jnp.fft.irfft(power)[:LENGTH]
    similar = similar / jnp.arange(LENGTH, 0, -1)
    lags = jnp.arange(LENGTH)
    allowed = (lags >= RATE // MOST) & (lags <= RATE // LEAST)
    peak = allowed & (similar >= jnp.roll(similar, 1)) & (similar >= jnp.roll(similar, -1))
    first = jnp.argmax(peak & (similar > 0.8 * jnp.max(jnp.where(allowed, similar, -jnp.inf))))
    left, middle, right = jax.lax.dynamic_slice(similar, (first - 1,), (3,))
    return {"frequency": RATE / (first + (left - right) / (2 * (left - 2 * middle + right)))}


def input_fn():
    """Returns shapes."""
    return (jax.ShapeDtypeStruct((LENGTH,), jnp.float32),)


def golden_fn(step, rng):
    """Returns inputs to verify: tones with noise."""
    times = jnp.arange(LENGTH) / RATE
    return {"samples": jnp.sin(2 * jnp.pi * (150 + 97 * step) * times) + 0.01 * rng.standard_normal(LENGTH)}
