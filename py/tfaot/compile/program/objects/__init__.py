"""Object files of constants."""
