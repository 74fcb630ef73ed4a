"""What capture assumes must hold at every later call: orders of sets, warnings, aliases, skipped
frames.
"""

from __future__ import annotations

import dis
import functools
import gc
import logging
import sys
import warnings
import weakref

import pytest
import torch

import dynamo
from dynamo.bytecode.emit import Emitter
from tests.dynamo.capturing import check, compiled, outcome, same

X = torch.arange(3.0)


# -- the order of sets ----------------------------------------------------------------------------
SET_PROGRAMS = {
    "literal": "s = {16, 8, 0, 24}",
    "colliding literal": "s = {5, 75, 109}",
    "colliding list": "s = set([160, 116, 76, 151])",
    "built": "s = {a, b, 0, 24}",
    "grown": "s = set()\nfor i in (33, 1, 65, 97, 0, 32, 64): s.add(i)",
    "of list": "s = set([40, 8, 0, 32, 16])",
    "of dict": "s = set(dict.fromkeys([40, 8, 0, 32, 16]))",
    "of set": "s = set({40, 8, 0, 32, 16})",
    "removed": "s = {8, 0, 16}\ns.remove(8)\ns.add(8)\ns.discard(0)\ns.add(0)",
    "union": "s = {16, 8} | {0, 24}",
    "or": "s = {16, a}\ns |= {b, 0}",
    "and": "s = {16, 8, 0} & {0, 8, a}",
    "xor": "s = {16, 8, 0} ^ {0, 24, 32}",
    "update": "s = {16}\ns.update([8, 0], {24: 1, 32: 2}, {40})",
    "comprehension": "s = {i * 8 for i in (3, 2, 1, 0)}",
    "frozen": "s = frozenset([24, 8, 0])",
    "strings": "s = {'alpha', 'beta', 'gamma'} | {'delta', 'epsilon'}",
    "tuples": "s = {(1, 2), (3, 'a'), (None, 2.5)}",
    "types": "s = {int, float, str}",
    "keys": "s = {40: 1, 8: 1, 0: 1}.keys() | {32, 16}",
    "keys and": "s = {40: 1, 8: 1, 0: 1}.keys() & {0, 8}",
    "keys sub": "s = {40: 1, 8: 1, 0: 1}.keys() - [8]",
    "popped": "s = {8, 0, 16}\nt = s.pop()\ns.add(t + 8)",
    "copy": "s = {8, 0, 16}.copy()",
}


@pytest.mark.parametrize("name", SET_PROGRAMS)
def test_sets_iterate_in_the_real_order(name):
    body = SET_PROGRAMS[name].replace("\n", "\n    ")
    namespace = {}
    exec(f"def f(x, a, b):\n    {body}\n    return x + 1, list(s), s", namespace)  # noqa: S102
    function = namespace["f"]
    expected = function(X, 16, 8)
    capturing, captured = compiled(function)
    for _ in range(2):
        result = capturing(X, 16, 8)
        assert result[1] == expected[1]
        assert list(result[2]) == list(expected[2])
    assert captured.op_counts == [1]
    assert captured.codes == []


def test_an_order_that_cannot_be_made_again_breaks():
    def f(x):
        y = x + 1
        s = set(range(100))
        s -= {i for i in range(100) if i not in (7, 8)}
        return y * 2, list(s), s

    function, captured = compiled(f)
    assert list(function(X)[2]) == list(f(X)[2]) == function(X)[1]
    assert "CANNOT_RECONSTRUCT" in captured.codes


def test_equal_sets_from_outside_in_another_order():
    def f(x, s):
        return x + 1, [i * 2 for i in s]

    function, _ = compiled(f)
    for s in ({0, 8}, {8, 0}, frozenset([8, 0]), {0, 8}):
        assert function(X, s)[1] == f(X, s)[1]


