"""A module call with hooks, in Python: captured in place of nn.Module._call_impl."""

from __future__ import annotations

from torch.nn.modules import module as _globals


def call_with_hooks(module, args, kwargs):
    """Pre-hooks, forward, forward hooks, in nn.Module's order; global hooks come first."""
    for key, hook in [
        *_globals._global_forward_pre_hooks.items(),
        *module._forward_pre_hooks.items(),
    ]:
        if key in module._forward_pre_hooks_with_kwargs:
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
    done = []
    try:
        result = module.forward(*args, **kwargs)
        for key, hook in [*_globals._global_forward_hooks.items(), *module._forward_hooks.items()]:
            always = key in module._forward_hooks_always_called
            if always or key in _globals._global_forward_hooks_always_called:
                done.append(key)
            if key in module._forward_hooks_with_kwargs or (
                key in _globals._global_forward_hooks_with_kwargs
            ):
                changed = hook(module, args, kwargs, result)
            else:
                changed = hook(module, args, result)
            if changed is not None:
                result = changed
    except Exception:
        call_remaining(module, args, kwargs, done)
        raise
    return result


def call_remaining(module, args, kwargs, done):
    """Hooks registered with always_call=True run after an error too; what they raise is dropped."""
    for key, hook in module._forward_hooks.items():
        if key in module._forward_hooks_always_called and key not in done:
            try:
                if key in module._forward_hooks_with_kwargs:
                    hook(module, args, kwargs, None)
                else:
                    hook(module, args, None)
            except Exception:
                pass
