"""C++ that runs a compiled function."""
