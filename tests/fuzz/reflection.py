"""Random reflection: what objects and classes of every kind answer about themselves, and their
descriptors and methods, called by hand.

`Reflection(seed)` gives expressions; `differences(texts)` runs them, in one frame, eagerly and
compiled, and tells of each that differs in its value, its exception or what became of the values
from outside, and of each that ends in a fault of ours.

    python -m tests.fuzz.reflection [--expressions N] [--seed S] [--batch B]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import re
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import dynamo
from tests.fuzz.reflected_values import AVOIDED, SPACE, TYPES, VALUES

ALL = {**VALUES, **TYPES}
DEFAULTS = ["None", "'default'", "3"]
FUNCTIONS = """
type callable vars dir repr str len bool iter next int float list tuple set dict sorted reversed
sum min max any all abs bytes bytearray complex enumerate frozenset oct hex bin chr ord round
ascii range slice zip map filter property classmethod staticmethod memoryview super operator.index
operator.length_hint operator.truth operator.neg isinstance issubclass getattr hasattr format divmod
pow operator.contains operator.getitem operator.add operator.eq
""".split()
SPECS = ["''", "'>9'", "'d'", "'.2f'", "'s'", "'x'", "'%'", "'zz'"]
EXTRA = """
__class__ __name__ __qualname__ __module__ __doc__ __dict__ __mro__ __bases__ __base__ __self__
__func__ __wrapped__ __call__ __get__ __init__ __new__ __eq__ __len__ __iter__ __next__ __contains__
__getitem__ __reduce_ex__ __sizeof__ __format__ __dir__ __init_subclass__ __subclasshook__
__class_getitem__ __instancecheck__ __subclasscheck__ mro __text_signature__ __objclass__ __code__
__defaults__ __closure__ __kwdefaults__ __bool__ __index__ __int__ __float__ __str__ __repr__
__or__ __ror__ __add__ __radd__ __lt__ __getattribute__ __getattr__ __slots__ __length_hint__
__args__ __origin__ __parameters__ __isabstractmethod__ __type_params__ __flags__ __basicsize__
value name missing shared method of_class static twice cached told shown of_meta field full empty
""".split()


class Reflection:
    """Endless random expressions over the values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        real: dict[str, Any] = {}
        for name, text in ALL.items():
            real[name] = eval(text.removeprefix("*"), SPACE)
        self.real = real
        self.forms = [
            *[self.read] * 8, *[self.called] * 6, *[self.described] * 6, *[self.unbound] * 4,
            *[self.function] * 4, *[self.checked] * 2, self.attrgetter, self.methodcaller,
            self.super_, self.by_hand, self.by_hand, self.constructed, self.constructed,
            self.of_bound, self.of_bound, self.formatted,
        ]  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        while True:
            text = self.random.choice(self.forms)()
            if text is not None:
                yield text

    # -- parts ----------------------------------------------------------------------------------
    def drawn(self) -> str:
        return self.random.choice([*VALUES] * 2 + [*TYPES])

    def placed(self, name: str) -> str:
        """The value, made in the frame or from outside."""
        text = ALL[name]
        outside = [f"{name}_", f"g.{name}", f'items["{name}"]', f"GLOBAL_{name}"]
        inside = [] if text.startswith("*") else [f"({text})"] * 4
        return self.random.choice(outside + inside)

    def value(self) -> str:
        return self.placed(self.drawn())

    def a_type(self) -> str:
        return self.placed(self.random.choice([*TYPES]))

    def name_of(self, value: Any) -> str:
        try:
            names = {*dir(value), *dir(type(value)), *self.random.sample(EXTRA, 5)}
            names |= set(self.random.sample(dir(type), 3))
        except Exception:
            names = set(EXTRA)
        if isinstance(value, (torch.Tensor, torch.nn.Module, types.ModuleType)) or value in (
            torch.Tensor, torch.nn.Parameter, torch.nn.Module,
        ):  # fmt: skip
            names = set(EXTRA) | {n for n in names if n.startswith("__")}
        return self.random.choice(sorted(names - AVOIDED))

    def arguments(self, most: int = 3) -> str:
        count = self.random.choice([0, 0, 1, 1, 1, 2, 2, most])
        texts = [self.value() for _ in range(count)]
        if self.random.random() < 0.05:
            texts.append("unknown=1")
        return ", ".join(texts)

    # -- forms ----------------------------------------------------------------------------------
    def read(self) -> str:
        drawn = self.drawn()
        name, v = self.name_of(self.real[drawn]), self.placed(drawn)
        default = self.random.choice(DEFAULTS)
        forms = [
            f"{v}.{name}", f"getattr({v}, '{name}')", f"hasattr({v}, '{name}')",
            f"getattr({v}, '{name}', {default})", f"type({v}).{name}",
            f"hasattr(type({v}), '{name}')", f"object.__getattribute__({v}, '{name}')",
            f"type.__getattribute__({v}, '{name}')", f"getattr(type({v}), '{name}', None)",
        ]  # fmt: skip
        return self.random.choice(forms)

    def called(self) -> str:
        drawn = self.drawn()
        name, v = self.name_of(self.real[drawn]), self.placed(drawn)
        if self.random.random() < 0.2:
            return f"getattr({v}, '{name}')({self.arguments()})"
        return f"{v}.{name}({self.arguments()})"

    def unbound(self) -> str:
        drawn = self.drawn()
        name, v = self.name_of(type(self.real[drawn])), self.placed(drawn)
        kind = self.random.choice([f"type({v})", f"type({v})", self.a_type()])
        rest = self.arguments()
        return f"{kind}.{name}({v}{', ' + rest if rest else ''})"

    def described(self) -> str:
        drawn, other = self.drawn(), self.drawn()
        real = self.real[drawn]
        kinds = [real] if isinstance(real, type) else []
        owner = self.random.choice([*type(real).__mro__, *kinds])
        names = sorted(
            n for n in set(vars(owner)) - AVOIDED if not _told_class(vars(owner)[n], real)
        )
        if not names:
            return f"vars({self.placed(drawn)})"
        name, v, w = self.random.choice(names), self.placed(drawn), self.placed(other)
        space = f"type({v}).__dict__"
        if owner is not type(real):
            known = [n for n, t in self.real.items() if n in TYPES and t is owner]
            if not known:
                return f"type({v}).__mro__[-1].__dict__"
            space = f"{self.placed(known[0])}.__dict__"
        found = f"{space}['{name}']"
        forms = [
            found, f"{found}.__get__({v})", f"{found}.__get__({v}, type({v}))",
            f"{found}.__get__(None, type({v}))", f"{found}.__get__({w})", f"{found}({v})",
            f"{found}.__get__({v})({self.arguments()})", f"{found}({self.arguments()})",
            f"{found}.__get__({v}, {w})", f"{found}.__get__({self.arguments()})",
            f"type({found})", f"{found}.{self.random.choice(EXTRA)}",
            f"hasattr({found}, '{self.random.choice(EXTRA)}')",
        ]  # fmt: skip
        return self.random.choice(forms)

    def of_bound(self) -> str:
        drawn = self.drawn()
        name, v = self.name_of(self.real[drawn]), self.placed(drawn)
        again = self.random.choice([n for n in EXTRA if n not in AVOIDED])
        call = f"({self.arguments()})" if self.random.random() < 0.4 else ""
        return f"{v}.{name}.{again}{call}"

    def function(self) -> str:
        name = self.random.choice(FUNCTIONS)
        return f"{name}({self.arguments()})"

    def checked(self) -> str:
        kinds = self.random.choice([self.a_type(), f"({self.a_type()}, {self.a_type()})"])
        if self.random.random() < 0.6:
            return f"isinstance({self.value()}, {kinds})"
        return f"issubclass({self.random.choice([self.a_type(), self.value()])}, {kinds})"

    def attrgetter(self) -> str:
        drawn = self.drawn()
        names = [self.name_of(self.real[drawn])]
        if self.random.random() < 0.4:
            names.append(self.random.choice(EXTRA))
        path = self.random.choice([".".join(names), "', '".join(names)])
        return f"operator.attrgetter('{path}')({self.placed(drawn)})"

    def methodcaller(self) -> str:
        drawn = self.drawn()
        rest = self.arguments(2)
        name = self.name_of(self.real[drawn])
        call = f"'{name}'{', ' + rest if rest else ''}"
        return f"operator.methodcaller({call})({self.placed(drawn)})"

    def super_(self) -> str:
        drawn = self.drawn()
        real = self.real[drawn]
        kinds = real.__mro__ if isinstance(real, type) else type(real).__mro__
        known = [n for n, t in self.real.items() if n in TYPES and any(t is k for k in kinds)]
        owner = self.placed(self.random.choice(known or [*TYPES]))
        name = self.name_of(real)
        call = f"({self.arguments()})" if self.random.random() < 0.5 else ""
        return f"super({owner}, {self.placed(drawn)}).{name}{call}"

    def by_hand(self) -> str:
        v, kind, rest = self.value(), self.a_type(), self.arguments()
        more = ", " + rest if rest else ""
        forms = [
            f"type.__call__({kind}{more})", f"{kind}.__init_subclass__()",
            f"{kind}.__class_getitem__({v})", f"{kind}[{v}]", f"{v}.__reduce_ex__(2)",
            f"{v}.__sizeof__()", f"{v}.__dir__()", f"{kind}.mro()", f"object.__reduce_ex__({v}, 2)",
            f"{kind}.__instancecheck__({v})", f"type.__instancecheck__({kind}, {v})",
            f"{kind}.__subclasshook__({v})", f"type.__subclasscheck__({kind}, {self.a_type()})",
            f"{kind}.__subclasscheck__({v})", f"object.__dir__({v})", f"object.__repr__({v})",
            f"object.__format__({v}, '')", f"object.__eq__({v}, {v})",
            f"{kind} | {self.value()}", f"object.__new__({kind}{more})", f"type.mro({kind})",
            f"{kind}.__new__({kind}{more})", f"{kind}.__new__({rest})", f"object.__str__({v})",
            f"type.__dict__['{self.random.choice(_OF_TYPE)}'].__get__({self.value()})",
            f"type.__dict__['{self.random.choice(_OF_TYPE)}'].__get__({kind})",
            f"object.__dict__['__class__'].__get__({v})", f"type({v}).__name__",
            f"type(type({v}))", f"{v}.__class__.__mro__", f"type({v}) is {v}.__class__",
            f"type.__dict__['__dict__'].__get__({kind})", f"type.__repr__({kind})",
            f"{kind}.__init__({v}{more})", f"object.__init__({v}{more})",
            f"types.MethodType({v}, {self.value()})", f"type('Made', ({kind},), {{}}).__mro__[1:]",
            f"type('Made', ({kind},), {{}})({rest})", f"type({self.arguments()})",
        ]  # fmt: skip
        return self.random.choice(forms)

    def constructed(self) -> str:
        return f"{self.a_type()}({self.arguments()})"

    def formatted(self) -> str:
        v, spec = self.value(), self.random.choice(SPECS)
        forms = [
            f"format({v}, {spec})", f"{v}.__format__({spec})", f"f'{{{{}}}}'.format({v})",
            f"'%s' % ({v},)", f"'%r|%d' % ({v}, {self.value()})", f"'{{0.__class__}}'.format({v})",
        ]  # fmt: skip
        return self.random.choice(forms)


