"""Products by the Triton template, whatever the library would take: `python -m
tests.inductor.interpreting triton_products [NAME...]`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F

from inductor import devices
from inductor.codegen import triton_product_ways
from inductor.codegen.triton import TritonModule
from inductor.codegen.triton_products import Tiles
from inductor.pipeline import new_compilation, run_stages
from inductor.plan_steps import build_plan
from inductor.runtime.link import link
from tests.inductor.compiling import traced_on

CASES, REFERENCES = {}, {}
f32, f16, bf16, f8 = torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn
# The interpreter cuts off where bfloat16 is rounded.
TOLERANCE = {f32: 1e-5, f16: 1e-2, bf16: 8e-2, torch.int8: 1e-5, f8: 8e-2}


def case(*examples, launches=1, reference=None):
    """launches: kernels that a call takes. reference: in place of what the CPU has not."""

    def register(fn):
        CASES[fn.__name__] = fn, examples, launches
        REFERENCES[fn.__name__] = reference or fn
        return fn

    return register


def rand(*size, dtype=f32, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@case(rand(33, 50), rand(50, 17))
def alone(x, w):
    return x @ w


@case(rand(20, 50), rand(33, 50), rand(33), rand(20, 33, seed=1))
def linear_gelu_and_residual(x, w, b, y):
    return F.gelu(F.linear(x, w, b)) + y


@case(rand(2, 9, 24, dtype=bf16), rand(40, 24, dtype=bf16), rand(40, dtype=bf16))
def linear_of_bfloat16(x, w, b):
    return F.silu(F.linear(x, w, b))


@case(rand(30, 70, dtype=f16), rand(70, 18, dtype=f16))
def half_to_float(x, w):
    return (x @ w).float() * 2


@case(rand(5, 18), rand(19, 18, seed=2).t(), rand(5, 19))
def addmm_scaled(x, w, y):
    return torch.addmm(y, x, w, beta=0.5, alpha=-2.0)


@case(rand(5, 18), rand(18, 19), torch.full((19,), float("nan")))
def addmm_without_its_bias(x, w, y):
    return torch.addmm(y, x, w, beta=0)


@case(rand(3, 20, 18), rand(3, 18, 21))
def batches(x, y):
    return torch.sigmoid(torch.bmm(x, y)) * 3


@case(rand(2, 3, 20, 8), rand(2, 3, 21, 8, seed=1))
def scores(q, k):
    return (q @ k.transpose(-1, -2)) * 0.5


@case(rand(20, 18), rand(3, 18, 21))
def one_matrix_for_a_batch(x, y):
    return torch.matmul(x, y) + 1


@case(rand(1, 20, 18).expand(4, 20, 18), rand(4, 18, 5))
def expanded(x, y):
    return torch.bmm(x, y) * 2


@case(rand(40, 60), rand(60, 40))
def slices(x, w):
    return x[3:36:2, 1::3] @ w[::3, 5:][:, ::2] + 1


@case(rand(1, 1), rand(1, 1))
def one_element(x, w):
    return (x @ w) * 2


@case(rand(17, 1), rand(1, 19))
def outer(x, w):
    return (x @ w) + 1


@case(rand(1, 40), rand(40, 1))
def inner(x, w):
    return x @ w


@case(torch.tensor([[1.0, float("inf")], [float("nan"), 0.0], [2.0, 3.0]]), rand(2, 18))
def not_numbers(x, w):
    return torch.relu(x @ w)


@case(rand(18, 20), rand(20, 19), launches=2)
def read_twice(x, w):
    y = x @ w
    return torch.exp(y), y.sum(1)


@case(rand(18, 20), rand(20, 19))
def kept_and_read(x, w):
    y = x @ w
    return y, torch.tanh(y)


@case(rand(18, 20), rand(20, 19), launches=2)
def rows_follow(x, w):
    return torch.softmax(x @ w, -1)


@case(rand(19, 20), rand(20, 19), launches=2)
def with_its_transpose(x, w):
    y = x @ w
    return y + y.t()


@case(rand(2, 9, 16), rand(24, 16), rand(24))
def heads(x, w, b):
    """Read in another order than it is made."""
    y = F.linear(x, w, b).view(2, 9, 3, 8).permute(0, 2, 1, 3)
    return (y * 2).contiguous()


@case(rand(18, 20), torch.randint(-9, 9, (20, 19)).to(torch.int8))
def cast_of_the_weight(x, w):
    return torch.relu(x @ w.to(x.dtype))


def int8(*size):
    return torch.randint(-99, 99, size, generator=torch.Generator().manual_seed(0)).to(torch.int8)


@case(int8(33, 40), int8(24, 40).t(), rand(33, 1))
def of_int8(x, w, scale):
    return torch._int_mm(x, w) * scale


HALF, QUARTER = torch.tensor(0.5), torch.tensor(0.25)


@case(rand(32, 48, dtype=f8), rand(16, 48, dtype=f8), HALF, QUARTER, rand(16, dtype=bf16))
def of_float8(x, w, one, other, b):
    return torch.relu(torch._scaled_mm(x, w.t(), one, other, bias=b, out_dtype=torch.bfloat16))


def float8_by_rows(x, w, rows, columns):
    return F.silu((x.float() @ w.float().t() * rows * columns).bfloat16())


@case(
    rand(32, 48, dtype=f8), rand(16, 48, dtype=f8), rand(32, 1).abs(), rand(1, 16).abs(),
    reference=float8_by_rows,  # PyTorch before 2.13 scales by rows on a GPU alone
)  # fmt: skip
def of_float8_by_rows(x, w, rows, columns):
    return F.silu(torch._scaled_mm(x, w.t(), rows, columns, out_dtype=torch.bfloat16))


@case(int8(18, 40), int8(40, 24))
def of_int8_alone(x, w):
    return torch._int_mm(x, w)


@case(rand(2, 9, 16), rand(2, 9, 16), rand(2, 9, 16), launches=6)
def attention(q, k, v):
    """Weights that are no cast meet a copy in another order."""
    q, k, v = (t.view(2, 9, 2, 8).transpose(1, 2) for t in (q, k, v))
    scores = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v


@case(rand(18, 20), rand(20, 18), launches=3)
def overwritten(x, w):
    x[:, :18].copy_(torch.relu(x @ w) + x[:, :18])
    return x * 2


@case(rand(18, 32), rand(32, 17), rand(17, 21), launches=2)
def one_after_another(x, w, v):
    return torch.tanh(torch.relu(x @ w) @ v)


@case(rand(12, 30), rand(30, 19), torch.tensor([2, 0, 11]), launches=2)
def with_a_sum_of_others(x, w, i):
    y = torch.relu(x @ w)
    return y + i.sum()


@case(rand(40, 64, dtype=bf16), rand(64, 48, dtype=bf16), rand(48, dtype=bf16))
def of_rows_and_columns(x, w, b):
    """A last tile of each is no whole one."""
    return F.gelu(torch.addmm(b, x, w))


@case(rand(24, 40, dtype=f16).t(), rand(80, 24, dtype=f16)[8:40].t())
def of_matrices_inside_of_others(x, w):
    return (x @ w).float() * 2


def images(*size, dtype=f32, seed=0):
    return rand(*size, dtype=dtype, seed=seed).to(memory_format=torch.channels_last)


@case(images(2, 12, 5, 3), rand(20, 12, 1, 1), rand(20), images(2, 20, 5, 3, seed=1))
def convolution_of_one_pixel(x, w, b, y):
    """What reads the images joins, and stores them in their layout."""
    normal = F.batch_norm(F.conv2d(x, w, b), b, b.square() + 1, b.cos(), b.sin())
    return F.relu(normal + y)


@case(images(2, 12, 5, 3, dtype=bf16), rand(20, 12, 1, 1, dtype=bf16))
def convolution_of_bfloat16(x, w):
    return F.relu(F.conv2d(x, w)).contiguous()


@case(images(2, 20, 5, 3), images(2, 12, 5, 3, seed=1), rand(20, 12, 1, 1), launches=3)
def backward_of_one_pixel(g, x, w):
    back = torch.ops.aten.convolution_backward.default
    settings = [20], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
    dx, dw, db = back(g, x, w, *settings)
    return dx * 2, dw, db


# Cases by another way through the template, with a small tile for few multiprocessors.
WAYS = {
    "shares": ("linear_gelu_and_residual", "batches", "inner", "kept_and_read", "of_int8",
               "one_after_another", "of_rows_and_columns", "of_float8_by_rows"),
    "described": ("linear_of_bfloat16", "of_float8_by_rows", "of_rows_and_columns",
                  "of_matrices_inside_of_others"),
    "specialized": ("linear_of_bfloat16",),
}  # fmt: skip
VARYING = ("linear_gelu_and_residual", "batches", "scores", "alone")


class Template(TritonModule):
    """All kernels by Triton, all products by the template."""

    def __init__(self, program) -> None:
        super().__init__(program, everywhere=True)

    def takes_product(self, item, kept) -> bool:
        return True


class OtherWay(Template):
    """Products by another way, whatever would be measured."""

    def __init__(self, program, way, tiles=None) -> None:
        super().__init__(program)
        self.sizes = (5, 7, 3)  # in multiprocessors: the first for which there is such a way
        self.tiles = tiles
        self.way = way

    @mock.patch.object(triton_product_ways, "LEAST_SHARE", 16)
    def _products(self, item, name, local, kept):
        inner = max(16, 32 // item.step.dtype.itemsize)  # what Triton multiplies at least
        plain = replace(self.tiles or Tiles(16, 16, inner, 4, 3), way="")
        for units in self.sizes:
            self.device = replace(devices.DEVICES["h100"], units=units)
            found = triton_product_ways.ways(item.step, [plain], self.device)
            tiles = next((tiles for tiles in found if tiles.way == self.way), None)
            if tiles is not None:
                break
        assert tiles is not None
        buffers = self.program.buffers
        return [triton_product_ways.emit(item, buffers, name, local, tiles, kept, self.device)]


def everywhere() -> None:
    """CPU tensors are lowered as those of a GPU's."""
    devices.is_gpu = lambda device: True
    torch.backends.cudnn.allow_tf32 = False  # convolutions are as exact as products


