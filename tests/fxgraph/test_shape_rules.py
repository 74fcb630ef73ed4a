"""Our shape rules give what the operators give (torch's own do not for transposed batch norm)."""

import itertools

import pytest
import torch

from fxgraph.aot.fake import FakePropagation, metadata
from fxgraph.aot.shape_rules import RULES
from fxgraph.torch_fx import fake_tensor_mode

aten = torch.ops.aten


def layouts(*size):
    x = torch.randn(size)
    yield x
    if len(size) == 4:
        yield x.contiguous(memory_format=torch.channels_last)
    if size[0] > 1:
        yield x.transpose(0, -1).contiguous().transpose(0, -1)


def compare(op, args):
    mode = fake_tensor_mode()
    fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
    ours = RULES[op](*fakes)
    real = op(*args)
    real = [real] if isinstance(real, torch.Tensor) else list(real)
    if ours is not None:
        assert ours == [metadata(t) for t in real]
    result = FakePropagation(mode).run(op, tuple(fakes), {}, view=False)
    result = [result] if isinstance(result, torch.Tensor) else result
    assert metadata(result[0]) == metadata(real[0])
    return ours is not None


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((2, 6, 9, 7), (4, 6, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
        ((2, 6, 9, 7), (4, 6, 1, 1), ([2, 2], [0, 0], [1, 1], False, [0, 0], 1)),
        ((2, 6, 9, 7), (6, 1, 3, 3), ([1, 2], [1, 0], [2, 1], False, [0, 0], 6)),
        ((1, 1, 8, 8), (4, 1, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
        ((2, 8, 1, 1), (4, 8, 1, 1), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
        ((2, 1, 1, 1), (4, 1, 1, 1), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
        ((2, 3, 10), (5, 3, 4), ([3], [1], [1], False, [0], 1)),
        ((2, 3, 5, 6, 7), (4, 3, 2, 2, 2), ([1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1)),
        ((2, 6, 9, 7), (6, 4, 3, 3), ([1, 1], [1, 1], [1, 1], True, [0, 0], 1)),
    ],
)
def test_convolution(x, w, options):
    used = [
        compare(aten.convolution.default, [a, b, None, *options])
        for a, b in itertools.product(layouts(*x), layouts(*w))
    ]
    assert used[0] or options[3] or x[1:] == (1, 1, 1)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3), (2, 3, 4), (1, 1, 1, 1), (2, 3, 4, 5, 6)])
def test_batch_norm(size):
    for x in layouts(*size):
        c = size[1]
        stats = [torch.ones(c), torch.zeros(c), torch.zeros(c), torch.ones(c)]
        compare(aten._native_batch_norm_legit_no_training.default, [x, *stats, 0.1, 1e-5])
