"""Compiled models beside other frameworks."""
