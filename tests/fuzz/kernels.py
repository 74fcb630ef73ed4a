"""python -m tests.fuzz.kernels [--programs N] [--seed S]: random programs of tensor operators.

Each program is a function of some tensors: operators of every family put together at random, with
intermediates used several times, views, writes through views and into arguments, several results.
Eager and compiled are compared on several calls (other values, other sizes, sizes 0 and 1, other
strides), with and without gradients: values, types, strides, shared memory, written arguments,
gradients, exceptions.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import torch

import dynamo

FLOATS = ("float32", "float32", "float32", "float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int64", "int32", "uint8", "int8", "int16")
LAYOUTS = ("plain", "plain", "plain", "transposed", "gaps", "offset", "expanded", "channels_last")
HALVES = (torch.bfloat16, torch.float16)

# Operators, as "kind text". f and g are floating tensors, i and j integers, b a bool; x and y any
# numbers, z anything; d is a dimension of the first operand, n a small number, m a positive one, r
# a fraction. An operator is exact ("="), rounds ("~"), or tells neighbouring numbers apart ("!"),
# so that its arguments must be exact.
OPERATORS = """
~ f + g; ~ f * g; ~ f - g; ~ f / (g.abs() + 1); ~ f * n; ~ f + n; ~ n - f; ~ f / m; ~ f * r
= i + j; = i * j; = i - j; = i + n; = i * n; ! f // m; ! i // m; ! f % m; ! i % m; = i & j
= i | j; = i ^ 3; = ~i; = b & ~b; = b ^ (f > n); = i << 1; = i >> 1; ~ i / m; ~ i + f; ~ f * i
~ i * r; = -i; = -f; = b + i; ~ b * f; ~ b.sum(); ~ b + r; = i + b
= x.to(torch.float64).to(x.dtype); ~ f.exp().clamp(max=50); ~ f.sin(); ~ f.cos(); ~ f.tanh()
~ f.sigmoid(); ~ f.abs().sqrt(); ~ (f.abs() + 0.5).log(); ~ (f * f + 1).rsqrt(); ~ f.erf()
~ f.expm1().clamp(max=50); ~ (f * f).log1p(); ~ f.abs().pow(r); ~ f ** 2; ~ f ** 3; ~ f.square()
~ f.atan(); = i ** 2; ~ f.logit(0.1); = f.abs(); = i.abs(); ! f.floor(); ! f.ceil(); ! f.round()
! f.trunc(); ! f.frac(); ! f.sign(); ! i.sign(); ! f.round(decimals=1); ~ torch.lerp(f, g, 0.3)
~ torch.addcmul(f, g, g, value=n); ~ torch.atan2(f, g); ~ torch.hypot(f, g.abs() + 0.5)
~ torch.logaddexp(f, g); ~ torch.xlogy(f, g.abs() + 1); ~ torch.sinc(f); ~ torch.special.entr(f)
~ torch.special.i0(f); ~ torch.lgamma(f.abs() + 1); ~ torch.digamma(f.abs() + 1)
~ torch.copysign(f, g); ~ torch.deg2rad(f); = torch.maximum(x, y); = torch.minimum(x, y)
= torch.fmax(f, g); = torch.fmin(f, g); = f.clamp(-1, 2); = i.clamp(n); = f.clamp(min=g)
= x.clamp(max=m); ! f > g; ! f <= n; ! i == j; ! i > n; ! x != y; ! i < r; ! x >= y; ! b == b
! f.isnan(); = f.isinf(); ! f.signbit(); ! torch.isclose(f, g); = torch.where(b, x, y)
= torch.where(b, f, n); = torch.where(b, n, i); = torch.where(b, x, r); = f.masked_fill(b, n)
= i.masked_fill(b, m); = f.nan_to_num(r); = z.logical_not(); ! z.logical_and(b); ! x.bool()
= b.float(); = b.long(); ! f.long(); ! f.int(); = i.float(); = i.double(); = i.to(torch.int8)
= i.to(torch.uint8); = i.to(torch.int16); = i.to(torch.int32); ~ f.half(); ~ f.bfloat16()
~ f.float(); ~ f.double(); = i.half(); = b.to(torch.uint8); = z.to(torch.float32); ~ i.bfloat16()
~ F.relu(f); ~ F.gelu(f); ~ F.gelu(f, approximate='tanh'); ~ F.silu(f); ~ F.elu(f)
~ F.softplus(f); ~ F.leaky_relu(f, 0.1); ~ F.hardtanh(f); ~ F.hardswish(f); ~ F.hardsigmoid(f)
~ F.mish(f); ~ F.selu(f); ~ F.logsigmoid(f); ~ F.softsign(f); ~ F.tanhshrink(f); ~ F.softshrink(f)
~ F.threshold(f, 0.1, 2.0); ~ F.celu(f, 1.5); ~ F.relu6(f); ~ F.glu(torch.cat([f, f], d), d)
= F.relu(i); ~ F.rrelu(f); ~ f.sum(); ~ f.sum(d); ~ f.sum(d, keepdim=True); ~ f.mean(d)
~ f.mean(); = i.sum(d); = i.sum(); ~ f.prod(d); = i.prod(d); = x.amax(d)
= x.amin(d, keepdim=True); = x.max(); = x.min(); ! f.argmax(d); ! i.argmin(d); ! f.argmax()
= x.max(d).values; ! x.min(d).indices; ! f.max(d); = b.any(d); = b.all(); ! f.any(); ! i.all(d)
~ f.var(d); ~ f.std(d, correction=0); ~ f.var(); ~ f.norm(); ~ f.norm(dim=d); ~ f.norm(1, d)
~ f.norm(float('inf'), d); ~ f.logsumexp(d); ~ torch.var_mean(f, d); ! torch.count_nonzero(x, d)
~ f.cumsum(d); = i.cumsum(d); ~ f.cumprod(d); ! f.cummax(d); ~ f.logcumsumexp(d); ~ f.softmax(d)
= b.cumsum(d); ~ f.log_softmax(d); ~ f.softmax(d, dtype=torch.float32); ~ F.softmin(f, d)
~ F.normalize(f, dim=d); = i.sum(d, dtype=torch.float32); ~ f.sum(d, dtype=torch.float64)
~ i.float().mean(d); ~ torch.aminmax(f); ~ f.nansum(d); ~ f.nanmean(d); ! f.median()
! f.median(d).values; ! f.kthvalue(1, d); ~ f.quantile(0.5); ! f.sort(d)
! i.sort(d, descending=True).values; ! f.topk(1, d); ! f.argsort(d, stable=True)
= torch.diff(x, dim=d); ! i.sort(d, stable=True); = i.mode(d).values; ! f.unique()
! i.unique(return_counts=True); ! i.bincount(minlength=3); ~ F.layer_norm(f, f.shape[-1:])
~ F.rms_norm(f, f.shape[-1:]); ~ f - f.mean(d, keepdim=True)
~ f / (f.abs().sum(d, keepdim=True) + 1); = z.transpose(0, -1); = z.flip(d); = z.roll(1, d)
= z.unsqueeze(d); = z.squeeze(d); = z.flatten(); = z.reshape(-1); = z.contiguous(); = z.clone()
= z.movedim(d, 0); = z[..., 1:]; = z[..., :-1]; = z[..., ::2]; = z[1:]; = z[-1:]; = z.select(d, 0)
= z.select(d, -1); = z.narrow(d, 0, 1); = z.unsqueeze(0).expand(2, *z.shape)
= z.repeat(2, *[1] * z.dim()); = z.unfold(d, 2, 1); = z.diagonal(0, 0, -1); = torch.tril(z)
= torch.triu(z, 1); = z.reshape(*z.shape[::-1]); = z.unflatten(d, (-1, 1))
= torch.cat([z, z.flip(d)], d); = torch.stack([z, z], d); = z.chunk(2, d)[0]; = z.split(2, d)[-1]
= torch.cat([x.flatten(), y.flatten()]); = torch.stack([x, y.to(x.dtype).expand_as(x)])
= z.unbind(d)[0]; = F.pad(z, (1, 2)); = F.pad(z, (0, 1, 2, 0)); = F.pad(f, (1, -1), value=r)
= F.pad(f, (1, 1), mode='reflect'); = F.pad(f, (1, 1), mode='replicate')
= F.pad(f, (1, 1), mode='circular'); = z.mT; = z.repeat_interleave(2, d); = z.new_zeros(z.shape)
= torch.ones_like(z); = torch.full_like(x, n); ~ torch.arange(f.shape[-1]) * f
= torch.arange(3.0); ~ torch.linspace(0, 1, f.shape[-1]) + f; = z.new_full((2, 3), 1)
= torch.eye(3); = z[torch.arange(z.shape[0]).flip(0)]; = z[..., torch.tensor([0, 0])]
= z.index_select(d, torch.tensor([0, -0])); ! x.gather(d, I(x, d)); ! z.take_along_dim(I(z, d), d)
= z[b2]; ! torch.take(x, T(x)); = x.masked_select(b2)
! F.embedding(I(f, 0), f.reshape(f.shape[0], -1)); ! F.one_hot(i.abs().long() % 4, 4)
= torch.nonzero(b); ~ f.scatter(d, I(f, d), f * 2)
~ f.scatter_add(d, I(f, d), f.exp().clamp(max=9)); = i.scatter_add(d, I(i, d), i)
~ f.scatter_reduce(d, I(f, d), f * 3, 'mean')
~ f.scatter_reduce(d, I(f, d), f + 1, 'amax', include_self=False)
= i.scatter_reduce(d, I(i, d), i + 3, 'amin')
~ f.scatter_reduce(d, I(f, d), f, 'prod', include_self=False)
~ f.scatter_reduce(d, I(f, d), f, 'mean', include_self=False)
= i.scatter_reduce(d, I(i, d), i, 'sum', include_self=False)
~ f.index_add(d, A(f, d), f, alpha=2); ~ f.index_copy(d, A(f, d).flip(0), f)
~ f.index_fill(d, A(f, d)[:1], r); ~ f.index_reduce(d, A(f, d) // 2, f, 'amax')
~ f.index_put((A(f, 0) // 2,), f, accumulate=True)
= i.index_put((A(i, 0) // 2,), i, accumulate=True); = z.index_put((A(z, 0)[:1],), z[-1:])
= x.slice_scatter(x[1:] * 2, 0, 1); = x.select_scatter(x.select(d, 0), d, -1)
= x.masked_scatter(b2, x); = x.diagonal_scatter(x.diagonal() * 2); ~ f @ f.mT; ~ f.mT @ f
~ torch.einsum('...i,...i->...', f, f); ~ F.linear(f, f.reshape(-1, f.shape[-1]))
~ torch.einsum('...ij,...kj->...ik', f, f); ~ torch.outer(f.flatten(), f.flatten())
~ torch.cdist(f, f)
~ torch.cross(f[..., :1].expand(*f.shape[:-1], 3), f[..., -1:].expand(*f.shape[:-1], 3), dim=-1)
~ F.scaled_dot_product_attention(f, f, f); ~ F.cosine_similarity(f, f + 1, -1)
~ torch.trapezoid(f, dim=d); ~ F.avg_pool1d(f, 2, ceil_mode=True); ~ F.max_pool1d(f, 2, 1)
~ F.adaptive_avg_pool1d(f, 2); ~ F.max_pool2d(f, 2, ceil_mode=True)
~ F.avg_pool2d(f, 3, 2, 1, count_include_pad=False); ~ F.adaptive_max_pool2d(f, 2)
~ F.lp_pool1d(f.abs(), 2, 2); ~ F.interpolate(f, scale_factor=1.5)
~ F.interpolate(f, scale_factor=2, mode='linear')
~ F.interpolate(f, 5, mode='linear', align_corners=True)
~ F.interpolate(f.unsqueeze(0), scale_factor=1.7, mode='bilinear')
~ F.interpolate(f.unsqueeze(0), (3, 4), mode='bicubic')
~ F.interpolate(f.unsqueeze(0), scale_factor=0.6, mode='bilinear', antialias=True)
~ F.interpolate(f.unsqueeze(0), scale_factor=1.3, mode='nearest-exact')
~ F.interpolate(f.unsqueeze(0), scale_factor=0.7, mode='area'); ~ F.unfold(f.unsqueeze(0), 2)
~ F.pixel_shuffle(f.repeat(4, 1, 1), 2); ~ F.fold(F.unfold(f.unsqueeze(0), 2), f.shape[-2:], 2)
~ F.local_response_norm(f, 2); ~ F.conv2d(f.unsqueeze(1), W3.to(f.dtype), padding=1)
~ F.conv1d(f.unsqueeze(1).flatten(2), W1.to(f.dtype), padding=1)
~ F.conv_transpose2d(f.unsqueeze(1), W3.to(f.dtype), stride=2); ~ F.group_norm(f.unsqueeze(0), 1)
~ F.instance_norm(f); ~ F.batch_norm(f, None, None, training=True)
~ F.grid_sample(f[None], torch.tanh(f[:1, :, :1].expand(1, -1, 2)[:, None]))
~ F.smooth_l1_loss(f, g); ~ F.huber_loss(f, f.flip(0)); ~ F.mse_loss(f, f * 0.5, reduction='none')
~ F.l1_loss(f, g); ~ F.binary_cross_entropy_with_logits(f, f.sigmoid())
~ F.kl_div(f.log_softmax(-1), f.softmax(-1)); ~ F.softplus(f, 2, 1)
! F.cross_entropy(f.reshape(f.shape[0], -1), T(f, 0))
! F.nll_loss(f.reshape(f.shape[0], -1), T(f, 0), reduction='none')
~ F.poisson_nll_loss(f.clamp(max=3), g.abs()); ~ F.gaussian_nll_loss(f, g, f.abs() + 1)
~ F.dropout(f, 0.5); ~ f + torch.rand_like(f); ~ torch.randn_like(f) * f
= torch.bernoulli(f.sigmoid().detach() * 0 + 0.5)
! torch.bucketize(f, torch.tensor([-1.0, 0.0, 1.0]).to(f.dtype))
! torch.searchsorted(torch.arange(4).to(f.dtype), f); ! torch.histc(f.float(), 4, -2, 2)
= z.view(torch.int32) if z.element_size() == 4 else z; = z.as_strided((2, 2), (2, 1))
= z.as_strided((2,), (1,), 1); ~ torch.complex(f.float(), f.float()).abs()
~ (f.float() * 1j).imag; ~ torch.fft.rfft(f.float()).real
~ torch.view_as_real(torch.polar(f.float(), f.float())); ~ (f.float() + 2j).conj().imag
~ torch.view_as_complex(torch.stack([f.float(), f.float()], -1)).abs()
~ torch.linalg.vector_norm(f, 3, d); ~ torch.renorm(f, 2, d, 1.0); ~ torch.vander(f.flatten()[:4])
~ f.dist(f + 1); = x.tile(2); ~ torch.block_diag(f.flatten()[:2], f.flatten()[:3])
= torch.cartesian_prod(x.flatten()[:2], x.flatten()[:3]); = z.rot90(1, [0, -1])
~ torch.tensordot(f, f, dims=[[d], [d]]); ~ f.clone().requires_grad_(f.requires_grad)
= z.detach(); ~ torch.special.log_ndtr(f); = z.expand_as(z); = z.shape[0] * x
~ f / max(f.shape[-1], 1); = z.swapaxes(0, d); = x.trace() if x.dim() == 2 else x
~ f.to(torch.bfloat16) * f.to(torch.bfloat16); ~ f.half() + f.half()
~ torch.float_power(f.abs(), 2); ~ f.fmod(m); = i.fmod(m); = i.remainder(-m)
! torch.div(f, m, rounding_mode='trunc'); = torch.div(i, m, rounding_mode='floor')
= torch.div(i, -m, rounding_mode='trunc'); ~ torch.true_divide(i, m); ! torch.floor_divide(i, -m)
= torch.gcd(i, j); = torch.bitwise_left_shift(i, 2); ~ torch.nextafter(f, g)
~ torch.frexp(f).mantissa; ~ torch.ldexp(f, torch.tensor(2))
"""

# Statements: they write. v is any intermediate made here (never an argument), a is an argument.
WRITES = """
f += n; f *= r; f.add_(g); f.relu_(); f.zero_(); f[..., 0] = n; f[0] = g.sum(); f[1:] = n
f.flatten()[0:1].fill_(r); i += 1; i.clamp_(max=m); i[..., ::2] = n; i[i > m] = n; f[f > 1] = 0.0
f.mul_(g); f.masked_fill_(f > 1, r); f.t_() if f.dim() == 2 else f; f.copy_(g)
f.transpose(0, -1).add_(1); f[..., -1].mul_(2); f.sub_(f); f.unsqueeze_(0); f.squeeze_(0)
b.logical_not_(); b[0] = True; f.view(-1)[::2].add_(1); f.index_add_(0, A(f, 0), f)
f.index_fill_(0, A(f, 0)[:1], r); f[A(f, 0)] += 1; f.exp_().clamp_(max=9); i[0] += i[-1]
f.diagonal().fill_(n); i.bitwise_and_(7); i.fill_(n); f.div_(m); f.sigmoid_(); f.cumsum_(0)
x.swapaxes_(0, -1); f.scatter_(0, I(f, 0), g.expand_as(f)); f.clamp_(-1, 1); f.neg_(); f.pow_(2)
x[..., :1] = y.flatten()[:1].to(x.dtype); torch.add(f, 1, out=f); torch.mul(f, f, out=f)
f.addcmul_(f, f, value=r); f.lerp_(f * 2, r); f.uniform_(); f.normal_(); f.bernoulli_(0.5)
"""

PRELUDE = """
W3 = torch.linspace(-1, 1, 18).reshape(2, 1, 3, 3)
W1 = torch.linspace(-1, 1, 6).reshape(2, 1, 3)
def A(t, d):
    return torch.arange(t.shape[d])
def I(t, d):
    n = max(t.shape[d], 1)
    return (torch.arange(t.numel()).reshape(t.shape) * 7 + 3) % n
def T(t, d=None):
    n = max(t.numel() if d is None else t.numel() // max(t.shape[0], 1), 1)
    return torch.arange(t.shape[0] if d == 0 else 5) % n
"""


@dataclass
class Input:
    """One argument: its type, rank, memory layout and range of values."""

    dtype: str
    dims: tuple[int, ...]  # which of the sizes
    layout: str
    grad: bool
    special: bool = False

    def make(self, sizes: tuple[int, ...], seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        size = [sizes[d] for d in self.dims]
        dtype = getattr(torch, self.dtype)

        def values(*shape: int) -> torch.Tensor:
            if dtype == torch.bool:
                return torch.rand(shape, generator=generator) > 0.5
            low = 0 if dtype == torch.uint8 else -6
            numbers = torch.randint(low, 7, shape, generator=generator)
            if not dtype.is_floating_point:
                return numbers.to(dtype)
            made = numbers.to(dtype) / 4
            if self.special:
                odd = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
                places = torch.randint(0, 5, shape, generator=generator)
                chosen = torch.rand(shape, generator=generator) < 0.2
                made = torch.where(chosen, odd.to(dtype)[places], made)
            return made

        if self.layout == "transposed" and size:
            made = values(*reversed(size)).permute(*reversed(range(len(size))))
        elif self.layout == "gaps" and size:
            made = values(*size[:-1], 2 * size[-1])[..., ::2]
        elif self.layout == "offset":
            made = values(torch.Size(size).numel() + 1)[1:].view(size)
        elif self.layout == "expanded" and size:
            made = values(1, *size[1:]).expand(size)
        elif self.layout == "channels_last" and len(size) == 4:
            made = values(*size).to(memory_format=torch.channels_last)
        else:
            made = values(*size)
        return made


@dataclass
class Program:
    text: str
    inputs: list[Input]
    sizes: list[tuple[int, ...]]
    dynamic: bool | None


def _choices(text: str) -> list[str]:
    return [one.strip() for line in text.strip().splitlines() for one in line.split(";")]


_OPERAND = re.compile(r"(?<![\w.])(b2|[a-z])(?!\w)")


def _words(text: str, words: dict[str, str]) -> str:
    return _OPERAND.sub(lambda found: words.get(found[0], found[0]), text)


class Programs:
    """An endless row of programs."""

    def __init__(self, seed: int, only: str = "") -> None:
        self.random = random.Random(seed)
        self.operators = [
            (line[0], line[2:]) for line in _choices(OPERATORS) if not only or only in line
        ]
        self.writes = _choices(WRITES)

    def __iter__(self) -> Programs:
        return self

    def __next__(self) -> Program:
        while True:
            made = self._program()
            if made is not None:
                return made

    def _inputs(self) -> list[Input]:
        draw = self.random
        train = draw.random() < 0.5
        special = draw.random() < 0.15
        found = []
        for k in range(draw.randint(1, 4)):
            kind = draw.random()
            if k == 0 or kind < 0.6:
                dtype = draw.choice(FLOATS)
            else:
                dtype = draw.choice(INTEGERS) if kind < 0.9 else "bool"
            rank = draw.choice([0, 1, 2, 2, 3, 3, 3, 4])
            dims = ((), (2,), (1, 2), (0, 1, 2), (0, 0, 1, 2))[rank]
            if draw.random() < 0.2:
                dims = tuple(draw.choices(range(3), k=rank))
            grad = train and dtype in FLOATS and draw.random() < 0.8
            found.append(Input(dtype, dims, draw.choice(LAYOUTS), grad, special))
        return found

    def _sizes(self) -> list[tuple[int, ...]]:
        draw = self.random
        first = tuple(draw.choices([1, 2, 3, 4, 5, 8, 17, 33, 64], k=3))
        if torch.Size(first).numel() > 9000:
            first = (first[0], 3, 4)
        kind = draw.random()
        second = tuple(draw.choices([2, 3, 4, 6, 7, 9, 16, 20], k=3))
        third = tuple(draw.choices([0, 1, 2, 5], k=3))
        if kind < 0.4:
            return [first, first]
        if kind < 0.7:
            return [first, second, first]
        return [first, second, third, first]

    def _program(self) -> Program | None:
        draw = self.random
        inputs, sizes = self._inputs(), self._sizes()
        names = [f"x{k}" for k in range(len(inputs))]
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(PRELUDE, scope)
        live: dict[str, tuple[Any, bool]] = {}  # value, whether it is rounded
        for k, (name, one) in enumerate(zip(names, inputs)):
            value = one.make(sizes[0], k)
            scope[name] = value.requires_grad_() * 1 if one.grad else value
            live[name] = scope[name], False
        lines: list[str] = []
        wanted = draw.choice([3, 5, 8, 12, 20, 35])
        for _ in range(wanted * 6):
            if len(lines) >= wanted:
                break
            write = draw.random() < 0.12
            kind, text = ("=", draw.choice(self.writes)) if write else draw.choice(self.operators)
            words = self._operands(text, live, kind == "!")
            if words is None:
                continue
            line = _words(text, words)
            used = [live[w] for w in words.values() if w in live]
            rounded = kind == "~" or any(r for _, r in used)
            if write:
                target = words[text.partition("(")[2][0] if text.startswith("torch.") else text[0]]
                if target not in live or target in names and draw.random() < 0.5:
                    continue
            else:
                name = f"v{len(lines)}"
                line = f"{name} = {line}"
            state = torch.random.get_rng_state()
            if write:
                before = live[target][0]
                saved = before.detach().clone() if isinstance(before, torch.Tensor) else None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    exec(line, scope)
            except Exception:
                torch.random.set_rng_state(state)
                if write:  # half of a write may be done
                    return None
                continue
            if write:
                for other in list(live):  # what shares memory is rounded too
                    value, was = live[other]
                    live[other] = value, was or rounded or text.partition("(")[0] not in ("",)
            else:
                value = scope[name]
                if isinstance(value, (tuple, list)):
                    line = f"{name} = {line.partition(' = ')[2]}[0]"
                    value = scope[name] = value[0]
                if not isinstance(value, torch.Tensor) or value.numel() > 40000:
                    del scope[name]
                    continue
                if (
                    value.dtype.is_floating_point
                    and not value.isfinite().all()
                    and not inputs[0].special
                ):
                    del scope[name]
                    continue
                half = value.dtype in HALVES
                live[name] = value, rounded or half
            lines.append(line)
        made = [n for n in live if n not in names]
        if not made:
            return None
        body = "\n".join(lines)
        unused = [n for n in made if len(re.findall(rf"\b{n}\b", body)) == 1]
        others = draw.sample(made, min(len(made), draw.randint(0, 3)))
        results = list(dict.fromkeys([*others, *unused, made[-1]]))
        lines.append(f"return {', '.join(results)},")
        text = f"def f({', '.join(names)}):\n" + "\n".join("    " + line for line in lines)
        dynamic = draw.choice([None, None, True, False])
        return Program(text, inputs, sizes, dynamic)

    def _operands(
        self, text: str, live: dict[str, tuple[Any, bool]], exact: bool
    ) -> dict[str, str] | None:
        draw = self.random
        recent = list(live)[-8:] + list(live)[-3:]

        def pick(fits: Any) -> str | None:
            found = [
                n for n in recent + list(live) if fits(live[n][0]) and not (exact and live[n][1])
            ]
            return draw.choice(found) if found else None

        kinds = {
            "f": lambda t: t.dtype.is_floating_point,
            "i": lambda t: (
                not t.dtype.is_floating_point and t.dtype != torch.bool and not t.dtype.is_complex
            ),
            "b": lambda t: t.dtype == torch.bool,
            "x": lambda t: t.dtype != torch.bool and not t.dtype.is_complex,
            "z": lambda t: True,
        }
        words: dict[str, str] = {}
        found = set(_OPERAND.findall(text))
        for letter, like in {
            "f": "f",
            "i": "i",
            "x": "x",
            "z": "z",
            "b": "b",
            "g": "f",
            "j": "i",
            "y": "x",
        }.items():
            if letter in found:
                name = pick(kinds[like])
                if name is None:
                    return None
                words[letter] = name
        first = next((words[k] for k in "fixzb" if k in words), None)
        rank = live[first][0].dim() if first else 1
        if "d" in found:
            words["d"] = str(draw.randint(-rank, rank - 1) if rank else 0)
        if "b2" in found:
            words["b2"] = f"({first} > 0)"
        words["n"] = str(draw.choice([0, 1, -1, 2, -3, 3]))
        words["m"] = str(draw.choice([1, 2, 3, 5]))
        words["r"] = str(draw.choice([0.5, -0.25, 1.5, 0.1, 2.0]))
        return words


def outcome(function: Any, program: Program, sizes: tuple[int, ...], seed: int) -> Any:
    """Everything a call shows."""
    leaves, given = [], []
    for k, one in enumerate(program.inputs):
        value = one.make(sizes, seed + k)
        if one.grad:
            leaves.append(value.requires_grad_())
            value = value * 1 if one.layout == "plain" else value.view_as(value)
        given.append(value)
    torch.manual_seed(seed)
    try:
        results = function(*given)
        differentiable = [
            (r.real if r.is_complex() else r)
            for r in results
            if isinstance(r, torch.Tensor) and r.requires_grad
        ]
        if differentiable:
            total = sum((r.double() * (k + 1) * 0.1).sum() for k, r in enumerate(differentiable))
            total.backward()
    except Exception as error:
        text = str(error).partition("\n")[0].partition(" [torch")[0]
        return type(error).__name__, re.sub(r"Output \d+ of \w+", "Output", text)  # of a node
    facts = []
    everything = [*results, *given]
    for k, r in enumerate(everything):
        strides = tuple(s for s, n in zip(r.stride(), r.shape) if n > 1) if r.numel() else ()
        shares = [j for j, o in enumerate(everything) if _shares(r, o)]
        facts.append(
            (r.dtype, tuple(r.shape), strides, r.requires_grad, shares, r.is_conj(), r.is_neg())
        )
    return (
        facts,
        [r.detach() for r in everything],
        [leaf.grad for leaf in leaves],
        torch.random.get_rng_state().sum().item(),
    )


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.numel() > 0
        and other.numel() > 0
        and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    )


def _close(ours: Any, theirs: Any, slack: bool) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if not ours.dtype.is_floating_point and not ours.dtype.is_complex:
        return torch.equal(ours, theirs)
    if ours.numel() == 0:
        return True
    rtol, atol = (4e-2, 4e-2) if slack else (2e-4, 2e-5)
    return torch.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)


def difference(ours: Any, theirs: Any, slack: bool = False) -> str | None:
    """What differs between two outcomes."""
    if isinstance(theirs[0], str):
        return None if ours == theirs else f"exception: eager {theirs}, compiled {str(ours)[:300]}"
    if isinstance(ours[0], str):
        return f"exception: compiled {ours}"
    if ours[3] != theirs[3]:
        return "random numbers"
    for k, (a, b) in enumerate(zip(ours[0], theirs[0], strict=True)):
        if a != b:
            return f"facts of {k}: eager {b}, compiled {a}"
    for what, place in (("value", 1), ("gradient", 2)):
        for k, (a, b) in enumerate(zip(ours[place], theirs[place], strict=True)):
            if not _close(a, b, slack):
                return f"{what} {k}:\n  eager    {str(b)[:600]}\n  compiled {str(a)[:600]}"
    return None


def _has_halves(program: Program) -> bool:
    names = [one.dtype for one in program.inputs] + [program.text]
    return any(word in name for name in names for word in ("float16", "half("))


def compile_text(text: str) -> Any:
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(PRELUDE, scope)
    exec(compile(text, "<kernels>", "exec"), scope)
    return scope["f"]


def mismatch(program: Program) -> str | None:
    """Where eager and compiled differ."""
    dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = compile_text(program.text)
        compiled = dynamo.compile(compile_text(program.text), dynamic=program.dynamic)
        for k, sizes in enumerate(program.sizes):
            theirs = outcome(eager, program, sizes, 10 * k)
            ours = outcome(compiled, program, sizes, 10 * k)
            if 0 in sizes and isinstance(theirs[0], str):
                continue  # eager's checks of what is empty are not all in the fake operators
            told = difference(ours, theirs, _has_halves(program))
            if told:
                return f"call {k} sizes {sizes}: {told}"
    return None


def smaller(program: Program, kind: str) -> Program:
    """The program with lines dropped, while what differs is of the same kind."""
    lines = program.text.splitlines()
    k = len(lines) - 2
    while k >= 1:
        fewer = lines[:k] + lines[k + 1 :]
        gone = lines[k].strip().partition(" = ")[0]
        ends = fewer[-1].replace("return", "").strip().strip(",").split(", ")
        ends = [e for e in ends if e != gone]
        if ends and ends != [""]:
            fewer[-1] = f"    return {', '.join(ends)},"
            one = Program("\n".join(fewer), program.inputs, program.sizes, program.dynamic)
            if _same_kind(one, kind):
                program, lines = one, fewer
        k -= 1
    while True:
        ends = lines[-1].replace("return", "").strip().strip(",").split(", ")
        for e in ends:
            rest = [o for o in ends if o != e]
            one = Program(
                "\n".join([*lines[:-1], f"    return {', '.join(rest)},"]),
                program.inputs,
                program.sizes,
                program.dynamic,
            )
            if rest and _same_kind(one, kind):
                program, lines = one, one.text.splitlines()
                break
        else:
            return program


def _same_kind(program: Program, kind: str) -> bool:
    try:
        told = mismatch(program)
    except Exception as error:
        told = f"{type(error).__name__} raised: {error}"
    return told is not None and _kind(told) == kind and "not defined" not in told


def _kind(told: str) -> str:
    return told.partition(":")[2].split(":")[0][:40].strip()[:10]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kernels", description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--only", default="", help="operators whose line holds this text")
    options = parser.parse_args()
    print(f"--seed {options.seed} --programs {options.programs}", flush=True)
    wrong = 0
    for number, program in zip(range(options.programs), Programs(options.seed, options.only)):
        told = _told(program)
        if told:
            wrong += 1
            small = smaller(program, _kind(told))
            print(
                f"#{number} dynamic={small.dynamic}",
                *small.inputs,
                small.sizes,
                small.text,
                _told(small),
                "",
                sep="\n",
                flush=True,
            )
    print(f"{options.programs} programs, {wrong} differ")
    return bool(wrong)


def _told(program: Program) -> str | None:
    try:
        return mismatch(program)
    except Exception as error:
        return f"raised: {type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
