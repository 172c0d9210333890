"""The verify stage: computes TensorFlow's own results, and how far a compiler may deviate from them."""
