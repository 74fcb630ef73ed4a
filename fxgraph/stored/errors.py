"""The error of this package."""


class StoredError(ValueError):
    """An object has no form as data, or data is no graph; the text names the culprit."""
