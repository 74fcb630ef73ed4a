"""match statements: what matches, and what Python refuses."""

from tests.dynamo.programs import ONE, Family

DEFINITIONS = """
class Point:
    __match_args__ = ('x', 'y')
    def __init__(self, **kw): self.__dict__.update(kw)
class Number(int): pass
class Named(int):
    __match_args__ = ('real',)
class Odd:
    __match_args__ = ['x']
    x = 1
class Twice:
    __match_args__ = ('x', 'x')
    x = 1
class Few:
    x = 1
K = 'a'
"""
FAMILY = Family(backends=ONE, prelude=DEFINITIONS)
# pattern -> subjects
PATTERNS = {
    "Point(1, b)": "Point(x=1, y=2); Point(x=1); Point(y=1); 3",
    "Point(a, y=b)": "Point(x=1, y=2); Point(x=1); Point(y=1)",
    "Point(a, x=b)": "Point(x=1, y=2); 4",
    "Point(x=a)": "Point(x=1); Point(y=2)",
    "int(a)": "3; True; Number(4); 1.5",
    "Number(a)": "Number(4); 4",
    "Named(a)": "Named(4); 4",
    "Odd(a)": "Odd(); 4",
    "Twice(a, b)": "Twice(); 4",
    "Few(a)": "Few(); 4",
    "Few(x=a)": "Few(); 4",
    "math.pi(a)": "4",
    "{'k': a}": "{'k': 1}; {}; collections.defaultdict(int)",
    "{'k': a, **rest}": "{'k': 1, 'l': 2}; {'l': 1}",
    "{'k': a, 'l': 1 | 2 as b}": "{'k': 1, 'l': 2}; {'k': 1, 'l': 3}",
    "[a, *b]": "[1, 2, 3]; (1,); []; 'ab'; collections.deque([1, 2])",
    "[a, [b, _]]": "[1, [2, 3]]; [1, 2]; [1, (2, 3)]",
    "(1 | 2) as a": "1; 2; 3; True",
    "str() | bytes() as a": "'x'; b'x'; 1",
    "None | True": "None; True; 1",
    "a if a > 2": "3; 1",
    "torch.Tensor(shape=(2,))": "torch.ones(2); torch.ones(3)",
}
TRIED = """
def f(x, subject):
    y, a, b, rest = x + 1, 0, 0, 0
    log.append(y)
    match subject:
        case {pattern}:
            return y, a, b, rest
        case _:
            return y * 2
---
"""


def tried(pattern: str, subjects: str) -> str:
    steps = (f"run(T(2), {subject})\n" for subject in subjects.split("; "))
    return TRIED.replace("{pattern}", pattern) + "".join(steps)


PROGRAMS = {pattern: tried(pattern, subjects) for pattern, subjects in PATTERNS.items()}
PROGRAMS["classes_that_check_instances_themselves"] = """
from typing import Protocol, runtime_checkable
@runtime_checkable
class Fields(Protocol):
    n: int
@runtime_checkable
class Method(Protocol):
    def method(self): ...
class Large(type):
    def __instancecheck__(cls, obj):
        log.append(type(obj).__name__)
        return getattr(obj, "n", 0) > 1
class AnyLarge(metaclass=Large):
    __match_args__ = ("n",)
class O:
    def __init__(self, **attributes): vars(self).update(attributes)
class Posed:
    __class__ = property(lambda self: list)
def f(x, obj, change):
    y, found = x + 1, []
    for o in (obj, O(n=1), O(n=2), O(method=1), Posed(), 3):
        match o:
            case AnyLarge(n): found.append(n)
            case Fields(n=n): found.append((n, isinstance(o, Method)))
            case Method(): found.append("method")
            case list(): found.append("list")
            case _: found.append(isinstance(o, Method))
    if change:
        del obj.n
        obj.method = 1
        found += [isinstance(obj, Fields), isinstance(obj, Method)]
    return y * 2, found
---
run(T(2), O(n=1), False)
run(T(2), O(n=1), True)
run(T(2), [1], False)
"""
