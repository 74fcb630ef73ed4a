"""Random expressions over values from outside: operators, built-in functions, items and methods of
the built-in types and of subclasses of them.

`Expressions(seed)` gives texts in which the values are names; `mismatch(text, where)` runs one
eagerly and compiled, with the values as arguments, globals, attributes or items, and tells what
differs: the result, its type, which value it is, what is raised with its text, or what became of
the values.

    python -m tests.fuzz.expressions [--expressions N] [--seed S]
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import decimal
import enum
import fractions
import itertools
import random
import re
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

import dynamo


class Int(int):
    pass


class Float(float):
    pass


class Text(str):
    pass


class Bytes(bytes):
    pass


class List(list):
    pass


class Dict(dict):
    pass


class Tuple(tuple):
    pass


class Set(set):
    pass


class Frozen(frozenset):
    pass


class Queue(collections.deque):
    pass


class Colour(enum.Enum):
    A = 1
    B = 2


class Number(enum.IntEnum):
    A = 1
    B = 2


class Flag(enum.Flag):
    A = 1
    B = 2


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass(order=True, frozen=True)
class Data:
    x: int
    y: str = "a"


class Equal:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return isinstance(other, Equal) and self.v == other.v

    def __hash__(self):
        return hash(self.v)

    def __lt__(self, other):
        return self.v < other.v

    def __repr__(self):
        return f"Equal({self.v})"


OUTSIDE: dict[str, Any] = {
    "i": 3, "neg": -1, "zero": 0, "big": 2**70, "f": 2.5, "nan": float("nan"),
    "inf": float("inf"), "yes": True, "no": False, "s": "abc", "pattern": "%s {} $a", "es": "",
    "uni": "a\u00e9\u00df", "b": b"ab", "eb": b"", "c": 1 + 2j, "none": None, "dots": ...,
    "t": (1, 2), "et": (), "l": [1, 2, 3], "el": [], "texts": ["b", "a"], "d": {"a": 1, "b": 2},
    "ed": {}, "fs": frozenset([1, 2]), "st": {1, 2}, "r": range(3), "r2": range(5, 0, -2),
    "sl": slice(1, 2), "q": collections.deque([1, 2]), "q2": collections.deque([1, 2], 2),
    "cnt": collections.Counter("aab"), "od": collections.OrderedDict(a=1, b=2),
    "ba": bytearray(b"ab"), "dd": collections.defaultdict(int, a=1), "mi": Int(3),
    "mf": Float(2.5), "ms": Text("abc"), "mb": Bytes(b"ab"), "ml": List([1, 2, 3]),
    "md": Dict(a=1), "mt": Tuple((1, 2)), "mst": Set([1, 2]), "mfs": Frozen([1, 2]),
    "mq": Queue([1, 2]), "e": Colour.A, "ie": Number.B, "fl": Flag.A | Flag.B, "p": Point(1, 2),
    "data": Data(1), "eq": Equal(1), "dec": decimal.Decimal("1.5"),
    "fr": fractions.Fraction(1, 2), "nest": (1, frozenset([2])),
}  # fmt: skip
INSIDE = [
    "3", "-1", "2.5", "True", "'abc'", "''", "b'ab'", "(1, 2)", "()", "[1, 2, 3]", "[]",
    "{'a': 1, 'b': 2}", "{}", "frozenset([1, 2])", "{1, 2}", "range(3)", "slice(1, 2)",
    "collections.deque([1, 2])", "1+2j", "None", "collections.Counter('aab')",
    "collections.OrderedDict(a=1, b=2)", "collections.defaultdict(int, a=1)", "Int(3)",
    "Text('abc')", "List([1, 2, 3])", "Dict(a=1)", "Tuple((1, 2))", "Set([1, 2])", "Frozen([1])",
    "Queue([1, 2])", "Bytes(b'ab')", "Float(2.5)", "Point(1, 2)", "Data(1)", "Equal(1)",
    "Colour.A", "Number.B", "(1, frozenset([2]))", "bytearray(b'ab')", "fractions.Fraction(1, 2)",
]  # fmt: skip
OPERATORS = "== != <= < > >= | & - ^ + * / // % ** << >> @ in not_in and or is".split()
UPDATES = "+= -= *= /= //= %= |= &= ^= **= <<= >>=".split()
FUNCTIONS = """
len list tuple set frozenset sorted sum min max any all repr str hash bool int float abs dict iter
reversed type enumerate bytes bytearray complex round range next callable ascii hex oct bin chr
ord vars operator.neg operator.pos operator.invert operator.not_ operator.index
operator.length_hint copy.copy copy.deepcopy divmod(2) format(2) isinstance(2) zip(2) map(2)
filter(2) pow(2) getattr(2) hasattr(2) isinstance(2) operator.concat(2) operator.contains(2)
operator.countOf(2) operator.indexOf(2) operator.getitem(2) str.join(2)
""".split()
SPACE = {**globals(), "copy": copy, "operator": __import__("operator")}
PLACES = ("argument", "global", "attribute", "item")


class Expressions:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __iter__(self) -> Iterator[str]:
        while True:
            yield self.one()

    def term(self) -> str:
        return self.random.choice([*OUTSIDE, *INSIDE])

    def one(self) -> str:
        kind = self.random.random()
        u, v, w = self.term(), self.term(), self.term()
        if kind < 0.4:
            return f"({u}) {self.random.choice(OPERATORS).replace('_', ' ')} ({v})"
        if kind < 0.47:
            return f"({u}, {v}) {self.random.choice(['==', '<', 'in', '+'])} ({w}, {v})"
        if kind < 0.52:
            return f"updated {u} ; {self.random.choice(UPDATES)} ; {v}"
        if kind < 0.65:
            name, _, two = self.random.choice(FUNCTIONS).partition("(")
            return f"{name}({u}, {v})" if two else f"{name}({u})"
        if kind < 0.7:
            return f"({u})[{v}]"
        if kind < 0.73:
            u, v = (self.random.choice([*OUTSIDE]) for _ in range(2))
            forms = [f"f'{{{u}!r:>9}}'", f"'%s|%r' % ({u}, {v})", f"f'{{{u}}}'"]
            return self.random.choice(forms)
        return self.method(u, v, w)

    def method(self, u: str, v: str, w: str) -> str:
        value = OUTSIDE[u] if u in OUTSIDE else eval(u, SPACE)
        names = [n for n in dir(value) if not n.startswith("_") or n in _SPECIAL]
        if not names:
            return f"({u}) == ({v})"
        name = self.random.choice(names)
        if not callable(getattr(value, name, None)):
            return f"({u}).{name}"
        return f"({u}).{name}({', '.join([v, w][: self.random.choice([0, 1, 1, 2])])})"


_SPECIAL = frozenset(
    """__add__ __radd__ __mul__ __rmul__ __eq__ __lt__ __or__ __and__ __sub__ __contains__
    __getitem__ __len__ __iter__ __hash__ __bool__ __str__ __repr__""".split()
)


def _program(text: str, where: str) -> str:
    """The text of a function f(x, box, items) of the expression."""

    def placed(match: re.Match[str]) -> str:
        name = match[0]
        if name not in OUTSIDE:
            return name
        return {"attribute": f"box.{name}", "item": f'items["{name}"]'}.get(where, name)

    # Names of values, and not in texts, nor behind a dot, nor of a keyword argument.
    expression = re.sub(r"'(?:[^'{]*)'|(?<![\w.'!])[a-z]\w*\b(?!['=(])", placed, text)
    parameters = ", ".join(["x", "box", "items", *(OUTSIDE if where == "argument" else ())])
    if expression.startswith("updated "):
        target, update, operand = expression[len("updated ") :].split(" ; ")
        if target.removeprefix("box.").split("[")[0] not in {*OUTSIDE, "items"}:
            lines = [f"y = {target}", f"y {update} {operand}", "return x + 1, y"]
            return "\n    ".join([f"def f({parameters}):", *lines])
        scope = [f"global {target}"] if where == "global" else []
        lines = [*scope, f"{target} {update} {operand}", f"return x + 1, {target}"]
        return "\n    ".join([f"def f({parameters}):", *lines])
    return f"def f({parameters}):\n    return x + 1, {expression}\n"


def _shown(value: Any, values: dict[int, str]) -> Any:
    if id(value) in values:
        return values[id(value)]  # the value itself
    if hasattr(value, "__next__"):
        return type(value), [_shown(item, values) for item in itertools.islice(value, 12)]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, value))
    if type(value) in (list, tuple):
        return type(value), [_shown(item, values) for item in value]
    return type(value), re.sub(r"0x[0-9a-f]+", "", repr(value))


def _run(text: str, where: str, compiled: bool) -> Any:
    out = copy.deepcopy(OUTSIDE)
    space = {**SPACE, **(out if where == "global" else {})}
    exec(_program(text, where), space)
    function = space["f"]
    if compiled:
        dynamo.reset()
        function = dynamo.compile(function, backend="eager")
    box = types.SimpleNamespace(**out)
    arguments = out if where == "argument" else {}
    literals = (int, str, bytes, float, bool, type(None), complex, type(...))
    values = {
        id(v): k for k, v in out.items() if not isinstance(v, literals) or type(v) not in literals
    }
    try:
        result = _shown(function(torch.ones(1), box, out, **arguments)[1], values)
    except Exception as error:
        result = (type(error), re.sub(r"0x[0-9a-f]+", "", str(error)))
    after = {k: _shown(v, {}) for k, v in out.items()}
    return result, after, {k: _shown(v, {}) for k, v in vars(box).items() if v is not out[k]}


def costly(text: str) -> bool:
    """Memory without end, or an order that nobody promises."""
    return bool(
        re.search(r"\bbig\b|\binf\b|2\*\*70", text)
        and re.search(
            r"\*|<<|just|center|zfill|range|bytes|expandtabs|to_bytes|repeat|pow|rotate", text
        )
    )


def mismatch(text: str, where: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, actual = _run(text, where, False), _run(text, where, True)
    if expected == actual:
        return None
    sides = _first(expected, actual), _first(actual, expected)
    return f"{text}  ({where})\n  eager    {sides[0]}\n  compiled {sides[1]}"


def _first(one: Any, other: Any) -> str:
    if one[0] != other[0]:
        return str(one[0])
    return str(
        {
            k: v
            for part, rest in zip(one[1:], other[1:])
            for k, v in part.items()
            if rest.get(k) != v
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.expressions", description=__doc__)
    parser.add_argument("--expressions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"--seed {options.seed} --expressions {options.expressions}")
    texts = (text for text in Expressions(options.seed) if not costly(text))
    wrong = 0
    for i, text in enumerate(itertools.islice(texts, options.expressions)):
        found = mismatch(text, PLACES[i % len(PLACES)])
        if found:
            wrong += 1
            print(found)
    print(f"{options.expressions} expressions, {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
