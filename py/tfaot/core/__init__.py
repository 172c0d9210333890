"""Code that all stages share: errors, dtypes, names, the manifest, isolation, and the compiler's messages."""
