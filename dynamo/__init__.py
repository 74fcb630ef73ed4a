"""Capture of Python bytecode into graphs; the public API."""
