"""A graph that fails alone, where the frame runs again eagerly and eager execution goes through."""

import contextlib
import traceback
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dynamo
from dynamo.framestate import check_codegen
from tests.dynamo.capturing import compiled, outcome, same
from tests.dynamo.test_checks import GOOD, LOG
from tests.dynamo.test_checks_operations import FITS, TOO_FAR, index_caught, index_suppressed


def in_a_try_block(x, rows):
    try:
        return x[rows] + 1
    finally:
        LOG.append("left")


def in_a_with_block(x, rows):
    with torch.no_grad():
        return x[rows] + 1


def checked_first(x, rows):
    if (x > 100).any():
        raise ValueError("too large")
    return x + 1


@pytest.mark.parametrize("function", [in_a_try_block, in_a_with_block, checked_first])
def test_a_backend_that_fails_alone_is_told_of_once_where_eager_has_the_last_word(function):
    def backend(module, examples):
        def run(*inputs):
            raise ArithmeticError("wrong code")

        return run

    program = dynamo.compile(function, backend=backend)
    expected = function(GOOD, FITS)
    with pytest.warns(RuntimeWarning, match=f"(?s){function.__name__}.*wrong code") as caught:
        results = [program(GOOD, FITS), program(GOOD, FITS)]
    assert all(same(expected, result) for result in results)
    assert len(caught) == 1


def test_what_the_program_catches_is_no_fault():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (index_caught, index_suppressed):
            found = outcome(dynamo.compile(function, backend="eager"), (GOOD, TOO_FAR))
            assert same(outcome(function, (GOOD, TOO_FAR)), found)


# -- checkpoints behind what may fail -------------------------------------------------------------
def embeds_and_checkpoints(table, rows):
    """As decoders of transformers train with gradient checkpointing."""
    try:
        hidden = table[rows]
        return checkpoint(
            lambda h: torch.nn.functional.dropout(h.sin() * table[0], 0.5),
            hidden,
            use_reentrant=False,
        )
    finally:
        LOG.append("left")


def indexes_in_a_checkpoint(table, rows):
    try:
        return checkpoint(lambda t: (t * 2)[rows], table, use_reentrant=False)
    except IndexError:
        LOG.append("caught")
        return table * 3


def writes_in_a_checkpoint(table, rows, count):
    def body(t):
        count.add_(1)
        return t * t

    try:
        hidden = checkpoint(body, table, use_reentrant=False)
        return hidden[rows]
    except IndexError:
        return table * 3


@pytest.mark.parametrize(
    ("function", "breaks"),
    [
        (embeds_and_checkpoints, 0),
        (indexes_in_a_checkpoint, 0),
        (writes_in_a_checkpoint, 1),
    ],
)
@pytest.mark.parametrize("rows", [[0, 2], [0, 7]])
def test_checkpoints_beside_operations_that_may_fail(function, breaks, rows):
    def outcome(program):
        table = torch.arange(12.0).reshape(4, 3).requires_grad_()
        count = torch.zeros(())
        extra = (count,) if function is writes_in_a_checkpoint else ()
        LOG.clear()
        torch.manual_seed(0)
        try:
            result = program(table, torch.tensor(rows), *extra)
        except IndexError as error:
            return str(error), *LOG
        result.sum().backward()
        return result.tolist(), table.grad.tolist(), count.item(), torch.rand(1).item(), *LOG

    compiled = dynamo.compile(function, backend="eager")
    assert outcome(compiled) == outcome(function)
    assert sum(len(record.breaks) for record in compiled.context.records) == breaks


