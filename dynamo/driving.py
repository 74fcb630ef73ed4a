"""Compiled generator and coroutine functions: their frames run as they are, the functions that they
call are captured.

Calling such a function runs nothing of it. What it returns is driven from here, so that the frame
hook is on whenever the frame goes on.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from dynamo import _hook, rules
from dynamo.capture.convert import convert_frame
from dynamo.context import CompileContext

Run = Callable[..., Any]  # run(function, *args), with the hook on


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


rules.SKIPPED_CODE[_call.__code__] = "it only calls"


def drives(fn: Any) -> bool:
    """Whether a call of `fn` gives a generator or coroutine."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return isinstance(code, types.CodeType) and bool(code.co_flags & flags)


def is_driven(fn: Any) -> bool:
    """Whether `fn` was made by `driven`."""
    return isinstance(getattr(fn, "__dict__", {}).get("context"), CompileContext)


def driven(fn: Callable[..., Any], context: CompileContext) -> Callable[..., Any]:
    """A function that gives what `fn` gives, driven with the hook on."""
    run: Run = _hook.compiled(_call, context, convert_frame)
    flags = getattr(fn, "__func__", fn).__code__.co_flags
    if flags & inspect.CO_ASYNC_GENERATOR:
        drive: Callable[..., Any] = _drive_async_generator
    else:
        drive = _drive_coroutine if flags & inspect.CO_COROUTINE else _drive_generator

    @functools.wraps(fn)
    def start(*args: Any, **kwargs: Any) -> Any:
        made = fn(*args, **kwargs)
        driver = drive(made, run)
        driver.__name__, driver.__qualname__ = made.__name__, made.__qualname__
        return driver

    mark = getattr(inspect, "markcoroutinefunction", None)
    if flags & inspect.CO_COROUTINE and mark is not None:
        mark(start)
    start.context = context  # type: ignore[attr-defined]
    return start


def _drive_generator(made: Any, run: Run) -> Any:
    """yield from made"""
    try:
        item = run(made.send, None)
        while True:
            try:
                sent = yield item
            except GeneratorExit:
                run(made.close)
                raise
            except BaseException as error:
                item = run(made.throw, error)
            else:
                item = run(made.send, sent)
    except StopIteration as stop:
        return stop.value


_awaited = types.coroutine(_drive_generator)


async def _drive_coroutine(made: Any, run: Run) -> Any:
    return await _awaited(made, run)


async def _drive_async_generator(made: Any, run: Run) -> Any:
    step = made.asend(None)
    while True:
        try:
            item = await _awaited(step, run)
        except StopAsyncIteration:
            return
        try:
            sent = yield item
        except GeneratorExit:
            await _awaited(made.aclose(), run)
            raise
        except BaseException as error:
            step = made.athrow(error)
        else:
            step = made.asend(sent)
