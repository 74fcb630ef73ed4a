"""Exceptions that depend on the values of tensors: one graph, and eager's exception.

A program is run eagerly and captured, with arguments that pass and others that do not, and must
agree in results, exceptions, tracebacks, effects and random numbers; its number of graphs is exact.

PYTEST_DONT_REWRITE: the programs' assertions are Python's own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import traceback

import pytest
import torch

import dynamo
from dynamo.bytecode import normalize
from dynamo.bytecode.raising import good_side
from tests.dynamo.capturing import compiled, outcome, same

GOOD = torch.arange(4.0) + 0.5
BAD = torch.arange(4.0) - 1.5
LARGE = torch.ones(1 << 19)
LOG: list = []
TOTAL = 0


def registry():
    """The programs of a module, and the decorator that registers one with its number of graphs, the
    arguments of its calls and the number of breaks: one fewer than graphs unless given.
    """
    programs: list = []

    def program(graphs, *calls, breaks=None):
        def register(function):
            given = graphs - 1 if breaks is None else breaks
            case = (function, graphs, given, calls or ((GOOD,), (BAD,)))
            programs.append(pytest.param(*case, id=function.__name__))
            return function

        return register

    return programs, program


def frames_of(error):
    return [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)][1:]


def seen(function, args, capsys):
    global TOTAL
    LOG.clear()
    TOTAL = 0
    torch.manual_seed(0)
    args = copy.deepcopy(args)
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    result = outcome(function, args)
    assert modes == (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))
    raised = frames_of(result) if isinstance(result, BaseException) else None
    context = result.__context__ if isinstance(result, BaseException) else None
    shown = capsys.readouterr().out
    return result, raised, type(context), args, list(LOG), TOTAL, shown, torch.get_rng_state()


def checks_of(programs):
    @pytest.mark.parametrize(("function", "graphs", "breaks", "calls"), programs)
    def test_program(function, graphs, breaks, calls, capsys):
        capturing, captured = compiled(function)
        for args in calls:
            expected = seen(function, args, capsys)
            for _ in range(2):
                found = seen(capturing, args, capsys)
                for wanted, got in zip(expected, found):
                    assert same(wanted, got), f"{wanted!r} != {got!r}"
        assert len(captured.op_counts) == graphs, (captured.op_counts, captured.codes)
        assert len(captured.codes) == breaks, captured.codes

    return test_program


PROGRAMS, program = registry()


# -- the statements -------------------------------------------------------------------------------
class Nest:
    """A container of tensors that torch's functions take."""

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return cls(function(*(getattr(arg, "held", arg) for arg in args)))


@program(1)
def beside_an_object_that_overrides_torch(x):
    y = torch.add(Nest(x), 1).held
    if not (x > 0).all():
        raise ValueError("negative")
    return y.sqrt()


@program(1)
def asserted(x):
    y = x + 1
    assert (x > 0).all(), f"not positive: {x}"
    return y.log()


@program(1)
def raised_if(x):
    if (x < 0).any():
        raise ValueError("negative", x.sum())
    return x.sqrt()


@program(1)
def raised_unless(x):
    if not (x > 0).all():
        detail = [float(v) for v in x]
        raise KeyError(detail)
    return x * 2


@program(1)
def both_conditions(x):
    assert (x > 0).all() and (x < 100).all()
    return x * 2


@program(1, (GOOD,), (BAD,), (GOOD * 100,))
def one_after_the_other(x):
    assert (x > 0).all(), "first"
    y = x * 3
    assert y.max() < 50, "second"
    return y


@program(1)
def number(x):
    assert x.min().item() > 0
    return x * 2


@program(1, (GOOD, 3), (BAD, 3), (GOOD * 100, 3))
def number_against_an_argument(x, limit):
    size = x.long().max().item()
    assert size <= limit, size
    return x[:limit] * 2


@program(1)
def range_of_a_number(x):
    if not 0 < x.min().item() < 10:
        raise IndexError(x.min().item())
    return x + 1


@program(1)
def truth_kept(x):
    fine = not (x < 0).any()
    assert fine
    return x + 1


@program(1)
def truth_called(x):
    assert bool((x > 0).all())
    return x + 1


@program(1, (GOOD,), (GOOD * 0,))
def truth_of_a_number(x):
    assert x.sum()
    assert x.sum().item()
    return x + 1


@program(1, (torch.tensor(True), GOOD), (torch.tensor(False), GOOD))
def an_argument(flag, x):
    assert flag
    return x + 1