def listed(result):
    return result if isinstance(result, tuple) else (result,)


def planned(c, device="cpu", way=""):
    from inductor.runtime.driver import load_kernels

    triton = OtherWay(c.program, way) if way else Template(c.program)
    _, spec = build_plan(c.program, c.items, triton)
    assert triton.kernels and not spec.source
    return spec, link(spec, callables=load_kernels(spec.triton))


def compiled(fn, inputs):
    gm = traced_on(inputs[0].device, fn)
    c = new_compilation(gm, inputs, {"tuning": "off"})
    return run_stages(c, until="schedule")


def close(got, want, dtype):
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        got.cpu().float(), want.float(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def run(name, device="cpu", way=""):
    fn, examples, launches = CASES[name]
    inputs = [x.clone().to(device) for x in examples]
    with torch.no_grad():
        spec, plan = planned(compiled(fn, inputs), way=way)
        kinds = [step.kind for step in spec.steps if step.kind != "view"]
        assert "aten" not in kinds or device != "cpu", kinds  # which checks indices by an operator
        want = listed(REFERENCES[name](*(x.clone() for x in examples)))
        got = plan(*inputs)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        close(g, w, examples[0].dtype)
    assert len(kinds) == launches or device != "cpu" or way, kinds


def run_varying(name):
    """One compile with symbols for all sizes, run with several."""
    from tests.inductor.symbolic import Symbolic, resized

    fn, examples, _ = CASES[name]
    traced = Symbolic(lambda *args: listed(fn(*args)), examples)
    _, plan = planned(traced.compile(until="schedule"))
    for change in (lambda n: n, lambda n: n + 1, lambda n: 2 * n + 3):
        inputs = resized(examples, change)
        assert traced.allows(inputs)
        for g, w in zip(plan(*traced.arguments(inputs)), listed(fn(*inputs)), strict=True):
            close(g, w, f32)


def run_parts():
    """A long sum of few tiles: in parts, added up by the kernel that reads the product."""
    x, w, b = rand(5, 4096) / 64, rand(4096, 24), rand(24)
    for fn in (
        lambda x, w, b: torch.relu(torch.addmm(b, x, w)),
        lambda x, w, b: torch.addmm(b, x, w, alpha=0.5, beta=2.0) * 2,
    ):
        spec, plan = planned(compiled(fn, [x, w, b]))
        assert [step.kind for step in spec.steps] == ["launch", "launch"]
        assert spec.steps[0].label.startswith("product "), spec.steps
        assert " x 5x" in spec.steps[0].label
        close(plan(x, w, b)[0], fn(x, w, b), f32)


def cases(*names):
    everywhere()
    known = {name: partial(run, name) for name in CASES}
    known |= {f"{name}_varying": partial(run_varying, name) for name in VARYING}
    known["sum_in_parts"] = run_parts
    known |= {f"{name}_{way}": partial(run, name, way=way) for way in WAYS for name in WAYS[way]}
    return {name: known[name] for name in names or known}
