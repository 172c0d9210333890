"""Set-up for MODULE.bazel files; in a WORKSPACE, rules/repositories.bzl does the same."""

load("//rules/private:extensions.bzl", _tfaot = "tfaot")

tfaot = _tfaot
