"""Breaks in inlined callees: each frame of the chain goes on, and what is left is one graph."""

from __future__ import annotations

import dataclasses
import functools
import sys

import pytest
import torch

import dynamo
from tests.dynamo.break_support import LOG, checks_of, note, registry
from tests.dynamo.capturing import compiled

X = torch.arange(4.0) - 1.5
PROGRAMS, program = registry(breaks=None, x=X)


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
        return y * {1.5: 2.0}.get((y + 1).sum().item(), 3.0)

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
        return sum(place for place in torch.nonzero(y + 1))

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


@program(2, args=(X, THING))
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


@program(2, args=(X, []))
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


@program(2, args=(X, Layer()))
def module(x, layer):
    return layer(x) + 1


@program(2, args=(X, Net()))
def module_in_module(x, net):
    return net(x * 2) + 1


def test_module_itself():
    net = Net()
    capturing, captured = compiled(net.forward)
    for _ in range(2):
        assert torch.equal(capturing(X), net(X))
    assert len(captured.op_counts) == 2


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


test_program = checks_of(PROGRAMS)
