"""Kinds of value, each as an expression that makes one: what reflection is asked about."""

from __future__ import annotations

import sys
import textwrap
import types
from typing import Any

DEFINITIONS = """
import abc, array, collections, contextlib, contextvars, dataclasses, enum, functools, inspect
import itertools, operator, random, re, string, sys, threading, types, typing, weakref
import torch
from torch import nn

def function(a, b=2, *, c: int = 3):
    "Its text."
    return a
function.extra = 1
def generator():
    yield 1
async def coroutine():
    return 1
async def asynchronous():
    yield 1
@functools.lru_cache
def cached(a):
    return a
@functools.singledispatch
def dispatched(a):
    return a
@contextlib.contextmanager
def managed():
    yield 1

class Meta(type):
    on_meta = 1
    def meta_method(cls):
        return 1
    @property
    def meta_property(cls):
        return 2
class Asking(type):
    def __getattr__(cls, name):
        if name == "__name_of_class__":
            return 1
        raise AttributeError(name)
class Plain:
    "Text."
    on_class = 1
    def method(self):
        return 1
    @property
    def prop(self):
        return 3
    @property
    def missing(self):
        raise AttributeError("missing")
    @classmethod
    def of_class(cls):
        return 4
    @staticmethod
    def static():
        return 5
    partial = functools.partialmethod(method)
    @functools.cached_property
    def kept(self):
        return 6
class WithMeta(metaclass=Meta):
    pass
class WithAsking(metaclass=Asking):
    pass
class Slotted:
    __slots__ = ("a", "b")
    def __init__(self):
        self.a = 1
class Getting:
    def __getattr__(self, name):
        if name.startswith("__b"):
            return name
        raise AttributeError(name)
class Attributing:
    def __getattribute__(self, name):
        if name == "__bases__":
            return 1
        return object.__getattribute__(self, name)
class Filled:
    def __init__(self):
        self.a = 1
        self.__dict__["__name__"] = "filled"
        self.__dict__["__bases__"] = (1,)
class Reducing:
    def __dir__(self):
        return ["b", "a"]
class Listed(list):
    pass
class Keyed(dict):
    pass
class Tupled(tuple):
    pass
class Numbered(int):
    pass
class Texted(str):
    pass
class Membered(set):
    pass
class Generic(typing.Generic[typing.TypeVar("T")]):
    pass
class Abstract(abc.ABC):
    @abc.abstractmethod
    def method(self): ...
class Concrete(Abstract):
    def method(self):
        return 1
class Protocolled(typing.Protocol):
    a: int
class Error(ValueError):
    extra = 1
class Colour(enum.Enum):
    RED = 1
    def method(self):
        return 1
class Number(enum.IntEnum):
    ONE = 1
class Mask(enum.Flag):
    A = 1
    B = 2
@dataclasses.dataclass
class Data:
    a: int = 1
@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: int = 1
Point = collections.namedtuple("Point", "x y")
class Typed(typing.NamedTuple):
    x: int = 1
class TypedKeys(typing.TypedDict):
    x: int
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.register_buffer("held", torch.ones(1))
class Sub(torch.Tensor):
    on_class = 1
class Manager:
    def __enter__(self):
        return self
    def __exit__(self, *args):
        return None
def closure():
    held = 1
    def inner():
        return held
    return inner
variable = contextvars.ContextVar("variable")
the_partial = functools.partial(function, 1)
target = Plain()
"""

