"""Compiled generator and coroutine functions: their frames run eagerly, and functions that they
call are captured.

Calling such a function runs nothing of its body. The generator is driven from here, so that the
frame hook is on whenever the frame goes on.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from dynamo import _hook, directives
from dynamo.api.context import CompileContext
from dynamo.api.convert import convert_frame, skip_generator

Run = Callable[..., Any]  # run(function, *args), with the hook on


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


directives.LEFT_TO_PYTHON.set(_call.__code__, "it only calls")


def makes_generators(fn: Any) -> bool:
    """Whether a call of `fn` gives a generator or coroutine."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return isinstance(code, types.CodeType) and bool(code.co_flags & flags)


_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


class CompiledGeneratorFunction:
    """A callable with the results of `fn`, driven with the hook on, and all attributes of the
    original, so that inspect sees a function of the same kind.
    """

    def __init__(self, fn: Callable[..., Any], context: CompileContext) -> None:
        functools.update_wrapper(self, fn)
        for name in _OF_FUNCTIONS:
            setattr(self, name, getattr(fn, name))
        self.context = context
        self._explained = False
        self._run: Run = _hook.compiled(_call, context, convert_frame)
        flags = getattr(fn, "__func__", fn).__code__.co_flags
        if flags & inspect.CO_ASYNC_GENERATOR:
            self._drive: Callable[..., Any] = _drive_async_generator
        else:
            self._drive = _drive_coroutine if flags & inspect.CO_COROUTINE else _drive_generator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._explained:
            skip_generator(self.__code__, self.context)  # type: ignore[attr-defined]
            self._explained = True
        made = self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        driver = self._drive(made, self._run)
        driver.__name__, driver.__qualname__ = made.__name__, made.__qualname__
        return driver

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the original: __self__ of a method."""
        if name == "__wrapped__":  # of an object that is being made
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __copy__(self) -> CompiledGeneratorFunction:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        """Itself for a function; over a copy of the object of a method."""
        original = self.__wrapped__  # type: ignore[attr-defined]
        copied = copy.deepcopy(original, memo)
        if copied is original or self.context.again is None:
            return self
        return self.context.again(copied, self.context.settings)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"  # type: ignore[attr-defined]


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


class _Unstarted:
    """Closes a coroutine with its driver: one that is dropped or closed before it begins warns
    once or not at all, as its driver does.
    """

    def __init__(self, made: Any) -> None:
        self.made = made

    def __del__(self) -> None:
        self.made.close()


def _drive_coroutine(made: Any, run: Run) -> Any:
    return _await_coroutine(_Unstarted(made), run)


async def _await_coroutine(unstarted: _Unstarted, run: Run) -> Any:
    return await _awaited(unstarted.made, run)


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
