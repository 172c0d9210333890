"""Starts stages: in a process of their own, or for Bazel's persistent workers in children of one that has TensorFlow."""
