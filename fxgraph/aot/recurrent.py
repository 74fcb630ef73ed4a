"""Recurrent layers while tracing: one operator per layer and direction, over all steps of time.

before                                      after
    y, h, c = torch.lstm(x, (h0, c0),           y, h, c, gates, cells = \\
                         weights, ...)              framegraph.recurrent_layer(x, h0, c0, ...)
                                                # backward: framegraph.recurrent_layer_backward

The operators are ours (csrc/recurrent/) and of any sizes, symbols too. What they do not take, such
as packed sequences, other dtypes and other devices, is taken apart as torch does it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.extensions import require
from fxgraph.graph_module import GraphModule

# Kinds of layers, by the numbers of csrc/recurrent/kernels.h, and their gates.
_KINDS: dict[Any, int] = {torch.rnn_tanh: 0, torch.rnn_relu: 1, torch.lstm: 2, torch.gru: 3}
_GATES = (1, 1, 4, 3)
_LSTM = 2
RECURRENT = frozenset(_KINDS)


def run_recurrent(target: Any, args: Sequence[Any]) -> Any:
    """target(*args), the layer's call.

    Where torch takes a layer apart, oneDNN's LSTM is left out: it keeps what its backward needs
    only where autograd runs the forward, which is not here. Layers other than the LSTM transpose
    their result in place for batch_first=True; a view of it is the same to the caller. What torch
    says of these layers for symbolic sizes forgets the dropout.
    """
    call = _Call(target, args)
    if call.is_whole():
        return call.by_layers(_whole)
    without = torch.backends.mkldnn.flags(enabled=False)
    with without if torch.is_grad_enabled() else contextlib.nullcontext():
        if call.known and (call.draws() or (target is not torch.lstm and call.batch_first)):
            return call.by_layers(functools.partial(_taken_apart, target))
        return target(*args)


def stays_whole(target: Any, args: Sequence[Any]) -> bool:
    """Whether this is a layer that becomes operators of ours."""
    return target in RECURRENT and _Call(target, args).is_whole()


def runs_recurrent(gm: GraphModule) -> bool:
    """Whether the graph has a recurrent layer."""
    return any(node.target in RECURRENT for node in gm.graph.nodes if node.op == "call_function")


class _Call:
    """The arguments of a layer: (x, states, ...), or (x, batch sizes, states, ...) if packed."""

    def __init__(self, target: Any, args: Sequence[Any]) -> None:
        self.kind = _KINDS[target]
        self.known = len(args) == 9
        if not self.known:
            return
        self.packed = isinstance(args[3], (list, tuple))
        states: Any
        if self.packed:
            self.x, self.batch_sizes, states, weights, *settings = args
        else:
            self.x, states, weights, *settings = args
        self.alone = isinstance(states, torch.Tensor)  # one state, of a GRU or RNN
        self.states = [states] if self.alone else list(states)
        self.weights = list(weights)
        self.biases, self.layers, self.dropout, self.train, self.both_ways = settings[:5]
        self.batch_first = not self.packed and settings[5]

    def draws(self) -> bool:
        return bool(self.train and self.dropout and self.layers > 1)

    def is_whole(self) -> bool:
        """Whether our operators take the call: plain dense tensors of sizes that fit."""
        if not self.known or self.packed or self.x.dim() != 3 or torch.is_autocast_enabled("cpu"):
            return False
        tensors = [self.x, *self.states, *self.weights]
        return (
            self.x.dtype in (torch.float32, torch.float64)
            and all(_plain(t, self.x.dtype) for t in tensors)
            and (self.alone if self.kind != _LSTM else len(self.states) == 2)
            and self._fits()
        )

    def _fits(self) -> bool:
        """Whether the sizes are as nn.RNNBase makes them; the errors of others are torch's."""
        count, each = self.layers * self.directions, 4 if self.biases else 2
        if not count or len(self.weights) not in (each * count, (each + 1) * count):
            return False
        projected = len(self.weights) != each * count
        hidden = self.weights[1].shape[0] // _GATES[self.kind]
        state = self.weights[each].shape[0] if projected else hidden
        rows = _GATES[self.kind] * hidden
        batch = self.x.shape[0 if self.batch_first else 1]
        sizes = [(count, batch, state), (count, batch, hidden)]
        fits = [_same(t.shape, size) for t, size in zip(self.states, sizes)]
        for number in range(count):
            inner = self.x.shape[2] if number < self.directions else self.directions * state
            expected = [(rows, inner), (rows, state), *[(rows,)] * (each - 2)]
            own = self.weights[number * (each + projected) :]
            fits += map(_same, (t.shape for t in own), [*expected, *[(state, hidden)] * projected])
        return all(fits) and not (projected and self.kind != _LSTM)

    @property
    def directions(self) -> int:
        return 2 if self.both_ways else 1

    def by_layers(self, run: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        """run(self, x, the layer's states, its weights) -> (output, *states), and so on."""
        x = self.x.transpose(0, 1) if self.batch_first else self.x
        each, count = len(self.weights) // self.layers, self.directions
        found: list[Sequence[torch.Tensor]] = []
        for layer in range(self.layers):
            states = [state[layer * count : (layer + 1) * count] for state in self.states]
            x, *last = run(self, x, states, self.weights[layer * each : (layer + 1) * each])
            found.append(last)
            if self.draws() and layer < self.layers - 1:
                x = torch.dropout(x, self.dropout, True)
        x = x.transpose(0, 1) if self.batch_first else x
        return x, *(found[0] if self.layers == 1 else [torch.cat(parts) for parts in zip(*found)])


def _plain(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether the tensor is a dense one on the CPU, with elements, and not a transform's."""
    return (
        tensor.dtype is dtype
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not any(type(size) is int and size == 0 for size in tensor.shape)
    )


def _same(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(shape) == len(other) and all(a == b for a, b in zip(shape, other))


def _taken_apart(target: Any, call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """One layer as torch takes it apart."""
    given = states[0] if call.alone else states
    settings = (call.biases, 1, 0.0, call.train, call.both_ways)
    if call.packed:
        return target(x, call.batch_sizes, given, weights, *settings)
    return target(x, given, weights, *settings, False)


def _whole(call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """One layer by our operator, a call for each direction."""
    outputs, found = [], []
    each = len(weights) // call.directions
    for direction in range(call.directions):
        own = list(weights[direction * each : (direction + 1) * each])
        if not call.biases:
            own[2:2] = None, None
        own += [None] * (5 - len(own))
        given = [state[direction] for state in states] + [None] * (2 - len(states))
        output, *last = _layer(call.kind, direction > 0, x, *given, *own)
        outputs.append(output)
        found.append(last[: len(states)])
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
    return output, *[torch.stack(states) for states in zip(*found)]


# -- the operators ---------------------------------------------------------------------------------
# Results that a kind has not, or that nothing wants, are tensors of no elements.
_STATES = "Tensor x, Tensor h0, Tensor? c0, Tensor w_ih, Tensor w_hh, "
_KEPT = "Tensor y, Tensor gates, Tensor cells, Tensor? d_y, Tensor? d_h, Tensor? d_c, "
_library = torch.library.Library("framegraph", "DEF")
_library.define(
    f"recurrent_layer({_STATES}Tensor? b_ih, Tensor? b_hh, Tensor? w_hr, int kind, bool reverse, "
    "bool save) -> (Tensor y, Tensor h, Tensor c, Tensor gates, Tensor cells)"
)
_library.define(
    f"recurrent_layer_backward({_STATES}Tensor? w_hr, {_KEPT}int kind, bool reverse, bool biases, "
    f"bool[8] wanted) -> ({', '.join(['Tensor'] * 8)})"
)
recurrent_layer = torch.ops.framegraph.recurrent_layer.default
recurrent_layer_backward = torch.ops.framegraph.recurrent_layer_backward.default

require("fxgraph.aot._recurrent")

from fxgraph.aot import _recurrent  # noqa: E402, F401


def _layer_meta(
    x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, w_hr: Any,
    kind: int, reverse: bool, save: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    time, batch = x.shape[:2]
    none, hidden = x.new_empty([0]), w_hh.shape[0] // _GATES[kind]
    lstm = kind == _LSTM
    return (
        x.new_empty([time, batch, h0.shape[1]]),
        x.new_empty([batch, h0.shape[1]]),
        x.new_empty([batch, hidden]) if lstm else none,
        x.new_empty([time, batch, 4 * hidden]) if save and kind >= _LSTM else x.new_empty([0]),
        x.new_empty([time, batch, hidden]) if save and lstm else x.new_empty([0]),
    )


def _layer_backward_meta(*args: Any) -> tuple[torch.Tensor, ...]:
    x, h0, c0, w_ih, w_hh, w_hr = args[:6]
    bias = w_ih.new_empty([w_ih.shape[0]]) if args[14] else None
    given = (x, h0, c0, w_ih, w_hh, bias, bias, w_hr)
    return tuple(
        x.new_empty(tensor.shape if wanted and tensor is not None else [0])
        for tensor, wanted in zip(given, args[15])
    )


_library.impl("recurrent_layer", _layer_meta, "Meta")
_library.impl("recurrent_layer_backward", _layer_backward_meta, "Meta")


class _Differentiated(torch.autograd.Function):
    """The layer as autograd records it: x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr -> y, h, c.

    What eager's layer saves is saved as such, so that nobody may write it before the backward.
    """

    @staticmethod
    def forward(ctx: Any, kind: int, reverse: bool, *tensors: Any) -> Any:
        y, h, c, gates, cells = recurrent_layer(*tensors, kind, reverse, True)
        ctx.kind, ctx.reverse, ctx.biases = kind, reverse, tensors[5] is not None
        ctx.set_materialize_grads(False)
        ctx.y = None if _saves_result(kind, *tensors) else y.detach()
        ctx.save_for_backward(*tensors[:5], tensors[7], y if ctx.y is None else None, gates, cells)
        ctx.mark_non_differentiable(*[c] if kind != _LSTM else [])
        return y, h, c

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        *given, y, gates, cells = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        found = recurrent_layer_backward(
            *given, y if ctx.y is None else ctx.y, gates, cells, *tangents,
            ctx.kind, ctx.reverse, ctx.biases, wanted,
        )  # fmt: skip
        return None, None, *[grad if given else None for grad, given in zip(found, wanted)]


def _saves_result(kind: int, x: torch.Tensor, *tensors: Any) -> bool:
    """Whether eager's layer is oneDNN's, which saves its result for the backward."""
    usable = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return kind == _LSTM and tensors[-1] is None and x.dtype is torch.float32 and bool(usable)


def _layer(kind: int, reverse: bool, *tensors: Any) -> tuple[torch.Tensor, ...]:
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return _Differentiated.apply(kind, reverse, *tensors)
    return recurrent_layer(*tensors, kind, reverse, False)[:3]
