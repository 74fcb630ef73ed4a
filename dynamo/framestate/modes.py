"""torch's modes around a frame, and around its capture."""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import checkpoint
from torch.utils._device import DeviceContext

from dynamo.interp.root import change_autocast_nesting, read_modes
from dynamo.torch.autocast import autocast_nesting
from dynamo.values.effects.random_state import preserved_draws
from fxgraph.dual_levels import level_restored
from fxgraph.inference_blocks import inference_restored

_fake_log = logging.getLogger("torch._subclasses.fake_tensor")
# The flag that redispatch_function sets, since torch 2.13.
_skips_overrides: Any = getattr(torch._C, "_peek_should_skip_torch_function", lambda: False)


def inside_transform() -> bool:
    """A transform of torch.func, or forward-mode autograd, is at work around the frame."""
    transforms = torch._C._functorch.peek_interpreter_stack() is not None
    return transforms or torch.autograd.forward_ad._current_level >= 0


def inside_mode(_: Any = None) -> bool:
    """Whether a torch function or dispatch mode other than that of `with torch.device(...)` is
    active, torch.jit.trace records, or the next call of torch is to skip overrides, which no other
    call may use up.
    """
    if torch._C._len_torch_dispatch_stack() or torch._C._is_tracing() or _skips_overrides():
        return True
    count = torch._C._len_torch_function_stack()
    modes = (torch._C._get_function_stack_at(i) for i in range(count))
    return any(type(mode) is not DeviceContext for mode in modes)


def inside_early_stop(_: Any = None) -> bool:
    """A checkpoint around the frame ends its second run by an exception, raised where the last
    tensor that backward needs is saved (or is to: the first run is in it).
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and _stops_early(hooks[0])


def outside_early_stop(_: Any = None) -> bool:
    """No such checkpoint is around the frame."""
    return not inside_early_stop()


def _stops_early(pack: Any) -> bool:
    pack = inspect.unwrap(pack)  # torch's compiler is kept out of the second run's hook
    if getattr(pack, "__module__", None) != checkpoint.__name__:
        return False
    cells = dict(zip(pack.__code__.co_freevars, pack.__closure__ or ()))
    if "target_frame_ref" in cells:
        run = cells["target_frame_ref"].cell_contents()
    else:
        run = cells["frame"].cell_contents if "frame" in cells else None
    return getattr(run, "early_stop", False)


def asks_overrides(_: Any = None) -> bool:
    """The next call of torch asks the overrides of its arguments: redispatch_function has it skip
    them.
    """
    return not _skips_overrides()


@contextlib.contextmanager
def restored_state() -> Iterator[None]:
    """Undo the changes of captured code to torch's modes at the end of the block."""
    modes, nesting = read_modes(), autocast_nesting()
    try:
        with inference_restored(), level_restored():
            yield
    finally:
        change_autocast_nesting(nesting - autocast_nesting())
        for setter, *args in modes:
            setter(*args)


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Keep compilation out of torch's random state, and errors on fake tensors out of the log. The
    garbage collector waits: a full collection in a process with torch takes longer than the capture
    of a frame.
    """
    disabled, _fake_log.disabled = _fake_log.disabled, True
    # The user's hooks for saved tensors, and a checkpoint's, are for operations that run.
    deferred = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with preserved_draws():
            yield
    finally:
        if collecting:
            gc.enable()
        _fake_log.disabled = disabled
        torch._C._autograd._saved_tensors_hooks_set_tracing(deferred)
