"""Breaks in inlined callees: each frame of the chain goes on, and what is left is one graph.

A program is run eagerly and captured, twice, and must agree in results, exceptions and effects; its
number of graphs is exact.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import sys
import traceback
import warnings

import pytest
import torch

import dynamo
from dynamo.break_regions import regions
from tests.dynamo.capturing import compiled, outcome, same

X = torch.arange(4.0) - 1.5
LOG: list = []
PROGRAMS: list = []


def program(graphs, *args, breaks=None):
    """Register a program with its number of graphs, and of breaks (one fewer unless given)."""

    def register(function):
        case = (function, graphs, graphs - 1 if breaks is None else breaks, args or (X,))
        PROGRAMS.append(pytest.param(*case, id=function.__name__))
        return function

    return register


@dynamo.disable
def note(*items):
    """Breaks the graph, and can be seen."""
    LOG.append(tuple(str(item) for item in items))
    return len(items)


@dynamo.disable
def fail(error):
    LOG.append(str(error))
    raise error


def frames_of(error):
    """The user's frames of a traceback; a frame and its continuations count as one."""
    frames: list = []
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != __file__ or frame.name == "outcome":
            continue
        if frames and frames[-1][0] == frame.name and frames[-1][1] == frame.lineno:
            continue
        frames.append((frame.name, frame.lineno))
    return frames


def seen(function, args):
    LOG.clear()
    args = [a if isinstance(a, torch.nn.Module) else copy.deepcopy(a) for a in args]
    result = outcome(function, args)
    raised = frames_of(result) if isinstance(result, BaseException) else None
    return result, args, list(LOG), raised