# -- writes that are undone ----------------------------------------------------------------------
class Normed(torch.nn.Module):
    """As graph layers aggregate: batch norm writes its statistics, then an index may fail."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.rows = torch.nn.Embedding(4, 3)

    def forward(self, x, rows):
        try:
            return self.norm(self.norm(x) + self.rows(rows))
        except IndexError:
            return self.rows.weight * 2


def whole_step(model, optimizer, x, rows):
    try:
        loss = model(x, rows).square().sum()
        loss = loss + model.rows.weight[rows].sum()
    except IndexError:
        loss = model.rows.weight.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("trains", [False, True])
def test_what_a_failed_graph_wrote_is_undone(backend, trains):
    def outcome(wrap):
        torch.manual_seed(0)
        model = Normed()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        program = wrap(whole_step if trains else model)
        found = []
        for rows in ([0, 2, 3], [0, 2, 7], [1, 1, 1], [-9, 0, 0]):
            args = torch.randn(3, 3), torch.tensor(rows)
            found.append(program(model, optimizer, *args) if trains else program(*args))
            found += [value.clone() for value in model.state_dict().values()]
            found += [state["momentum_buffer"].clone() for state in optimizer.state.values()]
        return [value.detach() for value in found]

    expected = outcome(lambda program: program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = outcome(lambda program: dynamo.compile(program, backend=backend))
    torch.testing.assert_close(actual, expected)


def test_a_normalisation_before_what_may_fail_is_in_its_graph():
    capturing, captured = compiled(lambda model, x, rows: model(x, rows))
    model = Normed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what the program catches is no fault, in callees, too
        for rows in ([0, 2, 3], [0, 2, 7]):
            capturing(model, torch.randn(3, 3), torch.tensor(rows))
    assert (len(captured.op_counts), captured.codes) == (1, [])


def writes_through_a_view(x, total, rows):
    total.add_(1)
    total[1:].mul_(2)
    try:
        return x[rows] + total
    except IndexError:
        return x * total.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_memory_and_versions_are_as_before(backend):
    def outcome(program):
        found, base = [], torch.arange(6.0)
        for rows in ([0, 1, 2], [0, 1, 9], [2, 2, 2], [-7, 0, 1]):
            result = program(torch.full((3,), 2.0), base[:3], torch.tensor(rows))
            found += [result.tolist(), base.tolist(), base._version]
        with torch.inference_mode():  # its tensors have no versions
            total = torch.arange(3.0)
            found += [program(torch.ones(3), total, torch.tensor([0, 1, 8])).tolist()]
            return [*found, total.tolist()]

    program = dynamo.compile(writes_through_a_view, backend=backend)
    assert outcome(program) == outcome(writes_through_a_view)


def writes_through_data(x, rows):
    x.data.add_(1)
    try:
        return x[rows] + 1
    except IndexError:
        return x * 10


def checks_before_data_is_written(x, rows):
    if not rows.all():
        raise ValueError("zero")
    x.data.add_(rows)
    return x * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [writes_through_data, checks_before_data_is_written])
def test_writes_through_data_are_undone(function, backend):
    for program in (function, dynamo.compile(function, backend=backend)):
        found = []
        for rows in ([1, 2, 1], [1, 9, 0], [2, 2, 2], [-7, 0, 1]):
            x = torch.arange(3.0)
            try:
                found.append(program(x, torch.tensor(rows)).tolist())
            except ValueError as error:
                found.append(str(error))
            found.append(x.tolist())
        if program is function:
            expected = found
    assert found == expected


def checks_what_another_input_is_written_with(flag, flags):
    if not flag:
        raise ValueError("off")
    flags.fill_(True)
    return flags.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_check_of_memory_that_is_written_behind_it(backend):
    program = dynamo.compile(checks_what_another_input_is_written_with, backend=backend)
    for on in (True, False, True, False):
        flags = torch.tensor([on, False, False])
        if on:
            assert program(flags[0], flags) == 3
        else:
            with pytest.raises(ValueError, match="off"):
                program(flags[0], flags)
            assert not flags.any()


@pytest.mark.parametrize("always", [False, True])
def test_a_step_of_a_module_with_hooks_copies_nothing(always, monkeypatch):
    """It writes behind all that may fail."""
    copied = []
    monkeypatch.setattr(check_codegen, "save_written", lambda *tensors: copied.extend(tensors))
    model = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Linear(2, 2))
    model.register_forward_hook(lambda *args: None, always_call=always)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(rows):
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()

    program, captured = compiled(step)
    for _ in range(2):
        program(torch.tensor([0, 2]))
    assert copied == []
    assert captured.codes == []


# -- what cleans up behind a failure ---------------------------------------------------------------
class Leaving:
    def __init__(self, catches):
        self.catches = catches

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        LOG.append(kind)
        return self.catches


@contextlib.contextmanager
def leaving():
    try:
        yield
    finally:
        LOG.append("left")


class LeavingAsync(Leaving):
    async def __aenter__(self):
        return self

    async def __aexit__(self, *args):
        return self.__exit__(*args)


def in_finally(x, rows):
    try:
        return x[rows]
    finally:
        x.mul_(2)
        LOG.append("left")


def returns_in_finally(x, rows):
    y = x + 1
    try:
        y = x[rows]
    finally:
        return y  # noqa: B012


def suppressed(x, rows):
    y = x + 1
    with contextlib.suppress(IndexError):
        y = x[rows]
    return y


def manager_that_catches(x, rows):
    y = x + 1
    with Leaving(True):
        y = x[rows]
    return y


def manager_that_does_not(x, rows):
    with Leaving(False):
        return x[rows]


def generator_that_cleans_up(x, rows):
    with leaving():
        return x[rows]


def stack_of_managers(x, rows):
    y = x + 1
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(IndexError))
        stack.callback(LOG.append, "left")
        y = x[rows]
    return y


def asynchronous_manager(x, rows):
    async def body():
        async with LeavingAsync(True):
            return x[rows]
        return x + 5

    try:
        body().send(None)
    except StopIteration as stop:
        return stop.value


def nobody_cleans_up(x, rows):
    LOG.append("before")
    return x[rows]


def cleans_up_before_it_writes_more(x, rows):
    with Leaving(False):
        y = x[rows]
    x.add_(7)
    return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("trains", [False, True])
def test_cleaning_up_behind_what_failed_after_a_write(backend, trains):
    def outcome(program, rows):
        LOG.clear()
        base = torch.arange(3.0, requires_grad=trains)
        x = base * 1
        try:
            result = program(x, torch.tensor(rows)).tolist()
        except IndexError as error:
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__)]
            result = [str(error), lines[-1]]
        return result, x.tolist(), x._version, list(LOG)

    for function in (
        in_finally,
        returns_in_finally,
        suppressed,
        manager_that_catches,
        manager_that_does_not,
        generator_that_cleans_up,
        stack_of_managers,
        asynchronous_manager,
        *([] if trains else [nobody_cleans_up]),  # what has a history cannot be written back
        cleans_up_before_it_writes_more,
    ):

        def writes_first(x, rows, function=function):
            x.add_(1)
            return function(x, rows)

        program = dynamo.compile(writes_first, backend=backend)
        for rows in ([0, 2], [0, 9], [1, 1], [-7, 0]):
            wanted = outcome(writes_first, rows)
            assert outcome(program, rows) == wanted, (function, rows)


def test_managers_of_torch_clean_up_nothing():
    """What is written before need not be copied, however large."""

    def step(large, x, rows):
        large.add_(1)
        with torch.no_grad(), torch.autocast("cpu"), torch.profiler.record_function("rows"):
            with contextlib.nullcontext():
                return x[rows] + large[0]

    program, captured = compiled(step)
    program(torch.zeros(1 << 19), torch.ones(3), torch.tensor([0, 2]))
    assert (len(captured.op_counts), captured.codes) == (1, [])


def test_a_step_in_a_manager_of_the_users_is_one_graph():
    """Its large writes are behind what may fail."""

    def step(large, x, rows):
        with Leaving(False):
            y = x[rows] + large[0]
        large.add_(1)
        return y

    program, captured = compiled(step)
    program(torch.zeros(1 << 19), torch.ones(3), torch.tensor([0, 2]))
    assert (len(captured.op_counts), captured.codes) == (1, [])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_failing_step_leaves_what_eagers_leaves(backend):
    def outcome(wrap):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(rows):
            optimizer.zero_grad()
            LOG.append("begun")
            loss = model(rows).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        LOG.clear()
        program, values, found = wrap(step), [], []
        for rows in ([0, 2], [1, 9], [1, 1]):
            try:
                values.append(program(torch.tensor(rows)))
            except IndexError as error:
                names = [f.name for f in traceback.extract_tb(error.__traceback__)]
                found += [str(error), "forward" in names]
            values += [p.detach().clone() for p in model.parameters()]
            values += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            found += [(p._version, p.grad is None) for p in model.parameters()]
        return values, [*found, *LOG]

    expected = outcome(lambda step: step)
    actual = outcome(lambda step: dynamo.compile(step, backend=backend))
    torch.testing.assert_close(actual[0], expected[0])
    assert actual[1] == expected[1]


# -- libraries that set their state back ----------------------------------------------------------
_LIBRARY = """
STATE = ["before"]

