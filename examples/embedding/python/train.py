"""Trains a compiled model from Python, without TensorFlow.

./bazelw run //examples/embedding/python:train
"""

import sys

import numpy as np

import tfaot

LIBRARY = "examples/fc/libfc_aot_shared.so"
STEPS, ROWS, CLASSES = 40, 64, 10


def main():
    """Trains, and fails unless the loss falls."""
    model = tfaot.load(LIBRARY)
    print(model)
    rng = np.random.default_rng(1)
    patterns = rng.standard_normal((CLASSES, 784))
    losses = []
    for step in range(STEPS):
        labels = rng.integers(0, CLASSES, ROWS)
        x = patterns[labels] + rng.standard_normal((ROWS, 784))
        losses.append(model.run(x=x, y=np.eye(CLASSES)[labels]).loss)
        if step % 10 == 0:
            print(f"step {step:2}  loss {losses[-1]:.4f}")
    print("the mean of a kernel:", model.variables.fc_hidden0_kernel.mean())
    if "tensorflow" in sys.modules:
        sys.exit("this process contains TensorFlow")
    if not losses[-1] < losses[0]:
        sys.exit("the loss didn't fall")


if __name__ == "__main__":
    main()
