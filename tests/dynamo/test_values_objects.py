"""User objects: the attribute protocol, special methods, construction, inheritance, mutation."""

import functools
import inspect

import pytest
import torch

import dynamo
from tests.dynamo.capturing import same
from tests.dynamo.values_support import PROGRAMS, check, program


def tensor():
    return torch.arange(4.0)


class Plain:
    shared = 10

    def __init__(self, value):
        self.value = value

    def method(self, y):
        return self.value + y

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, new):
        self.value = new / 2

    @staticmethod
    def static(a):
        return a + 1

    @classmethod
    def make(cls, value):
        return cls(value)

    @functools.cached_property
    def lazy(self):
        return self.value + 100


class Child(Plain):
    shared = 20

    def __init__(self, value, extra):
        super().__init__(value)
        self.extra = extra

    def method(self, y):
        return super().method(y) * self.extra


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Fallback:
    def __init__(self):
        self.known = 1

    def __getattr__(self, name):
        if name.startswith("x_"):
            return name
        raise AttributeError(name)


class Guarded:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, name, value):
        self.log.append(name)
        super().__setattr__(name, value)


class Vec:
    def __init__(self, items):
        self.items = items

    def __add__(self, other):
        return (
            Vec([a + b for a, b in zip(self.items, other.items)])
            if isinstance(other, Vec)
            else NotImplemented
        )

    def __radd__(self, other):
        return Vec([other + a for a in self.items])

    def __iadd__(self, other):
        self.items = [a + other for a in self.items]
        return self

    def __neg__(self):
        return Vec([-a for a in self.items])

    def __eq__(self, other):
        return isinstance(other, Vec) and len(self.items) == len(other.items)

    def __hash__(self):
        return 7

    def __lt__(self, other):
        return len(self.items) < len(other.items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, value):
        self.items[i] = value

    def __contains__(self, item):
        return item in self.items

    def __iter__(self):
        return iter(self.items)

    def __call__(self, k):
        return self.items[k]

    def __bool__(self):
        return bool(self.items)

    def __repr__(self):
        return "Vec!"


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return self if instance is None else getattr(instance, self.name, 0) + 1

    def __set__(self, instance, value):
        setattr(instance, self.name, value)


class Described:
    field = Descriptor()


class Counting:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Manager:
    def __init__(self):
        self.log = []

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(kind.__name__ if kind else "out")
        return kind is ValueError


class MyDict(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) + 1

    def __missing__(self, key):
        return 5

    def twice(self, key):
        return self[key] * 2


class MyList(list):
    def total(self):
        return sum(self)


class MyError(ValueError):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Pair(tuple):
    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    @property
    def first(self):
        return self[0]


class Single:
    made = None

    def __new__(cls, *args):
        self = super().__new__(cls)
        self.from_new = True
        return self


@program(tensor, Plain(3))
def attributes_from_outside(x, p):
    return (
        p.value + x,
        p.double,
        p.static(1),
        p.method(x),
        p.shared,
        Plain.shared,
        p.make(4).value,
        type(p).__name__,
    )


@program(tensor, Plain(3))
def stores_to_outside(x, p):
    p.value = x + 1
    p.fresh = 2
    p.double = 8
    return p.value, p.lazy, p.lazy


@program(tensor)
def made_inside(x):
    p = Plain(x)
    c = Child(x + 1, 2)
    p.other = c
    c.other = p
    return p.double, c.method(1), isinstance(c, Plain), c.shared, p.other is c, c.other.value


@program(tensor)
def returned_object(x):
    c = Child(x, 3)
    c.link = Plain(1)
    return c, [c.link]


@program(tensor)
def slots(x):
    s = Slotted(x)
    s.b = 2
    try:
        s.c = 3
    except AttributeError:
        s.b += 1
    return s.a + s.b


@program(tensor, Fallback())
def getattr_fallback(x, f):
    try:
        f.nothing
    except AttributeError as error:
        message = str(error)
    return f.x_hello, f.known, message, hasattr(f, "y"), getattr(f, "z", 4), x + 1


@program(tensor, Guarded())
def setattr_override(x, g):
    g.a = x + 1
    g.b = 2
    return g.log


@program(tensor, lambda: Vec([1, 2]))
def operators(x, v):
    w = v + Vec([x, 1])
    u = 3 + v
    n = -v
    v += 1
    return (
        w.items,
        u.items,
        n.items,
        v.items,
        v == w,
        v != w,
        v < w,
        len(v),
        v[0],
        2 in v,
        list(v),
        v(1),
        bool(v),
        repr(v),
        f"{v}",
        {v: 1}[w],
        not v,
        [i for i in v],
        sorted([v, w])[0] is v,
        x + 1,
    )


