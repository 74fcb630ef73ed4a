"""Frames of libraries that hold no tensor, left alone once captures of such frames took long.

A library that traces or solves something of its own, below a break, runs hundreds of small
functions of Python. The capture of one takes a thousand times as long as its call, and none has a
graph.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import _hook
from dynamo.config import config
from dynamo.framestate.cache_entry import LIBRARIES
from dynamo.values.functions.cell import is_empty

if TYPE_CHECKING:
    from dynamo.api.context import CompileContext
    from dynamo.records import FrameRecord

_MOST = 64  # objects that are looked at
_DEPTH = 2  # an argument's items and attributes, and theirs
_TENSORS = (torch.Tensor, torch.nn.Module, torch.Generator, torch.optim.Optimizer, np.ndarray)
_LEAVES = (int, float, complex, str, bytes, type, types.ModuleType, type(None), type(_hook.NULL))


def note_time(context: CompileContext, record: FrameRecord, seconds: float) -> None:
    """Take the time of a capture into the account of those without a graph."""
    if record.graphs:
        context.in_vain -= seconds
    elif record.filename.startswith(LIBRARIES):
        context.in_vain += seconds


def is_vain(frame: Any, context: CompileContext) -> bool:
    """Whether to leave a frame alone: a library's that gets no tensor."""
    if context.in_vain < config.no_graph_seconds or context.fullgraph:
        return False
    if not frame.f_code.co_filename.startswith(LIBRARIES):
        return False
    cells = (cell.cell_contents for cell in frame.closure if not is_empty(cell))
    return not _hold_tensor([*frame.f_locals_array, *cells])


def _hold_tensor(values: Iterable[Any]) -> bool:
    """Whether a tensor, or what has some, is found near the values."""
    waiting = deque((value, 0) for value in values)
    seen = set[int]()
    while waiting and len(seen) < _MOST:
        value, depth = waiting.popleft()
        kind = type(value)
        if issubclass(kind, _TENSORS):
            return True
        if issubclass(kind, _LEAVES) or id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        waiting.extend((part, depth + 1) for part in _parts(value, kind))
    return False


def _parts(value: Any, kind: type) -> Iterable[Any]:
    """The items and attributes of an object, read without its own code."""
    if kind in (list, tuple, set, frozenset, deque):
        return [*value]
    if kind is dict:
        return [*value.values()]
    if kind is types.MethodType:
        return [value.__self__]
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        return []
    parts: list[Any] = []
    if issubclass(kind, dict):
        parts += dict.values(value)
    elif issubclass(kind, (list, tuple)):
        parts += (list if issubclass(kind, list) else tuple).__iter__(value)
    for base in kind.__mro__:
        descriptor = vars(base).get("__dict__")
        if isinstance(descriptor, types.GetSetDescriptorType):
            parts += descriptor.__get__(value).values()
            break
    return parts