@program(1)
def with_a_cause(x):
    if (x < 0).any():
        raise ValueError("outer") from KeyError("inner")
    return x + 1


# -- where they stand -----------------------------------------------------------------------------
def positive(x):
    if not (x > 0).all():
        raise ValueError("inside")
    return x


def positive2(x):
    return positive(x * 2) + 1


@program(1)
def in_a_callee(x):
    return positive2(x) + positive(x + 1)


@program(1)
def in_a_loop(x):
    for i in range(3):
        assert (x + i > 0).all(), i
        x = x * 2
    return x


@program(1)
def in_a_comprehension(x):
    return [positive(x * i) for i in range(1, 3)]


@program(1)
def in_a_generator(x):
    def items():
        for i in range(2):
            assert (x + i > 0).all(), i
            yield x * i

    return sum(items())


@program(1)
def with_a_cell(x):
    scale = 3

    def scaled(y):
        return y * scale

    assert (x > 0).all()
    scale = 4
    return scaled(x)


@program(1, (GOOD, 1, 2), (BAD, 1, 2))
def many_parameters(x, /, *rest, scale=2, **named):
    assert (x > 0).all(), (rest, scale, named)
    return x * scale + sum(rest)


@program(1)
def inside_no_grad(x):
    with torch.no_grad():
        assert (x > 0).all()
        return x * 2


@program(1)
def inside_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x[None] @ x[:, None]
        assert (x > 0).all()
        return y + 1


@program(1)
def in_a_with_block(x):
    with contextlib.nullcontext():
        assert (x > 0).all()
        x = x * 2
    return x


@program(3, breaks=1)
def caught_in_the_frame(x):
    y = x + 1
    try:
        assert (x > 0).all()
    except AssertionError:
        return y * 3
    return y * 2


@program(1)
def caught_by_the_caller(x):
    try:
        return positive(x)
    except ValueError:
        LOG.append("caught")
        return x - 1


# -- what comes before and behind -----------------------------------------------------------------
@program(1)
def lists_change(x):
    LOG.append("before")
    assert (x > 0).all()
    LOG.append("behind")
    return x + 1


@program(1)
def globals_change(x):
    global TOTAL
    TOTAL = 1
    assert (x > 0).all()
    TOTAL = 2
    return x + 1


@program(1)
def prints(x):
    print("before")
    assert (x > 0).all()
    print("behind")
    return x + 1


class Box:
    def __init__(self, value):
        self.value = value


@program(1, (Box(1), GOOD), (Box(1), BAD))
def attributes_change(box, x):
    box.value = 2
    assert (x > 0).all()
    box.value = 3
    return x + box.value


@program(1)
def random_numbers_are_given_back(x):
    x = x + torch.rand(4)
    assert (x > 0).all()
    return x + torch.rand(4)


@program(1, (GOOD,), (BAD,), (GOOD * 9,))
def the_graph_fails_behind_it(x):
    """Eager raises the assertion's error, or else the indexing's, with the user's line."""
    assert (x > 0).all()
    return torch.arange(5.0)[x.long()]


@program(1)
def writes_to_an_input_behind_it(x):
    y = x * 2
    assert (x > 0).all()
    x.add_(1)
    return y


@program(1)
def writes_to_an_input_before_it(x):
    x.add_(1)
    assert (x > 0).all()
    return x * 2


@program(2, (LARGE,), (-LARGE,))
def writes_to_a_large_input(x):
    """Copies before each call would take longer than a break."""
    x.add_(1)
    assert (x > 0).all()
    return x * 2


@program(1)
def writes_to_a_part_of_an_input(x):
    """What is written back is what was written to, whatever else lies in that memory."""
    x[1:3].mul_(2)
    x.view(2, 2)[0].sub_(x[3])
    assert (x[:1] > -3).all()
    return x * 2


@program(1)
def writes_to_its_own_tensor(x):
    y = x.clone()
    y.add_(1)
    assert (x > 0).all()
    y.mul_(2)
    return y


@program(2)
def writes_to_what_is_checked(x):
    fine = (x > 0).all()
    assert fine
    fine.logical_not_()
    return x + 1, fine


@program(1)
def the_number_is_needed_later(x):
    size = x.sum().item()
    assert size > 0
    return x * size


@program(2, (GOOD,))
def a_key_of_a_dict(x):
    found = x.sum().item()
    if found in {1.5: 2}:
        raise KeyError(found)
    return x + 1