def test_a_set_from_outside_keeps_its_order_when_changed():
    def f(x, s):
        s.add(40)
        s.discard(8)
        return x + 1

    function, _ = compiled(f)
    for members in ([0, 8, 16], [16, 8, 0]):
        mine, theirs = set(members), set(members)
        f(X, mine)
        function(X, theirs)
        assert list(mine) == list(theirs)


def test_a_changed_set_from_outside_breaks_where_it_is_iterated():
    def f(x, s):
        y = x + 1
        s.add(40)
        return y * 2, list(s)

    for members in ([0, 8, 16], [16, 8, 0]):
        function, captured = compiled(f)
        assert function(X, set(members))[1] == f(X, set(members))[1]
        assert captured.codes == ["SET_ORDER"]


def test_sets_of_tensors_break_where_they_are_iterated():
    def f(x, y, z):
        s = {x, y, z}
        n = len(s)
        first = x in s
        return [t + n for t in s], first

    def g(x, y, z):
        return sorted({x, y, z}, key=lambda t: t.sum().item()), x * 2

    args = [X, X + 1, X + 2]
    for program in (f, g):
        function, captured = compiled(program)
        expected, result = program(*args), function(*args)
        assert all(torch.equal(a, b) for a, b in zip(expected[0], result[0]))
        assert "SET_ORDER" in captured.codes


def test_a_set_of_one_tensor_has_an_order():
    def f(x):
        return [t + 1 for t in {x}]

    check(f, X, ops=[1])


# -- inputs that are, or share memory with, other inputs ------------------------------------------
class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 4.0))
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        same = x is self.weight or x is self.count
        self.count += 1
        return x * self.weight + self.count, same


class Grown(Scaled):
    def forward(self, x):
        x += 1
        return x * self.weight + self.count, self.weight * 2


