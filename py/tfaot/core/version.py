"""The rules' version, for stamps in what they produce; MODULE.bazel has the same."""

RULES = "0.1.0"
