"""Model predictive control of a pendulum that stands: a Kalman filter estimates its state, and ADMM limits the torque."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg

HORIZON, LIMIT = 20, 2.0
move = jnp.array([[1.0, 0.05], [0.4, 1.0]])  # of the angle and its speed, in 50 ms
push = jnp.array([0.0, 0.1])

# The states of the horizon are linear in its first state and the torques.
powers = jnp.stack([jnp.linalg.matrix_power(move, n) for n in range(HORIZON + 1)])
steps = jnp.arange(HORIZON)
late = steps[:, None] - steps
torques = jnp.where(late[..., None] >= 0, powers[jnp.maximum(late, 0)] @ push, 0)
weights = jnp.array([10.0, 1.0])
costs = jnp.einsum("iks,s,ijs->kj", torques, weights, torques) + 0.1 * jnp.eye(HORIZON)


def model(estimate, covariance, measured):
    """Updates the estimate by the measured angle and speed, and returns the torque."""
    gain = jnp.linalg.solve(covariance + 0.01 * jnp.eye(2), covariance).T
    state = estimate + gain @ (measured - estimate)
    covariance = covariance - gain @ covariance

    factor = linalg.cho_factor(costs + jnp.eye(HORIZON))
    free = jnp.einsum("iks,s,is->k", torques, weights, powers[1:] @ state)

    def step(held, _):
        bounded, dual = held
        torque = linalg.cho_solve(factor, bounded - dual - free)
        bounded = jnp.clip(torque + dual, -LIMIT, LIMIT)
        return (bounded, dual + torque - bounded), None

    (bounded, _), _ = jax.lax.scan(step, (jnp.zeros(HORIZON), jnp.zeros(HORIZON)), None, 40)
    return {
        "torque": bounded[0],
        "estimate": move @ state + push * bounded[0],
        "covariance": move @ covariance @ move.T + 1e-4 * jnp.eye(2),
    }


def input_fn():
    """Returns the state's initial values, and the shape of a measurement."""
    return jnp.zeros(2), jnp.eye(2), jax.ShapeDtypeStruct((2,), jnp.float32)


def golden_fn(step, rng):
    """Returns inputs to verify: small angles."""
    return {"measured": 0.2 * rng.standard_normal(2)}
