"""Values of every kind for tests/fuzz/reflection.py: each is a text, evaluated once for each run.

A text that starts with "*" is evaluated outside of the captured frame only.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import copyreg
import dataclasses
import enum
import functools
import importlib
import typing
from typing import Any

import torch


class Plain:
    """A class of the program's."""

    shared = 1

    def __init__(self, value: Any = 1) -> None:
        self.value = value

    def method(self, more: int = 1) -> Any:
        return self.value, more

    @classmethod
    def of_class(cls, *args: Any) -> Any:
        return cls.__name__, args

    @staticmethod
    def static(*args: Any) -> Any:
        return args

    @property
    def twice(self) -> Any:
        return self.value * 2

    @functools.cached_property
    def cached(self) -> Any:
        return [self.value]


class Derived(Plain):
    """A class below another."""

    def method(self, more: int = 2) -> Any:
        return super().method(more)


class Slotted:
    __slots__ = ("full", "empty")

    def __init__(self, full: Any = 1) -> None:
        object.__setattr__(self, "full", full)  # never of the class, where that is called by hand


class Meta(type):
    """A metaclass that tells something."""

    told = "by the metaclass"

    @property
    def shown(cls) -> str:
        return cls.__name__.lower()

    def of_meta(cls, *args: Any) -> Any:
        return cls.__name__, args

    def __len__(cls) -> int:
        return 3

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is int or type.__instancecheck__(cls, instance)


class Ruled(metaclass=Meta):
    value = 2


