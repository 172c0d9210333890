"""Packages: a compiled model as a folder or an archive that builds without Bazel use."""
