"""Code that runs in the peers' processes."""
