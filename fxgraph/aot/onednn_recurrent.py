"""LSTMs of half precision that train by oneDNN's layer, where its steps are faster than ours.

before                                      after
    y, h, c = torch.lstm(x, (h0, c0),           y, h, c, workspace =
                         weights, ...)              framegraph.onednn_layer(x, h0, c0, ...)
                                                # backward: framegraph.onednn_layer_backward

The operators are those that eager calls, for each layer and direction; they keep what the backward
reads only where gradients are on, which is not so inside of plans.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

_LSTM = 2
# Where processors multiply pairs of bfloat16 and the tensors of a step stay in the caches. Training
# on Zen 5, one thread, 40 steps, time of our steps in float32 over oneDNN's:
#     hidden   batch 8   16     32     64
#     64       0.67      0.98   1.09   1.23
#     128      0.82      1.16   1.18   1.35
#     256      0.78      1.03   1.21   1.33
#     512      0.74      0.58   0.61   0.78
# On a Xeon with AMX (inputs as large as the state, 24 steps): 256 by 8, 16, 32, 64 rows 0.79, 1.23,
# 1.55, 2.3; 512 by 8, 16, 32, 64 rows 0.69, 0.95, 1.46, 2.2.
_LEAST_BATCH, _LEAST_STATE, _MOST_HIDDEN = 16, 2048, 256  # state: elements of a step
_TILES_BATCH = 32  # from which on AMX is ahead for any state

_library = torch.library.Library("framegraph", "FRAGMENT")
# weights: of the inputs, of the state, and the biases of both. workspace: what the backward reads,
# of a size that only the library knows.
_library.define(
    "onednn_layer(Tensor x, Tensor h0, Tensor c0, Tensor[] weights, bool reverse) "
    "-> (Tensor y, Tensor h, Tensor c, Tensor workspace)"
)
_library.define(
    "onednn_layer_backward(Tensor x, Tensor h0, Tensor c0, Tensor[] weights, Tensor y, Tensor h, "
    "Tensor c, Tensor workspace, Tensor? d_y, Tensor? d_h, Tensor? d_c, bool reverse) "
    "-> (Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor bias)"
)
onednn_layer = torch.ops.framegraph.onednn_layer.default
onednn_layer_backward = torch.ops.framegraph.onednn_layer_backward.default


def is_faster(dtype: torch.dtype, batch: Any, hidden: Any) -> bool:
    """Whether oneDNN's layer trains faster than ours, as far as is known."""
    if dtype is not torch.bfloat16 or not torch.cpu._is_avx512_bf16_supported():
        return False
    known = type(batch) is int and type(hidden) is int
    if not known or batch < _LEAST_BATCH:
        return False
    if hidden > _MOST_HIDDEN:
        return batch >= _TILES_BATCH and torch.cpu._is_amx_tile_supported()
    return batch * hidden >= _LEAST_STATE


class TrainedLayer(torch.autograd.Function):
    """The layer as autograd records it: x, h0, c0, weights -> y, h, c.

    Tensors that eager's layer saves are saved as such, so that a write to one before the backward
    is eager's error.
    """

    @staticmethod
    def forward(ctx: Any, reverse: bool, x: Any, h0: Any, c0: Any, *weights: Any) -> Any:
        y, h, c, workspace = onednn_layer(x, h0, c0, list(weights), reverse)
        ctx.reverse = reverse
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, h0, c0, y, h, c, workspace, *weights)
        return y, h, c

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        x, h0, c0, *results, w_ih, w_hh, b_ih, b_hh = ctx.saved_tensors
        weights = [w_ih, w_hh, b_ih, b_hh]
        *found, bias = onednn_layer_backward(x, h0, c0, weights, *results, *tangents, ctx.reverse)
        needed = ctx.needs_input_grad[1:]
        pairs = zip([*found, bias, bias], needed, strict=True)
        return None, *[gradient if need else None for gradient, need in pairs]


# -- the operators ---------------------------------------------------------------------------------


def _layer_meta(x: Any, h0: Any, c0: Any, weights: Any, reverse: bool) -> tuple[torch.Tensor, ...]:
    y = x.new_empty([*x.shape[:2], h0.shape[1]])
    workspace = x.new_empty([0], dtype=torch.uint8)
    return y, h0.new_empty(h0.shape), c0.new_empty(c0.shape), workspace


def _layer_backward_meta(
    x: Any, h0: Any, c0: Any, weights: Any, *rest: Any
) -> tuple[torch.Tensor, ...]:
    return tuple(t.new_empty(t.shape) for t in (x, h0, c0, *weights[:3]))


def _layer(x: Any, h0: Any, c0: Any, weights: Any, reverse: bool) -> tuple[torch.Tensor, ...]:
    given = [t.contiguous() for t in (x, *weights, h0, c0)]
    with torch._C._AutoDispatchBelowAutograd(), torch.inference_mode(False), torch.enable_grad():
        return aten.mkldnn_rnn_layer(
            *given, reverse, [], _LSTM, h0.shape[1], 1, True, False, False, True
        )


def _layer_backward(
    x: Any, h0: Any, c0: Any, weights: Any, y: Any, h: Any, c: Any, workspace: Any,
    d_y: Any, d_h: Any, d_c: Any, reverse: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    given = [t.contiguous() for t in (x, *weights, h0, c0, y, h, c)]
    of_x, of_w_ih, of_w_hh, of_bias, _, of_h0, of_c0 = aten.mkldnn_rnn_layer_backward(
        *given, d_y, d_h, d_c, reverse, _LSTM, h0.shape[1], 1, True, True, False, [], False,
        workspace,
    )  # fmt: skip
    found = of_x, of_h0, of_c0, of_w_ih, of_w_hh, of_bias
    return tuple(gradient.to(x.dtype) for gradient in found)


_library.impl("onednn_layer", _layer_meta, "Meta")
_library.impl("onednn_layer_backward", _layer_backward_meta, "Meta")
_library.impl("onednn_layer", _layer, "CPU")
_library.impl("onednn_layer_backward", _layer_backward, "CPU")
