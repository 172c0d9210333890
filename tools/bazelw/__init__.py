"""Finds or fetches the Bazel named in .bazelversion, then runs it. See docs/guide/bazelw.md."""
