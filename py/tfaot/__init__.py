"""TensorFlow models ahead of time: export, compile, render, link, verify. See ARCHITECTURE.md."""
