"""Our shape rules give what the operators give (torch's own do not for transposed batch norm)."""

import itertools

import pytest
import torch
from torch._prims_common import suggest_memory_format

from fxgraph.aot.fake import FakePropagation, metadata
from fxgraph.shape_rules import RULES
from fxgraph.torch_fx import fake_tensor_mode

aten = torch.ops.aten


def layouts(*size):
    x = torch.randn(size)
    yield x
    if len(size) == 4:
        yield x.clone(memory_format=torch.channels_last)  # of one pixel, too
        yield x[:, :1] if size[1] == 1 else x
        c, h, w = size[1:]
        if size[0] == 1:  # one image of a channels-last batch, which gets a dimension back
            yield x[0].permute(1, 2, 0).contiguous().permute(2, 0, 1)[None]
        yield torch.randn(size[0], c + 2, h, w).contiguous(memory_format=torch.channels_last)[:, :c]
    if len(size) == 5:
        yield x.clone(memory_format=torch.channels_last_3d)
    if 1 in size:
        yield torch.empty_strided(size, [7 if n == 1 else s for n, s in zip(size, x.stride())])
    if size[0] > 1:
        yield x.transpose(0, -1).contiguous().transpose(0, -1)


def seen(meta):
    """Without the strides of dimensions of one element, which depend on the number of threads in
    the gradient of a weight of one pixel.
    """
    if meta is None:
        return None
    dtype, size, strides, *rest = meta
    return [dtype, size, [s for n, s in zip(size, strides) if n != 1], *rest]


def compare(op, args):
    mode = fake_tensor_mode()
    fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
    ours = RULES[op](*fakes)
    real = op(*args)
    real = [real] if isinstance(real, torch.Tensor) else list(real)
    known = [None if t is None else metadata(t) for t in real]
    backward = op is aten.convolution_backward.default
    if backward and ours is not None and all(n == 1 for n in args[2].shape[2:]):
        ours, expected = [*map(seen, ours)], [*map(seen, known)]
        assert ours == expected
    elif ours is not None:
        assert ours == known
    result = FakePropagation(mode).run(op, tuple(fakes), {}, view=False)
    result = [result] if isinstance(result, torch.Tensor) else result
    assert known[0] == (None if result[0] is None else metadata(result[0]))
    return ours is not None