_OF_TYPE = [n for n in vars(type) if n not in AVOIDED and hasattr(vars(type)[n], "__get__")]


def _told_class(found: Any, owner: Any) -> bool:
    """Whether a method of C is told its class: Python reads the memory of what `__get__` is given
    in its place, or of nothing.
    """
    if not isinstance(found, types.MethodDescriptorType):
        return False
    try:
        return type(found.__get__(owner, type(owner))).__name__ == "builtin_method"
    except TypeError:
        return True


_ENDLESS = r"\b(ci|count|cycle)(_|\b)|iter\(int, 1\)|\.(count|cycle)\("
_TAKES_ALL = (
    r"__class__\(|\b(sorted|list|tuple|set|frozenset|sum|max|min|dict|deque|reduce|join|fromkeys)\b"
    r"|union|update|intersection|difference|isdisjoint|issu(b|per)set|extend|writelines|__contains__"
)


def costly(text: str) -> bool:
    """What asks for addresses, orders that nobody promises, or the time; what reads the frame; what
    may take all items of an endless iterator.
    """
    return bool(
        (re.search(_TAKES_ALL, text) and re.search(_ENDLESS, text))
        or re.search(
            r"__sizeof__|__hash__|\bid\(|__subclasses__|random|register_|getrandbits", text
        )
        or re.search(r'(vars|dir|super)(_|"\])?\)?\(\)|super.*__init__.*\(', text)
    )


