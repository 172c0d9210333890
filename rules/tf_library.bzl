"""TensorFlow's own `tf_library`, for targets that move to these rules: only their `load` line changes."""

load("//rules/private:tf_library.bzl", _tf_library = "tf_library")

tf_library = _tf_library
