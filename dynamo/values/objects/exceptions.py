"""Python exceptions that the captured program raises, and how they travel while capturing.

`RaisedException` is the Python exception of *ours* that carries a symbolic one through the
interpreter: a handler of the captured frame catches it (CHECK_EXC_MATCH looks at
`value.python_type()`), and when none does, it leaves the inlined frame like any exception.
"""

from __future__ import annotations

import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import breaks
from dynamo.bytecode.decode import Positions
from dynamo.errors import Unsupported
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.functions.arity import fits

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.base import Forwarded


@dataclass(eq=False, slots=True)
class Entry:
    """A frame that an exception passed: its place, and the line at which the exception left."""

    code: types.CodeType
    namespace: dict[str, Any]
    positions: Positions
    left: int | None


Frames = tuple[Entry, ...]  # outermost first


class RaisedException(Exception):
    """The captured program raises `value` (a Value whose python_type() is an exception class)."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        # Of one of the exception classes of values/objects/exception_objects.py.
        self.value: Any = value
        self.linked = False  # its __context__ was set where it was raised
        self.grew = False  # frames were added to its traceback on the way

    def __str__(self) -> str:
        return self.value.describe()


def raise_python(
    tx: Interpreter, exception: type[BaseException], *args: Any, **fields: str
) -> NoReturn:
    """Raise a Python exception of the program with constant arguments. fields: those that Python
    sets besides (`name` of a NameError).
    """
    values = [a if isinstance(a, Value) else tx.constant(a) for a in args]
    known = {name: tx.constant(field) for name, field in fields.items()}
    raise RaisedException(late_bound.make_exception(tx, exception, values, known))


def new_raised(tx: Interpreter, cls: Value, args: Sequence[Value] = ()) -> Value:
    """The exception that `raise cls` raises."""
    made = cls.call(tx, args, {})
    if not issubclass(made.python_type(), BaseException):  # Python has words for it
        raise Unsupported(breaks.UncapturedCall(cls.describe()))
    return made


def call_real(tx: Interpreter, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a pure function on real constants; an exception is the program's."""
    try:
        return function(*args, **kwargs)
    except (Unsupported, RaisedException):
        raise  # of a function of ours, or of captured code that it called
    except Exception as error:
        raise_python(tx, type(error), *_constant_args(error))


def call_handler(
    tx: Interpreter,
    name: str,
    handler: Callable[..., Value | Forwarded | None],
    args: Sequence[Any],
    kwargs: dict[str, Value],
    function: Any = None,
    last: bool = False,
) -> Value | None:
    """handler(tx, *args, **kwargs); a call that does not fit its parameters, or those of `function`
    that it stands for, runs natively. A handler may give the call with which it ends, which is a
    frame where the current instruction does nothing else (`last`).
    """
    if function is not None and not fits(function, len(args), kwargs):
        raise Unsupported(breaks.UncapturedCall(name))
    try:
        result = handler(tx, *args, **kwargs)
    except TypeError as error:
        assert error.__traceback__ is not None, "it was caught"
        if error.__traceback__.tb_next is None:  # raised by the call itself
            raise Unsupported(breaks.UncapturedCall(name)) from None
        raise
    if type(result) is not tuple:
        return result  # type: ignore[return-value]
    called, operands, named = result
    return (tx.finish_call if last else tx.call_function)(called, operands, named)


def _constant_args(error: BaseException) -> Sequence[Any]:
    simple = (str, int, float, bool, type(None), bytes, tuple)
    if all(isinstance(a, simple) for a in error.args):
        return error.args
    return ("".join(traceback.format_exception_only(error)).strip(),)


def is_exception(error: RaisedException, *classes: type[BaseException]) -> bool:
    return is_caught(error.value.python_type(), classes)


def can_read(tx: Interpreter, value: Value, name: str) -> bool:
    """hasattr(value, name), by reading the attribute."""
    try:
        value.getattr(tx, name)
    except RaisedException as error:
        if is_exception(error, AttributeError):
            return False
        raise
    return True


def is_caught(kind: type, classes: Sequence[type]) -> bool:
    """Whether `except classes` catches exceptions of this class: a metaclass is not asked."""
    return any(cls in kind.__mro__ for cls in classes)


def caught_classes(tx: Interpreter, value: Value) -> tuple[type, ...]:
    """The classes of an except clause."""
    known, cls = value.identity()
    if known and isinstance(cls, type):
        if not issubclass(cls, BaseException):
            raise_python(
                tx,
                TypeError,
                "catching classes that do not inherit from BaseException is not allowed",
            )
        return (cls,)
    if issubclass(value.python_type(), tuple):
        return tuple(cls for item in value.unpack(tx) for cls in caught_classes(tx, item))
    raise Unsupported(breaks.UnknownType(value.describe()))
