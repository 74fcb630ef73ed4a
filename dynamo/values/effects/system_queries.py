"""Queries of the system that the program makes in passing: is there such a file, which process is
this. Queries are made while capturing, and again before each call, where another answer is another
version of the frame. State that the frame itself may change (by native calls) breaks the graph
first.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.sources import CallSource, ModuleSource
from dynamo.values.base import Value
from dynamo.values.builtins.table import TABLE
from dynamo.values.objects.exceptions import call_real
from dynamo.values.scalars.constant import is_literal

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

# Their answers are literals.
_QUERIES: tuple[Callable[..., Any], ...] = (
    *(os.path.exists, os.path.lexists, os.path.isfile, os.path.isdir, os.path.islink),
    *(os.path.getsize, os.path.getmtime, os.access, os.getcwd, os.getpid, os.cpu_count),
    threading.active_count,
)
_THREADS = (threading.current_thread, threading.main_thread)


def _query(function: Callable[..., Any]) -> Callable[..., Value]:
    def query(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
        given = [value.as_constant() for value in args]
        if kwargs or not is_literal(tuple(given)):
            raise Unsupported(breaks.UncapturedCall(function.__name__))
        answer = call_real(tx, function, *given)

        def system_answers_as_captured(module: Any) -> bool:
            try:
                return function(*given) == answer
            except Exception:
                return False

        tx.guard(ModuleSource("os"), "predicate", system_answers_as_captured)
        return tx.from_constant(answer)

    return query


def _thread(function: Callable[..., Any]) -> Callable[..., Value]:
    def query(tx: Interpreter) -> Value:
        source = CallSource(ModuleSource("threading"), lambda module: function(), function.__name__)
        return tx.wrap(function(), source)

    return query


def _find_spec(tx: Interpreter, name: Value) -> Value:
    """importlib.util.find_spec: whether a library can be imported."""
    sought = name.as_constant()
    if type(sought) is not str or "." in sought:  # a package would be imported
        raise Unsupported(breaks.UncapturedCall("find_spec"))

    def find(module: Any) -> Any:
        try:
            return module.find_spec(sought)
        except ValueError:  # of a module without a spec
            return NotImplemented

    found = find(importlib.util)
    if found is NotImplemented:
        raise Unsupported(breaks.UncapturedCall("find_spec"))
    return tx.wrap(found, CallSource(ModuleSource("importlib.util"), find, "find_spec"))


def _written_later(function: Callable[..., Any]) -> Callable[..., None]:
    """The environment of C, which os.environ writes to with its own dict: no captured code reads
    that.
    """

    def write(tx: Interpreter, *args: Value) -> None:
        tx.output.side_effects.call_later(function, *args)

    return write


TABLE |= {function: _written_later(function) for function in (os.putenv, os.unsetenv)}
TABLE |= {function: _query(function) for function in _QUERIES}
TABLE |= {function: _thread(function) for function in _THREADS}
TABLE[importlib.util.find_spec] = _find_spec
