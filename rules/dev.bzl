"""Setup for dependencies of this repository's own tests, for WORKSPACE and MODULE.bazel."""

load(
    "//rules/private:dev.bzl",
    _tfaot_dev = "tfaot_dev",
    _tfaot_dev_dependencies = "tfaot_dev_dependencies",
)

tfaot_dev = _tfaot_dev
tfaot_dev_dependencies = _tfaot_dev_dependencies
