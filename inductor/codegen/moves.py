"""Kernels that only move elements of a 16-bit floating-point type, as kernels of integers.

    out[i] = i < 1 ? 1.0 : x[i - 1]    (bfloat16)    out[i] = i < 1 ? 0x3f80 : x[i - 1]    (int16)

Padding, rolling, copies and concatenations are such kernels. Nothing is widened to float32 and
rounded again, and every NaN keeps its bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from inductor.index import Index, Indirect
from inductor.ir import Buffer, Loops, Tape, Value
from inductor.schedule.fusion import Kernel

_HALF_TYPES = (torch.bfloat16, torch.float16)


def as_integers(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Kernel, dict[str, Buffer]]:
    """The kernel in int16, and the buffers that it takes for such; as it is where it computes."""
    steps: list[Loops] = []
    moved: dict[str, Buffer] = {}
    for step in kernel.steps:
        again = _again(step, buffers)
        if again is None:
            return kernel, {}
        steps.append(again)
        names = [step.target.name, *(a.buffer for a in step.tape.loads())]
        halves = (buffers[n] for n in names if buffers[n].dtype in _HALF_TYPES)
        moved.update((b.name, replace(b, dtype=torch.int16)) for b in halves)
    return Kernel(kernel.id, kernel.outer, kernel.inner, steps, before=kernel.before), moved


def _again(step: Loops, buffers: Mapping[str, Buffer]) -> Loops | None:
    """The step with the bits of its elements; None where it does more than move them."""
    dtype = step.target.dtype
    if dtype not in _HALF_TYPES or step.reduction is not None or step.mode not in (None, "set"):
        return None
    tape, values = Tape(), dict[int, Value]()

    def swap(atom: object) -> Index | None:
        if isinstance(atom, Indirect):
            return Index({Indirect(values[atom.value.id], atom.size): 1})
        return None

    for v in step.tape.values:
        made = _moved(tape, v, [values[a.id] for a in v.args], dtype, buffers, swap)
        if made is None:
            return None
        values[v.id] = made
    index = step.index.substitute(swap)
    results = tuple(values[v.id] for v in step.values)
    target = replace(step.target, dtype=torch.int16)
    return replace(step, tape=tape, values=results, index=index, target=target, reads={})


def _moved(
    tape: Tape,
    v: Value,
    args: list[Value],
    dtype: torch.dtype,
    buffers: Mapping[str, Buffer],
    swap: Any,
) -> Value | None:
    if v.dtype == torch.int16:  # an integer of the program's, no element that is moved
        return None
    match v.op:
        case "constant" if v.dtype == torch.float32:
            bits = torch.tensor(v.attr, dtype=dtype).view(torch.int16)
            return tape.emit("constant", (), torch.int16, int(bits))
        case "load":
            stored = buffers[v.attr.buffer].dtype
            if stored != dtype and v.dtype.is_floating_point:
                return None
            access = replace(v.attr, index=v.attr.index.substitute(swap))
            kind = torch.int16 if stored == dtype else v.dtype
            return tape.emit("load", tuple(args), kind, access)
        case "to_dtype" if v.attr == dtype:
            return args[0] if args[0].dtype == torch.int16 else None
        case "where" if v.dtype == torch.float32:
            return tape.emit("where", tuple(args), torch.int16)
        case "index_expr":
            return tape.emit("index_expr", (), v.dtype, v.attr.substitute(swap))
    if v.dtype.is_floating_point or any(a.dtype == torch.int16 for a in args):
        return None
    return tape.emit(v.op, tuple(args), v.dtype, v.attr)
