"""A step of proximal policy optimization: a policy and its value, clipped ratios, and generalized advantages."""

import numpy as np
import tensorflow as tf

STEPS, STATE, ACTIONS = 16, 8, 4


class Policy(tf.Module):
    """A layer that policy and value share."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        shapes = {"shared": (STATE, 32), "actions": (32, ACTIONS), "value": (32, 1)}
        self.weights = {
            name: tf.Variable(rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)
            for name, shape in shapes.items()
        }

    def computed(self, states):
        """Returns the actions' log-probabilities, and values."""
        hidden = tf.tanh(states @ self.weights["shared"])
        return tf.nn.log_softmax(hidden @ self.weights["actions"]), (hidden @ self.weights["value"])[:, 0]

    @tf.function(
        input_signature=[
            tf.TensorSpec((STEPS, STATE), name="states"),
            tf.TensorSpec((STEPS,), tf.int32, "taken"),
            tf.TensorSpec((STEPS,), name="rewards"),
            tf.TensorSpec((STEPS,), tf.bool, "done"),
            tf.TensorSpec((STEPS,), name="noise"),
        ]
    )
    def train(self, states, taken, rewards, done, noise):
        """Makes a step of gradient descent, from an old policy that differs by noise."""
        weights = list(self.weights.values())
        logs, values = self.computed(states)
        old = tf.gather(logs, taken, batch_dims=1) + 0.3 * noise
        advantages = tf.TensorArray(tf.float32, STEPS)
        later, after = tf.constant(0.0), tf.constant(0.0)
        for i in range(STEPS - 1, -1, -1):
            going = 1.0 - tf.cast(done[i], tf.float32)
            later = rewards[i] + 0.99 * after * going - values[i] + 0.99 * 0.95 * going * later
            after = values[i]
            advantages = advantages.write(i, later)
        gains = advantages.stack()
        returns = gains + values
        gains = (gains - tf.reduce_mean(gains)) / (tf.math.reduce_std(gains) + 1e-6)
        with tf.GradientTape() as tape:
            logs, values = self.computed(states)
            ratio = tf.exp(tf.gather(logs, taken, batch_dims=1) - old)
            policy = -tf.reduce_mean(tf.minimum(ratio * gains, tf.clip_by_value(ratio, 0.8, 1.2) * gains))
            entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(logs) * logs, 1))
            loss = policy + 0.5 * tf.reduce_mean((values - returns) ** 2) - 0.01 * entropy
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 0.5)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "entropy": entropy, "norm": norm}

    @tf.function(input_signature=[tf.TensorSpec((1, STATE), name="state")])
    def act(self, state):
        """Returns the best action, and the state's value."""
        logs, value = self.computed(state)
        return {"action": tf.argmax(logs, 1), "value": value}


def model():
    """Returns the module; its functions are entry points."""
    return Policy()