@program(1)
def the_truth_is_kept_in_a_list(x):
    fine = [bool((x > 0).all())]
    assert fine[0]
    return x + 1


@program(2)
def neither_side_only_raises(x):
    y = x + 1
    if (x > 0).all():
        return y
    if TOTAL:
        raise ValueError
    return y[:2] * 2


@program(2)
def a_break_behind_it(x):
    assert (x > 0).all()
    y = x * 2
    dynamo.graph_break()
    return y + 1


@program(2)
def a_break_before_it(x):
    y = x * 2
    dynamo.graph_break()
    assert (y > 0).all()
    return y + 1


class Checked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        assert (x > 0).all(), "of the module"
        return self.linear(x)


MODULE = Checked()


@program(1)
def in_a_module(x):
    return MODULE(x)


@program(1, (GOOD,))
def distributions_check_their_parameters(x):
    return torch.distributions.Normal(x, x, validate_args=True).log_prob(x)


@program(1, (BAD,))
def distributions_say_what_is_wrong(x):
    return torch.distributions.Normal(x, x, validate_args=True).log_prob(x)


test_program = checks_of(PROGRAMS)


def test_gradients_of_a_checked_graph():
    weight = torch.ones(4, requires_grad=True)
    capturing, captured = compiled(asserted)
    capturing(weight * GOOD).sum().backward()
    found, weight.grad = weight.grad, None
    asserted(weight * GOOD).sum().backward()
    assert torch.equal(found, weight.grad) and len(captured.op_counts) == 1


def test_fullgraph():
    """A check is no graph break."""
    capturing, _ = compiled(asserted, fullgraph=True)
    assert torch.equal(capturing(GOOD), asserted(GOOD))
    with pytest.raises(AssertionError, match="not positive"):
        capturing(BAD)


def test_a_number_that_is_used_behind_its_check():
    capturing, captured = compiled(the_number_is_needed_later, fullgraph=True)
    assert torch.equal(capturing(GOOD), the_number_is_needed_later(GOOD))
    with pytest.raises(AssertionError):
        capturing(BAD)
    assert len(captured.op_counts) == 1


def test_regions_without_breaks():
    @dynamo.error_on_graph_break(True)
    def region(x):
        size = x.sum().item()
        assert size > 0
        return x * size

    capturing, _ = compiled(lambda x: region(x) + 1)
    with pytest.raises(dynamo.errors.Unsupported, match="error_on_graph_break"):
        capturing(GOOD)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backends(backend):
    compiled_function = dynamo.compile(functools.partial(positive2), backend=backend)
    assert torch.allclose(compiled_function(GOOD), positive2(GOOD))
    with pytest.raises(ValueError, match="inside") as caught:
        compiled_function(BAD)
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["positive2", "positive"]


def test_exports_break_at_a_check():
    """An exported graph would leave the check out."""
    with pytest.raises(dynamo.errors.Unsupported, match="value of a tensor"):
        dynamo.export(asserted)(GOOD)


def test_comparisons_are_pythons():
    """Numbers beyond what the tensor's dtype, or a double, holds are compared exactly."""
    for value, limit in [(0.1, 0.1), (1 / 3, 1 / 3), (2.0**53, 2**53 + 1), (float("nan"), 1.0)]:
        for dtype in (torch.float32, torch.float64):

            def checked(x):
                if x.max().item() >= limit:  # noqa: B023
                    raise ValueError
                return x + 1

            x = torch.tensor([value], dtype=dtype)
            capturing, _ = compiled(checked)
            assert same(outcome(checked, [x]), outcome(capturing, [x])), (value, limit, dtype)
    for value, limit in [(3, 2.5), (3, 2**70), (-3, 2.0), (2**62 + 1, 2.0**62)]:

        def compared(x):
            assert x.max().item() <= limit  # noqa: B023
            return x + 1

        x = torch.tensor([value])
        capturing, _ = compiled(compared)
        assert same(outcome(compared, [x]), outcome(capturing, [x])), (value, limit)


# -- the analysis ---------------------------------------------------------------------------------
def test_good_side():
    def sides(function):
        jumps = [i for i in normalize(function.__code__) if i.op.startswith("POP_JUMP_IF_")]
        found = [good_side(function.__code__, i) for i in jumps]
        return [side for i, side in zip(jumps, found)]

    assert None not in sides(asserted)[:1] and None not in sides(raised_if)[:1]
    assert sides(neither_side_only_raises)[0] is None
    assert set(sides(caught_in_the_frame)) == {None}
