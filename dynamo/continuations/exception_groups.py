"""An `except*` clause at which a frame breaks, performed on a real exception."""

from __future__ import annotations

from typing import Any


def split_now(exception: BaseException, kinds: Any) -> tuple[Any, Any]:
    """CHECK_EG_MATCH on real exceptions: (rest, match). The frame that breaks there does not have
    the exception as the one being handled, which the instruction would replace.
    """
    classes = kinds if isinstance(kinds, tuple) else (kinds,)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            raise _while_handling(exception, TypeError(text))
        if issubclass(cls, BaseExceptionGroup):
            text = "catching ExceptionGroup with except* is not allowed. Use except instead."
            raise _while_handling(exception, TypeError(text))
    if not isinstance(exception, BaseExceptionGroup):
        if any(cls in type(exception).__mro__ for cls in classes):  # a metaclass is not asked
            return None, BaseExceptionGroup("", [exception])
        return exception, None
    match, rest = exception.split(classes)
    return rest, match


def _while_handling(handled: BaseException, error: BaseException) -> BaseException:
    error.__context__ = handled
    return error
