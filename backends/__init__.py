"""Backends: makers of callables from captured graphs, and the registry of their names."""

from backends.registry import caller_of, list_backends, lookup_backend, register_backend

__all__ = ["caller_of", "list_backends", "lookup_backend", "register_backend"]
