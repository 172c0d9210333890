"""Setup for WORKSPACE files. With bzlmod, use rules/extensions.bzl instead."""

load(
    "//rules/private:repositories.bzl",
    _rules_tfaot_dependencies = "rules_tfaot_dependencies",
    _rules_tfaot_setup = "rules_tfaot_setup",
)

rules_tfaot_dependencies = _rules_tfaot_dependencies
rules_tfaot_setup = _rules_tfaot_setup
