"""print and logging.

print: the text is made while capturing, and shown by the rewritten frame after the graph, in the
order of the program's prints and warnings. Where that could be seen to be late (an operation that
may fail follows, see interp/fallible_operations.py), the graph breaks before that operation. What
capture cannot turn into text (tensors), or what is written elsewhere than to sys.stdout, breaks.

logging: a call that the logger's level suppresses costs nothing, and that it does is guarded. One
that is heard runs natively: handlers see the time, the line and the thread of a call.
"""

from __future__ import annotations

import functools
import io
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, CallSource, ModuleSource, Source
from dynamo.values.base import Value
from dynamo.values.builtins import TABLE, handles, is_none
from dynamo.values.constant import ConstantValue
from dynamo.values.conversions import text_value
from dynamo.values.symbolic_text import concatenated

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def show(text: str, flush: bool) -> None:
    """What a rewritten frame calls."""
    print(text, end="", flush=flush)


def is_text_stream(stream: Any) -> bool:
    """A stream of the standard library: nothing that captured code looks into."""
    return stream is None or isinstance(stream, io.TextIOBase)


@handles(print)
def _print(tx, *values, sep=None, end=None, file=None, flush=None):
    stdout = AttrSource(ModuleSource("sys"), "stdout")
    replaced = tx.output.side_effects.load_global(vars(sys), "stdout") is not None
    if replaced or not is_none(file) or not is_text_stream(sys.stdout) or tx.output.bodies:
        raise Unsupported(breaks.UncapturedCall("print"))
    parts = concatenated([text_value(tx, v, str) for v in values], _option(sep, " "))
    text = concatenated([parts, ConstantValue(_option(end, "\n"))])
    if not text.truth(tx):  # is there for what it does to the stream, if for anything
        raise Unsupported(breaks.UncapturedCall("print"))
    tx.guard(stdout, "predicate", is_text_stream)
    tx.output.side_effects.call_later(show, text, flush is not None and flush.truth(tx))
    tx.output.side_effects.shown = True


def _option(value: Value | None, default: str) -> str:
    if value is None or is_none(value):
        return default
    if value.python_type() is not str:  # Python has words for it
        raise Unsupported(breaks.UncapturedCall("print"))
    return value.as_constant()


# -- logging --------------------------------------------------------------------------------------
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}


def is_enabled(tx: Interpreter, logger: Any, level: Any) -> bool:
    """logger.isEnabledFor(level), guarded."""
    real, source = getattr(logger, "real", None), logger.source
    if (
        not isinstance(real, logging.Logger)
        or type(real).isEnabledFor is not logging.Logger.isEnabledFor
        or not isinstance(level, int)
        or source is None
        or tx.output.side_effects.is_dirty(logger)
    ):
        raise Unsupported(breaks.UncapturedCall("logging.Logger.isEnabledFor"))
    answer = real.isEnabledFor(level)

    def answers_as_captured(value: Any) -> bool:
        return value.isEnabledFor(level) is answer

    tx.guard(source, "predicate", answers_as_captured)
    return answer


def _log(tx: Interpreter, logger: Value, level: int, name: str) -> None:
    if is_enabled(tx, logger, level):
        raise Unsupported(breaks.UncapturedCall(f"logging.Logger.{name}"))


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
    return lambda tx, logger, *args, **kwargs: _log(tx, logger, level, name)


def _function(name: str, level: int) -> Callable[..., None]:
    return lambda tx, *args, **kwargs: _log(tx, _root_logger(tx, name), level, name)


for _name, _level in _LEVELS.items():
    TABLE[getattr(logging.Logger, _name)] = _method(_name, _level)
    TABLE[getattr(logging, _name)] = _function(_name, _level)


@handles(logging.Logger.log)
def _log_at(tx, logger, level, *args, **kwargs):
    _log(tx, logger, level.as_constant(), "log")


@handles(logging.Logger.isEnabledFor)
def _is_enabled_for(tx, logger, level):
    return ConstantValue(is_enabled(tx, logger, level.as_constant()))


@handles(logging.Logger.getEffectiveLevel)
def _effective_level(tx, logger):
    real = getattr(logger, "real", None)
    if not isinstance(real, logging.Logger) or tx.output.side_effects.is_dirty(logger):
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