@program(tensor, lambda: Vec([1, 2]))
def item_stores(x, v):
    v[0] = x + 1
    return v[0], sum(v.items[1:])


@program(tensor, lambda: Described())
def descriptors(x, d):
    d.field = 4
    return d.field + x, d.field


@program(tensor)
def user_iterators(x):
    return (
        [i for i in Counting(3)],
        sum(Counting(4)),
        list(zip(Counting(2), "ab")),
        x + next(Counting(2)),
    )


@program(tensor)
def user_context_manager(x):
    m = Manager()
    with m as n:
        x = x + 1
        n.log.append("body")
    with m:
        raise ValueError
    return x, m.log


@program(tensor)
def dict_subclass(x):
    d = MyDict(a=1)
    d["b"] = 2
    return d["a"], d.get("a"), d.twice("b"), d["zz"], len(d), list(d.items()), d, x + d["a"]


@program(tensor, lambda: MyDict(a=1))
def dict_subclass_outside(x, d):
    d["new"] = x
    d.attr = 1
    return d["a"], list(d)


@program(tensor)
def list_subclass(x):
    items = MyList([1, 2])
    items.append(3)
    return items.total() + x, items, len(items), items[1:]


@program(tensor)
def tuple_subclass(x):
    p = Pair(x, 2)
    return p.first + p[1], len(p), p


@program(tensor)
def user_exceptions(x):
    try:
        raise MyError(3, "bad")
    except MyError as error:
        return x + error.code, str(error), error.args, isinstance(error, ValueError)


@program(tensor)
def exception_escapes(x):
    y = x + 1
    raise MyError(3, "bad")


@program(tensor)
def chained_exceptions(x):
    try:
        try:
            {}["k"]
        except KeyError as inner:
            raise RuntimeError("outer") from inner
    except RuntimeError as error:
        return x + 1, repr(error), type(error.__cause__).__name__


@program(tensor)
def custom_new(x):
    return Single(1).from_new, x + 1


@program(tensor, lambda: Plain([1]))
def instance_dict(x, p):
    p.__dict__["k"] = x
    return sorted(p.__dict__), p.k + 1, "value" in vars(p)


@program(tensor, Plain(1), Plain(2))
def aliased_objects(x, p, q):
    p.other = q
    q.value = x
    return p.other.value + 1, p.other is q


def test_class_attribute_is_guarded():
    class Local:
        k = 1

    def f(x, p):
        return x + p.k

    from dynamo.api.compile import compile

    g = compile(f, backend="eager", fullgraph=True)
    x = tensor()
    assert torch.equal(g(x, Local()), x + 1)
    Local.k = 2
    assert torch.equal(g(x, Local()), x + 2)
    p = Local()
    p.k = 3
    assert torch.equal(g(x, p), x + 3)


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)


# -- fields read by their descriptors --
class Holding:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Refusing:
    kept = 3

    def __getattribute__(self, name):
        raise AttributeError(name)


refusing = Refusing()
object.__setattr__(refusing, "own", 5)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * len(type.__dict__["__mro__"].__get__(Holding)),
        lambda x: x * type.__dict__["__dict__"].__get__(Refusing)["kept"],
        lambda x: x * Holding.held.__get__(Holding(4)),
        lambda x: (x * 2, Holding.held.__get__(None, Holding) is Holding.held),
        lambda x: x * len(Refusing.__dict__["__dict__"].__get__(refusing)),
    ],
)
def test_fields_read_by_descriptors(program):
    x = torch.ones(2)
    expected = program(x)
    got = dynamo.compile(program, backend="eager", fullgraph=True)(x)
    assert same(got, expected)


@pytest.mark.parametrize("name", ["kept", "own", "missing"])
@pytest.mark.parametrize("owner", [Refusing, refusing, Holding(4)])
def test_static_lookups(owner, name):
    def program(x):
        return x * inspect.getattr_static(owner, name, 7)

    x = torch.ones(2)
    assert same(dynamo.compile(program, backend="eager")(x), program(x))


def test_fields_of_other_objects():
    def program(x):
        try:
            return Holding.held.__get__(x)
        except TypeError as error:
            return x * 2, str(error)

    x = torch.ones(2)
    assert same(dynamo.compile(program, backend="eager", fullgraph=True)(x), program(x))
