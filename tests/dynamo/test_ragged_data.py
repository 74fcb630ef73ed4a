"""Sequences whose lengths are data: packed, padded and split in one graph."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import dynamo
from dynamo.api.compile import compile_fresh
from tests.dynamo.dynamic_support import same
from tests.dynamo.test_dynamic_data import notes_of, outcome

T = torch.tensor
BATCH = torch.linspace(-1, 1, 48).view(3, 4, 4)
ROWS = torch.arange(24.0).view(6, 4)
LENGTHS = [T([4, 3, 1]), T([4, 4, 4]), T([2, 1, 1]), T([3, 4, 1]), T([4, 0, 0])]  # the last raise
SIZES = [T([2, 1, 3]), T([0, 6, 0]), T([6, 0, 0]), T([1, 1, 1])]
PLACES = [T([2, 3]), T([0, 6]), T([6, 6]), T([-4, -1]), T([4, 1]), T([3, 9])]


def packed_rows(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    rows = packed.data
    return rows.tanh() / rows.size(0), packed.batch_sizes // 2, packed.batch_sizes.dtype


def packed_and_padded(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    padded, found = pad_packed_sequence(packed._replace(data=packed.data * 2), True, -1.0)
    return padded.sin(), found


def padded_to_a_length(x, lengths):
    packed = pack_padded_sequence(x, lengths.flip(0), True, enforce_sorted=False)
    padded, found = pad_packed_sequence(packed._replace(data=packed.data.exp()), True, 0.0, 4)
    return padded + x, found * 2


def packed_loss(x, lengths):
    rows = pack_padded_sequence(x, lengths, batch_first=True).data
    return F.cross_entropy(rows, pack_padded_sequence(x.argmax(2), lengths, True).data)


def split_and_padded(x, sizes):
    return pad_sequence(x.split(sizes.tolist()), batch_first=True, padding_value=7.0).sum(1)


def padded_left(x, sizes):
    return pad_sequence(torch.split(x, sizes.tolist()), padding_side="left").sum(0) * 2


def padded_beside_others(x, sizes):
    return pad_sequence([x[:3][sizes > 1], x]).cos()


def split_by_a_tensor(x, places):
    return [part * 2 for part in torch.tensor_split(x, places)]


def split_of_columns(x, places):
    return [part.sum(1) for part in x.tensor_split(places.clamp(max=4), dim=-1)]


PROGRAMS = {
    **dict.fromkeys([packed_rows, packed_and_padded, padded_to_a_length], (BATCH, LENGTHS)),
    packed_loss: (BATCH, LENGTHS),
    **dict.fromkeys([split_and_padded, padded_left, padded_beside_others], (ROWS, SIZES)),
    **dict.fromkeys([split_by_a_tensor, split_of_columns], (ROWS, PLACES)),
}


def differentiated(function, x, lengths):
    x = x.clone().requires_grad_()
    found = function(x, lengths)
    leaves = leaves_of(found)
    sum(t.square().sum() for t in leaves if getattr(t, "requires_grad", False)).backward()
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in leaves], x.grad


def leaves_of(tree):
    return torch.utils._pytree.tree_leaves(tree)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_ragged(function, train):
    x, calls = PROGRAMS[function]
    compiled = dynamo.compile(function, backend="aot_eager", fullgraph=True)
    call = differentiated if train else lambda function, *args: function(*args)
    for lengths in calls:
        same(outcome(call, function, x, lengths), outcome(call, compiled, x, lengths))
    assert len(compiled.context.records) == 1
    strided = train and function is split_and_padded and notes_of(compiled)
    assert strided or not notes_of(compiled)


def attention_in_pieces(x, sizes):
    pieces = torch.split(x, sizes.tolist(), dim=2)
    found = [F.scaled_dot_product_attention(piece, piece, piece) for piece in pieces]
    return torch.cat([each.reshape(1, -1, each.shape[2], 4).transpose(1, 2) for each in found], 1)


def test_no_piece_is_taken_for_an_empty_one():
    """A kernel that asks whether the last of the pieces is empty supposes that none is."""
    compiled = dynamo.compile(attention_in_pieces, backend="eager", fullgraph=True)
    x = ROWS[None, None]
    for sizes in (T([2, 1, 3]), T([1, 1, 4]), T([4, 2]), T([0, 4, 2]), T([4, 2, 0]), T([1, 5])):
        expected = outcome(attention_in_pieces, x, sizes)
        same(expected, outcome(compiled, x, sizes))
    assert len(compiled.context.records) == 2


LAYERS = {
    "lstm": lambda: nn.LSTM(4, 24, 2, bidirectional=True),
    "projected": lambda: nn.LSTM(4, 5, proj_size=2),
    "gru": lambda: nn.GRU(4, 5, 2, bidirectional=True, dropout=0.5),
    "tanh": lambda: nn.RNN(4, 5, bias=False),
    "relu": lambda: nn.RNN(4, 5, nonlinearity="relu"),
}


class Encoder(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, states = self.layer(packed)
        return pad_packed_sequence(packed, batch_first=True), states


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "name, backend", [*((k, "aot_eager") for k in LAYERS), ("lstm", "inductor")]
)
def test_packed_layers(name, backend, train):
    """One graph for all lengths; states of sequences that end early, too."""
    torch.manual_seed(0)
    modules = [Encoder(LAYERS[name]()).train(train)]
    modules.append(copy.deepcopy(modules[0]))
    compiled, context = compile_fresh(modules[1], backend=backend, fullgraph=True)
    for lengths in [T([4, 3, 1]), T([1, 4, 2]), T([4, 4, 4]), T([1, 1, 1])]:
        found = []
        for function, module in zip((modules[0], compiled), modules):
            torch.manual_seed(1)  # dropout
            call = differentiated if train else lambda function, *args: leaves_of(function(*args))
            with torch.set_grad_enabled(train):
                found.append(call(function, BATCH.float(), lengths))
            found[-1] = [*leaves_of(found[-1]), *(p.grad for p in module.parameters() if train)]
        torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)
    (record,) = context.records
    assert not [n for g in record.graphs for n in g.report.get("notes") or () if "op by op" in n]


def test_a_written_batch_size_is_read_again():
    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        packed.batch_sizes[0] -= 1
        return x.sum() * packed.batch_sizes[0], int(packed.batch_sizes[0]) + 1

    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    for lengths in LENGTHS[:2]:
        same(f(BATCH, lengths), compiled(BATCH, lengths))


def test_ragged_kernels():
    compiled = dynamo.compile(padded_to_a_length, fullgraph=True)
    for lengths in LENGTHS[:3]:
        same(padded_to_a_length(BATCH, lengths), compiled(BATCH, lengths))
    assert not notes_of(compiled)


def columns(x, places):
    return [column.sin() for column in x[x[:, 0] > places[1]].unbind(1)]


def split_at_a_number(x, places):
    n = (places > 2).sum().item()
    return [part * part.sum() for part in x.split([n, 5 - n, 1])]


def both_sides(x, places):
    chosen = x[:, 0] > places[0]
    return x[chosen] @ x.t(), x[~chosen].t().contiguous(), x[chosen].sum(0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [split_by_a_tensor, columns, split_at_a_number, both_sides])
def test_results_of_which_few_get_gradients(function, backend):
    """The backward is made for those, though what is saved besides tells no size of the others."""
    compiled = dynamo.compile(function, backend=backend, fullgraph=True)
    for places in PLACES[:2]:
        for number in (0, 2, 1):
            grads = []
            for one in (function, compiled):
                x = ROWS.clone().requires_grad_()
                one(x, places)[number].square().sum().backward()
                grads.append(x.grad)
            same(*grads)
    assert not notes_of(compiled)


def unrolled(x, n):
    for i in range(int(n)):
        x = x * 0.5 + i
    return x.cos(), int(n)


def cut_in_pieces(x, n):
    return [part.sum() for part in x.chunk(n.item())], torch.tensor_split(x, n)[0]


@pytest.mark.parametrize(("function", "graphs"), [(unrolled, 1), (cut_in_pieces, 3)])
def test_inputs_that_decide_the_one_graph(function, graphs):
    """The loop is in the graph; a number of results is guarded, and another one compiled for
    itself, as with torch.compile.
    """
    compiled = dynamo.compile(function, backend="eager", fullgraph=True)
    for n in (3, 1, 3, 2):
        same(function(ROWS, T(n)), compiled(ROWS, T(n)))
    assert len(compiled.context.records) == graphs


def test_inputs_that_are_written_decide_nothing():
    def fn(x, n):
        n.add_(1)
        return [x for _ in range(int(n))]

    with pytest.raises(dynamo.errors.Unsupported, match="DATA_DEPENDENT_VALUE"):
        dynamo.compile(fn, backend="eager", fullgraph=True)(ROWS, T(2))


def on_a_count(x, n):
    count = (x > n).sum().item()
    y = x * 2 if count > 10 else x - 1
    if count:
        y = y + y.mean()
    return y * count


def on_a_size(x, n):
    rows = x[x[:, 0] > n]
    if rows.shape[0] > 2:
        x = x.sin()
    return x, rows * 2


def on_a_sum(x, n):
    total = (x - n).sum().item()
    if total != 0.0:
        x = x / 2.0
    return x, total


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", [on_a_count, on_a_size, on_a_sum])
def test_branches_on_numbers_from_data(function, backend):
    compiled = dynamo.compile(function, backend=backend, fullgraph=True)
    for n in (8.0, 30.0, -1.0, 11.5, 0.0):
        grads = []
        for one in (function, compiled):
            x = ROWS.clone().requires_grad_()
            found = one(x, T(n))
            grads.append((found, torch.autograd.grad(found[0].sum(), x)))
        same(*grads)
    assert len(compiled.context.records) == 1


def behind_a_branch(x, n):
    rows = x[x[:, 0] > n]
    total = (rows * 2).sum() * (x.sin() if rows.shape[0] > 2 else x)
    return total + rows.tanh().sum(), rows.cos()


def numbers_behind_a_branch(x, n):
    count = (x[:, 0] > n).sum().item()
    y = x.sin() if x.sum() > n * 20 else x * count
    return y, x[:count].exp() * 2, x[: count + 1].cos() * (count * 2 - 1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [behind_a_branch, numbers_behind_a_branch])
def test_parts_around_a_branch_take_what_data_chose(function, backend):
    compiled = dynamo.compile(function, backend=backend, fullgraph=True)
    for n in (8.0, 30.0, -1.0, 15.0):
        results = [
            outcome(differentiated, one, ROWS / 24, T(n / 24)) for one in (function, compiled)
        ]
        same(*results)
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


def checked_truth(x):
    torch._check(bool((x > 0).all()), lambda: "not all are positive")
    return x * 2


def test_truths_are_checked_in_compiled_graphs():
    compiled = dynamo.compile(checked_truth, backend="aot_eager", fullgraph=True)
    for x in (torch.ones(3), torch.tensor([1.0, -1.0, 1.0])):
        assert str(outcome(checked_truth, x)) == str(outcome(compiled, x))
    assert not notes_of(compiled)


def test_counts_are_not_negative():
    def resized(x):
        return F.interpolate(x[None, None], size=(x > 0).sum().item() + 1)

    compiled = dynamo.compile(resized, backend="eager", fullgraph=True)
    for x in (torch.ones(3), torch.zeros(3)):
        same(resized(x), compiled(x))


def side_of_data(x, kept):
    total = x[x > 0].sum()
    if (x * kept).sum() > 0:
        x = x * x[kept].sum()
    return x + total


def first_of_many(x, kept):
    rows = x[kept]
    count = rows.shape[0]
    if count > 0:
        x = x + rows[0]
    return x * 2


def test_what_a_refused_side_assumes_is_forgotten():
    with dynamo.config.patch(capture_dynamic_output_shape_ops=True, strict=True):
        compiled = dynamo.compile(first_of_many, backend="eager")
        for kept in (torch.tensor([True, False]), torch.zeros(2, dtype=torch.bool)):
            x = torch.tensor([0.5, 1.0])
            same(first_of_many(x, kept), compiled(x, kept))


def test_a_side_reads_a_size():
    with dynamo.config.patch(capture_dynamic_output_shape_ops=True, strict=True):
        compiled = dynamo.compile(side_of_data, backend="eager")
        for kept in (torch.tensor([True, False]), torch.zeros(2, dtype=torch.bool)):
            x = torch.tensor([0.5, 1.0])
            same(side_of_data(x, kept), compiled(x, kept))
    assert not any(r.breaks for r in compiled.context.records)


def test_transforms_of_sizes_from_data_are_a_break():
    def mapped(x):
        return torch.vmap(lambda row: row * 2)(x[x > 0])

    with dynamo.config.patch(capture_dynamic_output_shape_ops=True, strict=True):
        compiled = dynamo.compile(mapped, backend="eager")
        same(mapped(torch.ones(3)), compiled(torch.ones(3)))
    assert [b.code for r in compiled.context.records for b in r.breaks] == ["DATA_DEPENDENT_VALUE"]
