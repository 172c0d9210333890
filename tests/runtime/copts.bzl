"""Flags for C++ tests."""

visibility(["//tests/..."])

# Every warning of a test is an error. `warnings_test` sees to the runtime's own files, which a test's flags don't reach.
STRICT = [
    "-Wall",
    "-Wextra",
    "-Werror",
]
