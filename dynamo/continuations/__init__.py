"""Codes of continuations and shim frames: from a code object and a place in it to a code object."""
