"""Functions, closures, partial objects and caches."""
