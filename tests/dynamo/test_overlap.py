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


def joined(x):
    torch.cat([x[:1], x[1:3]], out=x[2:5])


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


def scattered(x):
    x.scatter_add_(0, torch.zeros(6, dtype=torch.int64), x)


def added_by_index(x):
    x.index_add_(0, torch.arange(6), x)


def put(x):
    x.index_put_((torch.arange(6),), x)


def stored_by_index(x):
    x[torch.arange(6)] = x


def stored_by_index_in_a_part(x):
    x.view(2, 3)[1:, torch.tensor([0, 2])] = x[4]


def selected_as_out(x):
    torch.index_select(x, 0, torch.arange(6), out=x)


def joined_as_out(x):
    torch.cat([x], out=x)


def its_own_index(x):
    places = torch.arange(6)
    places.index_fill_(0, places, 2)


def stored_by_mask(x):
    x[x > 2] = x[0]
    x.view(2, 3)[:, torch.tensor([0, 2])] = x[:2].clone()
    x[:2].scatter_(0, torch.tensor([0, 1]), x[3:5])


REFUSED = [
    *(scattered, added_by_index, put, stored_by_index, stored_by_index_in_a_part),
    *(selected_as_out, joined_as_out, its_own_index),
    *(shifted, stored, copied, given_out, joined),
    *(scaled_by_an_item, transposed, by_keyword, bits_in_place),
]
ALLOWED = [all_of_it, between_the_others, apart, item_stored, bits, stored_by_mask]


def outcome(function, backend, dynamic=None):
    """What is left, the error, and the lines of this file that it passed."""
    dynamo.reset()
    x = torch.arange(6.0)

    def run(x):
        x.add_(1)
        function(x)
        return x * 2

    fullgraph = function in ALLOWED
    call = run
    if backend:
        call = dynamo.compile(run, backend=backend, dynamic=dynamic, fullgraph=fullgraph)
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
@pytest.mark.parametrize("dynamic", [None, True])
def test_overlap(function, backend, dynamic):
    expected, found = outcome(function, None), outcome(function, backend, dynamic)
    assert torch.equal(found[0], expected[0])
    if function in REFUSED:
        assert found[1:] == expected[1:]
    else:
        assert torch.equal(found[1], expected[1])


def whole_written(x):
    x.add_(1)
    return x.sum()


def item_written(x):
    y = x * 2
    x[0] = 5
    return y, x * 1


def row_written(x):
    x[0].mul_(2)
    x.select(0, 1).add_(1)
    return x * 1


def as_out(x):
    torch.add(torch.ones(x.shape), 1, out=x)
    return x * 1


def halves_as_out(x):
    half = torch.ones(1, x.shape[1])
    torch.cat([half, torch.ones(x.shape[0] - 1, x.shape[1])], out=x)
    return x * 1


def repeating():
    """Inputs with several elements in one place, between others of the same sizes."""
    yield torch.arange(6.0).view(3, 2)
    yield torch.arange(8.0).view(4, 2)
    yield torch.ones(1, 2).expand(3, 2)
    yield torch.ones(5, 1).expand(5, 2)
    yield torch.tensor(1.0).expand(2, 2)
    yield torch.arange(4.0).as_strided((3, 2), (1, 1))
    yield torch.arange(6.0).unfold(0, 3, 1)
    yield torch.arange(6.0).view(3, 2)


def caught(x):
    try:
        torch.nn.functional.relu(x, inplace=True)
    except RuntimeError:
        return x - 1
    return x * 1


WRITTEN = [whole_written, item_written, row_written, as_out, halves_as_out, caught]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", WRITTEN)
def test_inputs_that_repeat_elements(function, backend, dynamic):
    compiled = dynamo.compile(function, backend=backend, dynamic=dynamic)
    for eager, ours in zip(repeating(), repeating()):
        if function in (whole_written, caught) and eager.stride() == (1, 1):
            continue  # eager's result depends on the order of its writes
        errors, results = [], []
        for call, x in (function, eager), (compiled, ours):
            try:
                results.append((call(x), x))
            except RuntimeError as error:
                errors.append(str(error))
                results.append(x)
        assert errors[1:] == errors[:1]
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def filled(x):
    x.masked_fill_(torch.tensor([[True], [False], [True], [False], [True]])[: x.shape[0]], 7)
    return x * 1


def set_to_zero(x):
    x.zero_()
    return x * 1


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [filled, set_to_zero])
def test_fills_of_inputs_that_repeat_elements(function, dynamic):
    compiled = dynamo.compile(function, backend="aot_eager", dynamic=dynamic)
    for eager, ours in zip(repeating(), repeating()):
        expected, found = function(eager), compiled(ours)
        torch.testing.assert_close((found, ours), (expected, eager), rtol=0, atol=0)
