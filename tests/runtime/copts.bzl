"""Flags for C++ tests."""

visibility(["//tests/..."])

# Every warning in a test is an error. `warnings_test` covers the runtime's own files, which a test's flags don't reach.
STRICT = [
    "-Wall",
    "-Wextra",
    "-Werror",
]
