"""The package's version, which saved programs record."""

__version__ = "0.1.0"
