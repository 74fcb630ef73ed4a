"""Names of types in error messages."""

from __future__ import annotations

_NO_NAME = "\0"


def type_name(cls: type) -> str:
    """The name of a type in error messages: with its module, for most types of C."""
    try:
        type.__getattribute__(cls, _NO_NAME)
    except AttributeError as error:
        text = error.args[0].removeprefix("type object '")
        return text.removesuffix(f"' has no attribute {_NO_NAME!r}").removesuffix(
            f"' has no attribute '{_NO_NAME}'"
        )
    return cls.__name__
