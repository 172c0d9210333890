"""The two ways in which a step of bazelw can fail."""


class BazelwError(Exception):
    """Nothing more can be tried. The message is one sentence, followed by a way out."""


class WayFailed(Exception):
    """One way to get Bazel failed here, so bazelw tries the next. The message says why, in a few words."""
