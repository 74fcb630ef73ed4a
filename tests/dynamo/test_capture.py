"""Capture: functions end to end through the hook, compared with eager."""

from __future__ import annotations

import functools

import pytest
import torch

import dynamo
from dynamo.errors import Unsupported
from tests.dynamo.capturing import check, compiled

X = torch.arange(3.0)
COUNTER = 3


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def add(a, b=1, *args, c=2, **kwargs):
    return a + b + c + len(args) + kwargs.get("d", 0)


# -- one graph ------------------------------------------------------------------------------------
def test_arithmetic():
    def f(x, y, n=2):
        a = x * y + n
        return torch.relu(a).sum(dim=0) - 1, a

    check(f, torch.randn(3, 4), torch.randn(3, 4), ops=[5])


def test_arguments_of_every_kind():
    def f(x):
        return add(x, 2, 3, c=torch.ones(3), d=5), add(*[x, 1], **{"c": 4, "e": 2})

    check(f, X)


def test_wrong_call_of_an_inlined_function():
    def g(a, b):
        return a + b

    def f(x):
        try:
            return g(x)
        except TypeError as error:
            return x, str(error)

    check(f, X)


def test_closures():
    def f(x):
        def g(z):
            return z * y

        y = x + 1
        return g(x), g

    check(f, X, ops=[2])


def test_returned_closure_works():
    def f(x):
        n = 0

        def inc(y):
            nonlocal n
            n += 1
            return y + n * x

        return inc(x), inc

    function, _ = compiled(f)
    first, inc = function(X)
    assert torch.equal(first, 2 * X)
    assert torch.equal(inc(X), 3 * X)
    assert torch.equal(inc(X), 4 * X)


def test_nonlocal_of_an_outer_function():
    def outer():
        n = 1

        def f(x):
            nonlocal n
            n += 1
            return x + n

        return f, lambda: n

    f, read = outer()
    function, _ = compiled(f)
    assert torch.equal(function(X), X + 2)
    assert read() == 2
    assert torch.equal(function(X), X + 3)
    assert read() == 3


def test_containers_and_strings():
    def f(x):
        out = []
        for i in range(3):
            out.append(x * i)
        return out, {"a": x + 1, "b": [x, x]}, (i, f"{i}:{x.shape[0]}:{1.5:.2f}")

    check(f, X, ops=[4])


def test_comprehensions():
    def f(x):
        total = sum(t for t in (x, x))
        return [x + i for i in range(4) if i % 2], {k: x * k for k in range(2)}, total

    check(f, X)


def test_generators():
    def f(x):
        def g():
            received = yield x
            yield x + received
            yield from (x * i for i in range(2))
            return 7

        generator = g()
        first = next(generator)
        second = generator.send(5)
        return first, second, list(generator)

    check(f, X)


def test_unpacking():
    def f(x):
        a, *b = x
        c, d = x.split(2)[0], x.max(dim=0)
        return a, b, c, d.values, d[1]

    check(f, X)


def test_identity_and_aliasing():
    def f(x, y):
        z = x
        return z is x, x is y, x.add_(1) is x, [x, y, z]

    function, _ = compiled(f)
    x = X.clone()
    *flags, items = function(x, x)
    assert flags == [True, True, True]
    assert items[0] is items[1] is items[2] is x
    assert torch.equal(x, X + 1)
    y = X.clone()
    *flags, items = function(y, x)
    assert flags == [True, False, True]


def test_input_mutation():
    def f(x):
        y = x.view(-1)
        y.mul_(2)
        x[0] = 7
        x += 1
        return x

    check(f, X)


def test_outside_containers_are_mutated():
    def f(x, items, table):
        items.append(x + 1)
        items[0] = x
        table["new"] = items[-1]
        del table["old"]
        return len(items)

    check(f, X, [1, 2], {"old": 1, "kept": 2})


def test_outside_objects_are_mutated():
    def f(x, o):
        o.a = x + 1
        o.b = o.a * 2
        o.a, o.c = o.c, o.a
        del o.gone
        return o.b + o.c

    check(f, X, Holder(c=torch.ones(3), gone=1))


def test_global_store():
    global COUNTER

    def f(x):
        global COUNTER
        COUNTER += 1
        return x + COUNTER

    function, _ = compiled(f)
    COUNTER = 3
    assert torch.equal(function(X), X + 4)
    assert COUNTER == 4
    assert torch.equal(function(X), X + 5)
    assert COUNTER == 5


def test_new_objects():
    def f(x):
        holder = Holder(x=x)
        holder.y = holder.x * 2
        return holder

    check(f, X)


def test_exceptions():
    def f(x):
        try:
            if x.shape[0] == 3:
                raise ValueError("bad")
            y = x
        except (KeyError, ValueError) as error:
            y = x + len(str(error))
        else:
            y = x * 100
        finally:
            x = x * 2
        return x + y

    check(f, X, ops=[3])


def test_reraise_and_cause():
    def inner(x):
        try:
            raise KeyError("k")
        except KeyError as error:
            raise ValueError("v") from error

    def f(x):
        try:
            inner(x)
        except ValueError as error:
            return x + 1, type(error.__cause__).__name__

    check(f, X)


