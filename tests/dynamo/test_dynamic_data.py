"""Numbers and sizes that depend on data, captured where config says so."""

from __future__ import annotations

import re

import pytest
import torch

import dynamo
from backends.eager import eager
from tests.dynamo.dynamic_support import Counting, same

CALLS = [torch.tensor([1.0, 0.0, 2.0, 3.0]), torch.tensor([0.0, 0.0, 5.0, 1.0])]

SCALARS = {
    "item": lambda x: x.sum().item(),
    "multiplied": lambda x: x * x.max().item(),
    "int_item": lambda x: x.long().sum().item() + 1,
    "arithmetic": lambda x: (x * (x.long().sum().item() * 2 + 1), 3),
    "twice": lambda x: x * x.max().item() - x.min().item(),
    "tolist": lambda x: x.long().tolist(),
    "full": lambda x: torch.full((2,), x.long().max().item()),
    "int": lambda x: x.roll(-int(x.max())) * int(x.mean() * 3),
    "float": lambda x: (x * float(x.mean()), float(x.long().max())),
    "bool": lambda x: (x * 2, bool(x.max() > 4), bool(x.long().min())),
    "index": lambda x: x * x.long().max().__index__(),
    "ints": lambda x: [int(v) for v in x.long()] + [x * 2],
}
# Tensors that stand where a number is wanted.
PLACES = {
    "item": lambda x, n: x[n] * 2,
    "item_of_a_column": lambda x, n: x[:, n] * 2,
    "item_behind_an_ellipsis": lambda x, n: x[..., n, None] * x[None, n, 1:],
    "item_beside_a_tensor": lambda x, n: x[n, torch.tensor([2, 0])],
    "view": lambda x, n: x[n].add_(1).sum() + x.sum(),
    "slice": lambda x, n: x[: n + 1] * 2,
    "store": lambda x, n: (x.__setitem__((slice(None), n), 5.0), x * 2)[1],
    "store_of_a_row": lambda x, n: (x.__setitem__(n, x[0]), x * 2)[1],
    "roll": lambda x, n: x.roll(n, 0),
    "pad": lambda x, n: torch.nn.functional.pad(x, (0, n + 3)).sum(1),
    "full": lambda x, n: torch.full((n + 2, 2), 3.0) * x[0, 0],
}
SIZES = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero_sum": lambda x: x.nonzero().sum() + x.sum(),
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "mask_index": lambda x: x[x > 0].sum(),
    "flag_index": lambda x: x[x[0] > 0].sum() + x[..., x[1] > 0, None, -1].sum(),
    "flag_alone": lambda x: x[0][x[0] > 0].sum(),
    "unique": lambda x: torch.unique(x),
    "size_of_nonzero": lambda x: x.sum() / x.nonzero().size(0),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalar(name):
    counting = Counting(eager)
    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(SCALARS[name], backend=counting, fullgraph=True)
        for x in CALLS:
            same(SCALARS[name](x), compiled(x))
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PLACES)
def test_tensor_in_the_place_of_a_number(name, backend):
    with dynamo.config.patch(capture_scalar_outputs=True):
        fn = PLACES[name]
        compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
        for n in (0, 2, 1, -1):
            inputs = [torch.arange(9.0).reshape(3, 3).requires_grad_() for _ in range(2)]
            results = [f(x * 1, torch.tensor(n)) for f, x in zip((fn, compiled), inputs)]
            same(*results)
            for x, result in zip(inputs, results):
                result.sum().backward()
            same(*(x.grad for x in inputs))
        if name.startswith("item"):
            with pytest.raises(IndexError):
                compiled(torch.ones(3, 3), torch.tensor(3))


@pytest.mark.parametrize("name", SIZES)
def test_size(name):
    counting = Counting(eager)
    with dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = dynamo.compile(SIZES[name], backend=counting, fullgraph=True)
        for x in CALLS:
            same(SIZES[name](x), compiled(x))
    assert len(counting.graphs) == 1


def _between(x):
    """What stands before and after a number, and uses it."""
    y = x * 2
    n = x.long().sum().item()
    return y, y + n, torch.ones(n) * 2, n


def _masked(x):
    h = torch.softmax(x[None].expand(4, -1) * 3, -1)
    chosen = h[h > 0.1]
    return (chosen.exp() + 1) * chosen.size(0), torch.relu(h) * 2, chosen.size(0)


def _written_between(x):
    before = x.nonzero().squeeze(1)
    x.add_(1)
    return before * 2, x.nonzero().squeeze(1) + before.size(0)


def _data_as_dimension(x):
    n = x.long().max().item()
    torch._check(n > 0)
    return (torch.ones(n, 3) + torch.arange(n)[:, None]).sum(1) / n


def _gathered(x):
    at = x.nonzero().squeeze(1)
    return x[at] * 2 + at.size(0), torch.cat([x[at], x]).sin()


