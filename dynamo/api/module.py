"""A compiled or disabled nn.Module: a wrapper that is the original in every respect but its call.

The wrapper is an instance of a subclass of the module's class and shares the module's __dict__:
attributes, parameters, hooks, state_dict keys and isinstance are the original's, whichever of the
two is changed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import _has_any_global_hook

from dynamo.api.context import CompileContext
from dynamo.bytecode.cache import CodeMap
from dynamo.interp.argument_names import NAMES, Names


class CompiledModule:
    """Mixin of the wrapper classes; `isinstance(m, CompiledModule)` tells a wrapped module."""

    __slots__ = ()
    if TYPE_CHECKING:
        _orig_mod: torch.nn.Module
        _dynamo_context: CompileContext | None  # None: disabled


def call_module(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The frame that is captured for a compiled module: hooks and forward are inlined into it."""
    return module(*args, **kwargs)


def compile_module(
    module: torch.nn.Module,
    context: CompileContext,
    dispatcher: Callable[[Callable[..., Any], CompileContext], Any],
) -> torch.nn.Module:
    """The wrapper of `module` whose call goes through `dispatcher(call_module, context)`."""
    call = dispatcher(call_module, context)
    assert context.again is not None
    return _wrapper(module, call, context, context.again, (context.settings,))


def disable_module(
    module: torch.nn.Module, disable: Callable[..., Any], recursive: bool, reason: str | None
) -> torch.nn.Module:
    """The wrapper of `module` whose call is disabled."""

    def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return module(*args, **kwargs)

    call.__qualname__ = type(module).__qualname__
    call.__code__ = call.__code__.replace()  # where the frame alone is disabled
    settings = (recursive, reason)
    return _wrapper(module, disable(call, *settings), None, disable, settings)


def _wrapper(
    module: torch.nn.Module,
    call: Callable[..., Any],
    context: CompileContext | None,
    again: Callable[..., Any],
    settings: tuple[Any, ...],
) -> Any:
    """`again(module, *settings)` wraps a copy in the same way."""
    if isinstance(module, CompiledModule):
        module = module._orig_mod
    wrapper: Any = object.__new__(_wrapper_class(type(module)))
    object.__setattr__(wrapper, "__dict__", module.__dict__)
    object.__setattr__(wrapper, "_orig_mod", module)
    object.__setattr__(wrapper, "_dynamo_context", context)
    object.__setattr__(wrapper, "_dynamo_call", call)
    object.__setattr__(wrapper, "_dynamo_again", (again, settings))
    object.__setattr__(wrapper, "_dynamo_steps", {})
    return wrapper


_classes: dict[type, type] = {}
_SLOTS = (
    "_orig_mod",
    "_dynamo_context",
    "_dynamo_call",
    "_dynamo_again",
    "_dynamo_steps",
)
# Lightning's trainer calls these methods of a module, and never the module.
_TRAINED = {
    (f"{package}.core.module", "LightningModule")
    for package in ("lightning.pytorch", "pytorch_lightning")
}
_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


def _wrapper_class(cls: type) -> type:
    if cls not in _classes:
        _classes[cls] = type(cls)(
            cls.__name__,
            (CompiledModule, cls),
            {
                # Slots, so that they stay out of the shared __dict__.
                "__slots__": _SLOTS,
                "__module__": cls.__module__,
                "__qualname__": cls.__qualname__,
                "__doc__": cls.__doc__,
                "__class__": property(_original_class, _change_class),
                "__eq__": _equals,
                "__hash__": _hash,
                "__call__": _call,
                "__getattr__": _getattr,
                "__setattr__": _setattr,
                "__delattr__": _delattr,
                "__reduce_ex__": _reduce_ex,
                "__deepcopy__": _deepcopy,
                "__copy__": _copy,
                **{name: property(_step_getter(name)) for name in _steps_of(cls)},
            },
        )
    return _classes[cls]


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    module = self._orig_mod
    method = getattr(module, "forward", None)  # None: of TorchScript
    if type(method) is MethodType and method.__self__ is module:  # no static method
        args, kwargs = _bound(module, method.__func__, args, kwargs)
    return self._dynamo_call(module, args, kwargs)