def test_uncaught_exception_is_the_users():
    def f(x):
        y = x + 1
        raise KeyError(len(y))

    check(f, X, breaks=[])


def test_grad_mode():
    def f(x):
        with torch.no_grad():
            y = x * 2
        return y + x, torch.is_grad_enabled()

    check(f, torch.ones(3, requires_grad=True))


def test_set_grad_enabled_stays():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    function, _ = compiled(f)
    x = torch.ones(3, requires_grad=True)
    try:
        assert not function(x).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert torch.is_grad_enabled()


def test_tensor_metadata():
    def f(x):
        shape = x.shape
        numbers = (x.ndim, x.dim(), x.numel(), x.size(-1), x.stride(), x.dtype, x.device)
        flags = (
            x.requires_grad,
            x.is_contiguous(),
            x.is_floating_point(),
            isinstance(x, torch.Tensor),
        )
        return x.view(shape[0] * shape[1]), tuple(shape), numbers, flags, x.T, x.new_zeros(2)

    check(f, torch.randn(2, 3))


def test_folded_functions():
    def f(x):
        if torch.compiler.is_compiling() and not torch.jit.is_scripting():
            x = x + torch.finfo(x.dtype).eps
        return x if torch.is_tensor(x) else None

    function, captured = compiled(f)
    function(X)
    assert captured.op_counts == [1]


def test_decorators_and_partial():
    def twice(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs) * 2

        return wrapper

    @twice
    def g(x, y=1):
        return x + y

    def f(x):
        return g(x), functools.partial(g, y=3)(x)

    check(f, X)


def test_methods_and_properties():
    class Scaler:
        factor = 3

        def __init__(self, n):
            self.n = n

        @property
        def both(self):
            return self.factor * self.n

        @staticmethod
        def shift(x):
            return x - 1

        @classmethod
        def make(cls, n):
            return cls(n)

        def __call__(self, x):
            return self.shift(x) * self.both

    def f(x, scaler):
        return scaler(x) + Scaler.make(2)(x)

    check(f, X, Scaler(4))


def test_match():
    def f(x, command):
        match command:
            case {"op": "add", "by": by}:
                return x + by
            case ["scale", factor, *_]:
                return x * factor
            case str() as name:
                return x, name
            case _:
                return x - 1

    for command in ({"op": "add", "by": 2}, ["scale", 3, 1], "text", 5):
        check(f, X, command, ops=None)


# -- constants and recompilation ------------------------------------------------------------------
def test_python_numbers_are_guarded():
    def f(x, n):
        return x + n

    function, captured = compiled(f)
    assert torch.equal(function(X, 1), X + 1)
    assert torch.equal(function(X, 2), X + 2)
    assert torch.equal(function(X, 1), X + 1)
    assert [r.compile_id.split("/")[1] for r in captured.context.records] == ["0", "1"]
    assert "n" in captured.context.records[1].recompile_reason


def test_recompile_limit():
    from dynamo.config import config

    def f(x, n):
        return x + n

    function, captured = compiled(f)
    with config.patch(recompile_limit=2), pytest.warns(UserWarning, match="recompile_limit"):
        for n in (1, True, 1.5, 2j):
            assert torch.equal(function(X, n), X + n)
    assert len(captured.context.records) == 2


def test_unused_arguments_are_not_guarded():
    def f(x, unused):
        return x + 1

    function, captured = compiled(f)
    function(X, 1)
    function(X, "other")
    assert len(captured.context.records) == 1


# -- graph breaks ---------------------------------------------------------------------------------
def test_print(capsys):
    def f(x):
        y = x + 1
        print("shape", tuple(y.shape))
        return y * 2

    check(f, X, ops=[2])
    assert capsys.readouterr().out == "shape (3,)\n" * 4


def test_data_dependent_branch():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y > 1
        return y - 1

    captured = check(f, X, ops=[3, 1], breaks=["DATA_DEPENDENT_JUMP"])
    function, captured = compiled(f)
    assert torch.equal(function(-X), f(-X))
    assert torch.equal(function(X), f(X))
    assert captured.op_counts == [3, 1, 1]


def test_and_or_not():
    def f(x):
        flag = x.sum() > 0 and x.max() < 10
        return (x + 1 if not flag else x + 2), bool(x.min() > 5 or x.max() > 1)

    check(f, X, breaks=["DATA_DEPENDENT_JUMP"], calls=1)  # by bool() alone
    with dynamo.config.patch(capture_branches="fullgraph"):
        check(f, X, breaks=["DATA_DEPENDENT_JUMP"] * 4, calls=1)


def test_break_inside_a_loop():
    def f(x):
        for i in range(3):
            x = x + 1
            print(end="")
        return x * 2

    check(f, X, breaks=["UNCAPTURED_CALL", "UNCAPTURED_CALL"], ops=[1, 1, 1])


