"""Recurrent layers while tracing: one operator per layer and direction, over all steps of time.

before                                      after
    y, h, c = torch.lstm(x, (h0, c0),           inputs = torch.addmm(b_ih, x, w_ih.t())
                         weights, ...)          y, h, c, gates, cells = \\
                                                    framegraph.recurrent_layer(inputs, h0, c0, ...)
                                                # backward: framegraph.recurrent_layer_backward

The operators are ours (csrc/recurrent/) and of any sizes, symbols too. In training, the products of
all steps at once, before the layer and behind its backward, are the graph's, so that a backend
chooses their code. In inference the operator makes those before it, in memory for a few steps:

    y, h, c, _, _ = framegraph.recurrent_layer(x, h0, c0, ..., b_ih, w_ih)

Layers that the operators do not take (other dtypes, other devices) are decomposed as torch
does it. In training, layers of reduced dtypes (_REDUCED) have their steps in float32 and the
products of all steps in their own dtype, in which the operators keep them where it is bfloat16;
some LSTMs are oneDNN's (onednn_recurrent.py). The rows of packed sequences are put at their places
among all steps of all sequences:

    gates = zeros(time * batch).index_copy(0, places of the rows, rows @ w_ih.t() + b_ih)
    y, h, c = framegraph.recurrent_layer(gates, h0, c0, ..., batch sizes)
    rows = y[places of the rows]
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxgraph.aot.cudnn_recurrent import run_layers
from fxgraph.aot.functional import Unfunctionalizable
from fxgraph.aot.onednn_recurrent import TrainedLayer, is_faster
from fxgraph.args import map_aggregate
from fxgraph.extensions import require
from fxgraph.graph_module import GraphModule

# Kinds of layers, by the numbers of csrc/recurrent/kernels.h, and their gates.
_KINDS: dict[Any, int] = {torch.rnn_tanh: 0, torch.rnn_relu: 1, torch.lstm: 2, torch.gru: 3}
_GATES = (1, 1, 4, 3)
_LSTM, _GRU = 2, 3
RECURRENT = frozenset(_KINDS)
# Dtypes of layers that have their steps in float32 where autograd records, the first also where a
# processor has no instructions for it. Decomposed, steps are many small products; inference has an
# operator of oneDNN's.
_REDUCED = (torch.bfloat16, torch.float16)


def run_recurrent(target: Any, args: Sequence[Any], twice: bool = False) -> Any:
    """target(*args), the layer's call. twice: whether gradients are differentiated in turn, for
    which our operators have no formulas.

    Where torch decomposes a layer, oneDNN's LSTM is left out: it saves tensors for its backward
    only where autograd runs the forward, which is not here. Layers other than the LSTM transpose
    their result in place for batch_first=True; a view of it is the same to the caller. Torch's
    decompositions of these layers for symbolic sizes leave out the dropout.
    """
    call = _Call(target, args)
    if call.is_cast():
        args = map_aggregate(tuple(args), _cast)
        with torch.autocast("cpu", enabled=False):
            return run_recurrent(target, args, twice)
    if is_cudnns(target, args):
        if twice:
            raise Unfunctionalizable("cuDNN's layers have no second derivative")
        return call.by_cudnn()
    if call.is_whole() and not twice:
        if call.is_onednns():
            return call.by_layers(_by_onednn)
        packed = _Packed(call) if call.packed else None
        return call.by_layers(functools.partial(_by_library, packed))
    without = torch.backends.mkldnn.flags(enabled=False)
    with without if torch.is_grad_enabled() else contextlib.nullcontext():
        if call.known and (call.draws() or (target is not torch.lstm and call.batch_first)):
            return call.by_layers(functools.partial(_decomposed, target))
        return target(*args)


def has_library_operator(target: Any, args: Sequence[Any]) -> bool:
    """Whether this is a layer that becomes operators of ours."""
    if target not in RECURRENT:
        return False
    call = _Call(target, args)
    return call.is_whole() or call.is_cast() or is_cudnns(target, args)


def is_cudnns(target: Any, args: Sequence[Any]) -> bool:
    """Whether eager has this layer computed by cuDNN (cudnn_recurrent.py)."""
    return target in RECURRENT and bool(torch.cudnn_is_acceptable(args[0]))


def takes_cudnns(target: Any, args: Sequence[Any]) -> bool:
    """Whether the call of cuDNN's becomes an operator. Autocast would cast its weights apart, and
    the call put them together again."""
    return _Call(target, args).is_whole(device="cuda")


def runs_recurrent(gm: GraphModule) -> bool:
    """Whether the graph has a recurrent layer."""
    return any(node.target in RECURRENT for node in gm.graph.nodes if node.op == "call_function")


def differentiates_twice(gm: GraphModule) -> bool:
    """Whether the graph computes gradients that can be differentiated."""
    found = gm.graph.find_nodes(op="call_function", target=torch.autograd.grad)
    return any(node.kwargs.get("create_graph") for node in found)


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

    def is_cast(self) -> bool:
        """Whether autocast casts all arguments: eager's layer is an operator of oneDNN's. (Without
        autograd, torch itself calls that one.)
        """
        if not self.known or self.kind != _LSTM or self.packed:
            return False
        if not torch.is_autocast_enabled("cpu") or not _has_onednn():
            return False
        tensors = [self.x, *self.states, *self.weights]
        projected = len(self.weights) != self.layers * self.directions * (4 if self.biases else 2)
        floats = all(t.device.type == "cpu" and t.dtype is torch.float32 for t in tensors)
        return floats and not projected and _is_recorded(tensors)

    def is_whole(self, device: str = "cpu") -> bool:
        """Whether our operators take the call: plain dense tensors of sizes that fit."""
        rank = 2 if self.known and self.packed else 3
        if not self.known or self.x.dim() != rank or torch.is_autocast_enabled(device):
            return False
        tensors = [self.x, *self.states, *self.weights]
        reduced: Sequence[torch.dtype] = _REDUCED
        if device == "cpu" and not _is_recorded(tensors):
            reduced = _REDUCED[:1] if _has_no_bfloat16(self.kind) else ()
        dtypes = (torch.float32, torch.float64, *reduced)
        return (
            self.x.dtype in dtypes
            and all(_plain(t, self.x.dtype, device) for t in tensors)
            and (self.alone if self.kind != _LSTM else len(self.states) == 2)
            and self._fits()
        )

    def is_onednns(self) -> bool:
        """Whether such a call trains as eager's does, by oneDNN's layer."""
        tensors = [self.x, *self.states, *self.weights]
        return (
            self.kind == _LSTM
            and not self.packed
            and len(self.weights) == 4 * self.layers * self.directions
            and _has_onednn()
            and _is_recorded(tensors)
            and is_faster(self.x.dtype, *self.states[0].shape[1:])
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
        batch = self.states[0].shape[1]
        if not self.packed and batch != self.x.shape[0 if self.batch_first else 1]:
            return False
        sizes = [(count, batch, state), (count, batch, hidden)]
        fits = [_same(t.shape, size) for t, size in zip(self.states, sizes)]
        for number in range(count):
            inner = self.x.shape[-1] if number < self.directions else self.directions * state
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
            own = self.weights[layer * each : (layer + 1) * each]
            x, *last = run(self, x, states, own)
            found.append(last)
            if self.draws() and layer < self.layers - 1:
                zeros = self.dropout == 1  # drawn by torch's form for symbolic sizes, not by eager
                x = x * x.new_zeros(()) if zeros else torch.dropout(x, self.dropout, True)
        x = x.transpose(0, 1) if self.batch_first else x
        return x, *(found[0] if self.layers == 1 else [torch.cat(parts) for parts in zip(*found)])

    def by_cudnn(self) -> tuple[torch.Tensor, ...]:
        x = self.x.transpose(0, 1) if self.batch_first else self.x
        sizes = self.batch_sizes if self.packed else None
        settings = (self.kind, self.biases, self.layers, self.dropout, self.train, self.both_ways)
        y, *last = run_layers(x, sizes, self.states, self.weights, *settings)
        return y.transpose(0, 1) if self.batch_first else y, *last


def _plain(tensor: torch.Tensor, dtype: torch.dtype, device: str) -> bool:
    """Whether the tensor is a dense one there, with elements, and not a transform's."""
    return (
        tensor.dtype is dtype
        and tensor.device.type == device
        and tensor.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not any(type(size) is int and size == 0 for size in tensor.shape)
    )


