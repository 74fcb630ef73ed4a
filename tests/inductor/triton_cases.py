"""Loop bodies for the Triton tests: each lowers to fused kernels and has an eager reference.
`python -m tests.inductor.interpreting triton_cases [NAME...]` runs them on CPU tensors.
"""

from __future__ import annotations

from functools import partial

import torch

from fxgraph.sizes import contiguous_strides
from inductor.ir import Buffer, Tensor
from inductor.lowering.context import Lowering
from inductor.ops import ops
from inductor.schedule.fusion import Kernel, schedule
from tests.inductor.compiling import moved

CASES = {}
f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
i64, i32, i8, u8 = torch.int64, torch.int32, torch.int8, torch.uint8


class Builder:
    """Lowers one case by hand: inputs by example, loops by the operations of Lowering."""

    def __init__(self):
        self.ctx = Lowering()
        self.inputs = []
        self.outputs = []

    def input(self, example):
        name = f"arg{len(self.inputs)}"
        buffer = Buffer(
            name, example.dtype, tuple(example.shape), example.stride(), example.device, "input"
        )
        self.ctx.program.buffers[name] = buffer
        self.inputs.append(example)
        return Tensor.of(buffer)

    def output(self, t):
        """Realise in a fresh buffer and return its name."""
        window = self.ctx.realize(t, contiguous_strides(t.size))
        window.buffer.kind = "output"
        self.outputs.append(window.buffer)

    def map(self, fn, *tensors, dtype=None, compute=None):
        size = torch.broadcast_shapes(*(t.size for t in tensors))
        dtype = dtype or tensors[0].dtype
        result = self.ctx.pointwise(fn, list(tensors), dtype, compute, size=size)
        return result

    def kernels(self):
        """The fused kernels, in order."""
        items = schedule(self.ctx.program, [b.name for b in self.outputs])
        for item in items:
            assert isinstance(item, Kernel), item
        return items


def case(*examples, tolerance=2e-6, reference=None):
    """Register build(b, *inputs) with eager `reference(*examples)` -> one tensor or a tuple."""

    def register(build):
        CASES[build.__name__] = (build, examples, reference, tolerance)
        return build

    return register


def seeded(*size, dtype=f32, low=None, high=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if low is not None and not dtype.is_floating_point:
        return torch.randint(low, high, size, generator=generator).to(dtype)
    x = torch.randn(size, generator=generator, dtype=f64)
    if low is not None:
        x = x.sigmoid() * (high - low) + low
    return x.to(dtype)


SPECIAL = torch.tensor(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        float("inf"),
        float("-inf"),
        float("nan"),
        3e38,
        1e-40,
    ]
)


# --- elementwise ---


@case(seeded(5, 7), seeded(7), reference=lambda x, y: (x + y) * 2 - x)
def broadcast_add(b, x, y):
    two = lambda u, v: ops.sub(ops.mul(ops.add(u, v), ops.constant(2.0, f32)), u)
    b.output(b.map(two, x, y))


@case(seeded(3000), reference=lambda x: x + 1)
def several_blocks(b, x):
    b.output(b.map(lambda v: ops.add(v, ops.constant(1.0, f32)), x))


@case(seeded(6, 8).t(), seeded(8, 6), reference=lambda x, y: x * y)
def strided(b, x, y):
    b.output(b.map(ops.mul, x, y))


UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "relu": torch.relu,
    "sign": torch.sign,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "signbit": torch.signbit,
}


@case(SPECIAL, tolerance=1e-5, reference=lambda x: tuple(f(x) for f in UNARY.values()))
def unary_on_special_values(b, x):
    for name, function in UNARY.items():
        dtype = function(torch.ones(1)).dtype
        b.output(b.map(getattr(ops, name), x, dtype=dtype, compute=f32))


PAIRS = torch.cartesian_prod(SPECIAL[:11], SPECIAL[:11]).t().contiguous()
BINARY = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "div": torch.div,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "lt": torch.lt,
    "ge": torch.ge,
    "ne": torch.ne,
    "logical_and": torch.logical_and,
    "copysign": torch.copysign,
    "div_floor": torch.floor_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}


