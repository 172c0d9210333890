"""The compiled program: read from tfcompile's header, changed by its own passes, and rendered for the executor."""