def restores(keys, values, places, rows):
    STATE[0] = "inside"
    try:
        keys.index_copy_(0, places, rows)
        values.index_copy_(0, places, rows + 1)
        return keys + values
    finally:
        STATE[0] = "before"
"""


@pytest.mark.parametrize("library, graphs", [("transformers.of_a_test", 1), ("of_a_user", 2)])
def test_a_library_that_sets_its_state_back(library, graphs):
    """As transformers around the layers of a model, whose caches are too large to be copied."""
    space = {"__name__": library}
    exec(_LIBRARY, space)  # noqa: S102
    ran = []
    program = dynamo.compile(
        space["restores"], backend=lambda module, _: lambda *a: (ran.append(1), module(*a))[1]
    )
    rows, places = torch.randn(2, 1024), torch.tensor([1, 511])
    ours, theirs = ([torch.zeros(512, 1024) for _ in range(2)] for _ in range(2))
    for _ in range(2):
        expected = space["restores"](*theirs, places, rows)
        assert torch.equal(program(*ours, places, rows), expected)
        assert all(map(torch.equal, ours, theirs))
    assert len(ran) == 2 * graphs
    for function, caches in ((program, ours), (space["restores"], theirs)):
        with pytest.raises(IndexError, match="index 512 is out of bounds"):
            function(*caches, places + 1, rows)
    assert space["STATE"] == ["before"] and all(map(torch.equal, ours, theirs))
