"""match statements: what matches, and what Python refuses."""

from __future__ import annotations

import pytest

from tests.dynamo.differential import check

PREAMBLE = """
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


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern(pattern):
    steps = "\n".join(f"run(T(2), {subject})" for subject in PATTERNS[pattern].split(";"))
    function = f"""
def f(x, subject):
    y, a, b, rest = x + 1, 0, 0, 0
    log.append(y)
    match subject:
        case {pattern}:
            return y, a, b, rest
        case _:
            return y * 2
"""
    check(f"{PREAMBLE}{function}\n---\n{steps}\n", backends=("eager",))
