"""Backward hooks of modules, in Python: captured in place of torch's BackwardHook, which asks
autograd for the function behind an input and behind a result of the module.

Where one tensor of each has a gradient, a copy of it stands for that function: `at_input` and
`at_output` run in backward, before what made the copy, and hand the gradients to torch's code.
"""

from __future__ import annotations

import functools
import warnings
import weakref

import torch
from torch.nn.modules import module as _globals
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import BackwardHook

from dynamo.polyfills import mark

mark(globals(), breakable=True)


def backward_hook(module):
    """The full backward hook that nn.Module.__call__ sets up before forward pre-hooks; None without
    backward hooks.
    """
    if not torch.is_grad_enabled():
        return None
    before = module._backward_pre_hooks or _globals._global_backward_pre_hooks
    after = module._backward_hooks or _globals._global_backward_hooks
    if not (before or after):
        return None
    before = [
        *in_order(_globals._global_backward_pre_hooks),
        *in_order(module._backward_pre_hooks),
    ]
    after = [*in_order(_globals._global_backward_hooks), *in_order(module._backward_hooks)]
    return BackwardHook(module, after, before)


def in_order(hooks):
    """The hooks of a dict, whatever their keys (dynamo/torch/modules.py)."""
    return list(hooks.values())


def with_kwargs(owner, name):
    """Whether each hook, in their order, takes keyword arguments (dynamo/torch/modules.py)."""
    keyed = getattr(owner, f"{name}_with_kwargs")
    hooks = getattr(owner, name)
    return [key in keyed for key in hooks] if keyed else [False] * len(hooks)


def watch_inputs(hook, args):
    """hook.setup_input_hook(args)"""
    places, watched = _tensors_of(args)
    if len(watched) > 1 or not all(_has_copies(args[place]) for place in watched):
        return hook.setup_input_hook(args)
    hook.n_inputs = len(args)
    if not watched:
        return args
    hook.input_tensors_index = places
    place = watched[0]
    like = [(args[one].shape, args[one].dtype, args[one].device) for one in places]
    own = own_history(args[place])
    watch_gradient(own, functools.partial(at_input, hook, places.index(place), like))
    return with_own(args, place, own)


def watch_results(hook, result):
    """hook.setup_output_hook(result)"""
    if not isinstance(result, (torch.Tensor, tuple)):
        warnings.warn(
            "For backward hooks to be called, module output should be a Tensor or a tuple of "
            f"Tensors but received {type(result)}",
            stacklevel=2,
        )
    results = result if isinstance(result, tuple) else (result,)
    places, watched = _tensors_of(results)
    if len(watched) > 1 or not all(_has_copies(results[place]) for place in watched):
        return hook.setup_output_hook(result)
    hook.n_outputs = len(results)
    if not watched:
        return result
    hook.output_tensors_index = places
    place = watched[0]
    own = own_history(results[place])
    watch_gradient(own, functools.partial(at_output, hook, places.index(place), len(places)))
    if results is not result:
        return own
    changed = with_own(result, place, own)
    return changed if type(result) is tuple else type(result)(*changed)


def with_own(values, place, own):
    """The values with `own` at its place; the other tensors become others in the same memory."""
    return (*map(_again, values[:place]), own, *map(_again, values[place + 1 :]))


def _again(value):
    return value.view_as(value) if isinstance(value, torch.Tensor) else value


def _tensors_of(values):
    """Where the tensors are, and those that have a gradient."""
    places = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
    return places, [place for place in places if values[place].requires_grad]


def _has_copies(tensor):
    """Whether copies are laid out as the tensor is."""
    return torch.empty_like(tensor).stride() == tensor.stride()


def own_history(tensor):
    """The tensor behind a function of its own, as torch's hooks see it. Captured as a copy, as long
    as the memory that it shares with `tensor` is not written (dynamo/torch/tensor_hooks.py).
    """
    return BackwardHookFunction.apply(tensor)[0]


def watch_gradient(tensor, hook):
    """Have the function that made the tensor go on from `hook(gradient)`. The gradient, and the
    result, may be None, which stands for zeros: what lies behind gets no gradient then.
    """
    number = tensor.output_nr

    def before(gradients):
        given = gradients[number]
        changed = hook(given)
        if given is None:  # autograd refuses another
            changed = None
        return (*gradients[:number], changed, *gradients[number + 1 :])

    tensor.grad_fn.register_prehook(before)


def at_input(hook, number, like, gradient):
    """The gradient of an input, the one of these tensors that has a gradient."""
    function = _Function()
    hook._set_user_hook(function)
    given = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in like]
    if gradient is not None:
        given[number] = gradient
    changed = function.hook(tuple(given), None)
    return given[number] if changed is None else changed[number]


def at_output(hook, number, count, gradient):
    """The gradient of a result, likewise; there is nothing for the other tensors."""
    function = _Function()
    index = hook.output_tensors_index

    def register(register_at, results):
        register_at(function)
        return results, index

    hook._apply_on_tensors = register
    hook.setup_output_hook((None,) * hook.n_outputs)
    del hook._apply_on_tensors
    given = [None] * count
    given[number] = gradient
    return function.hook(None, tuple(given))[number]


def init_handle(self, hooks_dict, *, extra_dict=None):
    """RemovableHandle.__init__(hooks_dict, extra_dict=extra_dict)"""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = handle_number()
    extra = extra_dict if isinstance(extra_dict, list) else [extra_dict]
    self.extra_dict_ref = tuple(weakref.ref(d) for d in extra if d is not None)


def remove_handle(self):
    """RemovableHandle.remove()"""
    remove_hook(self.hooks_dict_ref(), self)
    for ref in self.extra_dict_ref:
        remove_hook(ref(), self)


def remove_hook(table, handle):
    """Remove a handle's hook from a dict (dynamo/torch/handle_numbers.py)."""
    if table is not None and handle.id in table:
        del table[handle.id]


def handle_number():
    """A number for a handle (dynamo/torch/handle_numbers.py)."""
    raise NotImplementedError


class _Function:
    """Stands for a function of autograd: keeps its hook."""

    def register_hook(self, hook):
        self.hook = hook
