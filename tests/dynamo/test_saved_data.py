"""Saved programs whose sizes and numbers depend on data."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import dynamo
from dynamo.errors import ProgramError, Unsupported
from tests.dynamo.damaging import edited, forge, forged, program_of


class Mixture(nn.Module):
    """Experts, each for the rows that chose it."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.gate = nn.Linear(4, 3)

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            result = result.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return result


def places(x):
    found = x.nonzero()
    return found, (found * 2).sum(0), x[found[:, 0], found[:, 1]]


def selected(x):
    mask = x > 0
    return x[mask] + (x * 2)[mask], x[mask].shape[0], torch.masked_select(x, mask).exp().sum()


def numbered(x, n):
    count = n.item()
    torch._check(count >= 1)
    torch._check(count <= 100)
    return torch.zeros(count) + x.sum(), count, count * 2 + 1


def largest(x):
    value = x.max().item()
    return x * value, value


def uniques(x):
    found, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return found, inverse, counts, found.float() / counts


def promised(x):
    """The program says how many there are."""
    found = x[x > 0]
    torch._check(found.shape[0] == 3)
    return found + torch.arange(3), found.view(3, 1)


def viewed(x, n):
    count = n.item()
    if count < 1:
        raise ValueError("none")
    return x[:count], x * math.sqrt(count / 2) + (count & 1), x[: round(count / 4)] + 1


def draw(*sizes):
    return torch.randn(*sizes)


# name -> (what is exported, arguments of the n-th call)
CASES = {
    "mixture": (Mixture().eval(), lambda n: (draw(8, 4),)),
    "places": (places, lambda n: (torch.randint(2, (3, 4)),)),
    "selected": (selected, lambda n: (draw(3, 4),)),
    "numbered": (numbered, lambda n: (draw(3), torch.tensor(3 + n))),
    "viewed": (viewed, lambda n: (draw(9), torch.tensor(3 + n))),
    "largest": (largest, lambda n: (draw(3),)),
    "uniques": (uniques, lambda n: (torch.randint(3 + n, (9,)),)),
    "promised": (promised, lambda n: (torch.tensor([1.0, -1.0, 2.0, 3.0, -2.0]).roll(n),)),
    "repeated": (
        lambda x, n: torch.repeat_interleave(x, n, dim=0),
        lambda n: (draw(3, 2), torch.randint(0, 4, (3,))),
    ),
}


def saved(name, path):
    fn, arguments = CASES[name]
    torch.manual_seed(0)
    dynamo.reset()
    with torch.no_grad():
        dynamo.export(fn)(*arguments(0)).save(path)
    return fn, arguments


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", CASES)
def test_they_give_what_eager_gives(name, backend, tmp_path):
    fn, arguments = saved(name, tmp_path / "m.fg")
    program = dynamo.load(tmp_path / "m.fg", backend=backend)
    with torch.no_grad():
        for n in range(4):
            given = arguments(n)
            torch.testing.assert_close(program(*given), fn(*given))
    if backend == "inductor":
        assert program._compiled["inference"].run.compiled.compile_report.get("no_plan") is None


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_a_program_checks_is_checked(backend, tmp_path):
    saved("numbered", tmp_path / "n.fg")
    program = dynamo.load(tmp_path / "n.fg", backend=backend)
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        program(draw(3), torch.tensor(0))
    saved("promised", tmp_path / "p.fg")
    program = dynamo.load(tmp_path / "p.fg", backend=backend)
    with pytest.raises(RuntimeError, match="Expected cond to be True|was compiled for"):
        program(torch.tensor([1.0, -1.0, -2.0, 3.0, -2.0]))


def test_sizes_of_inputs_vary_besides(tmp_path):
    x = draw(5, 4)
    dynamo.mark_dynamic(x, 0, min=2, max=64)
    with torch.no_grad():
        dynamo.export(CASES["mixture"][0])(x).save(tmp_path / "m.fg")
    program = dynamo.load(tmp_path / "m.fg", backend="aot_eager")
    with torch.no_grad():
        for rows in (2, 7, 64):
            x = draw(rows, 4)
            torch.testing.assert_close(program(x), CASES["mixture"][0](x))
    with torch.no_grad(), pytest.raises(ProgramError, match="the most is 64"):
        program(draw(65, 4))
    assert "sizes" in str(program)