@case(PAIRS[0], PAIRS[1], reference=lambda x, y: tuple(f(x, y) for f in BINARY.values()))
def binary_on_special_values(b, x, y):
    for name, function in BINARY.items():
        dtype = function(torch.ones(1), torch.ones(1)).dtype
        b.output(b.map(getattr(ops, name), x, y, dtype=dtype, compute=f32))


INTEGERS = {
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "remainder": torch.remainder,
    "div_floor": torch.floor_divide,
    "bit_and": torch.bitwise_and,
    "bit_xor": torch.bitwise_xor,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
}


def integers(dtype, low):
    numerator = seeded(40, dtype=dtype, low=low, high=50)
    divisor = seeded(40, dtype=dtype, low=1, high=9, seed=1)
    if low < 0:
        divisor = divisor * torch.where(seeded(40, seed=2) > 0, 1, -1).to(dtype)

    def build(b, x, y):
        for name in INTEGERS:
            b.output(b.map(getattr(ops, name), x, y))

    build.__name__ = f"integers_{str(dtype).removeprefix('torch.')}"
    case(numerator, divisor, reference=lambda x, y: tuple(f(x, y) for f in INTEGERS.values()))(
        build
    )


for kind, least in ((i64, -50), (i32, -50), (i8, -50), (u8, 0)):
    integers(kind, least)


CONVERSIONS = (f64, f32, f16, bf16, i64, i32, torch.int16, i8, torch.bool)


def conversions(source):
    x = seeded(33, dtype=f32, low=-40, high=40)
    x = (x > 0) if source == torch.bool else x.to(source)

    def build(b, x):
        for target in CONVERSIONS:
            b.output(b.map(lambda v: ops.to_dtype(v, target), x, dtype=target, compute=source))

    build.__name__ = f"convert_{str(source).removeprefix('torch.')}"
    case(x, reference=lambda x: tuple(x.to(t) for t in CONVERSIONS))(build)


for kind in CONVERSIONS:
    conversions(kind)


@case(seeded(4, 6), seeded(4, 6) > 0, reference=lambda x, c: torch.where(c, x, -x))
def where_with_bool_input(b, x, c):
    b.output(
        b.map(lambda v, m: ops.where(m, v, ops.neg(v)), x, c, dtype=f32, compute=[f32, torch.bool])
    )


# --- indexing ---


@case(seeded(4, 6), reference=lambda x: torch.nn.functional.pad(x, (2, 1, 1, 1), value=7.0))
def padded(b, x):
    def body(idx):
        i, j = idx[0] - 1, idx[1] - 2
        inside = None
        for index, size in ((i, 4), (j, 6)):
            value = ops.index_expr(index, i64)
            for check in (
                ops.ge(value, ops.constant(0, i64)),
                ops.lt(value, ops.constant(size, i64)),
            ):
                inside = check if inside is None else ops.logical_and(inside, check)
        return ops.masked(inside, lambda: x.load((i, j)), 7.0)

    b.output(b.ctx.generate((6, 9), f32, body, x))


@case(
    seeded(9, 5), torch.tensor([[3, -1], [0, 8]]), reference=lambda table, index: table[index] * 2
)
def gathered(b, table, index):
    def body(idx):
        row = ops.indirect(index.load(idx[:2]), 9)
        return ops.mul(table.load((row, idx[2])), ops.constant(2.0, f32))

    b.output(b.ctx.generate((2, 2, 5), f32, body, table, index))


