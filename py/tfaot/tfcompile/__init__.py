"""Running tfcompile, from the wheel: what it's given, the call itself, and what to say when it dies."""
