"""The compiled program: read from tfcompile's header, changed by passes of its own, and rendered for the executor."""
