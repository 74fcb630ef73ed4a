"""compile() and its relatives: from the user's function to a callable that the frame hook
serves.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from dynamo import _hook, directives
from dynamo.api.context import CompileContext
from dynamo.api.convert import convert_frame
from dynamo.api.generator_functions import CompiledGeneratorFunction, makes_generators
from dynamo.api.module import CompiledModule, compile_module, disable_module
from dynamo.api.shared_contexts import context_of, forget_all
from dynamo.backend_lookup import get_default_backend, resolve
from dynamo.config import config
from dynamo.guards.history import History
from dynamo.guards.shapes import takes_symbols
from dynamo.numpy_wrapping import numpy_wrapper
from dynamo.torch.transforms import MAKERS


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
) -> Any:
    """Compile a function, method or nn.Module; without `model`, a decorator. Of a class, calls of
    its instances are compiled, and the class is the result.

    fullgraph: the first graph break is an error (dynamo.errors.Unsupported) instead.
    dynamic: None: sizes, ints and floats are constants of the compiled code until they are seen to
        vary; then they become symbols (dynamo/guards/shapes.py). True: arguments' are symbols at
        once. False: never. A backend that takes no symbols has them constant always; True warns.
    backend: a name of dynamo.list_backends(), or a callable (gm, example_inputs) -> callable. gm is
        a fxgraph.GraphModule; a torch.fx.GraphModule where the parameter is annotated so, or the
        code of the backend names torch.fx or its compilers.
    mode, options: see dynamo.list_mode_options() and dynamo.list_options(); one of them, not both.
        options["guard_filter_fn"] goes with every backend: dynamo/guards/filters.py.
    disable: return `model` as it is.
    name: of this compilation, in place of the backend's in explain and logs.
    recompile_limit: as config.recompile_limit, for this function alone.
    isolate_recompiles: keep the compiled code apart from that of other calls of dynamo.compile with
        equal arguments for the same function, or for equal modules, which share theirs otherwise.

    Raises ValueError (InvalidBackend, InvalidOption) or TypeError at once for arguments that make
    no sense. Nothing is compiled before the first call.
    """
    settings: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": get_default_backend() if backend is None else backend,
        "mode": mode,
        "options": options,
        "name": name,
        "recompile_limit": recompile_limit,
    }
    _check_flags(disable=disable, isolate_recompiles=isolate_recompiles)
    _check_settings(settings)
    for_backend, _ = _split(options)
    found = resolve(
        settings["backend"], mode, for_backend
    )  # errors show at the decorator, not at the first call
    if dynamic and not takes_symbols(found):
        warnings.warn(
            "dynamic=True has no effect with this backend, which declares "
            "`dynamic_shapes = False`: each new size compiles again "
            "(up to dynamo.config.recompile_limit).",
            stacklevel=2,
        )
    if model is None:
        settings |= {"disable": disable, "isolate_recompiles": isolate_recompiles}
        return lambda fn: compile(fn, **settings)
    if not callable(model) or (isinstance(model, type) and _call_of_instances(model) is None):
        raise TypeError(f"dynamo.compile takes a function, a method or an nn.Module, not {model!r}")
    if disable or config.disable:
        return model
    if isolate_recompiles:
        return _compile(model, make_context(settings))
    return _compile(model, context_of(model, settings, make_context))


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {value!r}")


def _check_settings(settings: dict[str, Any]) -> None:
    """Raise for the settings without a meaning, but for those of the backend."""
    _check_flags(fullgraph=settings["fullgraph"])
    dynamic, name, limit = settings["dynamic"], settings["name"], settings["recompile_limit"]
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"dynamic must be True, False or None, not {dynamic!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a string or None, not {name!r}")
    if limit is not None and type(limit) is not int:
        raise TypeError(f"recompile_limit must be an int or None, not {limit!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"recompile_limit must be at least 1, not {limit}")


def default_settings() -> dict[str, Any]:
    """The arguments of compile() that a context holds."""
    return {
        "fullgraph": False,
        "dynamic": None,
        "backend": get_default_backend(),
        "mode": None,
        "options": None,
        "name": None,
        "recompile_limit": None,
    }


def make_context(settings: dict[str, Any]) -> CompileContext:
    backend = settings["backend"]
    named = backend if isinstance(backend, str) else getattr(backend, "__name__", "custom")
    for_backend, guard_filter = _split(settings["options"])
    return CompileContext(
        backend=resolve(backend, settings["mode"], for_backend),
        backend_name=settings["name"] or named,
        fullgraph=settings["fullgraph"],
        dynamic=settings["dynamic"],
        settings=settings,
        guard_filter=guard_filter,
        recompile_limit=settings["recompile_limit"],
        again=compile_again,
    )


def compile_again(model: Any, settings: dict[str, Any]) -> Any:
    """A copy of a compiled module, or one that is unpickled, compiled as the first one."""
    return compile(model, **settings)


def _split(options: dict[str, Any] | None) -> tuple[dict[str, Any] | None, Any]:
    """The options of the backend, and "guard_filter_fn", which is one of capture."""
    if not isinstance(options, dict) or "guard_filter_fn" not in options:
        return options, None
    rest = {name: value for name, value in options.items() if name != "guard_filter_fn"}
    choose = options["guard_filter_fn"]
    if not callable(choose):
        raise TypeError(
            "options['guard_filter_fn'] takes a function from a list of guards to a list of "
            f"bools, not {choose!r}"
        )
    return rest or None, choose


def _compile(model: Any, context: CompileContext) -> Any:
    if isinstance(model, torch.nn.Module):
        return compile_module(model, context, dispatcher)
    if isinstance(model, type):
        called: Any = _original(_call_of_instances(model))
        setattr(model, "__call__", dispatcher(_with_frame(called), context))  # noqa: B010
        return model
    return dispatcher(model, context)


def dispatcher(fn: Callable[..., Any], context: CompileContext) -> Any:
    """The C object that users call: runs compiled code, or lets the hook capture `fn`'s frame."""
    fn = _original(fn)
    fn = numpy_wrapper(fn) or fn
    called = _innermost_function(fn)
    if isinstance(called, _WITHOUT_FRAME) or id(getattr(called, "__code__", None)) in MAKERS:
        fn = _with_frame(fn)
    return (
        CompiledGeneratorFunction(fn, context)
        if makes_generators(fn)
        else _hook.compiled(fn, context, convert_frame)
    )


