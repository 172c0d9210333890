"""Four entry points over one set of variables: a network that is initialized, trained, used, and read in C++."""

import tensorflow as tf

BATCH, FEATURES, HIDDEN = 32, 4, 16


class Regressor(tf.Module):
    """Two layers, trained by gradient descent with momentum."""

    def __init__(self):
        super().__init__()
        self.hidden = tf.Variable(tf.zeros((FEATURES, HIDDEN)), name="hidden/kernel")
        self.out = tf.Variable(tf.zeros((HIDDEN, 1)), name="out/kernel")
        self.velocity = [tf.Variable(tf.zeros_like(v), name=v.name[:-2] + "/velocity") for v in self.trained]
        self.steps = tf.Variable(0, dtype=tf.int64, name="steps")

    @property
    def trained(self):
        """The variables that have gradients."""
        return [self.hidden, self.out]

    @tf.function(input_signature=[tf.TensorSpec((2,), tf.int32)])
    def init(self, seed):
        """Draws new weights: the same ones for the same seed, in TensorFlow and in C++."""
        self.hidden.assign(tf.random.stateless_uniform(self.hidden.shape, seed, -0.5, 0.5))
        self.out.assign(tf.random.stateless_uniform(self.out.shape, seed + 1, -0.5, 0.5))
        for velocity in self.velocity:
            velocity.assign(tf.zeros_like(velocity))
        self.steps.assign(0)

    def predict(self, x):
        """What `forward` and the loss share."""
        return tf.matmul(tf.tanh(tf.matmul(x, self.hidden)), self.out)[:, 0]

    @tf.function(input_signature=[tf.TensorSpec((BATCH, FEATURES))])
    def forward(self, x):
        """Predicts a value for each row."""
        return {"y": self.predict(x)}

    @tf.function(input_signature=[tf.TensorSpec((BATCH, FEATURES)), tf.TensorSpec((BATCH,))])
    def train(self, x, y):
        """Takes one step; returns the loss before it."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.predict(x) - y))
        for variable, velocity, gradient in zip(
            self.trained, self.velocity, tape.gradient(loss, self.trained), strict=True
        ):
            velocity.assign(0.9 * velocity + gradient)
            variable.assign_sub(0.05 * velocity)
        self.steps.assign_add(1)
        return {"loss": loss}

    @tf.function(input_signature=[])
    def read(self):
        """How far it is: the steps, and the size of the weights."""
        return {"steps": self.steps.read_value(), "norm": tf.linalg.global_norm(self.trained)}


model = Regressor()


def golden_fn(step, rng, entry_point):
    """Inputs that are verified."""
    x = rng.standard_normal((BATCH, FEATURES))
    return {
        "init": lambda: (rng.integers(0, 100, 2),),
        "forward": lambda: (x,),
        "train": lambda: (x, x.sum(axis=1)),
        "read": lambda: (),
    }[entry_point]()
