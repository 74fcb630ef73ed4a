"""Opcodes that compute and build: operators, items, containers, strings, unpacking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.interp.inlining import push_call
from dynamo.interp.registry import handler
from dynamo.polyfills import builtins as builtin_polyfills
from dynamo.polyfills.protocols import contained, negated_bool, not_contained
from dynamo.polyfills.type_names import type_name
from dynamo.values.base import Value
from dynamo.values.builtins.polyfill_calls import (
    asks_length,
    polyfill_contains,
    polyfill_equal,
    polyfill_percent,
    polyfill_unpack,
    run_polyfill,
)
from dynamo.values.builtins.program_code import iterates, iterates_into_set
from dynamo.values.classes.instance_checks import is_instance
from dynamo.values.classes.lookup import type_holds
from dynamo.values.containers.containers import ListValue, SliceValue, TupleValue
from dynamo.values.containers.dicts import make_dict
from dynamo.values.containers.sets import SetValue
from dynamo.values.dummy_operands import fail_as
from dynamo.values.objects.exceptions import raise_python
from dynamo.values.objects.objects import ObjectValue
from dynamo.values.scalars import operators
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.scalars.symbolic_text import concatenated
from dynamo.values.stack_items import ReturnContinuation

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


def new(tx: Interpreter, value: Value) -> Value:
    """`value` is a mutable object that the captured code just made."""
    if value.mutation is None:
        tx.output.side_effects.track_new(value)
    return value


# -- operators ------------------------------------------------------------------------------------
@handler
def BINARY_OP(tx: Interpreter, instr: Instruction) -> None:
    left, right = tx.popn(2)
    made = polyfill_percent(tx, left, right) if instr.argval == "%" else None
    tx.push(made or operators.binary_op(tx, instr.argval, left, right, last=True))


@handler
def COMPARE_OP(tx: Interpreter, instr: Instruction) -> None:
    left, right = tx.popn(2)
    found = polyfill_equal(tx, instr.argval, left, right)
    if found is not None and instr.argval == "!=":
        found = ConstantValue(not found.truth(tx))
    tx.push(found or operators.compare_op(tx, instr.argval, left, right, last=True))


@handler
def IS_OP(tx: Interpreter, instr: Instruction) -> None:
    left, right = tx.popn(2)
    if tx.hidden and left is not right and left.is_symbolic() and right.is_symbolic():
        same = False  # C functions ask for identity first, and next for equality
    else:
        same = operators.is_op(tx, left, right)
    tx.push(ConstantValue(same is not bool(instr.argval)))


@handler
def CONTAINS_OP(tx: Interpreter, instr: Instruction) -> None:
    item, container = tx.popn(2)
    said = polyfill_contains(tx, item, container, bool(instr.argval))
    if said is not None:
        tx.push(ConstantValue(not said.truth(tx)) if instr.argval else said)
        return
    finish = not_contained if instr.argval else contained
    tx.in_tail_position(container, "__contains__", [ReturnContinuation(finish)])
    found = operators.contains_op(tx, item, container)
    tx.push(ConstantValue(not found.truth(tx)) if instr.argval else found)


def _unary(symbol: str) -> Callable[[Interpreter, Instruction], None]:
    def run(tx: Interpreter, instr: Instruction) -> None:
        value = tx.pop()
        tx.in_tail_position(value, operators.UNARY_DUNDERS[symbol])
        tx.push(operators.unary_op(tx, symbol, value))

    return run


for _name, _symbol in {"NEGATIVE": "-", "POSITIVE": "+", "INVERT": "~"}.items():
    handler(f"UNARY_{_name}")(_unary(_symbol))


@handler
def UNARY_NOT(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    tx.in_tail_position(value, "__bool__", [ReturnContinuation(negated_bool)])
    tx.push(value.truth_value(tx, negated=True))


# -- items ----------------------------------------------------------------------------------------
@handler
def BINARY_SUBSCR(tx: Interpreter, instr: Instruction) -> None:
    container, key = tx.popn(2)
    if type(container) is ObjectValue and container.has_special(tx, "__getitem__"):
        method = container.special_method(tx, "__getitem__")
        assert method is not None, "it has the special method"
        push_call(tx, method, [key], {})
    else:
        if container.python_type_is(list, tuple, str, range) and key.has_special(tx, "__index__"):
            tx.push(run_polyfill(tx, builtin_polyfills.get_item_at, [container, key]))
            return
        tx.in_tail_position(container, "__missing__")
        tx.in_tail_position(container, "__getitem__")
        tx.push(container.getitem(tx, key))


@handler
def STORE_SUBSCR(tx: Interpreter, instr: Instruction) -> None:
    value, container, key = tx.popn(3)
    tx.in_tail_position(container, "__setitem__", ())
    container.setitem(tx, key, value)


@handler
def DELETE_SUBSCR(tx: Interpreter, instr: Instruction) -> None:
    container, key = tx.popn(2)
    tx.in_tail_position(container, "__delitem__", ())
    container.delitem(tx, key)


@handler
def BINARY_SLICE(tx: Interpreter, instr: Instruction) -> None:
    container, start, stop = tx.popn(3)
    tx.in_tail_position(container, "__getitem__")
    tx.push(container.getitem(tx, SliceValue(start, stop, ConstantValue(None))))


@handler
def STORE_SLICE(tx: Interpreter, instr: Instruction) -> None:
    value, container, start, stop = tx.popn(4)
    tx.in_tail_position(container, "__setitem__", ())
    container.setitem(tx, SliceValue(start, stop, ConstantValue(None)), value)


# -- containers -----------------------------------------------------------------------------------
@handler
def BUILD_TUPLE(tx: Interpreter, instr: Instruction) -> None:
    tx.push(TupleValue(tx.popn(instr.arg)))


@handler
def BUILD_LIST(tx: Interpreter, instr: Instruction) -> None:
    tx.push(new(tx, ListValue(tx.popn(instr.arg))))


@handler
def BUILD_SET(tx: Interpreter, instr: Instruction) -> None:
    tx.push(new(tx, SetValue.of(tx, tx.popn(instr.arg))))


@handler
def BUILD_MAP(tx: Interpreter, instr: Instruction) -> None:
    flat = tx.popn(2 * instr.arg)
    tx.push(new(tx, make_dict(tx, zip(flat[::2], flat[1::2]))))


@handler
def BUILD_CONST_KEY_MAP(tx: Interpreter, instr: Instruction) -> None:
    keys = tx.pop().unpack(tx)
    tx.push(new(tx, make_dict(tx, zip(keys, tx.popn(instr.arg)))))


@handler
def BUILD_SLICE(tx: Interpreter, instr: Instruction) -> None:
    parts = tx.popn(instr.arg)
    step = parts[2] if len(parts) == 3 else ConstantValue(None)
    tx.push(SliceValue(parts[0], parts[1], step))


@handler
def LIST_TO_TUPLE(tx: Interpreter, instr: Instruction) -> None:
    tx.push(TupleValue(tx.pop().unpack(tx)))


def _call_on_container(method: str, operands: int) -> Callable[[Interpreter, Instruction], None]:
    """LIST_APPEND and its like: pop the operands, call a method of the container below."""

    def run(tx: Interpreter, instr: Instruction) -> None:
        args = tx.popn(operands)
        tx.peek(instr.arg).call_method(tx, method, args, {})

    return run


@handler
def LIST_EXTEND(tx: Interpreter, instr: Instruction) -> None:
    items = tx.pop()
    target = tx.peek(instr.arg)
    kind = items.python_type()
    if not type_holds(kind, "__iter__") and not type_holds(kind, "__getitem__"):
        fail_as(tx, lambda real: [*real], items)
    if iterates(items) and not asks_length(tx, items):
        run_polyfill(tx, builtin_polyfills.extend, [target, items], pushed=())
    else:
        target.call_method(tx, "extend", [items], {})


@handler
def SET_UPDATE(tx: Interpreter, instr: Instruction) -> None:
    items = tx.pop()
    target = tx.peek(instr.arg)
    if iterates_into_set(items):
        run_polyfill(tx, builtin_polyfills.add_all, [target, items], pushed=())
    else:
        target.call_method(tx, "update", [items], {})


for _op, _method, _operands in (
    ("LIST_APPEND", "append", 1),
    ("SET_ADD", "add", 1),
):
    handler(_op)(_call_on_container(_method, _operands))


@handler
def DICT_UPDATE(tx: Interpreter, instr: Instruction) -> None:
    """{**a}"""
    mapping = tx.pop()
    if not mapping.hasattr(tx, "keys"):
        fail_as(tx, lambda real: {**real}, mapping)
    tx.peek(instr.arg).call_method(tx, "update", [mapping], {})


@handler
def MAP_ADD(tx: Interpreter, instr: Instruction) -> None:
    key, value = tx.popn(2)
    tx.peek(instr.arg).setitem(tx, key, value)


@handler
def DICT_MERGE(tx: Interpreter, instr: Instruction) -> None:
    """f(**a, **b): a key that is there already is a TypeError."""
    mapping = tx.pop()
    target = tx.peek(instr.arg)
    function = tx.peek(instr.arg + 3)
    for key in mapping_keys(tx, mapping, function):
        if target.contains(tx, key).truth(tx):
            text = f"got multiple values for keyword argument {key.as_constant()!r}"
            raise_python(tx, TypeError, f"{shown_name(tx, function)} {text}")
        target.setitem(tx, key, mapping.getitem(tx, key))


def mapping_keys(tx: Interpreter, mapping: Value, function: Value) -> list[Value]:
    """The keys of the mapping after ** in a call of `function`."""
    kind = mapping.python_type()
    if not mapping.hasattr(tx, "keys"):
        text = f"argument after ** must be a mapping, not {type_name(kind)}"
        raise_python(tx, TypeError, f"{shown_name(tx, function)} {text}")
    return mapping.call_method(tx, "keys", [], {}).unpack(tx)


def shown_name(tx: Interpreter, function: Value) -> str:
    """A callable as errors about its arguments name it: module.qualname()."""
    if not function.hasattr(tx, "__qualname__"):
        raise Unsupported(breaks.UncapturedCall(function.describe()))
    name = function.getattr(tx, "__qualname__").as_constant()
    module = function.getattr(tx, "__module__").as_constant()
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


# -- unpacking ------------------------------------------------------------------------------------
@handler
def UNPACK_SEQUENCE(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    _refuse_without_items(tx, value)
    made = polyfill_unpack(tx, value, instr.arg, None) if _is_asked(value) else None
    items = _unpack(tx, value, instr.arg) if made is None else made.unpack(tx)
    if len(items) != instr.arg:
        _wrong_count(tx, len(items), instr.arg, "")
    tx.stack.extend(reversed(items))


@handler
def UNPACK_EX(tx: Interpreter, instr: Instruction) -> None:
    before, after = instr.arg & 0xFF, instr.arg >> 8
    value = tx.pop()
    _refuse_without_items(tx, value)
    made = polyfill_unpack(tx, value, before, after) if _is_asked(value) else None
    if made is not None:
        tx.stack.extend(reversed(made.unpack(tx)))
        return
    items = _unpack_starred(tx, value, before)
    if len(items) < before + after:
        _wrong_count(tx, len(items), before + after, "at least ")
    end = len(items) - after
    middle = new(tx, ListValue(items[before:end]))
    tx.stack.extend(reversed([*items[:before], middle, *items[end:]]))


def _refuse_without_items(tx: Interpreter, value: Value) -> None:
    kind = value.python_type()
    if not type_holds(kind, "__iter__") and not type_holds(kind, "__getitem__"):
        raise_python(tx, TypeError, f"cannot unpack non-iterable {kind.__name__} object")


def _is_asked(value: Value) -> bool:
    """Whether methods of the program's may give the items."""
    return hasattr(value.python_type(), "__next__") or isinstance(value, ObjectValue)


