"""Where random programs with state (tests/fuzz/state.py) hold it, and the classes and functions
that they have.

In a text V is the first value of a state, W another, N the state's number.
"""

from __future__ import annotations

PREAMBLE = """
import abc, array, builtins, dynamo, contextvars, copy, functools, gc, inspect, pickle, sys, threading
import types, warnings, weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from torch.nn.utils import parametrize
class Int(int): pass
class Float(float): pass
class Str(str): pass
class List(list): pass
class Tuple(tuple): pass
class Dict(dict):
    def __missing__(self, key): return 7
class Set(set): pass
class TSub(torch.Tensor): pass
class E(enum.IntEnum):
    A = 1
    B = 2
class Bits(enum.Flag):
    P = 1
    Q = 2
class Lies:
    def __init__(self, a): self.a = a
    def __eq__(self, other): return True
    def __hash__(self): return 1
class Base:
    tag = 1
    def m(self, x): return x * self.tag
    @classmethod
    def made(cls): return cls.tag
    @staticmethod
    def s(x): return x + 1
class Box(Base):
    def __init__(self, a=1): self.a = a
    def m(self, x): return super().m(x) + self.a
    @property
    def twice(self): return self.a * 2
class Slots(Base):
    __slots__ = ('a', 'b')
    def __init__(self, a=1): self.a = a
class Dyn(Base):
    def __init__(self, a=1): self.__dict__['a'] = a
    def __getattr__(self, name):
        if name == 'b': return 5
        raise AttributeError(name)
class Sized(Base):
    def __init__(self, a=1): self.a = a
    def __len__(self): return self.a
    def __iter__(self): return iter([self.a, 2])
    def __getitem__(self, k): return self.a + k
    def __contains__(self, k): return k == self.a
    def __eq__(self, other): return isinstance(other, Sized) and self.a == other.a
    def __hash__(self): return hash(self.a)
    def __bool__(self): return self.a > 1
    def __call__(self, x): return x + self.a
    def __mul__(self, other): return other * self.a
    __rmul__ = __mul__
class Described:
    def __set_name__(self, owner, name): self.name = '_' + name
    def __get__(self, obj, owner=None): return self if obj is None else getattr(obj, self.name, 4)
    def __set__(self, obj, value): setattr(obj, self.name, value)
    def __delete__(self, obj): delattr(obj, self.name)
class Computed(Base):
    hidden = Described()
    def __init__(self, a=1): self.__dict__['_a'] = a
    @property
    def a(self): return self._a
    @a.setter
    def a(self, value): self._a = value
    @a.deleter
    def a(self): del self._a
    @functools.cached_property
    def b(self): return self._a + 1 if isinstance(self._a, int) else 0
@dataclasses.dataclass
class Pt:
    a: object = 1
    b: object = 2
@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object = 1
    b: object = 2
NT = collections.namedtuple('NT', 'a b', defaults=(2,))
class Meta(type):
    @property
    def level(cls): return cls.__dict__.get('rank', 3)
class Meant(Base, metaclass=Meta):
    a = 1
class Net(nn.Module):
    scale = 2
    def __init__(self, n=3):
        super().__init__()
        self.lin = nn.Linear(n, n)
        self.register_buffer('count', torch.zeros(()))
        self.calls, self.extra = 0, None
    def forward(self, x):
        self.calls += 1
        y = self.lin(x) * self.scale
        return y if self.extra is None else y + self.extra
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('count', torch.zeros(()))
        self.seen = []
    def forward(self, x):
        self.count += 1
        self.seen.append(tuple(x.shape))
        return x + self.count if self.training else x
class Halved(nn.Module):
    def forward(self, x): return x / 2
def double(v, k=2): return v * k
def triple(v, k=3): return v * k
def shifted(k): return lambda v: v + k
def decorated(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs): return fn(*args, **kwargs) + 1
    return inner
def gathered(x, *args, **kwargs):
    for v in args: x = x + v
    for k, v in kwargs.items(): x = x * v + len(k)
    return x
@contextlib.contextmanager
def patched(obj, name, value):
    absent = object()
    had = vars(obj).get(name, absent)
    setattr(obj, name, value)
    try: yield
    finally:
        if had is absent: delattr(obj, name)
        else: setattr(obj, name, had)
def leaves(out):
    if isinstance(out, torch.Tensor): return [out]
    if isinstance(out, (list, tuple)): return [t for one in out for t in leaves(one)]
    return []
def grads(*args):
    out = run(*args)
    wanted = [t.sum() for t in leaves(out) if t.requires_grad and t.dtype.is_floating_point]
    if wanted: sum(wanted).backward()
    return out
def threaded(*args):
    results = []
    def call():
        try: results.append(run(*args))
        except Exception as e: results.append((type(e).__name__, e.args))
    for _ in range(2):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    return results
other = types.ModuleType('other_state')
sys.modules['other_state'] = other
t0, t1 = T(3), T(3) + 1
var = contextvars.ContextVar('var', default=1)
local = threading.local()
"""

