"""Prepares releases. docs/internals/releasing.md has the steps."""