def _unpack_starred(tx: Interpreter, value: Value, before: int) -> list[Value]:
    """All items. iter(value) is asked for the items `before` the star; the rest is list(iterator),
    which calls the iterator's own __iter__, too.
    """
    if not (_is_asked(value) and hasattr(value.python_type(), "__iter__")):
        return _unpack(tx, value, None)
    iterator = value.iterate(tx)
    items: list[Value] = []
    while len(items) < before:
        item = iterator.next_value(tx)
        if item is None:
            return items
        items.append(item)
    return [*items, *iterator.unpack(tx)]


def _unpack(tx: Interpreter, value: Value, count: int | None) -> list[Value]:
    """The items; of an iterator, at most one more than `count`."""
    kind = value.python_type()
    of_iterator = type_holds(kind, "__next__") or value.has_special(tx, "__iter__")
    if count is None or not of_iterator:
        return value.unpack(tx)
    iterator = value.iterate(tx)
    items: list[Value] = []
    while len(items) <= count and (item := iterator.next_value(tx)) is not None:
        items.append(item)
    return items


def _wrong_count(tx: Interpreter, found: int, expected: int, least: str) -> None:
    if found < expected:
        message = f"not enough values to unpack (expected {least}{expected}, got {found})"
    else:
        message = f"too many values to unpack (expected {expected})"
    raise_python(tx, ValueError, message)


