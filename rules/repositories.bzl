"""Set-up for WORKSPACE files; with bzlmod, rules/extensions.bzl does the same."""

load(
    "//rules/private:repositories.bzl",
    _rules_tfaot_dependencies = "rules_tfaot_dependencies",
    _rules_tfaot_setup = "rules_tfaot_setup",
)

rules_tfaot_dependencies = _rules_tfaot_dependencies
rules_tfaot_setup = _rules_tfaot_setup