# Kind -> the expression that makes one.
KINDS: dict[str, str] = {
    line.partition(":")[0].strip(): line.partition(":")[2].strip()
    for line in textwrap.dedent("""
        bool: bool(1)
        int: int("3")
        float: float("2.5")
        complex: complex(1, 2)
        str: str("abc")
        bytes: bytes(b"ab")
        bytearray: bytearray(b"ab")
        memoryview: memoryview(b"ab")
        None: None
        Ellipsis: ...
        NotImplemented: NotImplemented
        tuple: tuple([1, target])
        empty tuple: ()
        list: [1, target]
        dict: {"a": target}
        set: {1, 2}
        frozenset: frozenset([1, 2])
        range: range(3)
        slice: slice(1, None)
        deque: collections.deque([1])
        OrderedDict: collections.OrderedDict(a=1)
        defaultdict: collections.defaultdict(list)
        Counter: collections.Counter("ab")
        ChainMap: collections.ChainMap({"a": 1})
        UserDict: collections.UserDict(a=1)
        namedtuple: Point(1, 2)
        typed namedtuple: Typed(1)
        TypedDict: TypedKeys(x=1)
        mappingproxy: types.MappingProxyType({"a": 1})
        array: array.array("i", [1])
        keys: {"a": 1}.keys()
        values: {"a": 1}.values()
        items: {"a": 1}.items()
        ordered keys: collections.OrderedDict(a=1).keys()
        list_iterator: iter([1])
        list_reverseiterator: reversed([1])
        tuple_iterator: iter((1,))
        str_iterator: iter("ab")
        bytes_iterator: iter(b"ab")
        range_iterator: iter(range(3))
        set_iterator: iter({1})
        dict_keyiterator: iter({1: 2})
        dict_valueiterator: iter({1: 2}.values())
        dict_itemiterator: iter({1: 2}.items())
        dict_reversekeyiterator: reversed({1: 2})
        deque_iterator: iter(collections.deque([1]))
        callable_iterator: iter(int, 1)
        zip: zip([1], [2])
        map: map(str, [1])
        filter: filter(None, [1])
        enumerate: enumerate([1])
        reversed: reversed(Tupled((1,)))
        chain: itertools.chain([1])
        count: itertools.count()
        cycle: itertools.cycle([1])
        repeat: itertools.repeat(1)
        islice: itertools.islice([1], 1)
        accumulate: itertools.accumulate([1])
        product: itertools.product([1])
        permutations: itertools.permutations([1])
        combinations: itertools.combinations([1], 1)
        groupby: itertools.groupby([1])
        pairwise: itertools.pairwise([1])
        starmap: itertools.starmap(int, [])
        tee: itertools.tee([1])[0]
        zip_longest: itertools.zip_longest([1])
        takewhile: itertools.takewhile(bool, [1])
        compress: itertools.compress([1], [1])
        generator: generator()
        generator expression: (i for i in [1])
        async generator: asynchronous()
        function: (lambda: function)()
        lambda: lambda a, b=2: a
        closure: closure()
        generator function: (lambda: generator)()
        method: Plain().method
        class method: Plain.of_class
        static function: Plain.static
        function of class: Plain.method
        partial method: Plain().partial
        builtin function: (lambda: len)()
        module function: (lambda: operator.add)()
        bound builtin: [].append
        bound of text: "a".join
        bound of dict: {}.get
        method-wrapper: (5).__add__
        wrapper of list: [].__len__
        wrapper of object: Plain().__str__
        slot wrapper: (lambda: int.__add__)()
        method descriptor: (lambda: list.append)()
        classmethod descriptor: (lambda: vars(dict)["fromkeys"])()
        bound class builtin: dict.fromkeys
        getset: (lambda: vars(type)["__name__"])()
        member: (lambda: vars(Slotted)["a"])()
        member of C: (lambda: vars(functools.partial)["func"])()
        new: (lambda: object.__new__)()
        code: function.__code__
        cell: closure().__closure__[0]
        new cell: types.CellType(1)
        function dict: function.__dict__
        new function dict: (lambda: 1).__dict__
        instance dict: Plain().__dict__
        class dict: Plain.__dict__
        annotations: function.__annotations__
        property: property(function)
        property of class: (lambda: Plain.prop)()
        classmethod: classmethod(function)
        staticmethod: staticmethod(function)
        cached_property: functools.cached_property(function)
        partialmethod: functools.partialmethod(function)
        partial: functools.partial(function, 1)
        partial from outside: (lambda: the_partial)()
        lru_cache: functools.lru_cache(function)
        lru_cache from outside: (lambda: cached)()
        singledispatch: (lambda: dispatched)()
        context manager function: (lambda: managed)()
        itemgetter: operator.itemgetter(0)
        attrgetter: operator.attrgetter("a")
        methodcaller: operator.methodcaller("a")
        cmp_to_key: functools.cmp_to_key(function)(1)
        class: (lambda: Plain)()
        class with metaclass: (lambda: WithMeta)()
        class with asking metaclass: (lambda: WithAsking)()
        class made: type("Made", (), {"a": 1})
        class of C: (lambda: int)()
        class object: (lambda: object)()
        class type: (lambda: type)()
        metaclass: (lambda: Meta)()
        abstract class: (lambda: Abstract)()
        protocol: (lambda: Protocolled)()
        generic class: (lambda: Generic)()
        enum class: (lambda: Colour)()
        dataclass class: (lambda: Data)()
        namedtuple class: (lambda: Point)()
        module class: (lambda: Layer)()
        tensor class: (lambda: torch.Tensor)()
        exception class: (lambda: Error)()
        object: object()
        instance: Plain()
        instance with metaclass: WithMeta()
        instance of asking: WithAsking()
        slots: Slotted()
        getattr: Getting()
        getattribute: Attributing()
        filled: Filled()
        dir: Reducing()
        list subclass: Listed([1])
        dict subclass: Keyed(a=1)
        tuple subclass: Tupled([1])
        int subclass: Numbered(1)
        str subclass: Texted("a")
        set subclass: Membered([1])
        generic: Generic()
        concrete: Concrete()
        dataclass: Data()
        frozen dataclass: Frozen()
        dataclass field: dataclasses.field(default=1)
        enum: Colour.RED
        int enum: Number.ONE
        flags: Mask.A | Mask.B
        exception: ValueError(1)
        own exception: Error(1)
        key error: KeyError("a")
        stop: StopIteration(1)
        group: ExceptionGroup("a", [ValueError(1)])
        SimpleNamespace: types.SimpleNamespace(a=1)
        module: (lambda: operator)()
        package: (lambda: torch)()
        super: super(WithMeta, WithMeta())
        super of class: super(Meta, WithMeta)
        alias: list[int]
        union: int | str
        typing alias: typing.List[int]
        typing union: typing.Union[int, str]
        typing optional: typing.Optional[int]
        typing any: typing.Any
        typing callable: typing.Callable[[int], int]
        TypeVar: typing.TypeVar("T")
        generic alias: Generic[int]
        NewType: typing.NewType("N", int)
        ForwardRef: typing.ForwardRef("int")
        weakref: weakref.ref(target)
        weak method: weakref.WeakMethod(target.method)
        proxy: weakref.proxy(target)
        weak set: weakref.WeakSet()
        weak dict: weakref.WeakValueDictionary()
        ContextVar: (lambda: variable)()
        context: contextvars.Context()
        nullcontext: contextlib.nullcontext(1)
        suppress: contextlib.suppress(ValueError)
        manager of generator: managed()
        manager: Manager()
        ExitStack: contextlib.ExitStack()
        lock: threading.Lock()
        event: threading.Event()
        pattern: re.compile("a")
        match: re.match("a", "a")
        random: random.Random(1)
        signature: inspect.signature(function)
        template: string.Template("a")
        tensor: torch.ones(2)
        scalar tensor: torch.tensor(1)
        tensor of grad: torch.ones(2, requires_grad=True)
        parameter: nn.Parameter(torch.ones(2))
        subclass: torch.ones(2).as_subclass(Sub)
        tensor method: torch.ones(2).add
        Tensor.add: (lambda: torch.Tensor.add)()
        Tensor.ndim: (lambda: torch.Tensor.ndim)()
        Size: torch.Size([1, 2])
        dtype: (lambda: torch.float32)()
        device: torch.device("cpu")
        layout: (lambda: torch.strided)()
        torch function: (lambda: torch.sin)()
        nn function: (lambda: nn.functional.gelu)()
        packet: (lambda: torch.ops.aten.sin)()
        OpOverload: (lambda: torch.ops.aten.sin.default)()
        Generator: torch.Generator()
        no_grad: torch.no_grad()
        autocast: torch.autocast("cpu")
        Linear: nn.Linear(2, 2)
        Layer: Layer()
        Sequential: nn.Sequential(nn.ReLU())
        ModuleList: nn.ModuleList([nn.ReLU()])
        ParameterList: nn.ParameterList([torch.ones(1)])
        optimizer: torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
        finfo: torch.finfo(torch.float32)
        return type: torch.ones(2).max(0)
        numpy: torch.ones(2).numpy()
    """)
    .strip()
    .splitlines()
}


def namespace() -> dict[str, Any]:
    """What the expressions and the functions of the tests are evaluated in."""
    module = sys.modules["reflection_program"] = types.ModuleType("reflection_program")
    exec(compile(DEFINITIONS, "<reflection definitions>", "exec"), vars(module))
    return vars(module)