# -- strings --------------------------------------------------------------------------------------
@handler
def BUILD_STRING(tx: Interpreter, instr: Instruction) -> None:
    tx.push(concatenated(tx.popn(instr.arg)))


_CONVERSIONS = {"str": str, "repr": repr, "ascii": ascii}


@handler
def CONVERT_VALUE(tx: Interpreter, instr: Instruction) -> None:
    push_call(tx, tx.wrap(_CONVERSIONS[instr.argval]), [tx.pop()], {})


@handler
def FORMAT_SIMPLE(tx: Interpreter, instr: Instruction) -> None:
    value = tx.pop()
    if type(value) is ConstantValue:
        tx.push(ConstantValue(format(value.as_constant())))
    else:
        push_call(tx, tx.wrap(format), [value], {})


@handler
def FORMAT_WITH_SPEC(tx: Interpreter, instr: Instruction) -> None:
    value, spec = tx.popn(2)
    push_call(tx, tx.wrap(format), [value, spec], {})


# -- pattern matching -----------------------------------------------------------------------------
@handler
def GET_LEN(tx: Interpreter, instr: Instruction) -> None:
    tx.push(ConstantValue(tx.peek().length(tx)))


@handler
def MATCH_SEQUENCE(tx: Interpreter, instr: Instruction) -> None:
    kind = tx.peek().python_type()
    tx.push(ConstantValue(bool(kind.__flags__ & (1 << 5))))  # Py_TPFLAGS_SEQUENCE