def program(texts: Sequence[str]) -> str:
    """f(g, items, <values>): each expression's value, or its exception, in a list."""
    used = sorted({name for name in ALL if re.search(rf"\b{name}_\b", "\n".join(texts))})
    lines = [f"def f(x, g, items, {', '.join(f'{name}_' for name in used)}):"]
    lines += ["    x = x + 1", "    results = []"]
    for text in texts:
        lines += [
            "    try:", f"        r = {text}", "        results.append((True, r))",
            "    except Exception as error:", "        results.append((False, error))",
        ]  # fmt: skip
    lines.append("    return x, results")
    return "\n".join(lines)


# Whether the class that has the method or that of the object is named is a matter of who binds it.
_QUALIFIER = re.compile(r"^[\w.-]+\.(\w+\(\) takes )")
_ADDRESS = re.compile(r"0x[0-9a-f]+|\bat \d{5,}")


def shown(value: Any, names: dict[int, str], depth: int = 0) -> Any:
    if id(value) in names:
        return names[id(value)]
    kind, named = type(value), _name(type(value))
    if depth > 3:
        return named
    if kind in (list, tuple):
        return named, [shown(item, names, depth + 1) for item in value]
    if kind in (dict, types.MappingProxyType):
        try:
            held = value.items()
        except AttributeError:  # a proxy of what is no mapping
            return named, _text(value)
        return named, [(_text(k), shown(v, names, depth + 1)) for k, v in held]
    if kind in (set, frozenset):
        return named, sorted(map(_text, value))
    if isinstance(value, torch.Tensor):
        return named, value.dtype, value.tolist(), value.requires_grad
    if kind.__flags__ & 1 << 5 == 0 and hasattr(kind, "__next__"):
        try:
            found = itertools.islice(value, 8) if callable(getattr(kind, "__iter__", None)) else ()
            return named, [shown(item, names, depth + 1) for item in found]
        except Exception as error:
            return named, type(error)
    if kind in (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType):
        owner = value.__self__
        if not isinstance(owner, types.ModuleType):
            return named, getattr(value, "__name__", None), shown(owner, names, depth + 1)
    state = getattr(value, "__dict__", None) if kind.__flags__ & 1 << 9 else None
    if type(state) is dict and not isinstance(value, (type, torch.nn.Module)):
        return named, _text(value), [(k, shown(v, names, depth + 1)) for k, v in state.items()]
    return named, _text(value)


