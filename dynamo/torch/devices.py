"""The default device: that of `with torch.device(...)` and torch.set_default_device."""

from __future__ import annotations

import torch
from torch.utils._device import DeviceContext


def entered_devices() -> list[torch.device]:
    """The devices of `with torch.device(...)` and torch.set_default_device, outermost first."""
    count = torch._C._len_torch_function_stack()
    modes = [torch._C._get_function_stack_at(i) for i in range(count)]
    return [mode.device for mode in modes if type(mode) is DeviceContext]


def global_device() -> torch.device | None:
    """The device of torch.set_default_device; None: none is set."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # type: ignore[attr-defined]
    return None if context is None else context.device


def set_global_device(device: torch.device | None) -> None:
    """torch.set_default_device, unless that device is set."""
    if device != global_device():
        torch.set_default_device(device)


def set_devices(*devices: torch.device) -> None:
    """Leave and enter regions of `with torch.device(...)` until these are entered."""
    entered = entered_devices()
    pairs = zip(entered, devices)
    common = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(entered), len(devices)))
    for _ in entered[common:]:
        torch._C._pop_torch_function_stack()
    for device in devices[common:]:
        device.__enter__()


def default_device() -> torch.device | None:
    """The device of the innermost region; None outside of any."""
    return next(reversed(entered_devices()), None)