BACKENDS = ("eager", "aot_eager", "inductor")
SHARING = {
    "own": lambda m: torch.ones(3),
    "parameter": lambda m: m.weight,
    "buffer": lambda m: m.count,
    "view of the parameter": lambda m: m.weight.data[:],
    "view of the buffer": lambda m: m.count[:],
    "part of the buffer": lambda m: m.count.view(3)[:1],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("module", [Scaled, Grown])
@pytest.mark.parametrize("first", SHARING)
def test_inputs_that_are_parameters_or_buffers(module, first, backend):
    eager, other = module(), module()
    compiled_module = dynamo.compile(other, backend=backend)
    with torch.no_grad():
        for name in (first, *SHARING):
            expected = eager(SHARING[name](eager))
            result = compiled_module(SHARING[name](other))
            torch.testing.assert_close(result, expected, msg=lambda text: f"{name}: {text}")
            for key, value in eager.state_dict().items():
                torch.testing.assert_close(other.state_dict()[key], value)


def write_first(x, y):
    x.add_(y.flip(0))
    return x * y, y + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_that_overlap_in_memory(backend):
    function = dynamo.compile(write_first, backend=backend)
    offsets = [(0, 8), (0, 0), (0, 1), (1, 0), (0, 4), (2, 3)]
    for i, j in offsets:
        one, other = torch.arange(16.0), torch.arange(16.0)
        expected = write_first(one[i : i + 4], one[j : j + 4])
        result = function(other[i : i + 4], other[j : j + 4])
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_strided_input_that_interleaves(backend):
    function = dynamo.compile(write_first, backend=backend)
    for j in (1, 0, 1):
        one, other = torch.arange(8.0), torch.arange(8.0)
        torch.testing.assert_close(
            function(other[::2], other[j::2]), write_first(one[::2], one[j::2])
        )
        torch.testing.assert_close(other, one)


# -- frames without tensor operations -------------------------------------------------------------
def either(x, flag):
    if not flag:
        return x
    return torch.relu(x) + 1


def test_a_first_call_without_operations_does_not_skip_the_function():
    function, captured = compiled(either)
    assert function(X, False) is X
    assert captured.op_counts == []
    assert torch.equal(function(X, True), X + 1)
    assert captured.op_counts == [2]
    assert function(X, False) is X
    assert torch.equal(function(X, True), X + 1)
    assert captured.op_counts == [2]


def test_nor_a_first_call_that_raises():
    def f(x):
        if x.ndim != 1:
            raise ValueError(f"{x.ndim} dimensions")
        return x + 1

    function, captured = compiled(f)
    for _ in range(2):
        with pytest.raises(ValueError, match="2 dimensions"):
            function(X[None])
    assert torch.equal(function(X), X + 1)
    assert captured.op_counts == [1]


def test_a_function_called_after_a_break_gets_its_chance_too():
    def f(x, flag):
        print(end="")
        return either(x, flag)

    def g(x, flag):
        h = either
        print(end="")
        return [h(x, flag), print(end=""), h(x, flag)]

    for program in (f, g):
        function, captured = compiled(program)
        function(X, False)
        before = sum(captured.op_counts)
        function(X, True)
        assert sum(captured.op_counts) > before


def test_calls_without_operations_never_warn_of_the_recompile_limit():
    def f(x, n):
        return n * 2

    function, captured = compiled(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [function(X, n) for n in range(30)] == [n * 2 for n in range(30)]
    assert not captured.context.records


@pytest.mark.parametrize("kind", ["result", "slice", "view"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_results_of_operations_as_inputs_warn_of_no_gradient(kind: str, dynamic: bool | None):
    """Torch warns whoever asks a tensor for a gradient that cannot be there."""

    def f(x):
        x.add_(1.0)
        return x.sum()

    made = {"result": lambda x: x, "slice": lambda x: x[::2], "view": lambda x: x.view(2, 2)}[kind]
    x = torch.ones(4, requires_grad=True)
    expected, inner = f(made(x + 0)), made(x + 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(dynamo.compile(f, dynamic=dynamic, backend="aot_eager")(inner), expected)


def test_the_recompile_limit_is_no_error_where_warnings_are(caplog) -> None:
    compiled = dynamo.compile(lambda x, text: (x + 1, text), backend="eager", recompile_limit=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(4):
            assert compiled(torch.ones(2), str(number))[1] == str(number)
    assert "was compiled 2 times" in caplog.text


def test_calls_that_raise_do_not_use_up_the_recompile_limit():
    from dynamo.config import config

    def f(x, n):
        if n < 100:
            raise ValueError(n)
        return x + n

    function, captured = compiled(f)
    for n in range(config.recompile_limit + 2):
        with pytest.raises(ValueError, match=f"^{n}$"):
            function(X, n)
    assert torch.equal(function(X, 100), X + 100)
    assert captured.op_counts == [1]


def test_a_first_call_that_raises_says_nothing_of_others():
    table = {"one": 1.0}

    def f(x, key):
        return x * table[key]

    function, captured = compiled(f)
    for key in "abc":
        with pytest.raises(KeyError, match=key):
            function(X, key)
    assert torch.equal(function(X, "one"), X)
    assert captured.op_counts == [1]


def test_the_original_code_serves_only_numbers_like_those_seen():
    def f(x, n):
        return x if n < 10 else x * n

    function, captured = compiled(f)
    for n in range(4):
        assert function(X, n) is X
    assert not captured.op_counts
    assert torch.equal(function(X, 10), X * 10)
    assert len(captured.op_counts) == 1


def test_a_function_that_only_raises_is_left_in_the_end():
    from dynamo.config import config

    def f(x, n):
        raise ValueError(n)

    function, captured = compiled(f)
    with config.patch(recompile_limit=2, automatic_dynamic_shapes=False):
        for n in range(12):
            with pytest.raises(ValueError, match=f"^{n}$"):
                function(X, n)
    assert captured.codes[-1] == "RAISING_CALLS"
    assert captured.codes.count("RAISING_CALLS") == 1


def test_the_original_code_as_an_entry_does_not_keep_the_context():
    def f(x, flag):
        return x if not flag else x + 1

    function, captured = compiled(f)
    function(X, False)
    context = weakref.ref(captured.context)
    del function, captured
    gc.collect()
    assert context() is None


# -- warnings, logging, caches --------------------------------------------------------------------
def warns(x, kind=UserWarning):
    warnings.warn("old", kind, stacklevel=2)
    return x * 2


def warn_at_three_levels(x):
    y = warns(x + 1)
    warnings.warn(FutureWarning("here"))
    warnings.warn("above", stacklevel=2)
    return y * 2


def warn_after_a_break(x):
    y = x + 1
    print(end="")
    warnings.warn("here")
    warnings.warn("above", DeprecationWarning, stacklevel=2)
    return y * 2


def warn_in_try(x):
    y = x + 1
    try:
        with torch.no_grad():
            warnings.warn("caught")
    except UserWarning:
        y = y * 3
    return y


def warn_in_with(x):
    with torch.no_grad():
        warnings.warn("here")
        return x + 1


def warn_with_a_filter(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = warns(x + 1)
        y = warns(y + 1, FutureWarning)
    warnings.warn("after")
    return y, [str(w.message) for w in caught]


def warn_what_it_refuses(x):
    y = x + 1
    warnings.warn("no", int)
    return y


def shown(function, action, registry_of=globals()):
    registry_of.pop("__warningregistry__", None)
    calls = []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            try:
                result = function(X)
            except Exception as error:
                result = repr(error)
        result = [r.tolist() if isinstance(r, torch.Tensor) else r for r in (result,)]
        calls.append((result, [(str(w.message), w.category, w.lineno, w.filename) for w in caught]))
    return calls


@pytest.mark.parametrize("action", ["always", "ignore", "default", "module", "error"])
@pytest.mark.parametrize(
    ("program", "breaks"),
    [
        (warn_at_three_levels, 0),
        (warn_after_a_break, 1),
        (warn_in_try, 1),
        (warn_in_with, 0),
        (warn_with_a_filter, None),
        (warn_what_it_refuses, 1),
    ],
)
def test_warnings_are_given_at_every_call(program, breaks, action):
    function, captured = compiled(program)
    if program is warn_with_a_filter:
        result = [(str(r), w) for r, w in shown(function, action)]
        assert result == [(str(r), w) for r, w in shown(program, action)]
        return
    assert shown(function, action) == shown(program, action)
    assert len(captured.codes) == breaks or action == "error"


def recorded_inside(x, seen):
    with warnings.catch_warnings(record=True) as inside:
        warnings.simplefilter("always")
        warnings.warn("once")
        return x + len(inside)


def recorded_in_an_argument(x, seen):
    warnings.warn("once")
    return x + len(seen)


def shown_by_the_program(x, seen):
    before = warnings.showwarning
    warnings.showwarning = lambda *args: seen.append(args)
    try:
        warnings.warn("once")
    finally:
        warnings.showwarning = before
    return x + len(seen)


@pytest.mark.parametrize(
    "program", [recorded_inside, recorded_in_an_argument, shown_by_the_program]
)
@pytest.mark.parametrize("first", [False, True])
def test_warnings_are_there_when_the_program_reads_them(program, first):
    function, _ = compiled(program)
    if first:  # compiled where nothing is recorded in the argument
        function(X, [])
    for run in (program, function):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert torch.equal(run(X, seen), X + 1), run


def test_logging_is_never_lost(caplog):
    logger = logging.getLogger("test_soundness")

    def f(x):
        y = x + 1
        logger.warning("value %d", 3)
        return y * 2

    function, captured = compiled(f)
    for _ in range(3):
        function(X)
    assert [record.getMessage() for record in caplog.records] == ["value 3"] * 3
    assert set(captured.codes) == {"UNCAPTURED_CALL"}


def test_cached_functions():
    made, told = [], []

    @functools.lru_cache
    def factor(n):
        made.append(n)
        return n + 1

    @functools.lru_cache
    def mask(n):
        return torch.ones(n).tril() if n < 0 else torch.ones(n)

    @functools.lru_cache
    def tell_once(key, text):
        told.append(text)

    class Key:
        pass

    key = Key()

    def f(x, key):
        tell_once(key, "hello")
        return x * factor(3) + mask(3)

    function, captured = compiled(f)
    for _ in range(3):
        assert torch.equal(function(X, key), X * 4 + 1)
    assert made == [3]
    assert told == ["hello"]
    mask(3).fill_(5)
    assert torch.equal(function(X, key), X * 4 + 5)


# -- loads of parameters --------------------------------------------------------------------------
class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))

    def forward(self, x):
        return self.inner(x)


def test_modules_on_the_way_to_parameters_are_fetched_once(monkeypatch):
    codes = []
    assemble = Emitter.assemble

    def recorded(self, *args, **kwargs):
        codes.append(assemble(self, *args, **kwargs))
        return codes[-1]

    monkeypatch.setattr(Emitter, "assemble", recorded)
    module = Block().eval()

    def f(x, scale):
        y = module(x) * scale["a"]["b"] + scale["a"]["c"]
        print(end="")
        return y, [name for name in locals_of() if name.startswith("__base")]

    function, _ = compiled(f)
    scale = {"a": {"b": X, "c": X}}
    with torch.no_grad():
        for _ in range(2):
            result, kept = function(X, {"a": {"b": X, "c": X + 1}})
            assert torch.equal(result, module(X) * X + (X + 1))
            assert torch.equal(function(X, scale)[0], f(X, scale)[0])
    assert kept == []
    names = [i.argval for i in dis.get_instructions(codes[0])]
    assert names.count("inner") == 1
    assert names.count("_parameters") == 4


def locals_of():
    return sys._getframe(1).f_locals


# -- instructions that raise while capturing ------------------------------------------------------
class Unsteady:
    """Raises while it is captured and at the first calls."""

    def __init__(self) -> None:
        self.calls = 0

    @property
    def value(self):
        self.calls += 1
        if self.calls <= 3:
            raise ValueError("early")
        return 7


def reads_unsteady(x, unsteady):
    y = x + 1
    return y * unsteady.value


def reads_key(x, items):
    y = x + 1
    try:
        return y * items["k"]
    except KeyError:
        return y * 0


def finds(x, items):
    y = x + 1
    return y * items.index(2)


def test_what_raised_while_capturing_goes_on_when_it_does_not_raise():
    eager, other = Unsteady(), Unsteady()
    function, _ = compiled(reads_unsteady)
    for _ in range(6):
        expected, result = outcome(reads_unsteady, (X, eager)), outcome(function, (X, other))
        assert same(expected, result)
        assert eager.calls == other.calls


@pytest.mark.parametrize(
    ("program", "arguments"),
    [(reads_key, [{}, {"k": 2}, {}, {"k": 3}]), (finds, [[1], [2], [], [1, 2]])],
)
def test_what_raised_at_the_first_call_may_work_at_the_next(program, arguments):
    function, _ = compiled(program)
    for argument in arguments:
        assert same(outcome(program, (X, argument)), outcome(function, (X, argument)))


# -- names that code reached by exec() reads ------------------------------------------------------
def test_globals_of_exec_are_changed_as_a_dict():
    space: dict = {"k": 5}
    exec("def scaled(x): return x * k", space)

    def f(x):
        y = space["scaled"](x)
        space["k"] += 1
        y = y + space["scaled"](x)
        space["k"], space["new"] = 2, 7
        return y + space["scaled"](x), space["new"], "k" in space, space.get("none")

    function, captured = compiled(f)
    results = []
    for called in (f, function, function):
        space["k"] = 5
        results.append((called(X), space["k"], space.pop("new")))
    assert same(results[0], results[1]) and same(results[0], results[2])
    assert len(captured.op_counts) == 1
