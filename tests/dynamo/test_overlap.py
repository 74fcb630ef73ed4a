"""Operations that write to a part of the memory that they read: refused as eager refuses them."""

import traceback

import pytest
import torch

import dynamo


def shifted(x):
    x[1:] += x[:-1]


def stored(x):
    x[1:] = x[:-1]


def copied(x):
    x[:-1].copy_(x[1:])


def given_out(x):
    torch.add(x[1:], 1, out=x[:-1])


def scaled_by_an_item(x):
    x.div_(x.view(-1)[3])


def transposed(x):
    x[:4].view(2, 2).add_(x[:4].view(2, 2).t())


def by_keyword(x):
    x.clamp_(min=x[0])


def all_of_it(x):
    x.mul_(x).add_(x.view(2, 3).view(6))


def between_the_others(x):
    x.view(3, 2)[:, 0].add_(x.view(3, 2)[:, 1])


def apart(x):
    x[:3] += x[3:]
    x[0] = x[5]


def item_stored(x):
    x[1:] = x[0]
    x.view(2, 3)[:] = x[:3]
    x.fill_(x[2])


def bits(x):
    ones = x > 2
    same = ones[:, None] | ones[None, :]
    x[: same[0].numel()] += (same & ones[:, None]).sum(1)


def bits_in_place(x):
    ones = x > 2
    ones[1:] |= ones[:-1]


REFUSED = [
    *(shifted, stored, copied, given_out),
    *(scaled_by_an_item, transposed, by_keyword, bits_in_place),
]
ALLOWED = [all_of_it, between_the_others, apart, item_stored, bits]


def outcome(function, backend):
    """What is left, the error, and the lines of this file that it passed."""
    dynamo.reset()
    x = torch.arange(6.0)

    def run(x):
        x.add_(1)
        function(x)
        return x * 2

    fullgraph = function in ALLOWED
    call = dynamo.compile(run, backend=backend, fullgraph=fullgraph) if backend else run
    try:
        return x, call(x)
    except RuntimeError as error:
        lines = [
            (frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == __file__
        ]
        return x, str(error), lines[1:]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [*REFUSED, *ALLOWED])
def test_overlap(function, backend):
    expected, found = outcome(function, None), outcome(function, backend)
    assert torch.equal(found[0], expected[0])
    if function in REFUSED:
        assert found[1:] == expected[1:]
    else:
        assert torch.equal(found[1], expected[1])
