"""Builtins, operator, math, functools, copy, typing and their like."""

import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import math
import operator
import types
import typing
import warnings

import pytest
import torch

from tests.dynamo.values_support import PROGRAMS, check, program


def tensor():
    return torch.arange(4.0)


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def shout(self):
        return self.name + "!"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Config:
    width: int = 3
    names: list = dataclasses.field(default_factory=list)

    def doubled(self):
        return self.width * 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float = 0.5


@functools.lru_cache
def cached(n):
    return n + 1


@contextlib.contextmanager
def scope(log, name):
    log.append("enter " + name)
    try:
        yield name
    finally:
        log.append("exit " + name)


@program(tensor)
def numbers(x):
    return (
        abs(-3),
        round(2.567, 1),
        round(2.5),
        pow(2, 3),
        pow(2, 3, 5),
        divmod(7, 2),
        int("12"),
        float(3),
        bool([]),
        complex(1, 2),
        hex(255),
        chr(97),
        ord("a"),
        bin(3),
        hash("a") == hash("a"),
        x + 1,
        abs(x - 2),
    )


@program(tensor)
def math_functions(x):
    return (
        math.sqrt(4),
        math.pi,
        math.ceil(1.2),
        math.floor(-1.2),
        math.prod([1, 2, 3]),
        math.isnan(1.0),
        x * math.log(2),
    )


@program(tensor)
def types_and_checks(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance(x, torch.nn.Parameter),
        isinstance(1, (str, int)),
        isinstance(True, int),
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        isinstance(1, int | str),
        issubclass(bool, int),
        type(x) is torch.Tensor,
        type([1]) is list,
        callable(len),
        callable(3),
        type(1).__name__,
        isinstance(len, types.BuiltinFunctionType),
        isinstance(lambda: 0, collections.abc.Callable),
        x + 1,
        isinstance(x.dtype, torch.dtype),
        x.dtype == torch.float32,
        x.device.type,
        isinstance("a", typing.Hashable),
    )


@program(tensor)
def comparisons_of_builtins(x):
    return len == math.sin, len == 3, len != "len", math.sqrt in (len, math.sqrt), x + 1


@program(tensor, Config())
def attribute_functions(x, config):
    setattr(config, "extra", x + 1)
    config.width += 1
    before = hasattr(config, "nothing"), getattr(config, "nothing", 7)
    del config.extra
    return before, hasattr(config, "extra"), config.doubled(), vars(config), x + config.width


@program(tensor)
def operator_functions(x):
    get = operator.itemgetter(1, 0)
    name = operator.attrgetter("shape")
    return (
        operator.add(x, 1),
        operator.mul(2, 3),
        operator.itemgetter(0)([5]),
        get([1, 2]),
        name(x),
        operator.not_(0),
        operator.methodcaller("sum")(x),
        operator.contains([1], 1),
        operator.is_(None, None),
        operator.index(3),
        operator.getitem({"a": 1}, "a"),
        operator.neg(x),
        operator.eq(1, 2),
        functools.reduce(operator.add, [x, x]),
    )


@program(tensor)
def enums(x):
    return (
        Color.RED,
        Color(2),
        Color["RED"],
        Color.RED.name,
        Color.BLUE.value,
        Color.RED is Color.RED,
        Color.RED == Color.BLUE,
        Color.RED.shout(),
        [c.name for c in Color],
        Level.HIGH > Level.LOW,
        x + Level.HIGH,
        {Color.RED: 1}[Color.RED],
        isinstance(Color.RED, Color),
        len(Color),
        Color.RED in (Color.RED,),
    )


@program(tensor, Color.BLUE)
def enum_argument(x, color):
    return x + 1 if color is Color.RED else x + color.value


@program(tensor)
def dataclasses_inside(x):
    c = Config(width=5)
    c.names.append("n")
    f = Frozen(1)
    d = dataclasses.replace(f, a=4)
    try:
        f.a = 3
        ok = False
    except dataclasses.FrozenInstanceError:
        ok = True
    return (
        c,
        f,
        d.a,
        ok,
        f == Frozen(1),
        [g.name for g in dataclasses.fields(c)],
        dataclasses.asdict(d),
        x + c.width,
    )


@program(tensor)
def lru_cached(x):
    return x + cached(2) + cached(2)


@program(tensor)
def copies(x):
    rows = [[1], {"a": x}]
    shallow, deep = copy.copy(rows), copy.deepcopy([[1], {"a": 2}])
    shallow[0].append(2)
    c = copy.copy(Config(9))
    return rows, shallow, deep, c.width, x + 1


@program(tensor)
def context_managers(x):
    log = []
    with scope(log, "a") as name, contextlib.nullcontext(5) as five:
        x = x + five
        log.append(name)
    with contextlib.suppress(KeyError):
        {}["a"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(scope(log, "b"))
        stack.callback(log.append, "callback")
        x = x * 2
    return x, log


@program(tensor)
def typing_and_inspect(x):
    def g(a, b=2):
        return a

    return typing.cast(int, 3), inspect.isfunction(g), inspect.isclass(Config), x + 1


@program(tensor)
def jit_checks(x):
    if torch.jit.is_scripting() or torch.jit.is_tracing():
        return x
    return x + 1


@program(tensor)
def no_grad_block(x):
    with torch.no_grad():
        y = x + 1
        inside = torch.is_grad_enabled()
    with torch.enable_grad():
        z = y * 2
    return y, z, inside, torch.is_grad_enabled()


@program(tensor)
def simple_namespace(x):
    ns = types.SimpleNamespace(a=1, b=x)
    ns.c = ns.a + 1
    return ns, ns.b + ns.c


@program(tensor, types.SimpleNamespace(a=2))
def simple_namespace_outside(x, ns):
    ns.a += 1
    ns.t = x + ns.a
    return ns.t


@program(tensor)
def wrapped_functions(x):
    def deco(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs) + 1

        wrapper.tag = "t"
        return wrapper

    @deco
    def inner(a):
        return a * 2

    return inner(x), inner.__name__, inner.tag


@program(tensor, graphs=2)
def printing(x):
    y = x + 1
    print("hello")
    return y * 2


@program(tensor)
def warning(x):
    with warnings.catch_warnings() if False else contextlib.nullcontext():
        return x + 1


@program(tensor)
def default_dtype_queries(x):
    info = torch.finfo(x.dtype)
    return (
        x + info.eps,
        torch.iinfo(torch.int32).max,
        torch.get_default_dtype(),
        x.is_floating_point(),
    )


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)