PROGRAMS = {
    "between": _between,
    "masked": _masked,
    "written_between": _written_between,
    "as_dimension": _data_as_dimension,
    "gathered": _gathered,
}
MORE_CALLS = [*CALLS, torch.tensor([3.0, 1.0, 1.0, 2.0])]


BY_OP = re.compile("op by op|operator by operator")


def notes_of(compiled):
    reports = [graph.report or {} for r in compiled.context.records for graph in r.graphs]
    return [note for report in reports for note in report.get("notes", ()) if BY_OP.search(note)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", [*SCALARS, *SIZES, *PROGRAMS])
def test_backends(name, backend):
    """One graph, compiled, for whatever the data is."""
    fn = {**SCALARS, **SIZES, **PROGRAMS}[name]
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**both):
        compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
        for x in MORE_CALLS:
            mine, theirs = x.clone(), x.clone()
            same(fn(theirs), compiled(mine))
            same(theirs, mine)
    assert len(compiled.context.records) == 1 and not notes_of(compiled)


CHECKS = {
    "more": (lambda n: torch._check(n > 3), 3),
    "exactly": (lambda n: torch._check(n == 6), 5),
    "of_a_size": (lambda n: torch._check(n % 3 == 0), 4),
    "either": (lambda n: torch._check((n >= 6) & (n != 7)), 7),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", CHECKS)
def test_checks_stay(name, backend):
    """What a check tells is used, and checked all the same in each call."""
    check, bad = CHECKS[name]

    def fn(x):
        n = x.long().sum().item()
        check(n)
        return torch.ones(n) * 2 + n

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
        for x in CALLS:
            same(fn(x), compiled(x))
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            compiled(torch.tensor([bad, 0.0, 0.0, 0.0]))
    assert len(compiled.context.records) == 1
    assert not notes_of(compiled)


def _typed(x):
    n = x.long().sum().item()
    torch._check_value(n > 3, lambda: "more than three, please")
    return torch.ones(n)


def _with_the_number(x):
    n = x.long().sum().item()
    torch._check_index(n < 7, lambda: f"{n} is no place")
    return x * n


def _after_another(x):
    n = x.nonzero().size(0)
    torch._check(n > 1, lambda: "more than one")
    y = x * n
    torch._check_type(n != 3, lambda: "three is of no type")
    return y + 1


MESSAGES = {
    "typed": (_typed, [3.0, 0.0, 0.0, 0.0]),
    "with_the_number": (_with_the_number, [9.0, 0.0, 0.0, 0.0]),
    "after_another": (_after_another, [1.0, 2.0, 1.0, 0.0]),
}


def outcome(fn, *args):
    """What a call gives, or the type and text of what it raises."""
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", MESSAGES)
def test_checks_raise_what_the_program_does(name, backend):
    fn, bad = MESSAGES[name]
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**both):
        compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
        good = torch.tensor([2.0, 0.0, 2.0, 0.0])
        for x in (good, torch.tensor(bad), good):
            same(outcome(fn, x), outcome(compiled, x))
    assert len(compiled.context.records) == 1


# Views of what data has chosen: their strides are eager's.
VIEWS = {
    "expanded": lambda x, m: x[m].expand(3, -1),
    "expanded behind": lambda x, m: x[m].unsqueeze(-1).expand(-1, 4),
    "and computed": lambda x, m: (x[m][None].expand(2, -1), x[m].expand(2, -1) * 1),
    "a column": lambda x, m: torch.stack([x, x * 2], 1)[m][:, :1],
    "transposed": lambda x, m: torch.stack([x, x * 2], 1)[m].t()[None].expand(2, -1, -1),
    "one element": lambda x, m: x[m].sum().expand(int(m.sum())),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", VIEWS)
def test_strides_of_views_of_what_data_chose(name, backend):
    fn, x = VIEWS[name], torch.arange(4.0)
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**both):
        compiled = dynamo.compile(fn, backend=backend)
        for chosen in (4, 1, 2):
            mask = torch.arange(4) < chosen
            one, other = (leaves_of(f(x, mask)) for f in (fn, compiled))
            assert [t.tolist() for t in one] == [t.tolist() for t in other]
            assert [t.stride() for t in one] == [t.stride() for t in other]
    assert len(compiled.context.records) == 1


def leaves_of(result):
    return result if isinstance(result, tuple) else (result,)


