"""C++ for the functions of ours that are kernels of their own: which module writes the call.

Each has, for its step: units (the elements of the range) and grain (units that are worth a thread's
while); numbers, the lists in the function's description, by name; body, the entry's lines
(slot: where a buffer is among the pointers; number: the numbers as text); label, for the profile.
"""

from __future__ import annotations

from typing import Any

from fxgraph.sizes import hint, product
from inductor.codegen import attention, depthwise, weight_gradient, winograd_panels
from inductor.ir import (
    Attention,
    AttentionGradient,
    Called,
    Depthwise,
    DepthwiseGradient,
    WeightGradient,
    WinogradPanels,
)

_KINDS: dict[type[Called], Any] = {
    Attention: attention,
    Depthwise: depthwise,
    DepthwiseGradient: depthwise,
    WeightGradient: weight_gradient,
    WinogradPanels: winograd_panels,
}


def kind_of(step: Called) -> Any:
    return _KINDS[type(step)]


def label_of(step: Called) -> str:
    if isinstance(step, AttentionGradient):  # of GPUs alone
        q, k = step.q.size, step.k.size
        sizes = f"{hint(product(q[:2]))} heads, {hint(q[2])}x{hint(k[2])}x{hint(q[3])}"
        return f"gradient of {step.of} of attention of {sizes}"
    label: str = kind_of(step).label(step)
    return label
