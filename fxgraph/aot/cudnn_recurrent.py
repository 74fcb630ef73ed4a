"""Recurrent layers that cuDNN computes: one operator for all layers and directions, as in eager.

before                                      after
    y, h, c = torch.lstm(x, (h0, c0),           y, h, c, reserve, buffer, mask =
                         weights, ...)              framegraph.cudnn_layers(x, None, [h0, c0], ...)
                                                # backward: framegraph.cudnn_layers_backward

The operator is the call itself: eager looks there for its weights in one piece of memory, and for
the state of dropout, which is kept for each device and which a seed alone begins anew. What the
backward needs of it, autograd's node tells.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

aten = torch.ops.aten

_FUNCTIONS = (torch.rnn_tanh, torch.rnn_relu, torch.lstm, torch.gru)  # by kind
_MODES = (1, 0, 2, 3)  # cuDNN's numbers of the kinds
_LSTM = 2
_SETTINGS = "int kind, bool biases, int layers, float dropout, bool train, bool both_ways"
_library = torch.library.Library("framegraph", "FRAGMENT")
# sizes: of packed sequences, how many of them have each step. The last three results are the
# backward's, and of no elements without `save`. The mask is the state of dropout.
_library.define(
    f"cudnn_layers(Tensor x, Tensor? sizes, Tensor[] states, Tensor[] weights, {_SETTINGS}, "
    "bool save) -> (Tensor y, Tensor h, Tensor c, Tensor reserve, Tensor buffer, Tensor mask)",
    tags=torch.Tag.nondeterministic_seeded,
)
# wanted: of x, the first state, the second one, the weights.
_library.define(
    "cudnn_layers_backward(Tensor x, Tensor? sizes, Tensor[] states, Tensor[] weights, Tensor y, "
    "Tensor reserve, Tensor buffer, Tensor mask, Tensor? d_y, Tensor? d_h, Tensor? d_c, "
    f"{_SETTINGS}, bool[] wanted) -> Tensor[]"
)
cudnn_layers = torch.ops.framegraph.cudnn_layers.default
cudnn_layers_backward = torch.ops.framegraph.cudnn_layers_backward.default


def run_layers(
    x: Any, sizes: Any, states: Sequence[Any], weights: Sequence[Any], *settings: Any
) -> tuple[torch.Tensor, ...]:
    """The results of a call, (y, states behind the last step), in a graph. x has time outermost."""
    tensors = [x, *states, *weights]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Differentiated.apply(sizes, len(states), settings, *tensors)
    return cudnn_layers(x, sizes, list(states), list(weights), *settings, False)[: 1 + len(states)]


class _Differentiated(torch.autograd.Function):
    """The call as autograd records it: x, states, weights -> y, h, and c if there are two states.

    Tensors that eager's call saves are saved as such, so that a write to one before the backward is
    eager's error.
    """

    @staticmethod
    def forward(ctx: Any, sizes: Any, count: int, settings: Any, *tensors: Any) -> Any:
        x, states, weights = tensors[0], tensors[1 : 1 + count], tensors[1 + count :]
        made = cudnn_layers(x, sizes, list(states), list(weights), *settings, True)
        ctx.count, ctx.settings = count, settings
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(sizes, made[0], *made[3:], *tensors)
        return tuple(made[: 1 + count])

    @staticmethod
    def backward(ctx: Any, d_y: Any, d_h: Any, d_c: Any = None) -> Any:
        sizes, y, reserve, buffer, mask, x, *rest = ctx.saved_tensors
        states, weights = rest[: ctx.count], rest[ctx.count :]
        needed = ctx.needs_input_grad[3:]
        of_states = [*needed[1 : 1 + ctx.count], False][:2]
        wanted = [needed[0], *of_states, any(needed[1 + ctx.count :])]
        kept = x, sizes, states, weights, y, reserve, buffer, mask
        found = iter(cudnn_layers_backward(*kept, d_y, d_h, d_c, *ctx.settings, wanted))
        wants = [*wanted[: 1 + ctx.count], *[wanted[3]] * len(weights)]
        return None, None, None, *[next(found) if want else None for want in wants]


# -- the operators ---------------------------------------------------------------------------------


def _layers_meta(
    x: Any, sizes: Any, states: Any, weights: Any, kind: int, biases: bool, layers: int,
    dropout: float, train: bool, both_ways: bool, save: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    width = states[0].shape[2] * (2 if both_ways else 1)
    last = [x.new_empty(state.shape) for state in states]
    none = [x.new_empty([0]) for _ in range(2 - len(states))]
    left = [x.new_empty([0], dtype=dtype) for dtype in (torch.uint8, x.dtype, torch.uint8)]
    return x.new_empty([*x.shape[:-1], width]), *last, *none, *left  # type: ignore[return-value]


def _layers_backward_meta(
    x: Any, sizes: Any, states: Any, weights: Any, *rest: Any
) -> list[torch.Tensor]:
    given = [x, *states, *[None] * (2 - len(states))]
    found = [t for t, want in zip(given, rest[-1][:3], strict=True) if want]
    found += weights if rest[-1][3] else []
    return [t.new_empty(t.shape) for t in found]


def _layers(
    x: Any, sizes: Any, states: Any, weights: Any, kind: int, biases: bool, layers: int,
    dropout: float, train: bool, both_ways: bool, save: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    run: Any = _FUNCTIONS[kind]
    given: tuple[Any, ...] = (states if kind == _LSTM else states[0], weights, biases, layers)
    given += (dropout, train, both_ways)
    given = (*given, False) if sizes is None else (sizes, *given)
    left: list[Any] = [None, None, None]
    if save:
        with _recorded():
            results = run(x.detach().requires_grad_(), *given)
            node = results[0].grad_fn
            left = [node._saved_result3, node._saved_result4, node._saved_dropout_state]
        results = [result.detach() for result in results]
    else:
        results = run(x, *given)
    made = [*results, *[x.new_empty([0])] * (2 - len(states))]
    for dtype, tensor in zip((torch.uint8, x.dtype, torch.uint8), left, strict=True):
        made.append(x.new_empty([0], dtype=dtype) if tensor is None else tensor)
    return tuple(made)


@contextlib.contextmanager
def _recorded() -> Iterator[None]:
    """Autograd records, also inside of a plan, and hooks of the program's see nothing."""
    keys = torch._C.DispatchKey.AutogradCUDA, torch._C.DispatchKey.ADInplaceOrView
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys]
    deferred = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    try:
        for key in keys:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for key, excluded in zip(keys, before, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)
        torch._C._autograd._saved_tensors_hooks_set_tracing(deferred)