def _name(kind: type) -> str:
    """One made in the frame is another one in each run."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(value: Any) -> str:
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception as error:
        return f"{type(error)} {_ADDRESS.sub('', str(error))}"


def _told(done: bool, result: Any, names: dict[int, str]) -> Any:
    if done:
        return shown(result, names)
    fields = {n: shown(v, names) for n, v in vars(result).items() if n != "__notes__"}
    text = _QUALIFIER.sub(r"\1", _ADDRESS.sub("", str(result)))
    context = None if result.__suppress_context__ else result.__context__
    return _name(type(result)), text, fields, type(context)


# What C makes anew for each look has no identity worth comparing.
_BY_VALUE = frozenset(
    [int, str, bytes, float, bool, complex, type(None), tuple, types.BuiltinMethodType]
    + [types.MethodWrapperType, types.MethodType]
)


def run(texts: Sequence[str], compiled: bool) -> tuple[list[Any], Any, list[str]]:
    """What each expression gives; what became of the values; the faults that capture told of."""
    torch.manual_seed(0)
    values = {n: eval(text.removeprefix("*"), SPACE) for n, text in ALL.items()}
    space = {**SPACE, **{f"GLOBAL_{n}": v for n, v in values.items()}}
    exec(compile(program(texts), "<reflection>", "exec"), space)
    function = space["f"]
    used = {n: values[n] for n in ALL if re.search(rf"\b{n}_\b", "\n".join(texts))}
    if compiled:
        dynamo.reset()
        function = dynamo.compile(function, backend="eager")
    names = {
        id(v): n for n, v in values.items()
        if type(v) not in _BY_VALUE
    }  # fmt: skip
    arguments = {f"{n}_": v for n, v in used.items()}
    items = dict(values)
    g = types.SimpleNamespace(**values)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        x, results = function(torch.zeros(1), g, items, **arguments)
    assert x.item() == 1
    faults = [str(w.message) for w in warned if "fault" in str(w.message)]
    del warned
    out = [_told(*result, names) for result in results]
    after = {n: shown(v, {}) for n, v in values.items() if _named(n, texts)}
    return out, after, faults


def _named(name: str, texts: Sequence[str]) -> bool:
    places = (f"{name}_", f"g.{name}", f'"{name}"', f"GLOBAL_{name}")
    return any(place in text for text in texts for place in places)


def differences(texts: Sequence[str]) -> list[str]:
    """The differences, of single expressions where one alone shows it."""
    try:
        expected, actual = run(texts, False), run(texts, True)
        same = expected[:2] == actual[:2] and not actual[2]
    except Exception as error:
        if len(texts) == 1:
            return [f"{texts[0]}\n  outside of the expression: {type(error).__name__}: {error}"]
        same = False
    if same:
        return []
    if len(texts) > 1:
        alone = [found for text in texts for found in differences([text])]
        return alone or ["only together:\n  " + "\n  ".join(texts)]
    told = [f"{texts[0]}"]
    if expected[0] != actual[0]:
        told += [f"  eager    {expected[0][0]}", f"  compiled {actual[0][0]}"]
    changed = [n for n, v in expected[1].items() if actual[1][n] != v]
    told += [f"  {n} becomes {expected[1][n]}, compiled {actual[1][n]}" for n in changed]
    told += [f"  {_inner(fault)}" for fault in actual[2]]
    return ["\n".join(told)]


def _inner(fault: str) -> str:
    return "\n    ".join(line for line in fault.strip().splitlines()[-5:])


def batches(seed: int, count: int, size: int) -> Iterator[list[str]]:
    texts = (text for text in Reflection(seed) if not costly(text))
    remaining = itertools.islice(texts, count)
    while batch := list(itertools.islice(remaining, size)):
        yield batch


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.reflection", description=__doc__)
    parser.add_argument("--expressions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    print(f"--seed {options.seed} --expressions {options.expressions} --batch {options.batch}")
    wrong = 0
    for i, batch in enumerate(batches(options.seed, options.expressions, options.batch)):
        for found in differences(batch):
            wrong += 1
            print(found, flush=True)
        if i % 50 == 0:
            gc.collect()
    print(f"{options.expressions} expressions, {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
