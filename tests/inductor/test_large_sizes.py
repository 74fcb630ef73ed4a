"""Tensors of more elements than 32 bits count: positions, and bounds of paddings and pieces."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import dynamo

LARGE = 2**31 + 70


def _last(tensor):
    """The last elements, all that a kernel computes of the tensor."""
    return tensor[..., -4:] + 1


# Of each, the last elements are those that a tensor of a few elements has.
PROGRAMS = {
    "padded": lambda x: _last(F.pad(x, (2, 3), value=5)),
    "padded_twice": lambda x: _last(F.pad(F.pad(x, (2, 3), value=5), (0, -2), value=3)),
    "mirrored": lambda x: _last(F.pad(x, (2, 3), mode="reflect")),
    "joined": lambda x: _last(torch.cat([x, x[..., -2:] * 2], -1)),
    "written": lambda x: _last(x.slice_scatter(x[..., -2:] * 4, -1, x.shape[-1] - 3, -1)),
}


def _input(size):
    """As many elements as the size says, of one that is stored."""
    return torch.full((1, 1), 2, dtype=torch.int8).expand(1, size)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_positions_beyond_32_bits(name, dynamic):
    fn = PROGRAMS[name]
    compiled = dynamo.compile(fn, dynamic=dynamic)
    for size in (40, 41, LARGE, LARGE + 1):
        found, expected = compiled(_input(size)), fn(_input(40))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
