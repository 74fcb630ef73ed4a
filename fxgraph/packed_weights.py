"""Torch's dynamically quantised layers, whose packed weights are objects of a C++ class.

Torch has no rule for these operators on fake tensors: it runs them on zeros, which needs plain
sizes, and compares such objects, which they refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

# Functions of torch, beside operators of torch.ops, that take packed weights.
FUNCTIONS = (torch.quantized_lstm, torch.quantized_gru)


def _linear(x: torch.Tensor, packed: Any, reduce_range: bool = False) -> Any:
    with no_dispatch():
        rows, columns = packed.unpack()[0].shape
    torch._check(x.shape[-1] == columns)
    return x.new_empty([*x.shape[:-1], rows])


def _lstm_cell(x: torch.Tensor, hidden: Sequence[torch.Tensor], *weights: Any) -> Any:
    return tuple([h.new_empty(h.shape) for h in hidden])


def _cell(x: torch.Tensor, hidden: torch.Tensor, *weights: Any) -> Any:
    return hidden.new_empty(hidden.shape)


def _outputs(x: torch.Tensor, hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Of a layer's both directions, over all steps. rest: (weights, has_biases, num_layers,
    dropout, train, bidirectional, batch_first).
    """
    width, bidirectional = hidden.shape[-1], rest[5]
    return x.new_empty([*x.shape[:-1], width * 2 if bidirectional else width])


def _lstm(x: torch.Tensor, hidden: Sequence[torch.Tensor], *rest: Any, **_: Any) -> Any:
    return _outputs(x, hidden[0], *rest), *_lstm_cell(x, hidden)


def _gru(x: torch.Tensor, hidden: torch.Tensor, *rest: Any) -> Any:
    return _outputs(x, hidden, *rest), _cell(x, hidden)


_RULES: dict[str, Callable[..., Any]] = {
    "quantized::linear_dynamic": _linear,
    "quantized::linear_relu_dynamic": _linear,
    "quantized::linear_dynamic_fp16": _linear,
    "quantized::linear_relu_dynamic_fp16": _linear,
    "quantized::quantized_lstm_cell_dynamic": _lstm_cell,
    "quantized::quantized_gru_cell_dynamic": _cell,
    "quantized::quantized_rnn_tanh_cell_dynamic": _cell,
    "quantized::quantized_rnn_relu_cell_dynamic": _cell,
    "aten::quantized_lstm.input": _lstm,
    "aten::quantized_gru.input": _gru,
}
_NAMES = frozenset(name.partition(".")[0] for name in _RULES)


def rule_of(function: Any) -> Callable[..., Any] | None:
    """The rule over an operator's arguments, fake tensors and packed weights."""
    known = isinstance(function, torch._ops.OpOverload) and function._schema.name in _NAMES
    return _RULES.get(function.name()) if known else None