@case(seeded(6, 10), reference=lambda x: x.reshape(4, 15)[:, ::2] + torch.arange(8))
def reshaped(b, x):
    def body(idx):
        flat = idx[0] * 15 + idx[1] * 2
        value = x.load((flat // 10, flat % 10))
        return ops.add(value, ops.index_expr(idx[1], f32))

    b.output(b.ctx.generate((4, 8), f32, body, x))


FALLING = torch.arange(0, -5 * 10**9, -(10**6))


@case(FALLING, reference=lambda x: x * 2)
def numbers_below_32_bits(b, x):
    falling = lambda idx: ops.add(x.load(idx), ops.index_expr(idx[0] * -(10**6), i64))
    b.output(b.ctx.generate((5000,), i64, falling, x))


@case(FALLING, reference=lambda x: (x * -3 // 7 % 1000) + 1)
def dividends_beyond_32_bits(b, x):
    def body(idx):
        quotient = ops.index_expr((idx[0] * 3 * 10**6) // 7 % 1000 + 1, i64)
        return ops.add(ops.mul(x.load(idx), ops.constant(0, i64)), quotient)

    b.output(b.ctx.generate((5000,), i64, body, x))


# --- scatters ---


TARGETS = torch.tensor([[3, 1, 3], [0, 3, 8]])


@case(
    seeded(9, 5),
    TARGETS,
    seeded(2, 3, 5, seed=1),
    reference=lambda x, at, v: x.index_put((at,), v * 2, accumulate=True),
    tolerance=1e-5,
)
def scattered(b, x, at, v):
    def value(i, s):
        return ops.mul(v.load((*s, *i)), ops.constant(2.0, f32))

    def place(i, s):
        return ops.indirect(at.load(tuple(s)), 9), i[0]

    b.output(b.ctx.scatter("add", x, [5], [2, 3], value, place))


@case(
    seeded(4, 7, dtype=i64, low=0, high=9),
    TARGETS[:, :2],
    reference=lambda x, at: x.scatter_add(1, at, 2 * at[:, :2]).scatter(1, at, -1),
)
def scattered_integers(b, x, at):
    def place(i, s):
        return i[0], ops.indirect(at.load((i[0], s[0])), 7)

    def twice(i, s):
        return ops.mul(at.load((i[0], s[0])), ops.constant(2, i64))

    added = b.ctx.scatter("add", x, [2], [2], twice, place)
    b.output(b.ctx.scatter("set", added, [2], [2], lambda i, s: ops.constant(-1, i64), place))


# --- rows ---


def softmax(b, x):
    top = b.ctx.reduce("max", x, [1], x.dtype)
    exps = b.map(lambda v, m: ops.exp(ops.sub(v, m)), x, top)
    total = b.ctx.reduce("sum", exps, [1], x.dtype)
    b.output(b.map(lambda v, m, s: ops.div(ops.exp(ops.sub(v, m)), s), x, top, total))


def layer_norm(b, x):
    n = x.size[1]
    scale = lambda v: ops.div(v, ops.constant(float(n), f32))
    mean = b.map(scale, b.ctx.reduce("sum", x, [1], f32, compute=f32), dtype=f32)
    square = lambda v, m: ops.mul(ops.sub(v, m), ops.sub(v, m))
    centred = b.map(square, x, mean, dtype=f32, compute=f32)
    variance = b.map(scale, b.ctx.reduce("sum", centred, [1], f32), dtype=f32)
    normal = lambda v, m, s: ops.mul(ops.sub(v, m), ops.rsqrt(ops.add(s, ops.constant(1e-5, f32))))
    b.output(b.map(normal, x, mean, variance, dtype=x.dtype, compute=f32))


def row_cases(name, build, reference, sizes, tolerance, dtype=f32):
    for rows, columns in sizes:
        short = str(dtype).removeprefix("torch.")
        copy = lambda b, x, build=build: build(b, x)
        copy.__name__ = f"{name}_{rows}x{columns}_{short}"
        case(seeded(rows, columns, dtype=dtype), reference=reference, tolerance=tolerance)(copy)


SIZES = [(3, 5), (65, 33), (1, 1), (4, 1000), (2, 9000), (8, 2048), (4, 4096)]
row_cases("softmax", softmax, lambda x: torch.softmax(x, 1), SIZES, 2e-6)
row_cases("layer_norm", layer_norm, lambda x: torch.layer_norm(x, x.shape[1:]), SIZES[:5], 3e-5)
row_cases(
    "layer_norm",
    layer_norm,
    lambda x: torch.layer_norm(x.float(), x.shape[1:]).half(),
    [(3, 100), (2, 9000)],
    2e-3,
    f16,
)


def extremes(b, x):
    position = {"position": True}
    for kind, more in (("max", {}), ("min", {}), ("argmax", position), ("argmin", position)):
        b.output(b.ctx.reduce(kind, x, [1], i64 if more else x.dtype, **more))


def eager_extremes(x):
    return (
        x.amax(1, keepdim=True),
        x.amin(1, keepdim=True),
        x.argmax(1, keepdim=True),
        x.argmin(1, keepdim=True),
    )


def with_nan(rows, columns):
    x = seeded(rows, columns).round()
    x[1, columns // 2] = float("nan")
    x[1, columns - 1] = float("nan")
    x[2] = float("-inf")
    x[0, -1] = float("inf")
    return x


for columns in (7, 4100):
    copy = lambda b, x: extremes(b, x)
    copy.__name__ = f"extremes_with_nan_{columns}"
    case(with_nan(4, columns), reference=eager_extremes)(copy)
    copy = lambda b, x: extremes(b, x)
    copy.__name__ = f"extremes_int64_{columns}"
    case(seeded(4, columns, dtype=i64, low=-9, high=9), reference=eager_extremes)(copy)


def logic(b, x):
    b.output(b.ctx.reduce("any", x, [1], torch.bool))
    b.output(b.ctx.reduce("all", x, [1], torch.bool))


for columns in (9, 5000):
    copy = lambda b, x: logic(b, x)
    copy.__name__ = f"any_all_{columns}"
    flags = seeded(6, columns, dtype=i64, low=0, high=2) > 0
    flags[2], flags[3] = True, False
    case(flags, reference=lambda x: (x.any(1, keepdim=True), x.all(1, keepdim=True)))(copy)


@case(seeded(3, 4, 5), reference=lambda x: x.sum((0, 2), keepdim=True))
def sum_over_outer_and_inner(b, x):
    b.output(b.ctx.reduce("sum", x, [0, 2], f32))


@case(seeded(5, 12, low=0.5, high=1.5), reference=lambda x: x.prod(1, keepdim=True), tolerance=1e-5)
def products(b, x):
    b.output(b.ctx.reduce("prod", x, [1], f32))


@case(seeded(5, 3000, dtype=i8, low=-5, high=5), reference=lambda x: x.sum(1, keepdim=True))
def integer_sum(b, x):
    wide = b.map(lambda v: v, x, dtype=i64, compute=i64)
    b.output(b.ctx.reduce("sum", wide, [1], i64))


# --- running them ---


def emit_case(name):
    """The Triton kernels of a case, its builder and its expected results."""
    from inductor.codegen.triton import emit

    build, examples, reference, tolerance = CASES[name]
    b = Builder()
    build(b, *(b.input(x) for x in examples))
    kernels = [
        emit(kernel, b.ctx.program.buffers, f"kernel{i}") for i, kernel in enumerate(b.kernels())
    ]
    want = reference(*examples)
    return b, kernels, want if isinstance(want, tuple) else (want,), tolerance


def run_case(name, device="cpu"):
    """Run the kernels of a case and compare with eager."""
    from inductor.runtime.triton_launch import Launcher

    b, kernels, wants, tolerance = emit_case(name)
    memory = {f"arg{i}": moved(x, device) for i, x in enumerate(b.inputs)}
    for buffer in b.ctx.program.buffers.values():
        if buffer.name not in memory:
            memory[buffer.name] = torch.empty_strided(
                buffer.size, buffer.stride, dtype=buffer.dtype, device=device
            )
    for kernel in kernels:
        Launcher(kernel)(*(memory[arg] for arg in kernel.args), kernel.programs)
    for buffer, want in zip(b.outputs, wants, strict=True):
        got = memory[buffer.name].cpu()
        rounding = {f16: 1e-3, bf16: 8e-3}.get(got.dtype, 0)
        if device != "cpu" and got.is_floating_point():  # whose functions round otherwise
            tolerance = max(tolerance, 1e-5)
        torch.testing.assert_close(
            got, want, rtol=max(tolerance, rounding), atol=tolerance, equal_nan=True
        )


def cases(*names):
    return {name: partial(run_case, name) for name in names or CASES}