def _cast(leaf: Any) -> Any:
    """An argument as autocast casts it."""
    return leaf.to(torch.get_autocast_dtype("cpu")) if isinstance(leaf, torch.Tensor) else leaf


def _has_no_bfloat16(kind: int) -> bool:
    """Whether nothing multiplies bfloat16 in inference: instructions by which decomposed steps are
    fast, or oneDNN's LSTM.
    """
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return False
    return kind != _LSTM or not (_has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def _same(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(shape) == len(other) and all(a == b for a, b in zip(shape, other))


def _decomposed(target: Any, call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """A layer, decomposed as torch does."""
    given = states[0] if call.alone else states
    settings = (call.biases, 1, 0.0, call.train, call.both_ways)
    if call.packed:
        return target(x, call.batch_sizes, given, weights, *settings)
    return target(x, given, weights, *settings, False)


class _Packed:
    """The places of the rows of a packed sequence among `time` steps of `batch` sequences, as
    numbers of rows. Sequences are turned round for the second direction.
    """

    def __init__(self, call: _Call) -> None:
        sizes = self.sizes = call.batch_sizes
        rows, self.time, self.batch = call.x.shape[0], sizes.shape[0], call.states[0].shape[1]
        ends = sizes.cumsum(0)
        row, every = torch.arange(rows), torch.arange(self.batch)
        step = torch.searchsorted(ends, row, right=True)
        sequence = row - (ends - sizes)[step]
        lengths = (every < sizes[:, None]).sum(0)
        self._places = [
            step * self.batch + sequence,
            (lengths[sequence] - 1 - step) * self.batch + sequence,
        ]

    def run(
        self, kind: int, direction: int, rows: Any, *given: Any, b_ih: Any
    ) -> tuple[torch.Tensor, ...]:
        """The layer of the gates of rows -> (its rows, states behind the last row of each)."""
        places = self._places[direction]
        gates = rows.new_zeros([self.time * self.batch, rows.shape[1]]).index_copy(0, places, rows)
        gates = gates.view(self.time, self.batch, rows.shape[1])
        y, h, c = _layer(kind, False, self.sizes, gates, *given, b_ih=b_ih)
        return y.flatten(0, 1)[places], h, c


def _by_library(packed: _Packed | None, call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """A layer by the library's operator, a call for each direction."""
    outputs, found = [], []
    each = len(weights) // call.directions
    for direction in range(call.directions):
        w_ih, w_hh, *own = weights[direction * each : (direction + 1) * each]
        b_ih, b_hh, *own = own if call.biases else (None, None, *own)
        given = [state[direction] for state in states] + [None] * (2 - len(states))
        given += [w_hh, b_hh, own[0] if own else None]
        # Of reduced dtypes, added in the dtype of the steps.
        apart, bias = (b_ih, None) if x.dtype in _REDUCED else (None, b_ih)
        if packed is not None:
            rows = _row_gates(x, w_ih, bias)
            output, *last = packed.run(call.kind, direction, rows, *given, b_ih=apart)
        elif _multiplies(call.kind, x, w_ih, b_ih, *given):
            settings = call.kind, direction > 0, False, None, None, None
            output, *last = recurrent_layer(x, *given, *settings, b_ih, w_ih)[:3]
        else:
            inputs = _input_gates(x, w_ih, bias)
            output, *last = _layer(call.kind, direction > 0, None, inputs, *given, b_ih=apart)
        outputs.append(output)
        found.append(last[: len(states)])
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
    return output, *[torch.stack(states) for states in zip(*found)]


def _by_onednn(call: _Call, x: Any, states: Any, weights: Any) -> Any:
    """A layer by oneDNN's operator, a call for each direction."""
    each = len(weights) // call.directions
    made = [
        TrainedLayer.apply(
            number > 0, x, states[0][number], states[1][number], *weights[number * each :][:each]
        )
        for number in range(call.directions)
    ]
    outputs, *found = zip(*made)
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
    return output, *map(torch.stack, found)


def _multiplies(kind: int, x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Whether the operator makes the products with the inputs: where nothing saves their results,
    and no instructions for bfloat16 are faster than those for float32.
    """
    if _is_recorded((x, *others)):
        return False
    return x.dtype not in _REDUCED or (x.dtype is torch.bfloat16 and _has_no_bfloat16(kind))


def _input_gates(x: Any, weight: Any, bias: Any) -> torch.Tensor:
    """The product of all steps' inputs with the weights of the gates: (time, batch, gates). The
    gradient of x is laid out as eager's, with time outermost.
    """
    made = _row_gates(x.reshape(-1, x.shape[2]), weight, bias)
    return made.view(*x.shape[:2], weight.shape[0])


def _row_gates(rows: Any, weight: Any, bias: Any) -> torch.Tensor:
    return rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())


# -- the operators ---------------------------------------------------------------------------------
# sizes: of packed sequences, how many of them have each step; they are sorted by their lengths.
# Results that a kind has not, or that nothing wants, are tensors of no elements.
# save: whether a backward will read gates and cells. Layers in bfloat16 have all tensors in it, and
# one step at a time in float32; b_ih: what is to be added to their inputs. w_ih: where inputs are
# the layer's and not yet the gates', what they are to be multiplied by; packed_ih: the
# same packed, without which the products of all steps are made at once.
_library = torch.library.Library("framegraph", "DEF")
_ARGUMENTS = (
    "Tensor inputs, Tensor h0, Tensor? c0, Tensor w_hh, Tensor? b_hh, Tensor? w_hr, int kind, "
    "bool reverse, bool save, Tensor? sizes=None, Tensor? packed=None, Tensor? packed_hr=None, "
    "Tensor? b_ih=None, Tensor? w_ih=None, Tensor? packed_ih=None"
)
_OF_BACKWARD = (
    "Tensor h0, Tensor? c0, Tensor w_hh, Tensor? w_hr, Tensor y, Tensor gates, Tensor cells, "
    "Tensor? d_y, Tensor? d_h, Tensor? d_c, int kind, bool reverse, bool states, "
    "Tensor? sizes=None, Tensor? packed=None, Tensor? packed_hr=None"
)


def _define(name: str, arguments: str, results: Sequence[str]) -> None:
    """The operator, and its form that writes its results where the caller has memory for them."""
    written = (f"Tensor({letter}!) out_{name}" for letter, name in zip("abcde", results))
    made = ", ".join(f"Tensor {name}" for name in results)
    _library.define(f"{name}({arguments}) -> ({made})")
    _library.define(f"{name}.out({arguments}, *, {', '.join(written)}) -> ()")


_define("recurrent_layer", _ARGUMENTS, ("y", "h", "c", "gates", "cells"))
_define("recurrent_layer_backward", _OF_BACKWARD, ("gates", "h0", "c0", "projected"))
# w_hh or w_ih, or with the first kind w_hr, in the order that steps read: `packed`, `packed_ih`,
# `packed_hr`. natural: in that of the backward, for which the kind is the first.
_define("recurrent_weights", "Tensor weights, int kind, bool natural=False", ("packed",))
recurrent_layer = torch.ops.framegraph.recurrent_layer.default
recurrent_layer_backward = torch.ops.framegraph.recurrent_layer_backward.default
recurrent_weights = torch.ops.framegraph.recurrent_weights.default

require("fxgraph.aot._recurrent")

from fxgraph.aot import _recurrent  # noqa: E402


def _layer_meta(
    inputs: Any, h0: Any, c0: Any, w_hh: Any, b_hh: Any, w_hr: Any,
    kind: int, reverse: bool, save: bool, *rest: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    time, batch = inputs.shape[:2]
    none, hidden = inputs.new_empty([0]), w_hh.shape[0] // _GATES[kind]
    lstm = kind == _LSTM
    return (
        inputs.new_empty([time, batch, h0.shape[1]]),
        inputs.new_empty([batch, h0.shape[1]]),
        inputs.new_empty([batch, hidden]) if lstm else none,
        inputs.new_empty([time, batch, 4 * hidden]) if save and kind >= _LSTM else none,
        inputs.new_empty([time, batch, hidden]) if save and lstm else none,
    )


def _layer_backward_meta(*args: Any) -> tuple[torch.Tensor, ...]:
    h0, c0, w_hh, w_hr, y = args[:5]
    kind, _, states = args[10:13]
    time, batch = y.shape[:2]
    none = y.new_empty([0])
    rows = w_hh.shape[0] // 3 * 4 if kind == _GRU else w_hh.shape[0]
    return (
        y.new_empty([time, batch, rows]),
        y.new_empty(h0.shape) if states else none,
        none if c0 is None else y.new_empty(c0.shape),
        none if w_hr is None else y.new_empty(y.shape),
    )


def _weights_meta(weights: Any, kind: int, natural: bool = False) -> torch.Tensor:
    rows, inner = weights.shape[::-1] if natural else weights.shape
    columns = rows // _GATES[kind]
    dtype = _dtype_of_steps(weights.dtype)
    width = _recurrent.width(kind, dtype is torch.float64)
    blocks = -(-columns // width)
    size = blocks * width * _GATES[kind] * inner
    return weights.new_empty([size], dtype=dtype)


def _dtype_of_steps(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _REDUCED else dtype


def reads_packed(inputs: torch.Tensor, w_hh: torch.Tensor) -> bool:
    """Whether the steps of a layer read w_hh packed, or may, of sizes that vary."""
    time, batch = inputs.shape[:2]
    known = type(time) is int and type(batch) is int
    return not known or _recurrent.packs(
        time, batch, w_hh.numel() * _dtype_of_steps(w_hh.dtype).itemsize
    )


_library.impl("recurrent_layer", _layer_meta, "Meta")
_library.impl("recurrent_weights", _weights_meta, "Meta")
_library.impl("recurrent_layer_backward", _layer_backward_meta, "Meta")


class _Differentiated(torch.autograd.Function):
    """The layer as autograd records it: inputs, h0, c0, w_hh, b_hh, w_hr, b_ih -> y, h, c. b_ih:
    what is to be added to the inputs, if anything.

    Tensors that eager's layer saves are saved as such, so that a write to one before the
    backward is eager's error.
    """

    @staticmethod
    def forward(ctx: Any, kind: int, reverse: bool, sizes: Any, *tensors: Any) -> Any:
        dtype, ctx.inputs = tensors[3].dtype, tensors[0].dtype
        ctx.dtype = dtype
        packed = _packed_weights(kind, *tensors)
        *results, gates, cells = _run(tensors, kind, reverse, True, sizes, packed)
        y, h, c = [result.to(dtype) for result in results]
        ctx.kind, ctx.reverse = kind, reverse
        ctx.set_materialize_grads(False)
        # In memory of its own for the tracer: the program may write y.
        ctx.y = None if _saves_result(kind, *tensors) else torch.ops.aten.lift.default(y)
        kept = y if ctx.y is None else None
        ctx.save_for_backward(*tensors[1:4], tensors[5], kept, gates, cells, sizes)
        ctx.mark_non_differentiable(*[c] if kind != _LSTM else [])
        return y, h, c

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        h0, c0, *weights, y, gates, cells, sizes = ctx.saved_tensors
        given = [*map(_widened, (h0, c0, *weights))]
        y = y if ctx.y is None else ctx.y
        of_inputs, of_h0, of_c0, of_weights, of_bias, of_projection, of_b_ih = ctx.needs_input_grad[
            3:
        ]
        made, h0_gradient, c0, projected = recurrent_layer_backward(
            *given,
            _widened(y),
            gates,
            cells,
            *map(_widened, tangents),
            ctx.kind,
            ctx.reverse,
            of_h0,
            sizes,
            *[w if w is None else recurrent_weights(w, 0, True) for w in given[2:]],
        )
        size = made.shape[2] // 4  # of a gate, of layers with several
        inputs = hidden = made
        if ctx.kind == _GRU:
            hidden = made[:, :, size:]
            inputs = torch.cat([made[:, :, size : 3 * size], made[:, :, :size]], 2)
        rows, wide = hidden.flatten(0, 1), _dtype_of_steps(ctx.dtype)
        weights = bias = projection = None
        if of_weights:
            first = h0.unsqueeze(0)
            before = [y[1:], first] if ctx.reverse else [first, y[:-1]]
            factors = rows, torch.cat(before).flatten(0, 1)
            weights = _weight_gradient(*factors, ctx.dtype)
        if of_bias:
            bias = _bias_gradient(rows, wide, ctx.dtype)
        if of_projection:
            full = gates[:, :, 3 * size :].to(wide) * cells.to(wide).tanh()
            factors = projected.flatten(0, 1), full.flatten(0, 1)
            projection = _weight_gradient(*factors, ctx.dtype)
        states = h0_gradient.to(ctx.dtype) if of_h0 else None, c0.to(ctx.dtype) if of_c0 else None
        b_ih = _bias_gradient(inputs.flatten(0, 1), wide, ctx.dtype) if of_b_ih else None
        inputs = inputs.to(ctx.inputs) if of_inputs else None
        return None, None, None, inputs, *states, weights, bias, projection, b_ih


def _bias_gradient(rows: Any, wide: torch.dtype, dtype: torch.dtype) -> torch.Tensor:
    return rows.sum(0, dtype=wide).to(dtype)


def _weight_gradient(rows: Any, factors: Any, dtype: torch.dtype) -> torch.Tensor:
    return rows.to(dtype).t() @ factors.to(dtype)


def _widened(tensor: Any) -> Any:
    """The tensor as the operators take it, which know no float16."""
    return tensor.float() if tensor is not None and tensor.dtype is torch.float16 else tensor


def _run(
    tensors: Any, kind: int, reverse: bool, save: bool, sizes: Any, packed: Any = (None, None)
) -> Sequence[torch.Tensor]:
    inputs, *given, b_ih = map(_widened, tensors)
    if inputs.dtype is torch.bfloat16:
        return recurrent_layer(inputs, *given, kind, reverse, save, sizes, *packed, b_ih)
    inputs = inputs if b_ih is None else inputs + b_ih
    return recurrent_layer(inputs, *given, kind, reverse, save, sizes, *packed)


def _packed_weights(
    kind: int, inputs: Any, h0: Any, c0: Any, w_hh: Any, b_hh: Any, w_hr: Any, *_: Any
) -> Any:
    """`packed` and `packed_hr`, by operators of their own, for which a plan has memory."""
    first = recurrent_weights(_widened(w_hh), kind) if reads_packed(inputs, w_hh) else None
    return first, None if w_hr is None else recurrent_weights(_widened(w_hr), 0)


def _is_recorded(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether autograd records operations of the tensors."""
    given = [tensor for tensor in tensors if tensor is not None]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)


def _saves_result(kind: int, *tensors: Any) -> bool:
    """Whether eager's layer is oneDNN's, which saves its result for the backward."""
    if kind != _LSTM or tensors[5] is not None or not _has_onednn():
        return False
    dtype = tensors[3].dtype  # of w_hh
    reduced = dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype is torch.float32 or bool(reduced)


def _layer(
    kind: int, reverse: bool, sizes: Any, *tensors: Any, b_ih: Any = None
) -> tuple[torch.Tensor, ...]:
    if _is_recorded((*tensors, b_ih)):
        return _Differentiated.apply(kind, reverse, sizes, *tensors, b_ih)
    results = _run((*tensors, b_ih), kind, reverse, False, sizes)[:3]
    return tuple(result.to(tensors[3].dtype) for result in results)
