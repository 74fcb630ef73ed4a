"""logging: a call that the logger's level suppresses costs nothing, and that it does is guarded.

The text of one that is heard is made while capturing, as that of print is, and the rewritten frame
makes the record after the graph, in the order of the program's prints and warnings. So late a
record must not be noticed: its handlers are those of the standard library that write a text to a
stream, with formatters that do not show the time. Other calls run natively.
"""

from __future__ import annotations

import functools
import logging
import logging.handlers
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, ModuleSource, Source
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import TABLE, handles
from dynamo.values.containers.containers import TupleValue
from dynamo.values.effects.printing import is_text_stream
from dynamo.values.objects.exceptions import RaisedException
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.conversions import text_value
from dynamo.values.scalars.operators import binary_op

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}
# Handlers that write the text of a record, and nothing else of it.
_WRITERS = (
    logging.StreamHandler,
    logging.FileHandler,
    logging.NullHandler,
    type(logging.lastResort),
    logging.handlers.RotatingFileHandler,
    logging.handlers.WatchedFileHandler,
)
_STYLES = (logging.PercentStyle, logging.StrFormatStyle, logging.StringTemplateStyle)
# The fields of a record that tell when it was made, besides those that Formatter.usesTime() knows.
_TIMES = ("created", "relativeCreated", "msecs")


def is_enabled(tx: Interpreter, logger: Any, level: Any) -> bool:
    """logger.isEnabledFor(level), guarded."""
    real, source = getattr(logger, "real", None), logger.source
    if (
        not isinstance(real, logging.Logger)
        or type(real).isEnabledFor is not logging.Logger.isEnabledFor
        or not isinstance(level, int)
        or source is None
        or _is_changed(tx, _ancestry(real))
    ):
        raise Unsupported(breaks.UncapturedCall("logging.Logger.isEnabledFor"))
    answer = real.isEnabledFor(level)

    def answers_as_captured(value: Any) -> bool:
        return value.isEnabledFor(level) is answer

    tx.guard(source, "predicate", answers_as_captured)
    return answer


def _ancestry(logger: logging.Logger) -> Iterator[Any]:
    """Whose levels decide whether a record is made."""
    yield logger.manager
    current: logging.Logger | None = logger
    while current is not None:
        yield current
        current = current.parent


def _writers(logger: logging.Logger) -> Iterator[Any]:
    """The objects besides loggers that decide where and how a record is written."""
    for one in _ancestry(logger):
        yield getattr(one, "handlers", None)
    for handler in _handlers(logger):
        yield handler
        yield getattr(handler, "formatter", None)


def _is_changed(tx: Interpreter, objects: Iterator[Any]) -> bool:
    """Whether the frame has changed one of them, which captured code may know by any name."""
    known, effects = tx.output.values_by_id, tx.output.side_effects
    return any(id(one) in known and effects.is_dirty(known[id(one)][1]) for one in objects)


# -- records that are heard -----------------------------------------------------------------------
def write_record(
    logger: logging.Logger, level: int, text: str, filename: str, lineno: int, function: str
) -> None:
    """Write a log record, called by a rewritten frame."""
    logger.handle(logger.makeRecord(logger.name, level, filename, lineno, text, (), None, function))


def writes_text(logger: Any) -> bool:
    """Whether all that becomes of a record of the logger is a text on streams."""
    plain = type(logger) in (logging.Logger, logging.RootLogger) and not logger.filters
    if not plain or logging.getLogRecordFactory() is not logging.LogRecord:
        return False
    return all(map(_writes_text, _handlers(logger)))


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler | None]:
    """The handlers of the logger's records, as Logger.callHandlers finds them."""
    current: logging.Logger | None = logger
    found = False
    while current is not None:
        for handler in current.handlers:
            found = True
            yield handler
        current = current.parent if current.propagate else None
    if not found:
        yield logging.lastResort


def _writes_text(handler: Any) -> bool:
    if handler is None or type(handler) is logging.NullHandler:
        return True
    formatter = handler.formatter
    plain = formatter is None or (
        type(formatter) is logging.Formatter
        and type(formatter._style) in _STYLES
        and not formatter.usesTime()
        and not any(name in str(formatter._fmt) for name in _TIMES)
    )
    known = type(handler) in _WRITERS and not handler.filters
    return plain and known and is_text_stream(handler.stream)


