"""The rules' version, for stamps in their output. MODULE.bazel has the same version."""

RULES = "0.1.0"