_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE, of classes such as list
_WITHOUT_FRAME = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)


def _call_of_instances(cls: type) -> Any:
    """The `__call__` of a class of the program's, or None."""
    found = [vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)]
    return None if cls.__flags__ & _IMMUTABLE or not found else found[0]


def _innermost_function(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _with_frame(builtin: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls a builtin one, torch.abs say, or what torch.func.grad makes: the hook
    captures frames, of the program.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return builtin(*args, **kwargs)

    call.__code__ = call.__code__.replace()  # a cache of compiled code of its own
    call.__name__ = call.__qualname__ = getattr(builtin, "__name__", "call")
    call.__doc__ = builtin.__doc__
    return call


def _original(fn: Any) -> Any:
    """Compiling a compiled function again compiles the function, as the new arguments say."""
    compiled = isinstance(fn, (_hook.Compiled, CompiledGeneratorFunction))
    return fn.__wrapped__ if compiled else fn


def compile_fresh(
    model: Any, *, export: bool = False, **overrides: Any
) -> tuple[Callable[..., Any], CompileContext]:
    """`model` compiled under a context of its own, as it was compiled before if it was; and the
    context.
    """
    settings = default_settings()
    if isinstance(model, CompiledModule):
        context, model = model._dynamo_context, model._orig_mod
        settings = settings if context is None else {**context.settings}
    elif isinstance(model, _hook.Compiled):
        settings = {**model.context.settings}
    unknown = set(overrides) - set(settings)
    if unknown:
        raise TypeError(
            f"explain takes no argument {', '.join(sorted(unknown))}; of those of dynamo.compile, "
            f"it takes: {', '.join(settings)}"
        )
    settings |= overrides
    _check_settings(settings)
    context = make_context(settings)
    context.export = export
    return _compile(model, context), context


def reset() -> None:
    """Forget everything compiled; functions stay decorated and compile again when called."""
    _hook.reset_all()
    forget_all()
    History.resets += 1


def disable(fn: Any = None, recursive: bool = True, reason: str | None = None) -> Any:
    """Run `fn`, and with recursive=True all that it calls, without compiling; usable as a
    decorator, also of a class of the program's, whose own methods it disables, in place. A module
    stays as it is: the result is a module that shares all but its call.

    With recursive=False only `fn`'s own frame is left alone. `reason` is shown by explain. Raises
    TypeError for an object that cannot be called, or, with recursive=False, without Python code,
    for another `recursive` than True and False, and for a reason that is no string.
    """
    _check_flags(recursive=recursive)
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"reason must be a string or None, not {reason!r}")
    if fn is None:
        return lambda f: disable(f, recursive, reason)
    directives.check_callable("disable", fn)
    if isinstance(fn, type) and not fn.__flags__ & _IMMUTABLE:
        for name, method in list(vars(fn).items()):
            if isinstance(method, types.FunctionType):
                setattr(fn, name, disable(method, recursive, reason))
        return fn
    if isinstance(fn, torch.nn.Module):
        return disable_module(fn, disable, recursive, reason)
    if not recursive:
        code = getattr(fn, "__code__", None)
        if code is None:
            raise TypeError(f"dynamo.disable(recursive=False) takes a Python function, not {fn!r}")
        directives.SKIPPED_CODE.set(code, reason or "")
        return fn
    disabled = _hook.disabled(fn)
    directives.DISABLED_REASONS[id(disabled)] = (disabled, reason or "")
    return disabled


def run(fn: Any) -> Any:
    """A function that calls `fn` with the code that is compiled already and compiles nothing: other
    frames run as they are. Raises TypeError for an object that cannot be called.
    """
    directives.check_callable("run", fn)
    return _hook.run_only(fn)
