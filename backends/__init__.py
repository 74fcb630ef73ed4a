"""Backends: what turns a captured graph into a callable, and the registry of their names."""

from backends.registry import list_backends, lookup_backend, register_backend

__all__ = ["list_backends", "lookup_backend", "register_backend"]
