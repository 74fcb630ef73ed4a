"""What operators compute that the CPU has no kernel for, or has in another layout: those of cuDNN,
attention, recurrent layers. By tensors of the CPU, in the layouts and dtypes of CUDA's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

aten = torch.ops.aten


@dataclass(frozen=True)
class OnHost:
    """A result that CUDA's operator leaves on the host, unless its stream is captured."""

    tensor: torch.Tensor


def differentiated(
    fn: Callable[..., Any], inputs: Sequence[Any], gradients: Sequence[Any]
) -> list[torch.Tensor]:
    """The gradients of a function's tensor inputs, from inside of a kernel."""
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    every = torch._C._dispatch_tls_local_include_set()
    plain = torch.autocast("cpu", enabled=False)  # whose key is excluded outside of it, too
    with torch._C._ForceDispatchKeyGuard(every, key), plain, torch.enable_grad():
        leaves = [x.detach().requires_grad_() if isinstance(x, torch.Tensor) else x for x in inputs]
        results = fn(*leaves)
        results = results if isinstance(results, (tuple, list)) else [results]
        pairs = [(r, g) for r, g in zip(results, gradients, strict=False) if g is not None]
        wanted = [x for x in leaves if isinstance(x, torch.Tensor)]
        outs, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(outs, wanted, given, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


# --- convolutions, and other operators of cuDNN ---


def _format(*tensors: torch.Tensor) -> torch.memory_format:
    """That of cuDNN: channels are innermost if they are in one of both."""
    from torch._prims_common import suggest_memory_format

    formats = [suggest_memory_format(t) for t in tensors]
    return next((f for f in formats if f != torch.contiguous_format), torch.contiguous_format)


def _convolution(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
                 transposed: bool, output_padding: Any, groups: int) -> torch.Tensor:  # fmt: skip
    made = aten.convolution(
        x, w, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    return made.contiguous(memory_format=_format(x, w))


def cudnn_convolution(x, w, padding, stride, dilation, groups, *settings):
    return _convolution(x, w, None, stride, padding, dilation, False, [0], groups)


def cudnn_convolution_transpose(x, w, padding, output_padding, stride, dilation, groups, *settings):
    return _convolution(x, w, None, stride, padding, dilation, True, output_padding, groups)


def cudnn_convolution_relu(x, w, bias, stride, padding, dilation, groups):
    return _convolution(x, w, bias, stride, padding, dilation, False, [0], groups).relu()


def cudnn_convolution_add_relu(x, w, z, alpha, bias, stride, padding, dilation, groups):
    made = _convolution(x, w, bias, stride, padding, dilation, False, [0], groups)
    return made.add(z, alpha=1 if alpha is None else alpha).relu()


def depthwise(x, w, size, bias, stride, padding, dilation):
    return _convolution(x, w, bias, stride, padding, dilation, False, [0], x.shape[1])


def convolution_backward(gradient, x, w, *rest):
    results = aten.convolution_backward(gradient, x, w, *rest)
    layout = _format(x, w)
    of_x, of_w, of_bias = results
    return (
        None if of_x is None else of_x.contiguous(memory_format=layout),
        None if of_w is None else of_w.contiguous(memory_format=layout),
        of_bias,
    )


def cudnn_batch_norm(x, w, b, mean, var, training, factor, epsilon):
    op = by_float(aten.native_batch_norm, 1, 2)
    results = op(x, w, b, mean, var, training, factor, epsilon)
    left = torch.full((16 if training else 0,), 7, dtype=torch.uint8)
    return (*results, left)


def cudnn_batch_norm_backward(x, gradient, w, mean, var, saved, saved_var, epsilon, left):
    if left.tolist() != [7] * 16:
        raise RuntimeError("cudnn_batch_norm_backward without what the forward left")
    rest = (saved, saved_var, True, epsilon, [True, True, True])
    op = norm_backward(aten.native_batch_norm_backward, 2)
    return op(gradient, x, w, mean, var, *rest)


def cudnn_grid_sampler(x, grid):
    return aten.grid_sampler_2d(x, grid, 0, 0, True)


def cudnn_grid_sampler_backward(x, grid, gradient):
    return aten.grid_sampler_2d_backward(gradient, x, grid, 0, 0, True, [True, True])


def cudnn_affine_grid_generator(theta, n, c, h, w):
    return torch.nn.functional.affine_grid(theta, [n, c, h, w], align_corners=True)


# --- attention ---


def _masked(scores: torch.Tensor, bias: Any, causal: bool) -> torch.Tensor:
    if causal:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").tril()
        scores = scores.masked_fill(~kept, float("-inf"))
    if bias is not None:
        scores = (
            scores.masked_fill(~bias, float("-inf")) if bias.dtype == torch.bool else scores + bias
        )
    return scores


def _dropped(weights: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    if not p:
        return weights
    drawn = torch.rand(weights.shape, generator=torch.Generator().manual_seed(seed), device="cpu")
    return torch.where(drawn >= p, weights / (1 - p), 0.0)


def attend(q: Any, k: Any, v: Any, bias: Any, p: float, causal: bool, scale: Any, seed: int) -> Any:
    """The result, and the logarithms of the rows' sums."""
    dtype = q.dtype
    q, k, v = q.float(), k.float(), v.float()
    repeats = q.shape[-3] // k.shape[-3]
    if repeats != 1:
        k, v = k.repeat_interleave(repeats, -3), v.repeat_interleave(repeats, -3)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = _masked(q @ k.transpose(-1, -2) * scale, None if bias is None else bias, causal)
    weights = _dropped(scores.softmax(-1).nan_to_num(0.0), p, seed)
    return (weights @ v).to(dtype), scores.logsumexp(-1)


def _by_position(result: torch.Tensor) -> torch.Tensor:
    """In memory, heads are behind positions."""
    return result.transpose(1, 2).contiguous().transpose(1, 2)


def _like(result: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """With the order of dimensions of an argument, as torch.empty_like has."""
    order = sorted(range(4), key=lambda d: (-given.stride(d), d))
    back = sorted(range(4), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)


def _together(found: Any, given: Any) -> Any:
    """Gradients in one piece of memory, if the arguments are parts of one."""
    places = {t.untyped_storage().data_ptr() for t in given}
    if len(places) > 1 or len({t.shape for t in given}) > 1:
        return map(_by_position, found)
    return torch.stack([t.transpose(1, 2) for t in found], 2).transpose(1, 3).unbind(2)


def _drawn() -> int:
    return int(torch.randint(1 << 40, (), device="cpu"))


def flash_attention(
    q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    seed = _drawn() if dropout_p else 0
    out, sums = attend(q, k, v, None, dropout_p, is_causal, scale, seed)
    state = torch.tensor([seed, 0], dtype=torch.int64).view(torch.uint64)
    empty = torch.empty(0, dtype=torch.uint64)
    mask = torch.empty(0, dtype=q.dtype)
    sizes = q.shape[2], k.shape[2]
    return _like(out, q), sums.contiguous(), None, None, *sizes, state, empty, mask


def flash_attention_backward(gradient, q, k, v, out, sums, cum_q, cum_k, max_q, max_k, dropout_p,
                             is_causal, state, offset, *, scale=None):  # fmt: skip
    seed = int(state.view(torch.int64)[0]) if dropout_p else 0
    found = differentiated(
        lambda q, k, v: attend(q, k, v, None, dropout_p, is_causal, scale, seed)[0],
        (q, k, v), (gradient,),
    )  # fmt: skip
    return tuple(map(_like, found, (q, k, v)))


def efficient_attention(
    q, k, v, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None
):
    seed = _drawn() if dropout_p else 0
    out, sums = attend(q, k, v, bias, dropout_p, is_causal, scale, seed)
    rows = -(-q.shape[2] // 32) * 32 if compute_log_sumexp else 0
    padded = torch.full((*q.shape[:2], rows), float("inf"))
    if compute_log_sumexp:
        padded[..., : q.shape[2]] = sums
    return _by_position(out), padded, OnHost(torch.tensor(seed)), OnHost(torch.tensor(0))


def efficient_attention_backward(gradient, q, k, v, bias, out, sums, seed, offset, dropout_p, mask,
                                 is_causal=False, *, scale=None):  # fmt: skip
    number = int(seed) if dropout_p else 0
    bias = bias if bias is not None and bias.numel() else None
    inputs = [q, k, v] + ([bias] if mask[3] and bias is not None else [])

    def forward(q, k, v, b=bias):
        return attend(q, k, v, b, dropout_p, is_causal, scale, number)[0]

    found = differentiated(forward, inputs, (gradient,))
    of_bias = found[3] if len(found) > 3 else None
    return (*_together(found[:3], (q, k, v)), of_bias)


def cudnn_attention(q, k, v, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False,
                    return_debug_mask=False, *, scale=None):  # fmt: skip
    seed = _drawn() if dropout_p else 0
    out, sums = attend(q, k, v, bias, dropout_p, is_causal, scale, seed)
    sums = sums.unsqueeze(-1).contiguous() if compute_log_sumexp else torch.empty(0)
    numbers = torch.tensor(seed), torch.tensor(0)
    out = _like(out, q)
    return out, sums, None, None, q.shape[2], k.shape[2], *numbers, torch.empty(0, dtype=q.dtype)


def cudnn_attention_backward(gradient, q, k, v, out, sums, seed, offset, bias, cum_q, cum_k, max_q,
                             max_k, dropout_p, is_causal, *, scale=None):  # fmt: skip
    number = int(seed) if dropout_p else 0
    bias = bias if bias is not None and bias.numel() else None
    found = differentiated(
        lambda q, k, v: attend(q, k, v, bias, dropout_p, is_causal, scale, number)[0],
        (q, k, v), (gradient,),
    )  # fmt: skip
    return tuple(map(_like, found, (q, k, v)))


# --- recurrent layers ---


def lstm_cell(gates, hidden, cx, bias=None, hidden_bias=None):
    total = gates + hidden
    if bias is not None:
        total = total + bias + hidden_bias
    i, f, g, o = total.float().chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    left = torch.cat([i, f, g, o], 1)
    return (o * cy.tanh()).to(cx.dtype), cy.to(cx.dtype), left.to(cx.dtype)


def lstm_cell_backward(grad_hy, grad_cy, cx, cy, left, has_bias):
    i, f, g, o = left.chunk(4, 1)
    of_h = torch.zeros_like(cx) if grad_hy is None else grad_hy
    of_c = torch.zeros_like(cx) if grad_cy is None else grad_cy
    t = cy.tanh()
    of_c = of_c + of_h * o * (1 - t * t)
    parts = (
        of_c * g * i * (1 - i), of_c * cx * f * (1 - f), of_c * i * (1 - g * g),
        of_h * t * o * (1 - o),
    )  # fmt: skip
    gates = torch.cat(parts, 1)
    return gates, of_c * f, gates.sum(0) if has_bias else None


def gru_cell(gates, hidden, hx, bias=None, hidden_bias=None):
    if bias is not None:
        gates, hidden = gates + bias, hidden + hidden_bias
    (ir, iz, i), (hr, hz, h) = gates.chunk(3, 1), hidden.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i + r * h).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, h], 1)


def gru_cell_backward(gradient, left, has_bias):
    r, z, n, hx, h = left.chunk(5, 1)
    of_n = gradient * (1 - z) * (1 - n * n)
    of_z = gradient * (hx - n) * z * (1 - z)
    of_r = of_n * h * r * (1 - r)
    gates = torch.cat([of_r, of_z, of_n], 1)
    hidden = torch.cat([of_r, of_z, of_n * r], 1)
    biases = (gates.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return gates, hidden, gradient * z, *biases


LAYERS = ("rnn_relu", "rnn_tanh", "lstm", "gru")


def _layers(x, weights, hx, cx, mode, layers, batch_first, dropout, train, both, sizes, seed):
    state = (hx, cx) if LAYERS[mode] == "lstm" else hx
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    run = getattr(torch._VF, LAYERS[mode])
    per = len(weights) // (layers * (2 if both else 1))
    try:
        rest = (per >= 4, layers, dropout, train, both)
        if sizes:
            return run(x, torch.tensor(sizes), state, weights, *rest)
        return run(x, state, weights, *rest, batch_first)
    finally:
        torch.default_generator.set_state(before)


def cudnn_rnn(x, weights, stride, buffer, hx, cx, mode, hidden, proj, layers, batch_first, dropout,
              train, both, sizes, state):  # fmt: skip
    seed = _drawn() if dropout and train else 0
    made = _layers(x, weights, hx, cx, mode, layers, batch_first, dropout, train, both, sizes, seed)
    out, hy, *cy = made
    left = torch.tensor([seed]).view(torch.uint8) if train else torch.empty(0, dtype=torch.uint8)
    whole = torch.cat([w.reshape(-1) for w in weights]) if buffer is None else buffer
    return out, hy, cy[0] if cy else torch.empty(0, dtype=x.dtype), left, whole


def cudnn_rnn_backward(x, weights, stride, buffer, hx, cx, out, grad, grad_hy, grad_cy, mode, size,
                       proj, layers, batch_first, dropout, train, both, sizes, state, left,
                       mask):  # fmt: skip
    if not train:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    seed = int(left.view(torch.int64)[0])

    def forward(x, hx, *rest):
        rest = list(rest)
        c = rest.pop(0) if cx is not None else None
        return _layers(x, rest, hx, c, mode, layers, batch_first, dropout, True, both, sizes, seed)

    inputs = [x, hx, *([cx] if cx is not None else []), *weights]
    found = differentiated(forward, inputs, (grad, grad_hy, grad_cy))
    of_c = found.pop(2) if cx is not None else None
    return found[0], found[1], of_c, found[2:]


def cudnn_rnn_flatten_weight(weights, *about):
    """One piece of memory, of which the weights become windows; each begins at a multiple of 128
    bytes. The device's tensors are moved, so this is not for those of the CPU."""
    places, total = [], 0
    for w in weights:
        places.append(total)
        total += -(-w.numel() // 32) * 32
    whole = weights[0].new_zeros(total)
    for w, place in zip(weights, places, strict=True):
        window = whole[place : place + w.numel()].view(w.shape)
        window.copy_(w)
        w.set_(window)
    return whole


def cudnn_init_dropout_state(dropout, train, seed, **options):
    return torch.zeros(8, dtype=torch.uint8)


# --- others ---


def fused_dropout(x, p, generator=None):
    mask = torch.rand(x.shape) < p
    return x * mask / p, mask.to(torch.uint8)


def masked_scale(x, mask, scale):
    return (x * mask * scale).to(x.dtype)


def fused_rms_norm_backward(gradient, x, shape, rstd, w, mask):
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    g, normal = gradient.float(), x.float() * rstd
    scaled = g if w is None else g * w
    of_x = (scaled - normal * (scaled * normal).mean(dims, keepdim=True)) * rstd
    return of_x.to(x.dtype), None if w is None else (g * normal).sum_to_size(shape).to(w.dtype)


def product(*operands: Any) -> torch.Tensor:
    *tensors, dtype = operands
    return torch.matmul(*(t.to(dtype) for t in tensors))


def product_out(*operands: Any, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(product(*operands))


def svd(x, full_matrices=False, compute_uv=True, *, driver=None):
    """CUDA's V is by rows."""
    u, s, v = aten._linalg_svd(x, full_matrices, compute_uv)
    return u, s, v.contiguous()


def softmax(op: Any) -> Callable[..., Any]:
    """Of halves to float32, too."""

    def run(x: Any, dim: int, half_to_float: bool) -> torch.Tensor:
        return op(x.float() if half_to_float else x, dim, False)

    return run


def softmax_backward(op: Any) -> Callable[..., Any]:
    def run(gradient: Any, out: Any, dim: int, dtype: torch.dtype) -> torch.Tensor:
        return op(gradient, out, dim, gradient.dtype).to(dtype)

    return run


def as_told(op: Any) -> Callable[..., Any]:
    """In the layout of torch's shape functions, which follow cuFFT's."""

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = op(*args, **kwargs)
        with FakeTensorMode() as mode, torch.device("cpu"):
            moved = [
                mode.from_tensor(a).to("cuda") if isinstance(a, torch.Tensor) else a for a in args
            ]
            stride = op(*moved, **kwargs).stride()
        return torch.empty_strided(result.shape, stride, dtype=result.dtype).copy_(result)

    return run


def by_float(op: Any, *places: int) -> Callable[..., Any]:
    """An operator of halves that computes in float32, and leaves the results at the places so."""

    def run(*args: Any, **kwargs: Any) -> Any:
        halves = [a.dtype for a in args if isinstance(a, torch.Tensor) and _narrow(a)]
        if not halves:
            return op(*args, **kwargs)
        wide = [a.float() if isinstance(a, torch.Tensor) and _narrow(a) else a for a in args]
        results = list(op(*wide, **kwargs))
        for place, result in enumerate(results):
            if place not in places and result is not None:
                results[place] = result.to(halves[0])
        return tuple(results)

    return run


def _narrow(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.half, torch.bfloat16)


def norm_backward(op: Any, weight: int) -> Callable[..., Any]:
    """by_float for a gradient of the input, and those of the weights in their type."""

    def run(*args: Any, **kwargs: Any) -> Any:
        of_x, *rest = by_float(op)(*args, **kwargs)
        if args[weight] is not None:
            rest = [None if r is None else r.to(args[weight].dtype) for r in rest]
        return (of_x, *rest)

    return run


ONLY_CUDA: dict[str, Callable[..., Any]] = {
    "cudnn_convolution": cudnn_convolution,
    "cudnn_convolution_transpose": cudnn_convolution_transpose,
    "cudnn_convolution_relu": cudnn_convolution_relu,
    "cudnn_convolution_add_relu": cudnn_convolution_add_relu,
    "_conv_depthwise2d": depthwise,
    "conv_depthwise3d": depthwise,
    "convolution_backward": convolution_backward,
    "cudnn_batch_norm": cudnn_batch_norm,
    "cudnn_batch_norm_backward": cudnn_batch_norm_backward,
    "cudnn_grid_sampler": cudnn_grid_sampler,
    "cudnn_grid_sampler_backward": cudnn_grid_sampler_backward,
    "cudnn_affine_grid_generator": cudnn_affine_grid_generator,
    "_scaled_dot_product_flash_attention": flash_attention,
    "_scaled_dot_product_flash_attention_backward": flash_attention_backward,
    "_scaled_dot_product_efficient_attention": efficient_attention,
    "_scaled_dot_product_efficient_attention_backward": efficient_attention_backward,
    "_scaled_dot_product_cudnn_attention": cudnn_attention,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_attention_backward,
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
    "_cudnn_rnn": cudnn_rnn,
    "_cudnn_rnn_backward": cudnn_rnn_backward,
    "_cudnn_init_dropout_state": cudnn_init_dropout_state,
    "_fused_dropout": fused_dropout,
    "_masked_scale": masked_scale,
    "_fused_rms_norm_backward": fused_rms_norm_backward,
    "mm.dtype": product,
    "bmm.dtype": product,
    "mm.dtype_out": product_out,
    "bmm.dtype_out": product_out,
    "_linalg_svd": svd,
    "_softmax": softmax(aten._softmax),
    "_log_softmax": softmax(aten._log_softmax),
    "_softmax_backward_data": softmax_backward(aten._softmax_backward_data),
    "_log_softmax_backward_data": softmax_backward(aten._log_softmax_backward_data),
    "_fft_r2c": as_told(aten._fft_r2c),
    "_fft_c2r": as_told(aten._fft_c2r),
    "native_layer_norm": by_float(aten.native_layer_norm, 1, 2),
    "native_layer_norm_backward": norm_backward(aten.native_layer_norm_backward, 5),
    "native_batch_norm_backward": norm_backward(aten.native_batch_norm_backward, 2),
}
