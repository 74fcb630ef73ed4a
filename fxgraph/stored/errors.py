"""The error of this package."""


class StoredError(ValueError):
    """Something has no form as data, or data is no graph; the text names it."""