class Weighted(nn.Module):
    """A function of data and of a weight."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, x):
        return self.function(x, self.weight)


def picked(x, weight):
    y, mask = x * weight, x > 0
    return y[mask].exp(), (y[mask] * 2).sum()


def rows(x, weight):
    found = (x[:, 0] > 0).nonzero().squeeze(1)
    return (x[found] * weight).sin().sum(1), found


def scaled(x, weight):
    largest = x.abs().max().item()
    return (x * weight / largest).sum(), largest


def counted(x, weight):
    count = (x > 0).sum().item()
    torch._check(count > 0)
    torch._check(count < 100)
    return torch.zeros(count) + weight


GRADIENTS = {
    "mixture": Mixture,
    **{f.__name__: lambda f=f: Weighted(f) for f in (picked, rows, scaled, counted)},
}


def summed(result):
    found = [result] if isinstance(result, torch.Tensor) else result
    wanted = (t for t in found if isinstance(t, torch.Tensor) and t.requires_grad)
    return sum(t.sum() * (n + 1) for n, t in enumerate(wanted))


@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_their_gradients_are_eagers(name, backend, of_input, tmp_path):
    torch.manual_seed(0)
    dynamo.reset()
    model = GRADIENTS[name]()
    dynamo.export(model)(draw(8, 4).requires_grad_(of_input)).save(tmp_path / "m.fg")
    program = dynamo.load(tmp_path / "m.fg", backend=backend)
    for _ in range(3):
        x = draw(8, 4)
        x[0] = 1
        given = [x.clone().requires_grad_(of_input) for _ in range(2)]
        found, expected = program(given[0]), model(given[1])
        torch.testing.assert_close(found, expected)
        summed(found).backward(), summed(expected).backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)
        gradients = {key: one.grad for key, one in model.named_parameters()}
        ours = {key: one.grad for key, one in program.named_parameters()}
        torch.testing.assert_close(ours, gradients)
    with torch.no_grad():
        torch.testing.assert_close(program(x), model(x))


def test_forged_backwards_end_in_an_error_or_a_result(tmp_path):
    model, x = Mixture(), draw(8, 4)
    dynamo.export(model)(x).save(tmp_path / "m.fg")
    refused = 0
    for _, changed in forged(program_of(tmp_path / "m.fg"), seed=2, count=40):
        try:
            forge(tmp_path / "m.fg", tmp_path / "f.fg", changed)
            program = dynamo.load(tmp_path / "f.fg", backend="aot_eager")
        except ProgramError:
            refused += 1
            continue
        try:
            summed(program(x)).backward()
        except (RuntimeError, ValueError, TypeError, OverflowError, IndexError, AttributeError):
            pass  # torch's own
    assert refused > 20


def test_show_tells_of_them(tmp_path):
    saved("selected", tmp_path / "m.fg")
    text = str(dynamo.load(tmp_path / "m.fg", backend="aot_eager"))
    assert "[0]: float32[u0] on cpu" in text and "[1]: a number" in text


# -- forged files ---------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_sizes_that_are_said_to_be_equal_are_compared(backend, tmp_path):
    """A file that names two different counts alike does not have kernels read out of memory."""

    def two(x, y):
        return x[x > 0] * 2, y[y > 0] * 3

    path = tmp_path / "m.fg"
    dynamo.export(two)(draw(20), draw(20)).save(path)

    def alike(program):
        nodes = program["graphs"]["inference"]["nodes"]
        defining = [node for node in nodes if "data" in node]
        (_, first), second = defining[0]["data"][0], defining[-1]
        second["data"] = [[0, first]]
        products = [node for node in nodes if node.get("op") == "aten.mul.Tensor"]
        products[1]["args"] = [{"node": products[0]["name"]}, {"node": second["name"]}]

    loaded = dynamo.load(forge(path, tmp_path / "f.fg", edited(program_of(path), alike)),
                         backend=backend)  # fmt: skip
    x = torch.tensor([1.0, -1.0] * 10)
    assert loaded(x, x + 0.5)[1].shape == (10,)
    with pytest.raises(RuntimeError, match="Expected cond to be True|was compiled for"):
        loaded(x.abs(), x)


def test_forged_programs_end_in_an_error_or_a_result(tmp_path):
    refused = 0
    for name in ("mixture", "numbered", "promised"):
        _, arguments = saved(name, tmp_path / "m.fg")
        for _, changed in forged(program_of(tmp_path / "m.fg"), seed=1, count=40):
            try:
                forge(tmp_path / "m.fg", tmp_path / "f.fg", changed)
                program = dynamo.load(tmp_path / "f.fg", backend="aot_eager")
            except ProgramError:
                refused += 1
                continue
            try:
                program(*arguments(1))
            except (RuntimeError, ValueError, TypeError, OverflowError, IndexError):
                pass  # torch's own
    assert refused > 60


def test_bodies_of_control_flow_are_exported_and_not_saved(tmp_path):
    def fn(x):
        found = x[x > 0.1]
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + found.sum()

    exported = dynamo.export(fn)(torch.tensor([1.0, -1.0, 2.0]))
    for values in ([1.0, -1.0, 2.0], [-1.0, -2.0, -3.0]):
        x = torch.tensor(values)
        torch.testing.assert_close(exported(x), fn(x))
    with pytest.raises(ProgramError, match="cond decides with each call"):
        exported.save(tmp_path / "program.fg")


# -- branches --------------------------------------------------------------------------------------
def returns_either(x):
    if x.sum() > 0:
        return x * 2, x.sum()
    return x.sin(), x.sum() - 1


def branches_in_sides(x):
    y = x
    if y.norm() > 2:
        y = y / y.norm()
        if y[0] > 0:
            y = y * 2
    return y + 1, (y * 0.5 if y.mean() > 0 else y + 1)


def of_picked_rows(x):
    y = x[x > 0]
    if y.sum() > 2:
        return y * 2
    return y + 1


def masked_writes(x):
    result = torch.zeros_like(x)
    for number in range(3):
        mask = x.round() == number
        if mask.any():
            result[mask] = x[mask] * number
    return result


def guarded(x):
    """Where nothing is picked, the mean is NaN."""
    mask = x > 0
    mean = x[mask].mean()
    return x - (mean if mask.any() else x.min())


VALUES = [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.0, 0.0, 0.0], [0.5, math.nan, 1.0]]
BRANCHES = [returns_either, branches_in_sides, of_picked_rows, masked_writes, guarded]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", BRANCHES)
def test_branches_are_saved_as_choices(fn, backend, tmp_path):
    for first in (0, 1):
        exported = dynamo.export(fn)(torch.tensor(VALUES[first]))
        exported.save(tmp_path / "m.fg")
        program = dynamo.load(tmp_path / "m.fg", backend=backend)
        for values in VALUES:
            x = torch.tensor(values)
            for loaded in (exported, program):
                torch.testing.assert_close(loaded(x), fn(x), equal_nan=True)


def turns(x):
    while x.sum() > 1:
        x = x * 0.5
    return x


def picks_in_a_side(x):
    if x.sum() > 0:
        return x[x > 0].sum() + x
    return x * 2


def draws(x):
    if x.sum() > 0:
        return torch.nn.functional.dropout(x)
    return x * 2


def may_raise(x):
    if x.sum() > 0:
        y = x.index_select(0, x.argsort()) + 1
    else:
        y = x * 2
    return y


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (turns, "has another turn"),
        (picks_in_a_side, "sizes of its own"),
        (draws, "more than compute tensors"),
        (may_raise, "may raise"),
    ],
)
def test_other_branches_are_exported_and_not_saved(fn, text, tmp_path):
    exported = dynamo.export(fn)(torch.tensor(VALUES[0]))
    for values in VALUES[:2]:
        x = torch.tensor(values)
        torch.manual_seed(0)
        found = exported(x)
        torch.manual_seed(0)
        torch.testing.assert_close(found, fn(x))
    with pytest.raises(ProgramError, match=rf"{text}.*test_saved_data.*torch\.where"):
        exported.save(tmp_path / "m.fg")


def leaves_a_number(x):
    k = 2 if x.sum() > 0 else 3
    return x * k, k


def leaves_a_flag(x):
    mask, found = x > 0, False
    if mask.any():
        found = True
    return x * 2, [found]


def leaves_a_number_or_a_tensor(x):
    return x * 2, max(1e-3, x.sum())


@pytest.mark.parametrize("fn", [leaves_a_number, leaves_a_flag, leaves_a_number_or_a_tensor])
def test_numbers_that_a_branch_chooses_are_no_results(fn):
    """A file would hold the number of the exported call."""
    with pytest.raises(Unsupported, match=rf"DATA_DEPENDENT_JUMP(.|\n)*{fn.__name__}"):
        dynamo.export(fn)(torch.tensor(VALUES[0]))


def test_gradients_of_a_branch_are_not_saved(tmp_path):
    exported = dynamo.export(returns_either)(torch.ones(3, requires_grad=True))
    with pytest.raises(ProgramError, match=r"side that ran.*torch\.where"):
        exported.save(tmp_path / "m.fg", training=True)
    exported.save(tmp_path / "m.fg")
    program = dynamo.load(tmp_path / "m.fg")
    with pytest.raises(ProgramError, match="side that ran"):
        program(torch.ones(3, requires_grad=True))


def test_a_program_that_was_called_is_saved_as_captured(tmp_path):
    def fn(x):
        return x + 1, x.sum().item()

    exported = dynamo.export(fn)(torch.ones(3))
    assert type(exported(torch.zeros(3))[1]) is float
    exported.save(tmp_path / "m.fg")
    x = torch.tensor([1.0, 2.0, 5.0])
    torch.testing.assert_close(dynamo.load(tmp_path / "m.fg")(x), fn(x))
