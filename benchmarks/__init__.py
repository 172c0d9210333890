"""Compares compiled models with other frameworks."""
