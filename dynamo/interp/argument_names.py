"""What the arguments of frames that we made are called in the user's own code."""

from __future__ import annotations

import inspect
from typing import Any

from dynamo.continuations.resume import users_name


def renamed(frame: Any, local: str) -> tuple[tuple[str, str], ...]:
    """LocalSource.renamed for an argument of this frame."""
    from dynamo.api.module import call_module

    if frame.f_code is call_module.__code__:
        return _of_module_call(local, *frame.f_locals_array[:3])
    name = users_name(frame.f_code, local)
    return () if name == local else ((f"L[{local!r}]", f"L[{name!r}]"),)


def _of_module_call(local: str, module: Any, args: Any, kwargs: Any) -> tuple[tuple[str, str], ...]:
    """call_module(module, args, kwargs): the arguments of module.forward."""
    if local == "module":
        return (("L['module']", "L['self']"),)
    if local == "kwargs":
        named = [key for key in kwargs if type(key) is str]
        return tuple([(f"L['kwargs'][{key!r}]", f"L[{key!r}]") for key in named])
    forward = inspect.unwrap(type(module).forward)
    code = getattr(forward, "__code__", None)
    if local != "args" or code is None:
        return ()
    parameters = code.co_varnames[1 : code.co_argcount]
    return tuple([(f"L['args'][{i}]", f"L[{name!r}]") for i, name in enumerate(parameters)])


__all__ = ["renamed"]