class Answering:
    """Attributes that nobody holds."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"answered {name}"


class Watching:
    def __init__(self) -> None:
        self.value = 1

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def needed(self) -> Any: ...


class Called:
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


class Describing:
    """A data descriptor."""

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return "got", obj is None, owner

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__["kept"] = value


class Described:
    field = Describing()


class Int(int):
    pass


class Text(str):
    pass


class List(list):
    extra = 1


class Dict(dict):
    def __missing__(self, key: Any) -> Any:
        return "missing", key


class Tuple(tuple):
    __slots__ = ()


class Error(ValueError):
    def __init__(self, text: str = "wrong", code: int = 3) -> None:
        super().__init__(text)
        self.code = code


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


Point = collections.namedtuple("Point", "x y", defaults=[5])


@dataclasses.dataclass
class Data:
    x: int = 1
    y: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int = 1


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.inner = torch.nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.weight


class Typed(typing.TypedDict):
    x: int


T = typing.TypeVar("T")


class Generic(typing.Generic[T]):
    pass


class Spoken(typing.Protocol):
    def speak(self) -> int: ...


def function(a: int, b: int = 2, *, c: int = 3) -> Any:
    "A function."
    return a, b, c


def generator(n: int = 3) -> Any:
    yield from range(n)


async def coroutine() -> int:
    return 1


@functools.lru_cache
def remembered(a: int = 1) -> Any:
    return [a]


@functools.wraps(function)
def wrapping(*args: Any) -> Any:
    return function(*args)


@functools.singledispatch
def dispatched(a: Any) -> Any:
    return "any"


@contextlib.contextmanager
def managing() -> Any:
    yield 1


_MODULES = """
array copy datetime decimal fractions heapq io itertools math operator pathlib random re threading
types weakref
""".split()
SPACE: dict[str, Any] = {**globals(), **{name: importlib.import_module(name) for name in _MODULES}}
VALUES: dict[str, str] = {
    "none": "None", "dots": "...", "notimpl": "NotImplemented", "yes": "True", "i": "3",
    "neg": "-1", "f": "2.5", "c": "1 + 2j", "s": "'abc'", "empty_s": "''", "b": "b'ab'",
    "ba": "bytearray(b'ab')", "mv": "memoryview(b'ab')", "t": "(1, 2)", "empty_t": "()",
    "l": "[1, 2, 3]", "d": "{'a': 1, 'b': 2}", "st": "{1}", "fs": "frozenset([1])",
    "r": "range(3)", "sl": "slice(1, 2)", "q": "collections.deque([1, 2], 3)",
    "cnt": "collections.Counter('aab')", "od": "collections.OrderedDict(a=1)",
    "dd": "collections.defaultdict(int, a=1)", "chain_map": "collections.ChainMap({'a': 1})",
    "keys": "{'a': 1}.keys()", "values_": "{'a': 1}.values()", "items_": "{'a': 1}.items()",
    "proxy": "types.MappingProxyType({'a': 1})", "ns": "types.SimpleNamespace(a=1)",
    "li": "iter([1, 2])", "ti": "iter((1, 2))", "ri": "iter(range(3))", "si": "iter('ab')",
    "di": "iter({'a': 1})", "seti": "iter({1})", "rev": "reversed([1, 2])", "en": "enumerate([1])",
    "z": "zip([1], [2])", "m": "map(str, [1])", "fi": "filter(None, [1])",
    "bi": "iter(b'ab')", "ci": "iter(int, 1)", "chain": "itertools.chain([1], [2])",
    "count": "itertools.count(3)", "cycle": "itertools.cycle([1, 2])",
    "rep": "itertools.repeat(1, 2)", "isl": "itertools.islice([1, 2, 3], 2)",
    "star": "itertools.starmap(pow, [(1, 2)])", "acc": "itertools.accumulate([1, 2])",
    "prod": "itertools.product([1, 2], [3])", "gen": "generator()", "genx": "(a for a in [1])",
    "plain": "Plain()", "derived": "Derived(3)", "slotted": "Slotted()", "ruled": "Ruled()",
    "answering": "Answering()", "watching": "Watching()", "called": "Called()",
    "described": "Described()", "describing": "Describing()", "obj": "object()",
    "mi": "Int(3)", "ms": "Text('abc')", "ml": "List([1])", "md": "Dict(a=1)",
    "mt": "Tuple((1, 2))", "ve": "ValueError('a', 1)", "ke": "KeyError('k')", "err": "Error()",
    "oe": "OSError(2, 'no', 'f')", "si_e": "StopIteration(3)",
    "ae": "AttributeError('a', name='n')",
    "group": "ExceptionGroup('g', [ValueError(1)])", "red": "Colour.RED", "one": "Number.ONE",
    "point": "Point(1)", "data": "Data()", "frozen": "Frozen()", "fn": "function",
    "lam": "(lambda a, b=1: (a, b))", "meth": "Plain().method", "cmeth": "Plain.of_class",
    "smeth": "Plain.static", "part": "functools.partial(function, 1, c=4)",
    "wrapped": "wrapping", "lru": "remembered", "disp": "dispatched", "bm": "[1, 2].append",
    "bm2": "'abc'.upper", "mw": "(3).__add__", "mw2": "'a'.__eq__", "mw3": "object().__repr__",
    "wd": "int.__add__", "md_": "str.upper", "cmd": "dict.__dict__['fromkeys']",
    "gsd": "type.__dict__['__name__']", "memb": "Slotted.full", "bf": "len", "bf2": "math.sin",
    "new": "object.__new__", "prop": "Plain.__dict__['twice']",
    "clsm": "Plain.__dict__['of_class']", "stm": "Plain.__dict__['static']",
    "cachedp": "Plain.__dict__['cached']", "ag": "operator.attrgetter('value')",
    "ig": "operator.itemgetter(0)", "mc": "operator.methodcaller('upper')",
    "cell": "*(lambda a: lambda: a)(1).__closure__[0]", "code": "function.__code__",
    "sup": "super(Derived, Derived())", "cm": "managing()", "stk": "contextlib.ExitStack()",
    "mod": "math", "mod2": "*types.ModuleType('made')", "ga": "list[int]", "un": "int | str",
    "opt": "typing.Optional[int]", "anyt": "typing.Any", "tv": "T", "gen_cls": "Generic[int]",
    "dec": "decimal.Decimal('1.5')", "fr": "fractions.Fraction(1, 2)",
    "date": "datetime.date(2020, 1, 2)", "delta": "datetime.timedelta(1)",
    "path": "pathlib.PurePosixPath('a/b')", "pat": "re.compile('a')", "match": "re.match('a', 'a')",
    "arr": "array.array('i', [1, 2])", "sio": "io.StringIO('a')", "rnd": "*random.Random(1)",
    "lock": "*threading.Lock()", "ref": "weakref.ref(Plain)", "x": "torch.ones(2)",
    "xi": "torch.arange(3)", "x0": "torch.tensor(1.5)", "size": "torch.Size([1, 2])",
    "dt": "torch.float32", "dev": "torch.device('cpu')", "fin": "torch.finfo(torch.float32)",
    "par": "*torch.nn.Parameter(torch.ones(2))", "lin": "*torch.nn.Linear(2, 2)",
    "small": "*Small()", "mlist": "*torch.nn.ModuleList([torch.nn.Identity()])",
    "tf": "torch.sin", "ff": "torch.nn.functional.relu", "no_grad": "torch.no_grad()",
    "tm": "torch.Tensor.add",
}  # fmt: skip
TYPES: dict[str, str] = {
    name: name
    for name in """
    object type int bool float complex str bytes bytearray memoryview tuple list dict set frozenset
    range slice property classmethod staticmethod super enumerate zip map filter reversed
    BaseException Exception ValueError KeyError OSError StopIteration AttributeError
    Plain Derived Slotted Meta Ruled Answering Watching Abstract Called Described Int Text List Dict
    Tuple Error Colour Number Point Data Frozen Small Typed Generic Spoken
    """.split()
} | {
    "NoneT": "type(None)", "FunctionT": "types.FunctionType", "MethodT": "types.MethodType",
    "ModuleT": "types.ModuleType", "ProxyT": "types.MappingProxyType", "CellT": "types.CellType",
    "NamespaceT": "types.SimpleNamespace", "CodeT": "types.CodeType",
    "GeneratorT": "types.GeneratorType", "WrapperT": "types.WrapperDescriptorType",
    "MethodWrapperT": "types.MethodWrapperType", "MemberT": "types.MemberDescriptorType",
    "GetSetT": "types.GetSetDescriptorType", "BuiltinT": "types.BuiltinFunctionType",
    "AliasT": "types.GenericAlias", "UnionT": "types.UnionType", "CounterT": "collections.Counter",
    "DequeT": "collections.deque", "OrderedT": "collections.OrderedDict",
    "DefaultT": "collections.defaultdict", "PartialT": "functools.partial",
    "CachedT": "functools.cached_property", "EnumT": "enum.Enum", "EnumMetaT": "enum.EnumMeta",
    "ABCMetaT": "abc.ABCMeta", "HashableT": "collections.abc.Hashable",
    "MappingT": "collections.abc.Mapping", "IterableT": "collections.abc.Iterable",
    "CallableT": "collections.abc.Callable", "NumberT": "__import__('numbers').Number",
    "RangeIteratorT": "type(iter(range(3)))", "KeysT": "type({}.keys())",
    "ChainT": "itertools.chain", "CountT": "itertools.count", "RepeatT": "itertools.repeat",
    "DecimalT": "decimal.Decimal", "FractionT": "fractions.Fraction", "TensorT": "torch.Tensor",
    "ModuleNNT": "torch.nn.Module", "ParameterT": "torch.nn.Parameter", "SizeT": "torch.Size",
    "DtypeT": "torch.dtype", "AttrGetterT": "operator.attrgetter",
}  # fmt: skip
for _text in TYPES.values():
    copyreg._slotnames(eval(_text, SPACE))  # type: ignore[attr-defined]  # kept by the class
# What is too slow or has no end, and what changes classes or the process.
AVOIDED = frozenset(
    """__setattr__ __delattr__ __set__ __delete__ __set_name__ register __del__ __subclasses__
    __abstractmethods__ cache_clear acquire acquire_lock __enter__ __exit__ seed __reduce__
    __weakref__ __dictoffset__ cache_info setstate _abc_impl __builtins__ __globals__
    __annotations__ __loader__ __spec__ backward share_memory_ register_hook __module__wait
    __firstlineno__ __static_attributes__ __hash__ gauss lock_ co_positions _dump_registry
    """.split()
)
