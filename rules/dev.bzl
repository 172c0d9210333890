"""Set-up of what only this repository's own tests need, for WORKSPACE and MODULE.bazel."""

load(
    "//rules/private:dev.bzl",
    _tfaot_dev = "tfaot_dev",
    _tfaot_dev_dependencies = "tfaot_dev_dependencies",
)

tfaot_dev = _tfaot_dev
tfaot_dev_dependencies = _tfaot_dev_dependencies