# name -> setup, expression that reads, statements that set, statements that delete. V: first value.
HOLDERS: dict[str, tuple[str, str, list[str], list[str]]] = {
    "global": ("gN = V", "gN", ["gN = W", "globals()['gN'] = W"], ["del gN"]),
    "attribute": (
        "oN = Box()\noN.v = V",
        "oN.v",
        ["oN.v = W", "oN.__dict__['v'] = W", "oN = Box()\noN.v = W", "oN = copy.copy(oN)"],
        ["del oN.v"],
    ),
    "class attribute": (
        "class CN(Base): v = V\nclass DN(CN): pass\noN = DN()",
        "oN.v",
        ["CN.v = W", "DN.v = W", "oN.v = W", "Base.v = W", "CN.v = property(lambda self: W)"],
        ["del CN.v", "vars(oN).clear()", "oN.__class__ = CN"],
    ),
    "class": ("class CN(Base): v = V", "CN.v", ["CN.v = W", "type.__setattr__(CN, 'v', W)"], []),
    "slot": (
        "class CN: __slots__ = ('v',)\noN = CN()\noN.v = V",
        "oN.v",
        ["oN.v = W"],
        ["del oN.v"],
    ),
    "property": ("oN = Computed()\noN.a = V", "oN.a", ["oN.a = W", "oN._a = W"], ["del oN.a"]),
    "descriptor": (
        "oN = Computed()\noN.hidden = V",
        "oN.hidden",
        ["oN.hidden = W", "oN._hidden = W", "Computed.hidden = W"],
        ["del oN.hidden"],
    ),
    "getattr": (
        "class CN:\n    def __getattr__(self, k): return self.__dict__['_' + k]\noN = CN()\noN._v = V",
        "oN.v",
        ["oN._v = W", "oN.v = W", "CN._v = W"],
        ["vars(oN).pop('v', None)"],
    ),
    "getattribute": (
        "class CN:\n    def __getattribute__(self, k):\n        return object.__getattribute__(self, '_' + k)\n"
        "oN = CN()\nobject.__setattr__(oN, '_v', V)",
        "oN.v",
        ["object.__setattr__(oN, '_v', W)", "CN._v = W"],
        [],
    ),
    "item": (
        "dN = {'k': V}",
        "dN['k']",
        ["dN['k'] = W", "dN = {'k': W}", "dN = {'j': 1, 'k': W}", "dN.update(k=W)"],
        ["del dN['k']"],
    ),
    "got": (
        "dN = {'k': V}",
        "dN.get('k', 2)",
        ["dN['k'] = W", "dN['k'] = dN.pop('k')"],
        ["dN.clear()"],
    ),
    "element": (
        "lN = [0, V]",
        "lN[1]",
        ["lN[1] = W", "lN[1:] = [W]", "lN = [0, W]", "lN = (0, W)", "lN.insert(1, W)"],
        ["lN.pop()"],
    ),
    "last": (
        "lN = deque([1, V], maxlen=3)",
        "lN[-1]",
        ["lN.append(W)", "lN[-1] = W"],
        ["lN.pop()"],
    ),
    "nested": (
        "dN = {'k': [Box()]}\ndN['k'][0].v = V",
        "dN['k'][0].v",
        ["dN['k'][0].v = W", "dN['k'][0] = types.SimpleNamespace(v=W)"],
        ["dN['k'].clear()"],
    ),
    "module": (
        "other.vN = V",
        "other.vN",
        ["other.vN = W", "sys.modules['other_state'].vN = W"],
        ["del other.vN"],
    ),
    "imported": (
        "other.vN = V\ndef rN():\n    from other_state import vN\n    return vN",
        "rN()",
        ["other.vN = W", "sys.modules['other_state'] = types.SimpleNamespace(vN=W)"],
        ["sys.modules['other_state'] = other", "del other.vN"],
    ),
    "cell": (
        "def mN(v):\n    def get(): return v\n    def put(w):\n        nonlocal v\n        v = w\n"
        "    return get, put\ngN, pN = mN(V)",
        "gN()",
        ["pN(W)", "gN, pN = mN(W)", "gN.__closure__[0].cell_contents = W"],
        ["del gN.__closure__[0].cell_contents"],
    ),
    "default": (
        "def hN(v=V): return v",
        "hN()",
        [
            "hN.__defaults__ = (W,)",
            "def hN(v=W): return v",
            "hN.__code__ = (lambda v=1: v).__code__",
        ],
        ["hN.__defaults__ = None"],
    ),
    "keyword default": (
        "def hN(*, v=V): return v",
        "hN()",
        ["hN.__kwdefaults__ = {'v': W}", "hN.__kwdefaults__['v'] = W"],
        ["hN.__kwdefaults__ = None"],
    ),
    "function attribute": ("def hN(): return hN.v\nhN.v = V", "hN()", ["hN.v = W"], ["del hN.v"]),
    "method default": (
        "class CN:\n    def m(self, v=V): return v\noN = CN()",
        "oN.m()",
        ["CN.m.__defaults__ = (W,)", "CN.m = lambda self: W", "oN.m = lambda: W", "oN = CN()"],
        ["vars(oN).clear()"],
    ),
    "partial": (
        "pN = functools.partial(lambda v: v, V)",
        "pN()",
        ["pN = functools.partial(lambda v: v, W)", "pN = functools.partial(lambda v=1: v, v=W)"],
        [],
    ),
    "context variable": (
        "vN = contextvars.ContextVar('v')\nvN.set(V)",
        "vN.get()",
        ["vN.set(W)"],
        [],
    ),
    "thread local": ("local.vN = V", "local.vN", ["local.vN = W"], ["del local.vN"]),
    "dataclass": (
        "oN = Pt(V)",
        "oN.a",
        ["oN.a = W", "oN = Pt(W)", "oN = dataclasses.replace(oN, a=W)"],
        [],
    ),
    "frozen": ("oN = Frozen(V)", "oN.a", ["oN = Frozen(W)", "object.__setattr__(oN, 'a', W)"], []),
    "named tuple": (
        "oN = NT(V)",
        "oN.a",
        ["oN = NT(W)", "oN = oN._replace(a=W)", "oN = (W, 2)"],
        [],
    ),
    "cached": (
        "sN = [V]\n@functools.lru_cache\ndef cN(): return sN[0]",
        "cN()",
        ["sN[0] = W", "cN.cache_clear()\nsN[0] = W"],
        ["cN.cache_clear()"],
    ),
    "weak": (
        "oN = Box(V)\nwN = weakref.ref(oN)",
        "wN().a",
        ["oN.a = W", "oN = Box(W)\nwN = weakref.ref(oN)"],
        [],
    ),
    "held generator": (
        "def jN():\n    while True: yield lN[0]\nlN = [V]\niN = jN()",
        "next(iN)",
        ["lN[0] = W", "iN = jN()"],
        ["iN.close()"],
    ),
    "module attribute": (
        "nN = Halved()\nnN.v = V",
        "nN.v",
        [
            "nN.v = W",
            "nN.__dict__['v'] = W",
            "nN = copy.deepcopy(nN)",
            "Halved.v = W",
            "nN.to(torch.float64)",
        ],
        ["del nN.v"],
    ),
    "container module": (
        "nN = nn.Module()\nnN.part = nn.Module()\nnN.part.v = V",
        "nN.part.v",
        ["nN.part.v = W", "nN.part = nn.Module()\nnN.part.v = W"],
        ["del nN.part.v"],
    ),
    "super": (
        "class CN:\n    def v(self): return V\nclass DN(CN):\n    def v(self): return super().v()\noN = DN()",
        "oN.v()",
        ["CN.v = lambda self: W", "DN.__bases__ = (type('Z', (Base,), {'v': lambda self: W}),)"],
        ["DN.v = CN.v"],
    ),
    "user dict": ("dN = UserDict(k=V)", "dN['k']", ["dN['k'] = W", "dN.data = {'k': W}"], []),
    "chain": (
        "dN = ChainMap({}, {'k': V})",
        "dN['k']",
        ["dN['k'] = W", "dN.maps[1]['k'] = W"],
        ["dN.maps[0].clear()"],
    ),
    "proxy": (
        "dN = {'k': V}\npN = types.MappingProxyType(dN)",
        "pN['k']",
        ["dN['k'] = W"],
        ["dN.clear()"],
    ),
    "default dict": (
        "dN = defaultdict(lambda: 2, k=V)",
        "dN['k']",
        ["dN['k'] = W", "dN.default_factory = lambda: W"],
        ["del dN['k']"],
    ),
    "enum": ("class EN(enum.Enum):\n    A = (V,)", "EN.A.value[0]", ["EN.A._value_ = (W,)"], []),
}