# What torch's shape rules take for granted of data: x of 4 elements, and something of 3.
ASSUMED = {
    "broadcast": lambda x, y: x[x > 0] + y,
    "where": lambda x, y: torch.where(x[x > 0] > 1, x[x > 0], y),
    "matmul": lambda x, y: x[x > 0] @ y,
    "cat": lambda x, y: torch.cat([x[x > 0][:, None], y[:, None]], 1),
    "stack": lambda x, y: torch.stack([x[x > 0], y]),
    "view": lambda x, y: x[x > 0].view(3, 1) * y,
    "both": lambda x, y: x[x > 0] * x[x > 1] + y,
    "stored": lambda x, y: y.clone().copy_(x[x > 0]),
    "expanded": lambda x, y: x[x > 0].expand(3) + y,
    "a number": lambda x, y: torch.ones(x.long().max().item()) + y,
    "a dimension": lambda x, y: x.view(x.long().max().item(), -1) + y[0],
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ASSUMED)
def test_what_shape_rules_assume_is_checked(name, backend):
    """A call for which it does not hold gives what eager gives: a result, or its exception."""
    fn = ASSUMED[name]
    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    y = torch.tensor([1.0, 2.0, 3.0])
    calls = [[1.0, 2.0, 3.0, 0.0], [2.0, 4.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [2.0, 3.0, 2.0, 2.0]]
    with dynamo.config.patch(**both):
        compiled = dynamo.compile(lambda x, y: fn(x, y), backend=backend)
        for x in map(torch.tensor, calls):
            same(outcome(fn, x, y), outcome(compiled, x, y))


@pytest.mark.parametrize("check", ["_check", "_check_value", "_check_index", "_check_type"])
def test_checks_of_sizes_raise_what_the_program_does(check):
    def fn(x, y):
        getattr(torch, check)(x.size(0) < 9, lambda: f"{x.size(0)} are too many")
        getattr(torch, check)(x.size(0) == y.size(0), lambda: "as many as the other")
        return x + y

    counting = Counting(eager)
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n, m in ((3, 3), (4, 4), (9, 9), (5, 6), (6, 6), (12, 12), (7, 7)):
        args = torch.ones(n), torch.ones(m)
        same(outcome(fn, *args), outcome(compiled, *args))
    assert len(counting.graphs) == 4  # one size, any, too many, another number


@pytest.mark.parametrize("name, count", [("item", 0), ("listed", 1), ("nonzero", 0)])
def test_without_the_option(name, count):
    """Numbers and sizes are captured, but for those that Python needs."""
    fn = {**SCALARS, **SIZES, "listed": lambda x: [0] * int(x.sum())}[name]
    off = {"capture_scalar_outputs": False, "capture_dynamic_output_shape_ops": False}
    with dynamo.config.patch(**off):
        report = dynamo.explain(lambda x: fn(x + 1), backend="eager")(CALLS[0])
    assert len(report.break_reasons) == count


@pytest.mark.parametrize("name", [*SCALARS, *SIZES])
def test_one_graph_where_a_break_is_an_error(name):
    fn = {**SCALARS, **SIZES}[name]
    compiled = dynamo.compile(fn, backend="eager", fullgraph=True)
    for x in CALLS:
        same(outcome(fn, x), outcome(compiled, x))


def test_a_branch_on_data_names_the_line_and_the_expression():
    def fn(x):
        n = x.long().sum().item()
        return x * n if n > 3 else x[:2]

    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(fn, backend="eager", fullgraph=True)
        with pytest.raises(dynamo.errors.Unsupported) as caught:
            compiled(CALLS[0])
    text = str(caught.value)
    assert "u0 >= 4" in text
    assert "return x * n if n > 3 else x[:2]" in text
    assert "torch._check" in text


def test_check_decides():
    def fn(x):
        n = x.long().sum().item()
        torch._check(n > 3)
        return x * 2 if n > 2 else x

    counting = Counting(eager)
    with dynamo.config.patch(capture_scalar_outputs=True):
        compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
        for x in CALLS:
            same(fn(x), compiled(x))
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            compiled(torch.zeros(4))
    assert len(counting.graphs) == 1


def decided_at_once(t, x):
    n = t.item()
    return x + n if n > 2 else x - n


def decided_later(t, x):
    n = (t + 1).item()
    y = x * n
    return y + 1 if n > 2 else y - 1


@pytest.mark.parametrize("fn", [decided_at_once, decided_later])
def test_by_default_a_decision_costs_no_more_graphs_than_a_break_at_the_read(fn):
    numbers = []
    for captured in (True, False):
        counting = Counting(eager)
        both = {"capture_scalar_outputs": captured, "capture_dynamic_output_shape_ops": captured}
        with dynamo.config.patch(**both):
            compiled = dynamo.compile(fn, backend=counting)
            for n in (3, 5, 0, 1, 4):
                x = torch.arange(4.0)
                same(outcome(fn, torch.tensor(n), x), outcome(compiled, torch.tensor(n), x))
        numbers.append(len(counting.graphs))
    assert numbers[0] <= numbers[1]


def test_what_the_backend_runs_op_by_op_breaks_instead():
    def fn(t, x):
        return x[: t.item()], x * 2

    compiled = dynamo.compile(fn)
    for n in (3, 0, 1, 9, -1):
        args = torch.tensor(n), torch.arange(4.0)
        same(outcome(fn, *args), outcome(compiled, *args))
    assert "op by op" not in str(dynamo.explain(fn)(torch.tensor(3), torch.arange(4.0)))


def test_long_lists_of_numbers_are_read_at_once():
    def fn(x):
        y = x + 1
        return y.tolist(), y * 2

    for n, graphs in ((3, 1), (100, 2)):
        counting = Counting(eager)
        x = torch.arange(float(n))
        with dynamo.config.patch(capture_scalar_outputs=True):
            same(outcome(fn, x), outcome(dynamo.compile(fn, backend=counting), x))
        assert len(counting.graphs) == graphs


# -- x[t]: the graph selects, whatever the options say --------------------------------------------
TABLE = torch.arange(20.0).reshape(5, 4)


def selects_a_row(x, t):
    return x * TABLE[t], TABLE[:, t - 1].sum(), x[..., t]


def writes_a_place(x, t):
    y = x.clone()
    y[t] = 7
    return y


def views_a_row(x, t):
    y = x.clone()
    row = y[t]
    y.add_(1)
    return row, y


SELECTING = [selects_a_row, writes_a_place, views_a_row]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", SELECTING, ids=lambda f: f.__name__)
def test_selections_by_a_tensor(function, backend):
    x = torch.arange(4.0)
    compiled = dynamo.compile(function, backend=backend)
    for place in (2, 0, 1, -1, 3, 50, -40):
        t = torch.tensor(place)
        same(outcome(function, x, t), outcome(compiled, x, t))
    report = dynamo.explain(function, backend="eager")(x, torch.tensor(1))
    assert not report.break_reasons


def in_a_side(x, t):
    place = t - 5
    before = x[place] if place >= 0 else x[0] * 2
    return before.sqrt() * x[t]


def final_at_the_end(x, t):
    place = t - 5
    return TABLE[0] + (x[place] if place >= 0 else TABLE[1, 1])


def returns_its_selection(x, t):
    return x[t * 1] if t * 1 >= 0 else x[0]


def writes_behind_the_side(x, t):
    rows, place = x.clone(), t - 5
    row = rows[place] if place >= 0 else rows[0]
    rows.add_(1)
    return row * 2


def writes_what_a_side_selects(x, t):
    rows, place = x.clone(), t - 5
    row = rows[place] if place >= 0 else rows[0]
    row.add_(1)
    return rows * 2


def writes_in_the_side(x, t):
    rows, place = x.clone(), t - 5
    if place >= 0:
        row = rows[place]
        row.add_(1)
    return rows * 2


IN_SIDES = {in_a_side: 1, final_at_the_end: 1, returns_its_selection: 0}
IN_SIDES |= dict.fromkeys([writes_behind_the_side, writes_what_a_side_selects], 0)
IN_SIDES[writes_in_the_side] = 0


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("function", IN_SIDES, ids=lambda f: f.__name__)
def test_selections_in_sides_of_branches(function, backend):
    """One graph, unless the frame shows that the row is a copy; errors are eager's."""
    compiled = dynamo.compile(function, backend=backend)
    for t in (7, 3, 9, 5, 16, -20):
        found = []
        for one in (function, compiled):
            x = torch.arange(1.0, 13.0)
            result = outcome(one, x, torch.tensor(t))
            memory = getattr(result, "data_ptr", lambda: 0)() - x.data_ptr()
            found.append((str(result), x, memory if function is returns_its_selection else 0))
        assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])
        assert found[0][2] == found[1][2] or "Error" in found[0][0]
    if IN_SIDES[function]:
        assert [len(r.graphs) for r in compiled.context.records] == [1]


def test_a_selection_by_a_tensor_has_a_gradient():
    def function(x, t):
        return (x[t] * x).sum()

    x, t = torch.arange(3.0, requires_grad=True), torch.tensor(1)
    dynamo.compile(function, backend="aot_eager")(x, t).backward()
    assert x.grad.tolist() == [1.0, 4.0, 1.0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_attention_to_nothing(backend):
    """The kernel that many rows have divides by zero."""

    def fn(x, mask):
        q = x[mask][None, None]
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    compiled = dynamo.compile(fn, backend=backend, fullgraph=True)
    for grad in (False, True):
        for n in (3, 0, 6, 1):
            sides = []
            for f in (fn, compiled):
                x = torch.linspace(-1, 1, 24).view(6, 4).requires_grad_(grad)
                y = f(x, torch.arange(6) < n)
                if grad:
                    y.sum().backward()
                sides.append((y.detach(), x.grad))
            same(*sides)
    assert len(compiled.context.records) == 2