def _bound(
    module: Any, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as `forward` receives them, defaults included: one capture serves calls that
    give them by position, by name, or not at all. Unchanged where hooks see them, or for an error.
    """
    if type(forward) is not FunctionType:
        return args, kwargs
    if not (kwargs or forward.__defaults__ or forward.__kwdefaults__):
        return args, kwargs
    code = _BINDERS.computed(forward.__code__, lambda: _binder(forward.__code__))
    if code is None or _is_observed(module):
        return args, kwargs
    bind = FunctionType(code, {}, "bind", forward.__defaults__)
    bind.__kwdefaults__ = forward.__kwdefaults__
    try:
        return bind(module, *args, **kwargs)  # type: ignore[no-any-return]
    except TypeError:
        return args, kwargs


_BINDERS: CodeMap[CodeType | None] = CodeMap()


def _binder(code: CodeType) -> CodeType | None:
    """The code of a function with the parameters of `code` that returns its arguments; None: there
    is one way to give them.
    """
    count, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    if count == 0 or total == 1:
        return None
    names = list(code.co_varnames)
    rest = [f"*{names.pop(total)}"] if code.co_flags & inspect.CO_VARARGS else []
    others = [f"**{names[total]}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    named = names[count:total]
    parameters = [*names[:count], *(rest or ["*"] * bool(named)), *named, *others]
    items = [*(f"{name!r}: {name}" for name in named), *others]
    result = f"({', '.join([*names[1:count], *rest, ''])}), {{{', '.join(items)}}}"
    made = eval(f"lambda {', '.join(parameters)}: ({result})").__code__
    return made.replace(co_posonlyargcount=code.co_posonlyargcount)  # type: ignore[no-any-return]


def _is_observed(module: Any) -> bool:
    """Whether anything but the `forward` of the class sees the arguments of a call."""
    own, cls, base = module.__dict__, type(module), torch.nn.Module
    return bool(
        own.get("_forward_pre_hooks")
        or own.get("_forward_hooks")
        or own.get("_backward_pre_hooks")
        or own.get("_backward_hooks")
        or "_call_impl" in own
        or cls.__call__ is not base.__call__
        or cls._call_impl is not base._call_impl
        or _has_any_global_hook()
    )


def _steps_of(cls: type) -> tuple[str, ...]:
    """The methods that a trainer calls in place of the module."""
    trained = any((base.__module__, base.__qualname__) in _TRAINED for base in cls.__mro__)
    return _STEPS if trained else ()


def _step_getter(name: str) -> Callable[[Any], Any]:
    """The getter of the method `name`, compiled as the module is, or disabled as it is."""

    def compiled(self: Any) -> Any:
        method, steps = getattr(self._orig_mod, name), self._dynamo_steps
        if name not in steps or steps[name][0] != method:
            again, settings = self._dynamo_again
            steps[name] = method, again(method, *settings)
        return steps[name][1]

    return compiled


def _original_class(self: Any) -> type:
    return type(self._orig_mod)


def _change_class(self: Any, cls: type) -> None:
    """Give the original another class, as parametrizations of its parameters do."""
    self._orig_mod.__class__ = cls


def _equals(self: Any, other: Any) -> Any:
    """Equality of the originals: tables of modules that hooks and torch's registries look into find
    a module under either of the two.
    """
    other = other._orig_mod if isinstance(other, CompiledModule) else other
    return self._orig_mod == other


def _hash(self: Any) -> int:
    return hash(self._orig_mod)


def _getattr(self: Any, name: str) -> Any:
    """An attribute that the wrapper's class lacks: the original's may be another by now."""
    original, cls = object.__getattribute__(self, "_orig_mod"), type(self).__bases__[1]
    return cls.__getattr__(self, name) if type(original) is cls else getattr(original, name)


def _setattr(self: Any, name: str, value: Any) -> None:
    if name == "__class__":
        return _change_class(self, value)
    setattr(self._orig_mod, name, value)


def _delattr(self: Any, name: str) -> None:
    delattr(self._orig_mod, name)


def _reduce_ex(self: Any, protocol: int) -> Any:
    again, settings = self._dynamo_again
    return again, (self._orig_mod, *settings)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    again, settings = self._dynamo_again
    return again(copy.deepcopy(self._orig_mod, memo), *settings)


def _copy(self: Any) -> Any:
    again, settings = self._dynamo_again
    return again(copy.copy(self._orig_mod), *settings)


def _users_names(local: str, arguments: Sequence[Any]) -> Names:
    """call_module(module, args, kwargs): the arguments of module.forward."""
    module, _, kwargs = arguments[:3]
    if local == "module":
        return (("L['module']", "L['self']"),)
    if local == "kwargs":
        named = [key for key in kwargs if type(key) is str]
        return tuple([(f"L['kwargs'][{key!r}]", f"L[{key!r}]") for key in named])
    made: Any = getattr(type(module), "forward", None)  # None: of TorchScript
    forward = inspect.unwrap(made)
    code = getattr(forward, "__code__", None)
    if local != "args" or code is None:
        return ()
    parameters = code.co_varnames[1 : code.co_argcount]
    return tuple([(f"L['args'][{i}]", f"L[{name!r}]") for i, name in enumerate(parameters)])


NAMES.set(call_module.__code__, _users_names)
