"""Rules for this repository's own Python packages and tools. Not for users."""

load("//rules/private:python.bzl", _py_binary = "py_binary", _py_library = "py_library")

visibility("//...")

py_binary = _py_binary
py_library = _py_library
