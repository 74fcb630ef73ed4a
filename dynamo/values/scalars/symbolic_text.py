"""Texts with symbolic numbers inside: f"{x.size(0)}", str(n), "-".join(map(str, x.shape)); with
addresses of objects; and with values of tensors (values/tensors/tensor_texts.py).

The rewritten frame writes them with the numbers of each call. Whatever else is asked of such a
text (its length, a comparison, the key of a dict) gets the one of this call, and the numbers are
guarded; a text of tensors is not known, and breaks the graph.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values import late_bound
from dynamo.values.base import Value
from dynamo.values.late_bound import bound_late
from dynamo.values.recipes import Recipe, exact
from dynamo.values.scalars.constant import ConstantMethodValue, ConstantValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_SPEC = re.compile(r"[^{}cn]*")  # no nested field, nothing that depends on more than the number
_CONVERSION = re.compile(r"%([-+ 0]*)(\d*)(\.\d+)?([diouxXeEfFgGsr%])")
_BRACES = str.maketrans({"{": "{{", "}": "}}"})


@dataclass(frozen=True)
class Field:
    """format(number, spec) of a symbol or a tensor; `conversion`: "!s" for str(number)."""

    number: Value
    spec: str = ""
    conversion: str = ""

    def text(self) -> str:
        if not self.number.is_symbolic():
            raise Unsupported(breaks.DataDependentValue("a text"))
        return format(self.number.as_constant(), self.spec)


class Address(Value):
    """id(subject) in the text of an object from outside; guarded only if that text is asked for."""

    def __init__(self, tx: Interpreter, subject: Value, real: Any) -> None:
        super().__init__()
        self.tx = tx
        self.subject = subject
        self.real = real

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"the address of {self.subject.describe()}"

    def is_symbolic(self) -> bool:
        return True

    def as_constant(self) -> int:
        assert self.subject.source is not None, "it is from outside"
        self.tx.guard(self.subject.source, "id", self.real)
        return id(self.real)

    def children(self) -> Sequence[Value]:
        return (self.subject,)

    def held(self) -> Sequence[Value]:
        return ()

    def recipe(self) -> Recipe:
        return id, [self.subject]


def text_with_address(tx: Interpreter, subject: Value, real: Any, text: str) -> ConstantValue:
    """The text of an object from outside, with its address in each call."""
    before, found, after = text.partition(hex(id(real)))
    if not found:
        return ConstantValue(text)
    return SymbolicText([before, Field(Address(tx, subject, real), "#x"), after])


class SymbolicText(ConstantValue):
    """A str of `pieces`, one behind the other."""

    def __init__(self, pieces: Sequence[str | Field]) -> None:
        Value.__init__(self)
        self.pieces = pieces

    @property
    def value(self) -> str:  # type: ignore[override]
        """The text of this call; guards its numbers."""
        return "".join(piece if isinstance(piece, str) else piece.text() for piece in self.pieces)

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return f"a text of {', '.join(number.describe() for number in self.children())}"

    def truth(self, tx: Interpreter) -> bool:
        if any(isinstance(number, TextOf) for number in self.children()):
            return bool(self.value)
        return True  # a number has a text

    def getattr(self, tx: Interpreter, name: str) -> Value:
        return ConstantMethodValue(self, name) if name in _METHODS else super().getattr(tx, name)

    def call_method(
        self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Value:
        if name in _METHODS and not kwargs and all(type(arg) is ConstantValue for arg in args):
            made = text_of_text(getattr(str, name), self, [arg.as_constant() for arg in args])
            if made is not None:
                return made
        return super().call_method(tx, name, args, kwargs)

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        bounds = _bounds(key)
        made = None if bounds is None else text_of_text(_part, self, bounds)
        return super().getitem(tx, key) if made is None else made

    def children(self) -> Sequence[Value]:
        return [piece.number for piece in self.pieces if isinstance(piece, Field)]

    def recipe(self) -> Recipe:
        template, numbers = "", self.children()
        for piece in self.pieces:
            if isinstance(piece, Field):
                template += f"{{{piece.conversion}:{piece.spec}}}"
            else:
                template += piece.translate(_BRACES)
        return str.format, [exact(template), *numbers]


# Of str: they make a text of every text.
_METHODS = frozenset(
    ["lower", "upper", "casefold", "title", "capitalize", "swapcase", "strip", "lstrip", "rstrip"]
    + ["ljust", "rjust", "center", "zfill", "expandtabs"]
    + ["replace", "removeprefix", "removesuffix"]
)


class TextOf(Value):
    """function(text, *args) of a symbolic text."""

    def __init__(self, function: Callable[..., str], text: Value, args: Sequence[Any]) -> None:
        super().__init__()
        self.function = function
        self.text = text
        self.args = args

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return self.text.describe()

    def is_symbolic(self) -> bool:
        return True

    def as_constant(self) -> str:
        return self.function(self.text.as_constant(), *self.args)

    def children(self) -> Sequence[Value]:
        return (self.text,)

    def recipe(self) -> Recipe:
        return self.function, [self.text, *map(exact, self.args)]


def text_of_text(
    function: Callable[..., str], text: SymbolicText, args: Sequence[Any]
) -> SymbolicText | None:
    """function(text, *args) by a pure function that no text makes fail; None: it refuses `args`."""
    try:
        function("x", *args)
    except Exception:  # which Python's own call raises
        return None
    return SymbolicText([Field(TextOf(function, text, args))])


def _bounds(key: Value) -> Sequence[int | None] | None:
    """The start, stop and step of a slice of literals; None: of another key."""
    parts = getattr(key, "parts", ()) if key.python_type_is(slice) else ()
    if not parts or not all(type(part) is ConstantValue for part in parts):
        return None
    bounds = [part.as_constant() for part in parts]
    return bounds if all(type(bound) in (int, type(None)) for bound in bounds) else None


def _part(text: str, *bounds: int | None) -> str:
    return text[slice(*bounds)]


def substituted(text: str, pattern: str, flags: int, repl: str) -> str:
    """The text in which `repl` stands for each match of the pattern."""
    return re.compile(pattern, flags).sub(repl, text)


@bound_late
def concatenated(texts: Iterable[Value], between: str = "") -> ConstantValue:
    """between.join(texts), each a str."""
    pieces: list[str | Field] = []
    for i, text in enumerate(texts):
        pieces += [between] if i else []
        pieces += text.pieces if isinstance(text, SymbolicText) else [text.as_constant()]
    if any(isinstance(piece, Field) for piece in pieces):
        return SymbolicText(pieces)
    return ConstantValue("".join(pieces))  # type: ignore[arg-type]


def sum_of(left: Value, right: Value) -> ConstantValue | None:
    """left + right, where one is a symbolic text."""
    if SymbolicText not in (type(left), type(right)):
        return None
    both = left.python_type() is right.python_type() is str
    return concatenated([left, right]) if both else None


def percent(tx: Interpreter, text: Value, right: Value) -> ConstantValue | None:
    """text % right, where the fields are symbolic numbers, numbers read from tensors and literals,
    which format() writes alike.
    """
    is_tuple = right.python_type_is(tuple) and not right.is_constant()
    given = list(right.wrapped()) if is_tuple else [right]  # type: ignore[attr-defined]
    template = _CONVERSION.split(text.as_constant())  # literal, flags, width, ..., literal, ...
    fields = list(zip(*(template[i::5] for i in range(1, 5))))
    asked = [field for field in fields if field[-1] != "%"]
    simple = type(text) is ConstantValue and not any("%" in literal for literal in template[::5])
    if not simple or len(asked) != len(given):
        return None
    pieces: list[Value] = [ConstantValue(template[0])]
    items = iter(given)
    for (*form, letter), literal in zip(fields, template[5::5]):
        piece: ConstantValue | None = ConstantValue("%")
        if letter != "%":
            piece = _percent_field(tx, next(items), letter, *form)
        elif any(form):
            return None
        if piece is None:
            return None
        pieces += [piece, ConstantValue(literal)]
    return concatenated(pieces) if any(isinstance(p, SymbolicText) for p in pieces) else None


def _percent_field(
    tx: Interpreter, item: Value, letter: str, flags: str, width: str, precision: str | None
) -> ConstantValue | None:
    """The text of one field of `percent`; None where format() has no such spec."""
    form = flags + width + (precision or "")
    if type(item) is ConstantValue:
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # Python has words for it
            return ConstantValue(f"%{form}{letter}" % (item.as_constant(),))
        return None
    if letter in "sr":
        if form or (isinstance(item, SymbolicText) and letter == "r"):
            return None
        spec = ""
    else:
        of_ints = letter not in "eEfFgG"
        if of_ints and (precision or not item.python_type_is(int)):
            return None
        sign = "+" if "+" in flags else " " if " " in flags else ""
        before, zero = ("<", "") if "-" in flags else ("", "0" if "0" in flags else "")
        kind = "d" if letter in "iu" else letter
        spec = f"{before}{sign}{zero}{width}{precision or ''}{kind}"
    fake = getattr(item, "fake", None)
    if fake is not None and letter in "sr":
        return late_bound.text_of_tensor(tx, item)
    if letter in "sr":
        text = late_bound.text_by_address(tx, item, str if letter == "s" else repr)
        if text is not None:
            return text
    if fake is not None and fake.requires_grad:  # float() warns
        return None
    return formatted(item, ConstantValue(spec)) or late_bound.formatted_tensor(tx, item, spec)


@bound_late
def format_method(text: str, args: Sequence[Value], named: dict[str, Value]) -> Value | None:
    """text.format(*args, **named), where the fields are symbolic numbers and literals."""
    if not any(map(is_symbolic_number, (*args, *named.values()))):
        return None
    pieces: list[Value] = []
    following = iter(args)  # for fields without a name or a number
    try:
        fields = list(Formatter().parse(text))
        names = [name for _, name, _, _ in fields if name is not None]
        if "" in names and any(name.isdecimal() for name in names):
            return None
        for literal, field, spec, conversion in fields:
            pieces.append(ConstantValue(literal))
            if field is not None:
                if conversion is not None:
                    return None
                item = _field(field, following, args, named)
                piece = formatted(item, ConstantValue(spec))
                if piece is None and type(item) is ConstantValue and "{" not in (spec or ""):
                    piece = ConstantValue(format(item.as_constant(), spec or ""))
                if piece is None:
                    return None
                pieces.append(piece)
    except (ValueError, TypeError, LookupError, StopIteration):
        return None  # Python has words for it
    return concatenated(pieces)


def _field(
    name: str, following: Iterator[Value], args: Sequence[Value], named: dict[str, Value]
) -> Value:
    if name == "":
        return next(following)
    return args[int(name)] if name.isdecimal() else named[name]


def is_symbolic_number(value: Value) -> bool:
    """An int or float. Conditions are no numbers here, as most programs test them anyway."""
    return value.is_symbolic() and value.python_type() in (int, float)


def formatted(value: Value, spec: Value | None) -> ConstantValue | None:
    """format(value, spec), if the rewritten frame can make the text."""
    text = "" if spec is None else spec.as_constant()
    if isinstance(value, SymbolicText) and text == "":
        return value
    if not is_symbolic_number(value) or not isinstance(text, str) or not _SPEC.fullmatch(text):
        return None
    try:
        format(value.python_type()(1), text)
    except ValueError:  # raised where the program asks for it
        return None
    return SymbolicText([Field(value, text)])


def text_with_numbers(
    tx: Interpreter, value: Value, function: Callable[[Any], str]
) -> Value | None:
    """function(value), str or repr, of a number or of a plain sequence of numbers."""
    if is_symbolic_number(value):
        return formatted(value, None)  # their str() and repr() are the same
    if isinstance(value, SymbolicText) and function is str:
        return value
    if value.is_constant() or not value.python_type_is(list, tuple, torch.Size):
        return None
    items = value.unpack(tx)
    if not any(map(is_symbolic_number, items)):
        return None
    texts = [formatted(item, None) or _literal(item) for item in items]
    if any(text is None for text in texts):
        return None
    kept = [text for text in texts if text is not None]
    before, after = _marks(value.python_type(), len(items))
    return concatenated([ConstantValue(before), concatenated(kept, ", "), ConstantValue(after)])


def _literal(item: Value) -> ConstantValue | None:
    plain = type(item) is ConstantValue and type(item.value) in (int, float, bool, str, type(None))
    return ConstantValue(repr(item.value)) if plain else None  # type: ignore[attr-defined]


def _marks(cls: type, count: int) -> tuple[str, str]:
    if cls is tuple:
        return "(", ",)" if count == 1 else ")"
    return ("[", "]") if cls is list else ("torch.Size([", "])")
