"""Sequences, mappings and sets, and the keys by which these hash."""