def check(function, graphs, breaks, args):
    expected = seen(function, args)
    capturing, captured = compiled(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a fault of ours
        for _ in range(2):
            found = seen(capturing, args)
            for wanted, got in zip(expected, found):
                assert same(wanted, got), f"{wanted!r} != {got!r}"
    places = [(b.code, b.location) for r in captured.context.records for b in r.breaks]
    assert len(captured.op_counts) == graphs, (captured.op_counts, places)
    assert len(places) == breaks, places


# -- plain calls ----------------------------------------------------------------------------------
def noted(x):
    y = x + 1
    note("noted")
    return y * 2


def noted2(x):
    return noted(x - 2) + x


def noted3(x):
    z = noted2(x * 3)
    return z - x


@program(2)
def one_deep(x):
    return noted(x * 3) - 1


@program(2)
def two_deep(x):
    return noted2(x) * 2


@program(2)
def three_deep(x):
    return noted3(x) * 2


@program(2)
def nothing_after(x):
    return noted(x)


@program(2)
def nothing_before(x):
    return noted(x) + 1


def only_notes(x):
    note("only")
    return x


@program(1, breaks=1)
def no_tensors_before(x):
    return only_notes(x) * 2


@program(1, breaks=1)
def no_tensors_after(x):
    y = x * 2
    only_notes(y)
    return y


@program(3)
def twice_the_same_callee(x):
    return noted(x - 1) + noted(x)


@program(3)
def callee_with_two_breaks(x):
    def callee(y):
        y = y + 1
        note("first")
        y = y * 2
        note("second")
        return y - 3

    return callee(x) * x


@program(3)
def break_in_both(x):
    y = noted(x) + 1
    note("own")
    return y * 2


@program(2)
def keyword_call(x):
    def callee(a, *, b, c=2):
        y = a * b + c
        note("kw")
        return y - b

    return callee(x, b=x + 1) * callee.__defaults__.__class__.__name__.count("N")


@program(2)
def star_call(x):
    def callee(*args, **kwargs):
        y = args[0] * kwargs["k"]
        note("star", len(args))
        return y + args[1]

    return callee(*(x, x + 1), **{"k": 2}) - 1


@program(2)
def nested_expression(x):
    return [x + 1, noted(x * 2), (x * 3, noted_value(x))][1] + 1


def noted_value(x):
    return x - 1


@program(2)
def break_between_operands(x):
    return (x + 1) * noted(x) + (x - 1)


@program(2)
def method_call_of_result(x):
    return noted(x).sum().add(1)


@program(2)
def conditional_expression(x):
    y = noted(x) if x.shape[0] > 2 else x
    return y + 1


# -- what breaks ----------------------------------------------------------------------------------
@program(2)
def requested(x):
    def callee(y):
        y = y + 1
        dynamo.graph_break()
        return y * 2

    return callee(x) + 1


@program(2)
def item(x):
    def callee(y):
        return y * (y + 1).sum().item()

    return callee(x) + 1


@program(2)
def item_as_condition(x):
    def callee(y):
        if (y + 1).sum().item() > 100:
            return y[:2] * 2
        return y * 3

    return callee(x) + 1


@program(2)
def jump(x):
    def callee(y):
        z = y + 1
        if z.sum() > 0:
            return z[:2] * 2
        return z * 3

    return callee(x) + 1


@program(2)
def jump_not(x):
    def callee(y):
        z = y + 1
        if not z.sum() > 0:
            return z[:2] * 2
        return z * 3

    return callee(x) + 1


@program(2)
def and_or(x):
    def callee(y):
        z = (y + 1).sum()
        return (z > 100) or z * 2

    return callee(x) + 1


@program(2)
def comparison_chain(x):
    def callee(y):
        z = (y + 1).sum()
        return y[:2] * 2 if -100 < z else y * 3

    return callee(x) + 1


@program(2)
def while_condition(x):
    def callee(y):
        while y.sum() > 100:
            y = y[1:] / 2
        return y * 3

    return callee(x + 1) + 1


@program(2)
def to_bool(x):
    def callee(y):
        return bool((y + 1).sum() > 0)

    return x * 2 + callee(x)


@program(2)
def shape_of_result(x):
    def callee(y):
        return torch.nonzero(y + 1).numel()

    return x * 2 + callee(x)


@program(2)
def first_import(x):
    def callee(y):
        y = y + 1
        try:
            import this_module_does_not_exist  # noqa: F401
        except ImportError as error:
            return y * len(error.args)
        return y

    return callee(x) + 1


# -- ways to call ---------------------------------------------------------------------------------
class Thing:
    scale = 2

    def __init__(self, x):
        self.x = x + 1

    def method(self, y):
        z = self.x * y
        note("method")
        return z + self.scale

    def __call__(self, y):
        return self.method(y) + 1

    @property
    def prop(self):
        y = self.x + 1
        note("prop")
        return y * 2

    def __getitem__(self, key):
        y = self.x + key
        note("item", key)
        return y * 2

    @classmethod
    def of_class(cls, y):
        z = y * cls.scale
        note("class")
        return z + 1

    @staticmethod
    def static(y):
        z = y * 2
        note("static")
        return z + 1

    def changes(self, y):
        self.before = y + 1
        note("changes")
        self.after = self.before * 2
        return self


class Child(Thing):
    def method(self, y):
        return super().method(y + 1) * 2


THING = Thing(X)
CHILD = Child(X)


@program(2)
def method(x):
    return THING.method(x + 1) * 2


@program(2)
def super_method(x):
    return CHILD.method(x + 1) * 2


@program(2)
def bound_method(x):
    bound = THING.method
    return bound(x + 1) * 2


@program(2)
def call_of_object(x):
    return THING(x) * 2


@program(2)
def prop(x):
    return THING.prop + x


@program(2)
def getitem(x):
    return THING[3] * x


@program(2)
def class_method(x):
    return Thing.of_class(x) * 2


@program(2)
def static_method(x):
    return THING.static(x) * 2


@program(2, X, THING)
def changed_object(x, thing):
    return thing.changes(x).after + 1


@program(2)
def new_object_changed(x):
    thing = Thing(x)
    thing.changes(x * 2)
    return thing.after + thing.x


class NotedInit:
    def __init__(self, x, scale=1):
        self.a = x + 1
        note("init")
        self.b = self.a * scale


class NotedInitChild(NotedInit):
    def __init__(self, x):
        super().__init__(x * 2, scale=3)
        self.c = self.b + 1


@program(2)
def init(x):
    return NotedInit(x).b + 1


@program(2)
def init_of_base(x):
    made = NotedInitChild(x)
    return made.c + made.a


@dataclasses.dataclass
class Data:
    x: torch.Tensor
    y: torch.Tensor | None = None

    def __post_init__(self):
        self.y = self.x + 1
        note("post init")
        self.y = self.y * 2


@program(2)
def dataclass_post_init(x):
    return Data(x * 2).y + 1


@program(2)
def partial(x):
    return functools.partial(noted2)(x * 2) + 1


@program(2)
def partial_of_partial(x):
    def callee(a, b, c):
        y = a + b
        note("partial")
        return y * c

    return functools.partial(functools.partial(callee, x), x + 1)(c=3) + 1


@program(2)
def lambda_(x):
    return (lambda y: noted(y) + 1)(x * 2) * 2


def adds_one(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result + 1

    return wrapper


@adds_one
@adds_one
def decorated(x, k=1):
    y = x + k
    note("decorated")
    return y * 2


@program(2)
def decorators(x):
    return decorated(x, k=3) * 2


@torch.no_grad()
def without_grad(x):
    y = x + 1
    note("grad", torch.is_grad_enabled())
    return y * 2


@program(2)
def no_grad_decorator(x):
    return without_grad(x) * 2


def countdown(x, n):
    if n == 0:
        note("bottom")
        return x + 1
    return countdown(x * 2, n - 1) + n


@program(2)
def recursion(x):
    return countdown(x, 6) * 2


@program(2)
def very_deep(x):
    return countdown(x, 25) * 2


class Base:
    def twice(self, x):
        y = x + 1
        note("base")
        return y * 2


class Derived(Base):
    def twice(self, x):
        y = x * 3
        note()
        return super().twice(y) + 1


DERIVED = Derived()


@program(3)
def break_before_super(x):
    return DERIVED.twice(x * 2) + 1


# -- closures -------------------------------------------------------------------------------------
@program(2)
def nonlocal_of_caller(x):
    n = 0

    def count(y):
        nonlocal n
        n += 1
        y = y + n
        note("count", n)
        n += 1
        return y * n

    result = count(x)
    return result + n


@program(2)
def cells_of_callee(x):
    def callee(y):
        total = y

        def add(z):
            nonlocal total
            total = total + z

        add(y * 2)
        note("cells")
        add(y * 3)
        return total

    return callee(x) + 1


@program(2)
def closure_made_before_used_after(x):
    def callee(y):
        k = 2

        def scale(z):
            return z * k

        w = scale(y)
        note("closure")
        k = 3
        return scale(w)

    return callee(x) + 1


@program(2)
def closure_escapes(x):
    def callee(y):
        k = y + 1

        def scale(z):
            return z * k

        note("escapes")
        k = k + 1
        return scale

    return callee(x)(x) + 1


@program(2)
def free_variables_two_deep(x):
    a, b = x + 1, x + 2

    def outer(y):
        c = y + a

        def inner(z):
            w = z + b + c
            note("free")
            return w * a

        return inner(y) + c

    return outer(x) + b


@program(2)
def mutated_list(x):
    def callee(items):
        items.append(x + 1)
        note("list", len(items))
        items.append(items[-1] * 2)

    items = [x]
    callee(items)
    return items[0] + items[1] + items[2]


@program(2, X, [])
def outside_list(x, items):
    def callee():
        items.append(x + 1)
        note("list", len(items))
        items.append(items[-1] * 2)

    callee()
    return items[-1] + 1


@program(2)
def same_object_in_two_frames(x):
    def callee(held):
        held["y"] = x + 1
        note("shared")
        held["z"] = held["y"] * 2
        return held

    mine = {"x": x}
    other = callee(mine)
    return mine["z"] + 1, other is mine


COUNTER = 0


@program(2)
def global_of_callee(x):
    def callee(y):
        global COUNTER
        COUNTER = 5
        y = y + COUNTER
        note("global", COUNTER)
        COUNTER = 0
        return y + COUNTER

    return callee(x) * 2


# -- loops ----------------------------------------------------------------------------------------
@program(3)
def callee_in_a_loop(x):
    for _ in range(3):
        x = noted(x)
    return x


def loop(x, n):
    for _ in range(n):
        x = x + 1
        note("turn")
    return x * 2


@program(3, X, 5, breaks=2)
def loop_in_callee(x, n):
    return loop(x, n) + 1


@program(2, X, 1)
def loop_of_one_turn(x, n):
    return loop(x, n) + 1


@program(1, X, 0)
def loop_of_no_turn(x, n):
    return loop(x, n) + 1


@program(2)
def break_after_a_loop(x):
    def callee(y):
        for i in range(3):
            y = y + i
        note("after")
        return y * 2

    return callee(x) + 1


@program(2)
def leaves_the_loop(x):
    def callee(y):
        for i in range(10):
            y = y + i
            if i == 1:
                note("leaving")
                break
        return y * 2

    return callee(x) + 1


@program(4)
def while_loop(x):
    def callee(y):
        n = 0
        while n < 3:
            y = y + 1
            n = n + note("while")
        return y * 2

    return callee(x) + 1


# -- with -----------------------------------------------------------------------------------------
class Manager:
    def __init__(self, name, swallow=False):
        self.name = name
        self.swallow = swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, tb):
        LOG.append(("exit", self.name, kind and kind.__name__))
        return self.swallow


@program(2)
def no_grad_in_callee(x):
    def callee(y):
        with torch.no_grad():
            z = y + 1
            note("no grad", torch.is_grad_enabled())
            w = z * 2
        return w + y, torch.is_grad_enabled()

    return callee(x)[0] + 1


@program(2, X.clone().requires_grad_())
def no_grad_in_caller(x):
    with torch.no_grad():
        y = noted(x)
    return y * 2, y.requires_grad, (x * 2).requires_grad


@program(2)
def manager_in_callee(x):
    def callee(y):
        with Manager("a"):
            z = y + 1
            note("inside")
            return z * 2

    return callee(x) + 1


@program(2)
def manager_in_caller(x):
    with Manager("a"), Manager("b"):
        y = noted(x)
    return y + 1


class NotedManager:
    def __init__(self, x):
        self.x = x

    def __enter__(self):
        y = self.x + 1
        note("enter")
        return y * 2

    def __exit__(self, *error):
        self.x = self.x * 3
        note("exit")
        self.x = self.x + 1


@program(3)
def break_in_enter_and_exit(x):
    manager = NotedManager(x)
    with manager as y:
        z = y + 1
    return z + manager.x


@program(2)
def nullcontext(x):
    with contextlib.nullcontext(x + 1) as y:
        return noted(y) + 1


# -- comprehensions -------------------------------------------------------------------------------
@program(4, breaks=2)
def comprehension_beside_a_cell(x):
    def callee(y):
        i = y + 1

        def read():
            return i

        made = [(i, note(i))[0] * y for i in range(2)]
        return read() + sum(made)

    return callee(x * 2) + 1


@program(2, breaks=3)
def comprehension_over_the_name_of_a_cell(x):
    def callee(y):
        k = 5

        def read():
            return k

        made = [(lambda: k, note(k))[0] for k in range(3)]
        return y + made[1]() + read()

    return callee(x * 2) + 1


@program(2)
def comprehension_behind_the_break(x):
    def callee(y):
        z = y + 1
        note("before")
        return {i: z * i for i in (1, 2, 3)}

    return callee(x)[2] + 1


# -- exceptions -----------------------------------------------------------------------------------
@program(1, breaks=1)
def raised_through(x):
    def callee(y):
        z = y + 1
        fail(ValueError("through"))
        return z

    y = x * 2
    return callee(y) + 1


@program(2)
def caught_in_caller(x):
    def callee(y):
        z = y + 1
        fail(ValueError("caller"))
        return z

    try:
        return callee(x)
    except ValueError as error:
        return x * len(error.args)


@program(2)
def caught_in_callee(x):
    def callee(y):
        z = y + 1
        try:
            fail(ValueError("callee"))
        except ValueError as error:
            z = z * len(error.args)
        return z

    return callee(x) + 1


@program(2, breaks=2)
def caught_in_the_middle(x):
    def inner(y):
        z = y + 1
        fail(KeyError("middle"))
        return z

    def middle(y):
        y = y * 2
        try:
            return inner(y)
        except KeyError:
            note(type(sys.exc_info()[1]).__name__)
            return y + 1

    return middle(x) * 3


@program(2)
def raised_in_the_rest(x):
    def callee(y):
        z = y + 1
        note("rest")
        if z.shape[0] == 4:
            raise ValueError("rest")
        return z

    y = x * 2
    try:
        return callee(y)
    except ValueError:
        return y + 1


@program(1, breaks=1)
def raised_in_the_rest_uncaught(x):
    def callee(y):
        z = y + 1
        note("rest")
        if z.shape[0] == 4:
            raise ValueError("rest")
        return z

    return callee(x * 2)


@program(2)
def finally_in_both(x):
    def callee(y):
        try:
            y = y + 1
            note("try")
            y = y * 2
        finally:
            LOG.append("callee")
        return y

    try:
        return callee(x) + 1
    finally:
        LOG.append("caller")


@program(2, breaks=2)
def break_in_an_except_clause(x):
    def callee(y):
        try:
            raise KeyError("here")
        except KeyError:
            y = y + 1
            note("handling", type(current_error()).__name__)
            y = y * 2
        return y

    return callee(x) + 1


@dynamo.disable
def current_error():
    return sys.exc_info()[1]


@program(2, breaks=2)
def callee_of_an_except_clause(x):
    def callee(y):
        y = y + 1
        note(type(current_error()).__name__)
        return y * 2

    try:
        raise KeyError("here")
    except KeyError:
        return callee(x) + 1


@program(1, breaks=1)
def context_of_an_error_while_handling(x):
    def callee(y):
        y = y + 1
        fail(ValueError("second"))
        return y

    try:
        y = x * 2
        raise KeyError("first")
    except KeyError:
        return callee(y)


@program(2)
def swallowed_by_a_manager(x):
    def callee(y):
        with Manager("swallows", True):
            y = y + 1
            fail(ValueError("swallowed"))
        return y * 2

    return callee(x) + 1


@program(2, breaks=3)
def raised_again(x):
    def callee(y):
        try:
            y = y + 1
            fail(ValueError("again"))
        except ValueError:
            note("seen")
            raise
        return y

    try:
        callee(x)
    except ValueError as error:
        return x * len(error.args)


# -- modules --------------------------------------------------------------------------------------
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        note("layer")
        return y.relu()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.layer = Layer()

    def forward(self, x):
        return self.layer(self.first(x)) + x


torch.manual_seed(0)


@program(2, X, Layer())
def module(x, layer):
    return layer(x) + 1


@program(2, X, Net())
def module_in_module(x, net):
    return net(x * 2) + 1


def test_module_itself():
    net = Net()
    capturing, captured = compiled(net.forward)
    for _ in range(2):
        assert torch.equal(capturing(X), net(X))
    assert len(captured.op_counts) == 2


# -- containers and comprehensions ----------------------------------------------------------------
@program(2)
def in_f_string(x):
    def callee(y):
        y = y + 1
        text = f"{note('f')}-{len('ab')}"
        return y * len(text)

    return callee(x) + 1


@program(2)
def in_dict_display(x):
    def callee(y):
        return {"a": y + 1, "b": note("dict"), "c": y * 2}

    made = callee(x)
    return made["a"] + made["c"] * made["b"]


@program(2)
def in_match(x):
    def callee(y, shape):
        match shape:
            case (n,) if note("guard"):
                return y * n
            case _:
                return y

    return callee(x + 1, tuple(x.shape)) + 1


@program(2)
def walrus(x):
    def callee(y):
        z = y + 1
        if (n := note("walrus")) == 1:
            z = z * 2
        return z + n

    return callee(x) + 1


@program(2)
def unpacks(x):
    def callee(y):
        a = y + 1
        note("unpack")
        return a, a * 2, [a]

    first, *rest = callee(x)
    return first + rest[0] + rest[1][0]


@program(2)
def deletes(x):
    def callee(y):
        z = y + 1
        w = z * 2
        del y
        note("del")
        del z
        return w

    return callee(x) + 1


@program(2)
def unbound_later(x):
    def callee(y, flag):
        if flag:
            z = y + 1
        note("unbound")
        try:
            return z
        except UnboundLocalError:
            return y * 2

    return callee(x + 1, False) + 1


# -- what is seen from the middle -----------------------------------------------------------------
@dynamo.disable
def names_of_callers(depth):
    frame = sys._getframe(1)
    names = []
    for _ in range(depth):
        names.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return names


def looks(x):
    y = x + 1
    LOG.append(names_of_callers(2))
    return y * 2


@program(2)
def callers_by_name(x):
    def middle(y):
        return looks(y) + 1

    return middle(x) * 2


def test_the_chain_is_reported_once():
    report = dynamo.explain(three_deep, backend="eager")(X)
    (reason,) = report.break_reasons
    assert report.graph_count == 2
    assert report.graph_break_count == 1
    names = ["three_deep", "noted3", "noted2", "noted"]
    assert [frame.name for frame in reason.user_stack] == names


def test_fullgraph_names_the_chain():
    capturing, _ = compiled(three_deep, fullgraph=True)
    with pytest.raises(dynamo.errors.Unsupported) as caught:
        capturing(X)
    for name in ("three_deep", "noted3", "noted2", "noted"):
        assert f"in {name}\n" in str(caught.value)


# -- regions --------------------------------------------------------------------------------------
def region_forbids(x):
    y = x + 1
    with dynamo.error_on_graph_break(True):
        return noted(y)


@dynamo.error_on_graph_break(True)
def decorated_region(x):
    return noted(x) + 1


def region_after_an_allowed_break(x):
    with dynamo.error_on_graph_break(True):
        y = allowed(x)
        return noted(y)


@dynamo.error_on_graph_break(False)
def allowed(x):
    return noted(x) * 2


@pytest.mark.parametrize(
    "function", [region_forbids, decorated_region, region_after_an_allowed_break]
)
def test_a_break_in_a_region_is_an_error(function):
    capturing, _ = compiled(function)
    for _ in range(2):
        with pytest.raises(dynamo.errors.Unsupported, match="error_on_graph_break") as caught:
            capturing(X)
        assert "in noted" in str(caught.value)
        assert regions() == ()


@program(2)
def allowed_in_a_region(x):
    with dynamo.error_on_graph_break(True):
        y = x + 1
        with dynamo.error_on_graph_break(False):
            note("allowed")
            y = y * 2
        return y + 1


@program(2)
def allowed_callee_in_a_region(x):
    with dynamo.error_on_graph_break(True):
        return allowed(x) + 1


@program(3, breaks=2)
def break_behind_a_region(x):
    with dynamo.error_on_graph_break(True):
        y = x + 1
        with dynamo.error_on_graph_break(False):
            y = noted(y)
    note("behind")
    return y * 2


def test_regions_set_outside():
    def f(x):
        y = x + 1
        note("outside")
        return y

    capturing, _ = compiled(f)
    with dynamo.error_on_graph_break(True), pytest.raises(dynamo.errors.Unsupported):
        capturing(X)
    assert torch.equal(capturing(X), X + 1)
    with pytest.raises(TypeError, match="True or False"):
        dynamo.error_on_graph_break(1)


def test_fullgraph_is_stronger_than_regions():
    capturing, _ = compiled(allowed_callee_in_a_region, fullgraph=True)
    with pytest.raises(dynamo.errors.Unsupported, match="fullgraph=True"):
        capturing(X)


# -- loops that break once ------------------------------------------------------------------------
class Noted(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        note("module")
        return y * 2


SEQUENTIAL = torch.nn.Sequential(
    torch.nn.Linear(4, 4), Noted(), torch.nn.ReLU(), torch.nn.Linear(4, 4)
)
LAYERS = torch.nn.ModuleList(SEQUENTIAL)


@program(2)
def sequential(x):
    return SEQUENTIAL(x) * 2


@program(2)
def module_list(x):
    for layer in LAYERS:
        x = layer(x)
    return x + 1


@program(2)
def module_list_in_callee(x):
    def callee(y):
        for layer in LAYERS:
            y = layer(y) + y
        return y

    return callee(x * 2) + 1


@program(2)
def one_turn_breaks(x):
    for i in range(5):
        x = x + i
        if i == 2:
            note("two")
    return x * 2


@program(2)
def one_turn_breaks_over_a_list(x):
    items = [1.0, 2.0, 3.0, 4.0]
    for item in items:
        x = x * item
        if item == 2.0:
            note("two")
            items.append(5.0)
        if item == 4.0:
            items.append(6.0)
    return x, items


@program(2)
def one_turn_breaks_over_a_dict(x):
    table = {"a": x, "b": x + 1, "c": x + 2}
    total = x
    for key, value in table.items():
        total = total + value
        if key == "a":
            note(key)
    return total


@program(2)
def one_turn_breaks_over_a_tuple(x):
    for item in (x, x + 1, x + 2):
        x = x * item
        if item.shape[0] == 4 and len(LOG) == 0:
            LOG.append("first")
            note("first")
    return x


@program(2)
def left_after_the_break(x):
    for i in range(10):
        x = x + i
        if i == 1:
            note("one")
        if i == 3:
            break
    return x * 2


@program(2)
def an_error_in_a_later_turn(x):
    y = x + 1
    for i in range(10):
        y = y + i
        if i == 1:
            note("one")
        if i == 3:
            raise ValueError(i)
    return y


@program(2)
def the_iterator_is_used_later(x):
    items = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    for item in items:
        x = x * item
        if item == 1.0:
            note("one")
        if item == 3.0:
            break
    return x, list(items)


@program(2)
def dict_that_changes_size(x):
    table = {"a": 1.0, "b": 2.0, "c": 3.0}
    y = x + 1
    try:
        for key in table:
            y = y * table[key]
            if key == "a":
                note(key)
                table["d"] = 4.0
    except RuntimeError as error:
        return y + 1, len(error.args)
    return y


@program(2)
def nested_loops(x):
    for i in range(3):
        for j in range(2):
            x = x + i * j
            if i == 1 and j == 0:
                note("inner")
    return x * 2


def test_a_loop_that_breaks_elsewhere_is_compiled_again_in_general():
    def f(x, at):
        for i in range(12):
            x = x + 1
            if i == at:
                note("at", i)
        return x * 2

    capturing, captured = compiled(f)
    for at in range(12):
        assert torch.equal(capturing(X, at), f(X, at))
    assert not any(b.code == "RECOMPILE_LIMIT" for r in captured.context.records for b in r.breaks)


def test_a_comprehension_has_the_name_of_a_shared_variable():
    def f(x):
        it = x

        def step():
            nonlocal it
            it = it + 1
            note("step")
            return it

        return [step() for it in (1, 2)], step()

    capturing, _ = compiled(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a fault of ours
        for _ in range(2):
            assert same(outcome(f, (X,)), outcome(capturing, (X,)))


@pytest.mark.parametrize(("function", "graphs", "breaks", "args"), PROGRAMS)
def test_program(function, graphs, breaks, args):
    check(function, graphs, breaks, args)
