"""The command `tfaot`: the stages without Bazel."""
