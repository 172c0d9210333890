"""A chain of Hamiltonian Monte Carlo: NumPyro's kernel, whose state is that of the class."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC

x = jnp.linspace(-1, 1, 20)
y = 0.7 * x + 0.2 + 0.1 * jax.random.normal(jax.random.key(1), x.shape)


def regression():
    """A line with noise."""
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    offset = numpyro.sample("offset", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(slope * x + offset, noise), obs=y)


kernel = HMC(
    regression, step_size=0.02, num_steps=8, trajectory_length=None, adapt_step_size=False, adapt_mass_matrix=False
)
start = kernel.init(jax.random.key(2), 0, None, (), {})


def model(chain):
    """Draws once."""
    chain = kernel.sample(chain, (), {})
    return {"chain": chain, "slope": chain.z["slope"], "accepted": chain.accept_prob}


def input_fn():
    """Returns the state."""
    return (start,)
