"""Whole functions through lowering, scheduling, Triton and a plan: `python -m
tests.inductor.interpreting triton_programs [NAME...]`.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from tests.inductor.compiling import moved, traced_on

PROGRAMS = {}
INF, NAN = float("inf"), float("nan")


def program(*examples, tolerance=1e-5):
    def register(fn):
        PROGRAMS[fn.__name__] = (fn, examples, tolerance)
        return fn

    return register


def rand(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@program(rand(4, 6), rand(6))
def gelu_and_bias(x, b):
    return F.gelu(x + b) * 0.5, (x > 0).sum(1)


@program(rand(2, 5, 33), rand(33), rand(33, seed=1))
def layer_norm_then_softmax(x, w, b):
    return torch.softmax(F.layer_norm(x, (33,), w, b), -1)


@program(rand(2, 3, 8, 8), rand(3), rand(3).abs(), rand(3), rand(3))
def batch_norm_relu_pool(x, mean, var, w, b):
    return F.max_pool2d(F.relu(F.batch_norm(x, mean, var + 0.5, w, b)), 3, 2, 1)


@program(rand(3, 4), rand(3, 5))
def cat_and_pad(x, y):
    return F.pad(torch.cat([x, y * 2], 1), (1, 1), value=2.0)


@program(rand(3, 70), rand(3, 40), rand(3, 9))
def cat_of_parts(x, y, z):
    return torch.cat([x * 2, y.exp(), z + 1, x[:, ::2].sin()], 1)


@program(rand(10, 8), torch.tensor([[1, 9], [0, 3]]))
def embedding_mean(table, index):
    return F.embedding(index, table).mean(1)


@program(torch.randn(2, 3, 8).half(), torch.tensor([[1, 3, 1], [0, 1, 1]]), tolerance=2e-3)
def table_gradients(grad, index):
    table = torch.ops.aten.embedding_dense_backward(grad.float(), index, 5, 3, False)
    return table, torch.zeros(5, 8).index_add(0, index[0], grad[0].float() * 2).half()


@program(rand(3, 6))
def written_through_a_view_and_read_there(x):
    """Nobody reads the first column of the copy that is written."""
    y = (x * 2)[:, 1:]
    y.index_fill_(0, torch.tensor([0]), 1.0)
    return torch.deg2rad(y.clamp(max=1))


@program(torch.tensor([0.0, -0.0, 1.0, NAN]), torch.tensor([True, False, True, False]))
def zeros_below_zero(x, mask):
    """In types that are computed in themselves, and as constants."""
    y = x.double()
    constants = torch.where(mask, x, -0.0), x + -0.0, y + -0.0, torch.full_like(x, -0.0)
    return -x, -y, torch.copysign(y, -0.0), *constants, F.pad(x, (1, 1), value=-0.0)


@program(rand(2, 3, 8, 8))
def pooling_gradients(x):
    value, at = torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [0, 0])
    back = torch.ops.aten.max_pool2d_with_indices_backward(
        value, x, [3, 3], [2, 2], [0, 0], [1, 1], False, at
    )
    return back, torch.ops.aten.avg_pool2d_backward(x, x, [1, 1], [1, 1], [0, 0], False, True, None)


@program(rand(6, 8), rand(8, 6))
def transposed_and_flipped(x, y):
    return (x + y.t()).flip(0).contiguous(), x.view(4, 12).t() * 2


@program(rand(5, 7), rand(7, 3))
def around_a_matmul(x, w):
    return torch.sigmoid((x * 2) @ w).amax(0)


@program(rand(3, 50))
def arg_and_variance(x):
    return x.argmax(1), x.var(1), x.std(), x.log_softmax(1)


# Less gelu of inf, which is NaN on a CPU in half types, and the sign of a 0 that fmax gives.
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, INF, -INF, NAN, 65504.0, -65504.0, 6e-8)
UNARY = (
    F.silu, F.relu, F.softplus, F.hardswish, F.leaky_relu, F.elu, torch.tanh, torch.sigmoid,
    torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.abs, torch.sign, torch.round, torch.floor,
    torch.reciprocal, torch.nan_to_num, torch.isfinite, torch.signbit, torch.neg, torch.square,
)  # fmt: skip
BINARY = (
    torch.add, torch.mul, torch.div, torch.maximum, torch.minimum, torch.lt,
    torch.eq, torch.fmod, torch.remainder, torch.floor_divide, torch.copysign, torch.logical_or,
)  # fmt: skip


def rows_of(dtype):
    x = torch.tensor(SPECIAL, dtype=dtype)
    finite = torch.where(x.isfinite(), x, 2)
    return torch.stack(
        [x, x.flip(0), torch.where(x.isnan(), 1, x), finite, torch.full_like(x, -INF), x * 0]
    )


def special():
    """Programs of values that are none, or at the end of a half type."""
    for dtype in (torch.float16, torch.bfloat16):
        x, rows = torch.tensor(SPECIAL, dtype=dtype), rows_of(dtype)
        pairs = torch.cartesian_prod(x, x).t().contiguous()

        def unary(x):
            return tuple(fn(x) for fn in UNARY)

        def binary(x, y):
            return tuple(fn(x, y) for fn in BINARY)

        def reductions(x):
            return (
                x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.sum(1), x.mean(1), x.softmax(1),
                x.log_softmax(1), x.logsumexp(1), x.isnan().any(1), (x > 0).all(1),
                F.layer_norm(x, x.shape[1:]), x.var(1),
            )  # fmt: skip

        def empty(x):
            return x * 2, x.sum(1), x.sum(0), torch.softmax(x, 1), (x > 0).any(1), x.prod(1)

        for fn, inputs in (
            (unary, (x,)), (binary, (*pairs,)), (reductions, (rows,)), (empty, (rows[:, :0],)),
        ):  # fmt: skip
            fn.__name__ = f"{fn.__name__}_of_special_{str(dtype).removeprefix('torch.')}"
            program(*inputs, tolerance=torch.finfo(dtype).eps)(fn)


special()
SYMBOLIC = ("gelu_and_bias", "cat_and_pad", "arg_and_variance")


def run_symbolic(name):
    """One compile with symbols for all sizes, run with several."""
    from inductor.codegen.triton import TritonModule
    from inductor.plan_steps import build_plan
    from inductor.runtime.driver import load_kernels
    from inductor.runtime.link import link
    from tests.inductor.symbolic import Symbolic, resized

    fn, examples, tolerance = PROGRAMS[name]

    def listed(*args):
        result = fn(*args)
        return result if isinstance(result, tuple) else (result,)

    traced = Symbolic(listed, examples)
    c = traced.compile(until="schedule")
    triton = TritonModule(c.program, everywhere=True)
    _, spec = build_plan(c.program, c.items, triton)
    assert triton.kernels and not spec.source
    plan = link(spec, callables=load_kernels(spec.triton))
    for change in (lambda n: n, lambda n: n + 1, lambda n: 2 * n + 3):
        inputs = resized(examples, change)
        assert traced.allows(inputs)
        for g, w in zip(plan(*traced.arguments(inputs)), listed(*inputs), strict=True):
            torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, check_stride=True)


def run(name, device="cpu"):
    from inductor.codegen.triton import TritonModule
    from inductor.pipeline import new_compilation, run_stages
    from inductor.plan_steps import build_plan
    from inductor.runtime.driver import load_kernels
    from inductor.runtime.link import link

    fn, examples, tolerance = PROGRAMS[name]
    inputs = [moved(x, device) for x in examples]
    with torch.no_grad():
        c = run_stages(new_compilation(traced_on(device, fn), inputs), until="schedule")
        triton = TritonModule(c.program, everywhere=True)
        _, spec = build_plan(c.program, c.items, triton)
        assert not spec.source and (triton.kernels or not inputs[0].numel())
        plan = link(spec, callables=load_kernels(spec.triton))
        got, want = plan(*inputs), fn(*examples)
    want = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got, want, strict=True):
        close(g.cpu(), w, tolerance)


def close(got, want, tolerance):
    torch.testing.assert_close(
        got, want, rtol=tolerance, atol=tolerance, check_stride=True, equal_nan=True
    )
    zero = (got == 0) & (want == 0)
    assert torch.equal(got.signbit() & zero, want.signbit() & zero), "-0.0"


def cases(*names):
    known = {name: partial(run, name) for name in PROGRAMS}
    known |= {f"{name}_symbolic": partial(run_symbolic, name) for name in SYMBOLIC}
    return {name: known[name] for name in names or known}
