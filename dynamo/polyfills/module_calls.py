"""A module call with hooks, in Python: captured in place of nn.Module._call_impl.

The loops count: after a graph break in a hook, the rest is captured with the count as a constant,
where the next item of an iterator from outside would be another break.
"""

from __future__ import annotations

import warnings

from torch.nn.modules import module as _globals

from dynamo.polyfills import mark
from dynamo.polyfills.module_hooks import (
    backward_hook,
    in_order,
    watch_inputs,
    watch_results,
    with_kwargs,
)

mark(globals(), breakable=True)


def call_with_hooks(module, args, kwargs):
    """Pre-hooks, forward, forward hooks, in nn.Module's order; global hooks come first. Backward
    hooks see the inputs that pre-hooks replaced, and the result that forward hooks replaced.

    Without a hook that is always called, nothing here catches exceptions of forward.
    """
    state = [args, kwargs, None, []]
    if not (module._forward_hooks_always_called or _globals._global_forward_hooks_always_called):
        return call(module, state)
    try:
        return call(module, state)
    except Exception:
        call_remaining(module, *state)
        raise


def call(module, state):
    """state: the arguments, keyword arguments and result so far, and the keys of hooks that have
    been called, where some are always called.
    """
    args, kwargs, result, done = state
    forward = module.forward  # a hook may set another
    backward = backward_hook(module)
    hooks = in_order(_globals._global_forward_pre_hooks)
    keyed = [False] * len(hooks) + with_kwargs(module, "_forward_pre_hooks")
    hooks = hooks + in_order(module._forward_pre_hooks)
    called = 0
    while called < len(hooks):
        hook, keywords = hooks[called], keyed[called]
        called += 1
        if keywords:
            changed = hook(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple "
                        f"of (new_args, new_kwargs), but got {changed}."
                    )
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        state[0], state[1] = args, kwargs
    if backward is not None:
        args = watch_inputs(backward, args)
        state[0] = args
    result = forward(*args, **kwargs)
    state[2] = result
    always = module._forward_hooks_always_called or _globals._global_forward_hooks_always_called
    keys = [*_globals._global_forward_hooks, *module._forward_hooks] if always else ()
    keyed = with_kwargs(_globals, "_global_forward_hooks") + with_kwargs(module, "_forward_hooks")
    hooks = in_order(_globals._global_forward_hooks) + in_order(module._forward_hooks)
    called = 0
    while called < len(hooks):
        hook, keywords = hooks[called], keyed[called]
        if always:
            done.append(keys[called])
        called += 1
        if keywords:
            changed = hook(module, args, kwargs, result)
        else:
            changed = hook(module, args, result)
        if changed is not None:
            result = changed
            state[2] = result
    if backward is not None:
        result = watch_results(backward, result)
    return result


def call_remaining(module, args, kwargs, result, done):
    """Hooks registered with always_call=True run after an error, too; their exceptions become a
    warning.
    """
    for key, hook in _globals._global_forward_hooks.items():
        if key in _globals._global_forward_hooks_always_called and key not in done:
            try:
                changed = hook(module, args, result)
                if changed is not None:
                    result = changed
            except Exception as error:
                silenced("global module", error)
    for key, hook in module._forward_hooks.items():
        if key in module._forward_hooks_always_called and key not in done:
            try:
                if key in module._forward_hooks_with_kwargs:
                    changed = hook(module, args, kwargs, result)
                else:
                    changed = hook(module, args, result)
                if changed is not None:
                    result = changed
            except Exception as error:
                silenced("module", error)


def silenced(kind, error):
    warnings.warn(
        f"{kind} forward hook with ``always_call=True`` raised an exception "
        f"that was silenced as another error was raised in forward: {error}",
        stacklevel=2,
    )
