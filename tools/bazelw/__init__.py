"""Finds or fetches the Bazel named in .bazelversion, then runs it. See docs/bazelw.md."""