def _log(
    tx: Interpreter, logger: Any, level: Any, name: str, args: Any, kwargs: dict[str, Value]
) -> None:
    if not is_enabled(tx, logger, level):
        return
    refused = Unsupported(breaks.UncapturedCall(f"logging.Logger.{name}"))
    depth = kwargs.get("stacklevel", ConstantValue(1)).as_constant()
    others = [value for key, value in kwargs.items() if key != "stacklevel"]
    heard = name != "exception" and args and all(map(is_none, others)) and type(depth) is int
    in_body = tx.output.bodies and not tx.output.side_effects.watches
    if not heard or in_body or not writes_text(logger.real):
        raise refused
    if _is_changed(tx, _writers(logger.real)):
        raise refused
    frame = _caller(tx, depth)
    if frame is None:
        raise refused
    text = _text(tx, *args)
    if text is None:
        raise refused
    tx.guard(logger.source, "predicate", writes_text)
    code = frame.code
    record = (logger, level, text, code.co_filename, frame.lineno, code.co_name)
    tx.output.side_effects.call_later(write_record, *record, before_writes=True)
    tx.output.side_effects.shown = True


def _caller(tx: Interpreter, depth: int) -> Interpreter | None:
    """The captured frame that Logger.findCaller finds; None for one above the captured ones."""
    frame: Interpreter | None = tx
    while frame is not None:
        if frame.code.co_filename != logging._srcfile:
            depth -= 1
        if depth < 1:
            break
        frame = frame.parent
    return frame


def _text(tx: Interpreter, message: Value, *args: Value) -> Value | None:
    """LogRecord.getMessage(); None where logging complains of the arguments."""
    text = text_value(tx, message, str)
    if not args:
        return text
    if len(args) == 1 and issubclass(args[0].python_type(), Mapping):
        return None
    try:
        return binary_op(tx, "%", text, TupleValue(list(args)))
    except RaisedException:
        return None


# -- the functions --------------------------------------------------------------------------------
def _root_logger(tx: Interpreter, name: str) -> Value:
    """The root logger, for logging.info(...), which give it a handler if it has none."""
    source = AttrSource(ModuleSource("logging"), "root")
    if not logging.root.handlers:
        raise Unsupported(breaks.UncapturedCall(f"logging.{name}"))
    tx.guard(source, "predicate", has_handlers)
    return tx.wrap(logging.root, source)


def has_handlers(logger: Any) -> bool:
    return bool(logger.handlers)


def _method(name: str, level: int) -> Callable[..., None]:
    return lambda tx, logger, *args, **kwargs: _log(tx, logger, level, name, args, kwargs)


def _function(name: str, level: int) -> Callable[..., None]:
    def log(tx: Interpreter, *args: Value, **kwargs: Value) -> None:
        _log(tx, _root_logger(tx, name), level, name, args, kwargs)

    return log


for _name, _level in _LEVELS.items():
    TABLE[getattr(logging.Logger, _name)] = _method(_name, _level)
    TABLE[getattr(logging, _name)] = _function(_name, _level)


@handles(logging.Logger.log)
def _log_at(tx, logger, level, *args, **kwargs):
    _log(tx, logger, level.as_constant(), "log", args, kwargs)


@handles(logging.Logger.isEnabledFor)
def _is_enabled_for(tx, logger, level):
    return ConstantValue(is_enabled(tx, logger, level.as_constant()))


@handles(logging.Logger.getEffectiveLevel)
def _effective_level(tx, logger):
    real = getattr(logger, "real", None)
    if not isinstance(real, logging.Logger) or _is_changed(tx, _ancestry(real)):
        raise Unsupported(breaks.UncapturedCall("logging.Logger.getEffectiveLevel"))
    level = real.getEffectiveLevel()

    def has_the_captured_level(value: Any) -> bool:
        return value.getEffectiveLevel() == level

    tx.guard(logger.source, "predicate", has_the_captured_level)
    return ConstantValue(level)


@functools.lru_cache(maxsize=1024)
def _logger_source(name: str | None) -> Source:
    """Where logging keeps the logger of that name."""

    def find(module: Any) -> Any:
        return module.Logger.manager.loggerDict.get(name) if name else module.root

    return CallSource(ModuleSource("logging"), find, f"getLogger {name!r} of")


@handles(logging.getLogger)
def _get_logger(tx, name=None):
    """A logger that exists already; a new one is made natively."""
    key = None if is_none(name) else name.as_constant()
    found = logging.Logger.manager.loggerDict.get(key) if key else logging.root
    if not isinstance(found, logging.Logger):
        raise Unsupported(breaks.UncapturedCall("logging.getLogger"))
    return tx.wrap(found, _logger_source(key))