def test_a_long_loop_with_a_break_does_not_nest():
    def f(x):
        for i in range(2000):
            x = x + 1
            print(end="")
        return x * 2

    function, captured = compiled(f)
    assert torch.equal(function(X), f(X))
    assert captured.op_counts == [1, 1, 1]


def test_break_inside_try():
    def f(x):
        try:
            y = x + 1
            print(end="")
            int("x")
        except ValueError:
            y = y * 3
        return y

    check(f, X, ops=[1, 1], breaks=["UNCAPTURED_CALL"])


def test_native_exception_reaches_the_handler():
    def fail():
        raise LookupError("native")

    fail = torch.compiler.disable(fail)

    def f(x):
        y = x + 1
        try:
            fail()
        except LookupError as error:
            return y * 2, error.args
        return y

    check(f, X, ops=[1, 1], breaks=["DISABLED_CALL"])


def test_break_inside_except():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as error:
            y = x + 1
            print(end="")
            return y * 2, error

    check(f, X, ops=[1, 1], breaks=["UNCAPTURED_CALL"])


def test_break_inside_with():
    def f(x):
        with torch.no_grad():
            y = x + 1
            print(end="")
            z = y * x
        return z, z + x, torch.is_grad_enabled()

    check(f, torch.ones(3, requires_grad=True), breaks=["UNCAPTURED_CALL"])


def test_break_in_an_inlined_callee():
    def g(x):
        y = x + 1
        print(end="")
        return y * 2

    def f(x):
        return g(x - 1) + g(x)

    check(f, X, ops=[2, 2, 2], breaks=["UNCAPTURED_CALL"] * 2)


def test_item():
    def f(x):
        n = x.sum().item()
        return x + n

    check(f, X, ops=[3])


def test_an_item_that_python_needs():
    def f(x):
        n = x.sum().item()
        return x + {1.5: 2}.get(n, 3)

    check(f, X, ops=[1, 1], breaks=["DATA_DEPENDENT_VALUE"])


def test_effects_before_a_break_are_visible():
    def f(x, items):
        items.append(x + 1)
        n = eval("len(items)", {"items": items})
        return items[-1] * n

    check(f, X, [1], breaks=["UNCAPTURED_CALL"])


def test_cells_live_across_a_break():
    def f(x):
        y = x + 1

        def g():
            return y * 2

        print(end="")
        y = y + 1
        return g()

    check(f, X, breaks=["UNCAPTURED_CALL"])


def test_iterators_live_across_a_break():
    def f(x):
        out = []
        for i, (a, b) in enumerate(zip([1, 2, 3], (4, 5, 6))):
            out.append(x * a + b)
            if i == 1:
                print(end="")
        return out

    check(f, X, breaks=["UNCAPTURED_CALL"])


def test_generator_live_across_a_break():
    def f(x):
        def g():
            for i in range(3):
                yield x * i

        out = []
        for t in g():
            out.append(t + 1)
            print(end="")
        return out

    function, _ = compiled(f)
    for _ in range(2):
        assert all(map(torch.equal, function(X), f(X)))


def test_shape_error_is_the_eager_one():
    def f(x):
        y = x + 1
        return y @ torch.ones(5, 5)

    check(f, torch.ones(3, 3), breaks=["OP_ERROR"])


def test_keyword_call_break():
    def g(a, *, b):
        return a + b

    g = torch.compiler.disable(g)

    def f(x):
        y = x + 1
        return x * g(y, b=x) + 1

    check(f, X, ops=[1, 2], breaks=["DISABLED_CALL"])


# -- fullgraph ------------------------------------------------------------------------------------
def test_fullgraph_names_the_place():
    def f(x):
        print(end="")
        return x + 1

    function, _ = compiled(f, fullgraph=True)
    with pytest.raises(Unsupported) as caught:
        function(X)
    text = str(caught.value)
    assert "print" in text
    assert "UNCAPTURED_CALL" in text
    assert "hint:" in text
    assert __file__ in text
    assert 'print(end="")' in text


def test_fullgraph_lets_the_users_exception_through():
    def f(x):
        y = x + 1
        raise KeyError(len(y))

    function, _ = compiled(f, fullgraph=True)
    with pytest.raises(KeyError):
        function(X)


# -- modules --------------------------------------------------------------------------------------
def test_module_in_one_graph():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(3, 4), torch.nn.ReLU(inplace=True), torch.nn.LayerNorm(4)
            )
            self.register_buffer("scale", torch.full((4,), 2.0))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.layers(x) * self.scale + self.calls

    net = Net()
    function, captured = compiled(net.forward)
    x = torch.randn(2, 3)
    expected = Net.forward(net, x)
    net.calls = 0
    assert torch.equal(function(x), expected)
    assert net.calls == 1
    assert captured.op_counts == [5]
    graph = captured.context.records[0].graphs[0].graph_module.graph
    known = [n.meta.get("parameter", False) for n in graph.nodes if n.op == "placeholder"]
    assert known.count(True) == 5
    assert known.count(False) == 1


def test_batch_norm_in_training():
    net = torch.nn.BatchNorm1d(3)

    def f(x, net):
        return net(x)

    check(f, torch.randn(4, 3), net)
