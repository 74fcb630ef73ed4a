"""The standard library, program by program."""

import abc
import collections
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import json
import numbers
import operator
import re
import types
import typing

import pytest
import torch
import torch.nn.functional as TF
from torch import nn

from tests.dynamo.values_support import PROGRAMS, check, program


def tensor():
    return torch.arange(4.0)


class Abs(abc.ABC):
    @abc.abstractmethod
    def f(self): ...


class Conc(Abs):
    def f(self):
        return 2


@program(tensor)
def abc_inst(x):
    try:
        Abs()
    except TypeError as e:
        pass
    return x + Conc().f(), isinstance(Conc(), Abs)


@program(tensor)
def global_re(x):
    return x + 1, re.sub("a", "b", "banana"), re.match(r"(\d+)", "12a").group(1)


@program(tensor)
def js(x):
    return x + 1, json.dumps({"a": [1, 2]}), json.loads('{"k": 3}')["k"]


@dataclasses.dataclass
class DC:
    a: int
    b: typing.Optional[torch.Tensor] = None
    c: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.d = self.a * 2


@dataclasses.dataclass(order=True, frozen=True, slots=True)
class DS:
    a: int
    b: int = 2


@program(tensor)
def dcs(x):
    d = DC(1, x)
    e = dataclasses.replace(d, a=5)
    s = DS(1)
    return (
        d,
        e.d,
        s.a + s.b,
        DS(1) < DS(2),
        DS(1) == DS(1),
        hash(DS(1)) == hash(DS(1)),
        {DS(1): x}[DS(1)],
        repr(DS(1)),
    )


class Flag(enum.Flag):
    A = 1
    B = 2


class SE(str, enum.Enum):
    X = "x"


@program(tensor)
def enums(x):
    return (
        Flag.A | Flag.B,
        Flag.A in (Flag.A | Flag.B),
        SE.X == "x",
        SE("x") is SE.X,
        f"{SE.X.value}",
        x + 1,
        SE.X.upper(),
    )


@program(tensor)
def partials(x):
    f = functools.partial(TF.softmax, dim=0)
    return f(x), functools.partial(torch.add, alpha=2)(x, x)


@functools.singledispatch
def sd(a):
    return 0


@sd.register
def _(a: int):
    return 1


@sd.register
def _(a: list):
    return 2


@program(tensor)
def singledisp(x):
    return x + sd(3) + sd([1]), sd("a")


class NT(typing.NamedTuple):
    a: int
    b: float = 2.0

    def s(self):
        return self.a + self.b


@program(tensor)
def nt(x):
    n = NT(1)
    return n.s() + x, n._replace(b=3), NT._make([1, 2]), n == (1, 2.0), n.a, NT._fields, n[1]


@program(tensor)
def deq(x):
    d = collections.deque(maxlen=2)
    d.append(1)
    d.extend([2, 3])
    d.appendleft(x)
    return d, list(d)[0]


@program(tensor)
def counter(x):
    c = collections.Counter(a=2, b=1)
    c.update("ab")
    return c["a"], (c + collections.Counter("a"))["a"], c.most_common(), x + c.total()


@program(tensor)
def chainmap(x):
    c = collections.ChainMap({"a": 1}, {"b": 2})
    return x + c["b"], len(c), list(c)


@program(tensor)
def od(x):
    o = collections.OrderedDict([("a", 1)])
    o["b"] = x
    o.move_to_end("a")
    return o, list(o.items())[0][0], o.popitem()


@program(tensor)
def typs(x):
    return (
        x + 1,
        typing.get_type_hints(DC)["a"],
        list[int],
        typing.Optional[int],
        isinstance([], typing.Iterable),
        isinstance(3, numbers.Number),
        types.FunctionType is type(lambda: 0),
    )


@program(tensor)
def insp(x):
    def f(a, b=1, *c, **d):
        pass

    s = inspect.signature(wfn)
    return x + 1, list(s.parameters), s.parameters["b"].default


def wfn(a, b=2):
    return a + b


class Called:
    def __call__(self, a, *, b=3):
        return a


class Told(Called):
    __signature__ = inspect.signature(lambda q: q)


CALLED, TOLD, LINEAR = Called(), Told(), nn.Linear(2, 2)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in found]


@program(tensor)
def insp_of_the_frames_callables(x):
    y = x + 1

    def made(a: int, b=2, *c, k: "str" = "x", **d) -> float:
        return y

    of = [made, lambda: y, CALLED, Called(), CALLED.__call__, LINEAR, LINEAR.forward]
    return y, [parameters(one) for one in of], inspect.getfullargspec(made).args


@program(tensor, graphs=2)
def insp_of_told_parameters(x):
    y = x + 1
    return y * 2, parameters(TOLD)


@program(tensor, graphs=2)
def insp_of_a_default_of_the_frame(x):
    y = x + 1

    def made(a=y):
        return a

    return y * 2, inspect.signature(made).parameters["a"].default is y


@program(tensor)
def bind(x):
    return wfn(**inspect.signature(wfn).bind(x).arguments)


@program(tensor)
def tensor_stuff(x):
    y = x.clone()
    y[1:3] = 0
    y[0] += 1
    a, b = y.split(2)
    m, i = torch.max(y, 0)
    z = y.view(2, 2).T
    return (
        y,
        a,
        b,
        m,
        z,
        x.new_zeros(2),
        x.size(0),
        x.dim(),
        x.numel(),
        len(x),
        x.shape == (4,),
        list(x.shape),
        x.stride(),
        x.is_contiguous(),
        z.is_contiguous(),
        torch.zeros_like(x).fill_(2),
        x.mean().expand(3),
        x[None, :, None].shape,
        x[[0, 2]],
        x[x.long() > 0 if False else slice(None)],
        torch.is_tensor(x),
        x.device == torch.device("cpu"),
        x.dtype is torch.float32,
        x.T.shape,
    )


@program(tensor)
def einsum(x):
    return (
        torch.einsum("i,j->ij", x, x),
        x @ x,
        torch.cat([x, x]),
        torch.stack((x, x), dim=1).sum(dim=(0, 1)),
        x.unbind()[0],
        torch.where(x > 1, x, -x),
        x.masked_fill(x > 1, 0.0),
        torch.arange(4) + 1,
        torch.tensor([1.0, 2.0]),
        torch.full((2,), 3),
        x.float().half().dtype,
    )


@program(tensor)
def sortcmp(x):
    return sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)), x + 1


@program(tensor)
def userlist(x):
    u = collections.UserDict(a=1)
    u["b"] = x
    return u["b"], len(u)


@program(tensor)
def itert(x):
    return (
        list(itertools.batched([1, 2, 3], 2)) if hasattr(itertools, "batched") else 0,
        list(itertools.accumulate([1, 2, 3], operator.mul, initial=1)),
        x + 1,
        [k for k, _ in itertools.groupby("aab")],
        list(itertools.product(range(2), repeat=2)),
        list(map(operator.itemgetter(1), [(1, 2)])),
        next(itertools.count(5)),
        list(itertools.islice(itertools.cycle([1, 2]), 3)),
    )


@program(tensor)
def deepcopy_t(x):
    return copy.deepcopy({"a": [1, 2]}), copy.copy([x])


@program(tensor, graphs=3)
def fnattr(x):
    wfn.calls = getattr(wfn, "calls", 0) + 1
    return x + 1, wfn.__name__, wfn.__defaults__


@pytest.mark.parametrize("function, args, graphs, ops", PROGRAMS[__name__])
def test_program(function, args, graphs, ops):
    check(function, args, graphs, ops)
