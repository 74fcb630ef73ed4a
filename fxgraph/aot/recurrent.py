"""Recurrent layers while tracing: written so that what torch does inside can be recorded.

before                                      after
    y, h, c = torch.lstm(x, (h0, c0),           y, h, c, w = framegraph.lstm_layer(x, ...)
                         weights, ...)          # backward: framegraph.lstm_layer_backward(..., w)

An LSTM over a batch or sequence whose size is a symbol is one operator per layer and direction,
oneDNN's, as eager runs it; any other is taken apart step by step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.graph_module import GraphModule

aten = torch.ops.aten
_ONE_STATE: tuple[Any, ...] = (torch.gru, torch.rnn_tanh, torch.rnn_relu)
RECURRENT = frozenset([torch.lstm, *_ONE_STATE])
_LSTM = 2  # ideep::rnn_kind


def run_recurrent(target: Any, args: Sequence[Any]) -> Any:
    """target(*args), the layer's call.

    oneDNN's LSTM keeps what its backward needs only where autograd runs the forward, which is not
    here. The other layers transpose their result in place for batch_first=True; a view of it is the
    same to the caller. What torch says of these layers for symbolic sizes forgets the dropout.
    """
    call = _Call(args)
    if target is torch.lstm and call.is_whole():
        return call.by_layers(_whole_lstm)
    without = torch.backends.mkldnn.flags(enabled=False)
    with without if torch.is_grad_enabled() else contextlib.nullcontext():
        if call.known and (call.draws() or (target in _ONE_STATE and call.batch_first)):
            return call.by_layers(functools.partial(_taken_apart, target))
        return target(*args)


def stays_whole(target: Any, args: Sequence[Any]) -> bool:
    """Whether this is an LSTM over sizes that are symbols, which eager leaves to oneDNN."""
    return target is torch.lstm and _Call(args).is_whole()


def runs_recurrent(gm: GraphModule) -> bool:
    """Whether the graph has a recurrent layer."""
    return any(node.target in RECURRENT for node in gm.graph.nodes if node.op == "call_function")


class _Call:
    """The arguments of a layer: (x, states, ...), or (x, batch sizes, states, ...) if packed."""

    def __init__(self, args: Sequence[Any]) -> None:
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
        if not self.known or self.packed or self.x.dim() != 3:
            return False
        constants = [n for n in self.x.shape if type(n) is int]
        tensors = [self.x, *self.states, *self.weights]
        plain = all(t.dtype is torch.float32 and t.device.type == "cpu" for t in tensors)
        count = (4 if self.biases else 2) * self.layers * self.directions  # else with projections
        return (
            len(constants) < 3
            and 0 not in constants
            and plain
            and len(self.states) == 2
            and len(self.weights) == count
            and torch.backends.mkldnn.is_available()
            and bool(torch.backends.mkldnn.enabled)
            and not torch.is_autocast_enabled("cpu")
        )

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


def _taken_apart(target: Any, call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """One layer as torch takes it apart."""
    given = states[0] if call.alone else states
    settings = (call.biases, 1, 0.0, call.train, call.both_ways)
    if call.packed:
        return target(x, call.batch_sizes, given, weights, *settings)
    return target(x, given, weights, *settings, False)


def _whole_lstm(call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """One layer as aten's mkldnn_rnn composes it."""
    x = x.contiguous()
    outputs, found = [], []
    each = len(weights) // call.directions
    for direction in range(call.directions):
        own = list(weights[direction * each : (direction + 1) * each])
        own += [] if call.biases else [own[0].new_zeros(own[0].shape[0]) for _ in range(2)]
        hx, cx = (state[direction].contiguous() for state in states)
        output, *last, _ = aten.mkldnn_rnn_layer.default(
            x, *own, hx, cx, direction > 0, [], _LSTM, hx.shape[1],
            call.layers, call.biases, call.both_ways, call.batch_first, call.train,
        )  # fmt: skip
        outputs.append(output)
        found.append(last)
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
    return output, *[torch.stack(states) for states in zip(*found)]