def _layers_backward(
    x: Any, sizes: Any, states: Any, weights: Any, y: Any, reserve: Any, buffer: Any, mask: Any,
    d_y: Any, d_h: Any, d_c: Any, kind: int, biases: bool, layers: int, dropout: float,
    train: bool, both_ways: bool, wanted: Sequence[bool],
) -> list[torch.Tensor]:  # fmt: skip
    hidden = states[-1].shape[2]
    projected = states[0].shape[2] if states[0].shape[2] != hidden else 0
    each = len(weights) // (layers * (2 if both_ways else 1))
    cells = states[1] if kind == _LSTM else None
    of_x, of_h, of_c, of_weights = aten._cudnn_rnn_backward(
        x, weights, each, buffer, states[0], cells, y, d_y, d_h, d_c, _MODES[kind], hidden,
        projected, layers, False, dropout, train, both_ways,
        [] if sizes is None else sizes.tolist(), mask if mask.numel() else None, reserve,
        list(wanted),
    )  # fmt: skip
    found = [t for t, want in zip((of_x, of_h, of_c), wanted[:3], strict=True) if want]
    return found + (list(of_weights) if wanted[3] else [])


_library.impl("cudnn_layers", _layers_meta, "Meta")
_library.impl("cudnn_layers_backward", _layers_backward_meta, "Meta")
_library.impl("cudnn_layers", _layers, "CUDA")
_library.impl("cudnn_layers_backward", _layers_backward, "CUDA")
