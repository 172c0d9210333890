"""The verify stage: what TensorFlow itself computes, and how far a compiler may miss it."""
