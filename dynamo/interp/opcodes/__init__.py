"""Handlers of opcodes, by family."""
