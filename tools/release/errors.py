"""The one error of this package."""


class ReleaseError(Exception):
    """A release can't be prepared. The text says what was asked, what was found, and what to do."""
