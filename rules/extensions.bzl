"""Setup for MODULE.bazel files. In a WORKSPACE, use rules/repositories.bzl instead."""

load("//rules/private:extensions.bzl", _tfaot = "tfaot")

tfaot = _tfaot