# -- oneDNN's layer, with what its backward needs --------------------------------------------------
# Its workspace has a size that only oneDNN knows. The operator gives it as a tensor of no elements
# over the workspace's memory; if somebody has copied that, the backward makes the workspace anew.
_LAYER = "Tensor input, Tensor w0, Tensor w1, Tensor w2, Tensor w3, Tensor hx, Tensor cx"
_SETTINGS = "bool reverse, int mode, int hidden_size, int num_layers, bool has_biases, bool train, "
_SETTINGS += "bool bidirectional, bool batch_first"
_RESULTS = "Tensor output, Tensor hy, Tensor cy"
_TANGENTS = "Tensor? d_output, Tensor? d_hy, Tensor? d_cy"
_library = torch.library.Library("framegraph", "DEF")
_library.define(f"lstm_layer({_LAYER}, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)")
_library.define(
    f"lstm_layer_backward({_LAYER}, {_RESULTS}, {_TANGENTS}, {_SETTINGS}, Tensor workspace)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
lstm_layer = torch.ops.framegraph.lstm_layer.default
lstm_layer_backward = torch.ops.framegraph.lstm_layer_backward.default


def _training_layer(*args: Any) -> tuple[torch.Tensor, ...]:
    tensors, settings = args[:7], args[7:]
    reverse, mode, hidden_size, layers, biases, train, both_ways, batch_first = settings
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        return aten.mkldnn_rnn_layer.default(
            *tensors, reverse, [], mode, hidden_size, layers, biases, both_ways, batch_first, train
        )


def _layer(*args: Any) -> tuple[torch.Tensor, ...]:
    *results, workspace = _training_layer(*args)
    return *results, workspace.narrow(0, 0, 0)


def _layer_backward(*args: Any) -> tuple[torch.Tensor, ...]:
    given, settings, workspace = args[:13], args[13:21], args[21]
    storage = workspace.untyped_storage()
    if storage.nbytes():
        full = torch.empty(0, dtype=torch.uint8).set_(storage)
    else:
        full = _training_layer(*given[:7], *settings)[3]
    with torch._C._AutoDispatchBelowAutograd():
        x, w0, w1, b0, b1, hx, cx = aten.mkldnn_rnn_layer_backward.default(
            *given, *settings[:-1], [], settings[-1], full
        )
    return x, w0, w1, b0, b1.clone(), hx, cx  # the biases have one gradient


def _layer_meta(*args: Any) -> tuple[torch.Tensor, ...]:
    x, hx, cx, hidden_size = args[0], args[5], args[6], args[9]
    output = x.new_empty([*x.shape[:2], hidden_size])
    workspace = x.new_empty([0], dtype=torch.uint8)
    return output, hx.new_empty(hx.shape), cx.new_empty(cx.shape), workspace


def _layer_backward_meta(*args: Any) -> tuple[torch.Tensor, ...]:
    return tuple(given.new_empty(given.shape) for given in args[:7])


_library.impl("lstm_layer", _layer, "CPU")
_library.impl("lstm_layer", _layer_meta, "Meta")
_library.impl("lstm_layer_backward", _layer_backward, "CPU")
_library.impl("lstm_layer_backward", _layer_backward_meta, "Meta")


def recorded(tracer: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """oneDNN's LSTM in a graph that is differentiated keeps what its backward needs."""
    if kwargs or not torch.is_grad_enabled() or args[9] != _LSTM:
        return tracer.record(op, args, kwargs)
    reverse, _, mode, hidden_size, layers, biases, both_ways, batch_first, train = args[7:]
    settings = (reverse, mode, hidden_size, layers, biases, train, both_ways, batch_first)
    return tracer.record(lstm_layer, (*args[:7], *settings), {})


def recorded_backward(tracer: Any, op: Any, args: Any, kwargs: Any) -> Any:
    if kwargs or args[14] != _LSTM:
        return tracer.record(op, args, kwargs)
    settings, batch_first, workspace = args[13:20], args[21], args[22]
    return tracer.record(lstm_layer_backward, (*args[:13], *settings, batch_first, workspace), {})