CONVOLUTIONS = [
    ((2, 6, 9, 7), (4, 6, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    ((2, 6, 9, 7), (4, 6, 1, 1), ([2, 2], [0, 0], [1, 1], False, [0, 0], 1)),
    ((2, 6, 3, 5, 4), (4, 6, 1, 1, 1), ([1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)),
    ((2, 6, 9, 7), (6, 1, 3, 3), ([1, 2], [1, 0], [2, 1], False, [0, 0], 6)),
    ((1, 3, 7, 6), (4, 3, 3, 3), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    ((1, 1, 8, 8), (4, 1, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
    ((2, 8, 1, 1), (4, 8, 1, 1), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    ((2, 1, 1, 1), (4, 1, 1, 1), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    ((2, 3, 10), (5, 3, 4), ([3], [1], [1], False, [0], 1)),
    ((2, 3, 5, 6, 7), (4, 3, 2, 2, 2), ([1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1)),
    ((2, 6, 9, 7), (6, 4, 3, 3), ([1, 1], [1, 1], [1, 1], True, [0, 0], 1)),
]


@pytest.mark.parametrize("x, w, options", CONVOLUTIONS)
def test_convolution(x, w, options):
    used = [
        compare(aten.convolution.default, [a, b, None, *options])
        for a, b in itertools.product(layouts(*x), layouts(*w))
    ]
    assert used[0] or options[3] or x[1:] == (1, 1, 1)


@pytest.mark.parametrize("batch", [2, 20])  # aten has another kernel for more than 15
@pytest.mark.parametrize("x, w, options", CONVOLUTIONS)
def test_convolution_backward(x, w, options, batch):
    used = []
    for a, b in itertools.product(layouts(batch, *x[1:]), layouts(*w)):
        y = aten.convolution.default(a, b, None, *options)
        everything = [y, a, b, [y.shape[1]], *options, [True, True, True]]
        used.append(compare(aten.convolution_backward.default, everything))
        part = [torch.ones(()).expand(y.shape), a, b, None, *options, [False, True, False]]
        compare(aten.convolution_backward.default, part)
    assert used[0] or x[1:] == (1, 1, 1)


def test_the_layout_of_convolutions_of_symbols():
    """Nothing is guarded that only the choice of a kernel depends on."""
    from fxgraph.symbols import ShapeEnv

    env = ShapeEnv()
    mode = fake_tensor_mode(shape_env=env)
    mode.cache_enabled = False
    batch = env.new_symbol(4, "x.size(0)")
    options = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    run = FakePropagation(mode).run
    for memory_format in (torch.contiguous_format, torch.channels_last):
        with mode:
            w = torch.empty(5, 3, 3, 3).to(memory_format=memory_format)
            strides = torch.empty(2, 3, 8, 8).to(memory_format=memory_format).stride()
            x = torch.empty_strided((batch, 3, 8, 8), strides)
        y = run(aten.convolution.default, (x, w, None, *options), {}, view=False)
        assert y.stride()[1] == (1 if memory_format is torch.channels_last else 64)
        args = (y, x, w, [5], *options, [True] * 3)
        for given, of in zip(run(aten.convolution_backward.default, args, {}, view=False), (x, w)):
            assert given.stride() == of.stride()
    assert not env.guards, env.guards


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3), (2, 3, 4), (1, 1, 1, 1), (2, 3, 4, 5, 6)])
def test_batch_norm(size):
    for x in layouts(*size):
        c = size[1]
        stats = [torch.ones(c), torch.zeros(c), torch.zeros(c), torch.ones(c)]
        compare(aten._native_batch_norm_legit_no_training.default, [x, *stats, 0.1, 1e-5])
        compare(aten.native_batch_norm.default, [x, *stats, False, 0.1, 1e-5])
        if size != (1, 1, 1, 1):
            compare(aten.native_batch_norm.default, [x, *stats, True, 0.1, 1e-5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_that_updates(dtype):
    """Statistics of bfloat16, where torch's rule says float32."""
    for op in ("_batch_norm_with_update", "_batch_norm_with_update_functional"):
        for x in layouts(2, 3, 4, 5):
            stats = [torch.ones(3, dtype=dtype) for _ in range(4)]
            assert compare(getattr(aten, op).default, [x.to(dtype), *stats, 0.1, 1e-5])


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4), (2, 3, 4, 5, 6)])
def test_laid_out(size):
    for x in layouts(*size):
        for shifts in ([1, 1], [2, 1], [1, 0], [-1, 2]):
            assert compare(aten.roll.default, [x, shifts, [0, -1]]) == (len(size) > 3)
        spatial = x.numel() // (size[0] * size[1])
        ones = torch.ones(size[1])
        if x.is_contiguous(memory_format=suggest_memory_format(x)):
            compare(aten.native_group_norm.default, [x, ones, ones, *size[:2], spatial, 1, 1e-5])
        args = [x, ones, ones, *(ones.clone() for _ in range(2)), True, 0.1, 1e-5]
        compare(aten._native_batch_norm_legit_functional.default, args)
        compare(aten._native_batch_norm_legit.no_stats, [x, ones, ones, True, 0.1, 1e-5])


OTHERS = ("convolution", "convolution_backward", "clamp", "roll")


def test_clamped():
    for size in [(), (3,), (2, 3, 4, 5), (2, 1, 3), (1, 3, 4, 5), (0, 2)]:
        for x in layouts(*size) if size and size[0] else [torch.randn(size)]:
            for dtype in (torch.float32, torch.bfloat16):
                for numbers in ([0, 6.0], [-1.0, None], [None, 2], [0.5, 1]):
                    compare(aten.clamp.default, [x.to(dtype), *numbers])
                if x.is_contiguous():  # of others torch's rule has strides of its own
                    compare(aten.hardtanh.default, [x.to(dtype), 0.0, 6.0])
    inside = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert compare(aten.hardtanh.default, [inside, 0.0, 6.0])


LOSSES = ("mse_loss_backward", "huber_loss_backward", "smooth_l1_loss_backward")


@pytest.mark.parametrize("name", LOSSES)
def test_loss_of_no_elements(name):
    x, more = torch.zeros(0, 3), () if name.startswith("mse") else (1.0,)
    assert compare(getattr(aten, name).default, (torch.ones(()), x, x, 1, *more))


@pytest.mark.parametrize(
    "op",
    [op for op in RULES if op._schema.name.partition("::")[2] not in (*OTHERS, *LOSSES, "view")],
    ids=str,
)
def test_pointwise(op):
    tensors = [op for op in op._schema.arguments if str(op.type) == "Tensor"]
    if len(op._schema.returns) > 1:
        return
    for size in [(), (3,), (2, 3, 4, 5), (2, 1, 3), (0, 2)]:
        for x in layouts(*size) if size and size[0] else [torch.randn(size)]:
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
                x = x.abs().to(dtype)
                if len(tensors) == 1:
                    if dtype.is_floating_point:
                        compare(op, [x])
                    continue
                for y in (x, 2, 2.5, x.to(torch.float32), torch.ones(()), True):
                    if not (op is aten.sub.Tensor and y is True):
                        compare(op, [x, y])


def test_fake_mode_uses_them():
    mode = fake_tensor_mode()
    conv, bn = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
    x = mode.from_tensor(torch.randn(2, 3, 8, 8))
    weights = [
        mode.from_tensor(t) for t in (conv.weight, conv.bias, bn.running_mean, bn.running_var)
    ]
    y = torch.batch_norm(
        torch.conv2d(x, *weights[:2]), None, None, *weights[2:], False, 0.1, 1e-5, False
    )
    assert y.shape == (2, 4, 6, 6) and y.requires_grad and y.fake_mode is mode


def test_fake_mode_differentiates_a_convolution():
    mode = fake_tensor_mode()
    x = mode.from_tensor(torch.randn(2, 3, 8, 8))
    weight = mode.from_tensor(torch.randn(4, 3, 3, 3, requires_grad=True))
    (gradient,) = torch.autograd.grad(torch.conv2d(x, weight).sum(), [weight])
    assert gradient.shape == weight.shape


@pytest.mark.parametrize("size", [(2, 1, 6), (4, 3, 2), (1, 1), (2, 0, 3), ()])
def test_view(size):
    count = torch.Size(size).numel()
    shapes = [[-1] if count else [0], [1, *size, 1], [1, 1, count]]
    for x in layouts(*size) if size else [torch.randn(())]:
        for shape in shapes:
            try:
                aten.view.default(x, shape)
            except RuntimeError:
                assert RULES[aten.view.default](x, shape) is None
            else:
                assert compare(aten.view.default, [x, shape])
    part = torch.randn(4, 6)[1:, :3]
    assert compare(aten.view.default, [part, [3, 1, 3]])
    assert RULES[aten.view.default](part, [9]) is None
