"""One change between two calls: every place a value can live in, by every way a value can change."""

from __future__ import annotations

from tests.dynamo.mutations import check_pair, pairs_of

# place -> (definitions with {v}, where f finds the value, the change with {v})
PLACES = {
    "global": ("G = {v}", "G", "G = {v}"),
    "global of a callee": ("G = {v}\ndef g(): return G", "g()", "G = {v}"),
    "default": ("def g(a={v}): return a", "g()", "g.__defaults__ = ({v},)"),
    "keyword default": ("def g(*, a={v}): return a", "g()", "g.__kwdefaults__ = {{'a': {v}}}"),
    "keyword default in place": (
        "def g(*, a={v}): return a",
        "g()",
        "g.__kwdefaults__['a'] = {v}",
    ),
    "cell": (
        "def make(c):\n    def g(): return c\n    return g\ng = make({v})",
        "g()",
        "g.__closure__[0].cell_contents = {v}",
    ),
    "cell by nonlocal": (
        "def make(c):\n    def g(): return c\n    def put(v):\n        nonlocal c\n        c = v\n"
        "    return g, put\ng, put = make({v})",
        "g()",
        "put({v})",
    ),
    "constant of the code": ("def g(): return {v}", "g()", "g.__code__ = (lambda: {v}).__code__"),
    "function attribute": ("def g(): pass\ng.a = {v}", "g.a", "g.a = {v}"),
    "function dict": ("def g(): pass\ng.a = {v}", "vars(g)['a']", "g.__dict__['a'] = {v}"),
    "instance attribute": ("class A: pass\no = A()\no.a = {v}", "o.a", "o.a = {v}"),
    "instance dict": ("class A: pass\no = A()\no.a = {v}", "o.__dict__['a']", "vars(o)['a'] = {v}"),
    "vars()": ("class A: pass\no = A()\no.a = {v}", "vars(o).get('a')", "o.a = {v}"),
    "new instance dict": ("class A: pass\no = A()\no.a = {v}", "o.a", "o.__dict__ = {{'a': {v}}}"),
    "class attribute": ("class A: a = {v}\no = A()", "o.a", "A.a = {v}"),
    "class attribute of the class": ("class A: a = {v}", "A.a", "A.a = {v}"),
    "class attribute of a new one": ("class A: a = {v}", "A().a", "A.a = {v}"),
    "base attribute": ("class B: a = {v}\nclass A(B): pass\no = A()", "o.a", "B.a = {v}"),
    "base attribute of the class": ("class B: a = {v}\nclass A(B): pass", "A.a", "B.a = {v}"),
    "base attribute by super()": (
        "class B: a = {v}\nclass A(B):\n    def g(self): return super().a\no = A()",
        "o.g()",
        "B.a = {v}",
    ),
    "metaclass attribute": (
        "class M(type): a = {v}\nclass A(metaclass=M): pass",
        "A.a",
        "M.a = {v}",
    ),
    "class dict": ("class A: a = {v}", "A.__dict__['a']", "A.a = {v}"),
    "slot": ("class A: __slots__ = 'a'\no = A()\no.a = {v}", "o.a", "o.a = {v}"),
    "property's state": (
        "class A:\n    @property\n    def a(self): return self._a\no = A()\no._a = {v}",
        "o.a",
        "o._a = {v}",
    ),
    "cached property": (
        "class A:\n    @functools.cached_property\n    def a(self): return self._a\n"
        "o = A()\no._a = {v}\no.a",
        "o.a",
        "o.a = {v}",
    ),
    "descriptor's state": (
        "class D:\n    def __get__(self, o, t): return self.v\n"
        "class A: a = D()\nA.__dict__['a'].v = {v}\no = A()",
        "o.a",
        "A.__dict__['a'].v = {v}",
    ),
    "descriptor's state, of a class": (
        "class D:\n    def __get__(self, o, t): return self.v\nclass A: a = D()\nA.__dict__['a'].v = {v}",
        "A.a",
        "A.__dict__['a'].v = {v}",
    ),
    "list": ("L = [0, {v}]", "L[1]", "L[1] = {v}"),
    "list, iterated": ("L = [{v}]", "[a for a in L]", "L[0] = {v}"),
    "list, new": ("L = [0, {v}]", "L[1]", "L = [0, {v}]"),
    "tuple, new": ("L = (0, {v})", "L[1]", "L = (0, {v})"),
    "dict": ("D = {{'a': {v}}}", "D['a']", "D['a'] = {v}"),
    "dict.get": ("D = {{'a': {v}}}", "D.get('a')", "D['a'] = {v}"),
    "dict values": ("D = {{'a': {v}}}", "list(D.values())", "D['a'] = {v}"),
    "dict by an object": ("K = object()\nD = {{K: {v}}}", "D[K]", "D[K] = {v}"),
    "OrderedDict": ("D = collections.OrderedDict(a={v})", "D['a']", "D['a'] = {v}"),
    "defaultdict": ("D = collections.defaultdict(int, a={v})", "D['a']", "D['a'] = {v}"),
    "ChainMap": ("D = collections.ChainMap({{}}, {{'a': {v}}})", "D['a']", "D.maps[1]['a'] = {v}"),
    "deque": ("D = collections.deque([{v}])", "D[0]", "D[0] = {v}"),
    "nested": ("D = {{'a': [({v},)]}}", "D['a'][0][0]", "D['a'][0] = ({v},)"),
    "dict subclass": ("class S(dict): pass\nD = S(a={v})", "D['a']", "D['a'] = {v}"),
    "list subclass": ("class S(list): pass\nD = S([{v}])", "D[0]", "D[0] = {v}"),
    "SimpleNamespace": ("N = types.SimpleNamespace(a={v})", "N.a", "N.a = {v}"),
    "MappingProxyType": (
        "D = {{'a': {v}}}\nM = types.MappingProxyType(D)",
        "M['a']",
        "D['a'] = {v}",
    ),
    "view of a dict": ("D = {{'a': {v}}}\nV = D.values()", "list(V)", "D['a'] = {v}"),
    "partial argument": (
        "P = functools.partial(see, {v})",
        "P.args[0]",
        "P = functools.partial(see, {v})",
    ),
    "partial keyword": (
        "def g(a): return a\nP = functools.partial(g, a={v})",
        "P()",
        "P.keywords['a'] = {v}",
    ),
    "bound method's self": (
        "class A:\n    def g(self): return self.a\no = A()\no.a = {v}\nm = o.g",
        "m()",
        "o.a = {v}",
    ),
    "dataclass field": (
        "@dataclasses.dataclass\nclass A: a: object\no = A({v})",
        "o.a",
        "o.a = {v}",
    ),
    "named tuple": (
        "N = collections.namedtuple('N', 'a')\no = N({v})",
        "o.a",
        "o = o._replace(a={v})",
    ),
    "enum attribute": (
        "class E(enum.Enum): A = 1\nE.A.extra = {v}",
        "E.A.extra",
        "E.A.extra = {v}",
    ),
    "exception": ("e = ValueError({v})", "e.args[0]", "e.args = ({v},)"),
    "module": (
        "m = types.ModuleType('m')\nm.a = {v}",
        "m.a",
        "m.a = {v}",
    ),
    "imported module": (
        "m = sys.modules['mutated_m'] = types.ModuleType('mutated_m')\nm.a = {v}\n"
        "def g():\n    import mutated_m\n    return mutated_m.a",
        "g()",
        "m.a = {v}",
    ),
    "module of sys.modules": (
        "m = sys.modules['mutated_m'] = types.ModuleType('mutated_m')\nm.a = {v}\n"
        "def g():\n    from mutated_m import a\n    return a",
        "g()",
        "m = sys.modules['mutated_m'] = types.ModuleType('mutated_m'); m.a = {v}",
    ),
    "lazy attribute of a module": (
        "m = types.ModuleType('m')\nm.__getattr__ = lambda name: {v}",
        "m.a",
        "m.__getattr__ = lambda name: {v}",
    ),
    "weak reference": (
        "class A: pass\no = A()\no.a = {v}\nr = weakref.ref(o)",
        "r().a",
        "o.a = {v}",
    ),
    "submodule attribute": (
        "class A(nn.Module): pass\no = nn.Sequential(A())\no[0].a = {v}",
        "o[0].a",
        "o[0].a = {v}",
    ),
    "property of a type": (
        "class M(type):\n    @property\n    def a(cls): return cls._a\nclass A(metaclass=M): _a = {v}",
        "A.a",
        "A._a = {v}",
    ),
    "__getattr__'s state": (
        "class A:\n    def __getattr__(self, name): return D[name]\nD = {{'a': {v}}}\no = A()",
        "o.a",
        "D['a'] = {v}",
    ),
    "__missing__'s state": (
        "class S(dict):\n    def __missing__(self, key): return G\nG = {v}\no = S()",
        "o['a']",
        "G = {v}",
    ),
}
# Before and after.
VALUES = [
    ("1", "2"),
    ("1", "True"),
    ("1", "1.0"),
    ("0.0", "-0.0"),
    ("1.5", "math.nan"),
    ("'a'", "'b'"),
    ("None", "0"),
    ("(1, 2)", "(1, (2,))"),
    ("[1]", "[2]"),
    ("T(2)", "T(3)"),
    ("int", "float"),
]
_PROGRAM = """
{definitions}
def seen(value):
    if isinstance(value, type):
        return value is int
    return see(value)
def f(x): return x * 2, seen({place})
---
{change}
"""
# A few values are enough where the place is another's in all but name.
_FEW = VALUES[1:2] + VALUES[5:6] + VALUES[9:10]
_FULL = ("global", "default", "cell", "instance attribute", "class attribute", "list", "dict")
# Places of values whose type keeps what was there before.
_LITERALS = ("constant of the code",)


def _programs() -> dict[str, str]:
    programs = {}
    for place, (definitions, read, change) in PLACES.items():
        values = VALUES if place in _FULL else VALUES[:8] if place in _LITERALS else _FEW
        for old, new in values:
            programs[f"{place}, {old} to {new}"] = _PROGRAM.format(
                definitions=definitions.format(v=old), place=read, change=change.format(v=new)
            )
    return programs


@pairs_of(_programs())
def test_values_that_change(pair):
    check_pair(pair)
