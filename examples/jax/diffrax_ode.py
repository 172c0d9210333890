"""A neural differential equation: a network of Equinox, and Diffrax's solver with steps of its own choice."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

field = eqx.nn.MLP(3, 2, 16, 2, activation=jnp.tanh, key=jax.random.key(0))


def model(start, times):
    """Returns the states at the times."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: field(jnp.append(y, t))),
        diffrax.Tsit5(),
        t0=0.0,
        t1=2.0,
        dt0=0.1,
        y0=start,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        throw=False,  # code that raises calls Python
        max_steps=64,
    )
    return {"states": solution.ys}


def input_fn():
    """Returns shapes."""
    return jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((5,), jnp.float32)


def golden_fn(step, rng):
    """Returns inputs to verify: times increase."""
    return {"start": rng.standard_normal(2), "times": jnp.linspace(0.1, 2.0, 5) - 0.01 * step}
