"""Makes the pages of docs/reference that say what the sources say."""
