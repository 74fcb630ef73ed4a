"""The body of a class statement: a frame whose names live in a namespace of Values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.interp.opcodes.names import load_global, load_global_handler, store_global
from dynamo.interp.registry import handler
from dynamo.values.base import Value
from dynamo.values.containers.dicts import DictValue
from dynamo.values.objects.exceptions import raise_python

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


class LocalNamespace(Value):
    """The namespace that LOAD_LOCALS pushes in a class body."""


@handler
def LOAD_NAME(tx: Interpreter, instr: Instruction) -> None:
    if tx.namespace is not None and instr.argval in tx.namespace:
        tx.push(tx.namespace[instr.argval])
    else:
        load_global_handler(tx, instr)


@handler
def STORE_NAME(tx: Interpreter, instr: Instruction) -> None:
    if tx.namespace is not None:
        tx.namespace[instr.argval] = tx.pop()
    else:
        store_global(tx, instr)


@handler
def DELETE_NAME(tx: Interpreter, instr: Instruction) -> None:
    if tx.namespace is None:
        raise Unsupported(breaks.UnsupportedOpcode(instr.op))
    if instr.argval not in tx.namespace:
        raise_python(tx, NameError, f"name {instr.argval!r} is not defined", name=instr.argval)
    del tx.namespace[instr.argval]


@handler
def LOAD_LOCALS(tx: Interpreter, instr: Instruction) -> None:
    if tx.namespace is None:
        raise Unsupported(breaks.UnsupportedOpcode(instr.op))
    tx.push(LocalNamespace())


@handler
def SETUP_ANNOTATIONS(tx: Interpreter, instr: Instruction) -> None:
    if tx.namespace is not None and "__annotations__" not in tx.namespace:
        tx.namespace["__annotations__"] = tx.output.side_effects.track_new(DictValue({}))


def _load_deref(tx: Interpreter, name: str) -> Value:
    value = tx.cells[name].load(tx)
    if value is None:
        text = f"cannot access free variable {name!r} where it is not associated with a value in"
        raise_python(tx, NameError, f"{text} enclosing scope", name=name)
    return value


@handler
def LOAD_CLASSDEREF(tx: Interpreter, instr: Instruction) -> None:
    assert tx.namespace is not None, "only class bodies hold it"
    name = instr.argval
    tx.push(tx.namespace[name] if name in tx.namespace else _load_deref(tx, name))


def _from_namespace(tx: Interpreter, name: str) -> Value | None:
    if tx.namespace is None or not isinstance(tx.pop(), LocalNamespace):
        raise Unsupported(breaks.UnsupportedOpcode("LOAD_FROM_DICT"))
    return tx.namespace.get(name)


@handler
def LOAD_FROM_DICT_OR_DEREF(tx: Interpreter, instr: Instruction) -> None:
    tx.push(_from_namespace(tx, instr.argval) or _load_deref(tx, instr.argval))


@handler
def LOAD_FROM_DICT_OR_GLOBALS(tx: Interpreter, instr: Instruction) -> None:
    tx.push(_from_namespace(tx, instr.argval) or load_global(tx, instr.argval))