@handler
def MATCH_MAPPING(tx: Interpreter, instr: Instruction) -> None:
    kind = tx.peek().python_type()
    tx.push(ConstantValue(bool(kind.__flags__ & (1 << 6))))  # Py_TPFLAGS_MAPPING


@handler
def MATCH_KEYS(tx: Interpreter, instr: Instruction) -> None:
    subject, keys = tx.peek(2), tx.peek()
    found = []
    wanted = keys.unpack(tx)
    for place, key in enumerate(wanted):
        if any(operators.equal(tx, key, other) for other in wanted[:place]):
            raise Unsupported(breaks.UncapturedCall("a match statement with a key twice"))
        if not subject.contains(tx, key).truth(tx):
            tx.push(ConstantValue(None))
            return
        found.append(subject.getitem(tx, key))
    tx.push(TupleValue(found))


@handler
def MATCH_CLASS(tx: Interpreter, instr: Instruction) -> None:
    """subject class names -- attributes_or_none, with instr.arg positional patterns."""
    subject, klass, names = tx.popn(3)
    known, cls = klass.identity()
    if not known:
        raise Unsupported(breaks.UnknownType(klass.describe()))
    if not isinstance(cls, type):
        raise Unsupported(breaks.NotCallable(klass.describe()))
    if not is_instance(tx, subject, klass):
        tx.push(ConstantValue(None))
        return
    positional = _positional(cls, instr.arg)
    attributes: list[Value] = [subject] if positional is None else []
    looked_up = [*(positional or ()), *(name.as_constant() for name in names.unpack(tx))]
    if len(set(looked_up)) < len(looked_up) or not all(isinstance(name, str) for name in looked_up):
        raise Unsupported(breaks.UncapturedCall(f"the pattern {cls.__name__}()"))
    for name in looked_up:
        if not subject.hasattr(tx, name):
            tx.push(ConstantValue(None))
            return
        attributes.append(subject.getattr(tx, name))
    tx.push(TupleValue(attributes))


def _positional(cls: type, count: int) -> list[str] | None:
    """The attributes that `count` positional patterns ask for; None: the subject itself."""
    itself = cls.__flags__ & _MATCH_SELF
    if count == 1 and itself and not hasattr(cls, "__match_args__"):
        return None
    names: Any = getattr(cls, "__match_args__", ())
    if type(names) is not tuple or len(names) < count:
        raise Unsupported(breaks.UncapturedCall(f"the pattern {cls.__name__}()"))
    return list(names[:count])


_MATCH_SELF = 1 << 22  # Py_TPFLAGS_MATCH_SELF: int, str, list, ..., and subclasses
