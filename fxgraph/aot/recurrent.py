"""Recurrent layers while tracing: written so that what torch does inside can be recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

_ONE_STATE: tuple[Any, ...] = (torch.gru, torch.rnn_tanh, torch.rnn_relu)
RECURRENT = frozenset([torch.lstm, *_ONE_STATE])
_BATCH_FIRST = 8  # its place among the arguments of a layer over a plain tensor


def run_recurrent(target: Any, args: Sequence[Any]) -> Any:
    """target(*args), the layer's call.

    oneDNN's LSTM keeps what its backward needs only where autograd runs the forward, which is not
    here. The other layers transpose their result in place for batch_first=True; a view of it is the
    same to the caller.
    """
    without = torch.backends.mkldnn.flags(enabled=False)
    with without if torch.is_grad_enabled() else contextlib.nullcontext():
        if target not in _ONE_STATE or isinstance(args[3], (list, tuple)):
            return target(*args)  # an LSTM, or packed sequences
        if len(args) <= _BATCH_FIRST or not args[_BATCH_FIRST]:
            return target(*args)
        output, state = target(args[0].transpose(0, 1), *args[1:_BATCH_FIRST], False)
        return output.transpose(0, 1), state
