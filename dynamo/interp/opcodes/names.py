"""Opcodes that move values: constants, locals, cells, globals, attributes, the stack, imports."""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo import breaks
from dynamo._hook import call_stealing_args
from dynamo.errors import Unsupported
from dynamo.guards.sources import AttrSource, ModuleSource, Source
from dynamo.interp.registry import handler
from dynamo.polyfills.rematerialise import FunctionMaker
from dynamo.values.base import Value
from dynamo.values.builtins.table import BuiltinMethod
from dynamo.values.builtins.tail_reads import tail_read
from dynamo.values.effects.side_effects import DELETED
from dynamo.values.functions.cell import CellValue
from dynamo.values.objects.exception_objects import name_attribute
from dynamo.values.objects.exceptions import RaisedException, raise_python
from dynamo.values.objects.reflection import leaves_binding
from dynamo.values.scalars.constant import ConstantMethodValue, ConstantValue, is_constant_type
from dynamo.values.scalars.literals import from_constant
from dynamo.values.stack_items import NULL, UNBOUND

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


@handler("NOP", "RESUME", "COPY_FREE_VARS", "END_FOR")
def no_operation(tx: Interpreter, instr: Instruction) -> None:
    """Nothing to do: free variables are bound before the frame starts."""


# -- stack ----------------------------------------------------------------------------------------
@handler
def POP_TOP(tx: Interpreter, instr: Instruction) -> None:
    tx.stack.pop()


@handler
def PUSH_NULL(tx: Interpreter, instr: Instruction) -> None:
    tx.push(NULL)


@handler
def COPY(tx: Interpreter, instr: Instruction) -> None:
    tx.push(tx.stack[-instr.arg])


@handler
def SWAP(tx: Interpreter, instr: Instruction) -> None:
    stack = tx.stack
    stack[-1], stack[-instr.arg] = stack[-instr.arg], stack[-1]


# The callees and checks of continuations have no name in their code.
_OF_CONTINUATIONS = (
    FunctionType,
    BuiltinFunctionType,
    type,
    type(call_stealing_args),
    FunctionMaker,
)


# -- constants and locals -------------------------------------------------------------------------
@handler
def LOAD_CONST(tx: Interpreter, instr: Instruction) -> None:
    value = instr.argval
    if is_constant_type(type(value)):
        tx.stack.append(ConstantValue(value))
    elif type(value) in _OF_CONTINUATIONS:
        tx.push(tx.wrap(value))
    else:
        tx.push(from_constant(value))


@handler
def LOAD_FAST(tx: Interpreter, instr: Instruction) -> None:
    name = instr.argval
    value = tx.locals.get(name)
    if value is None:
        value = tx.cells.get(name)  # 3.13 loads a cell itself by LOAD_FAST
    if value is None:
        raise_unbound(tx, name)
    tx.stack.append(value)


def raise_unbound(tx: Interpreter, name: str) -> NoReturn:
    raise_python(
        tx,
        UnboundLocalError,
        f"cannot access local variable {name!r} where it is not associated with a value",
    )


@handler
def LOAD_FAST_AND_CLEAR(tx: Interpreter, instr: Instruction) -> None:
    """Push the variable's value, or its cell, for a comprehension to save; UNBOUND if there is
    neither.
    """
    name = instr.argval
    value = tx.locals.pop(name, None) or tx.cells.pop(name, None)
    tx.push(UNBOUND if value is None else value)


@handler
def STORE_FAST(tx: Interpreter, instr: Instruction) -> None:
    name, value = instr.argval, tx.stack.pop()
    if value is UNBOUND:
        tx.locals.pop(name, None)
        tx.cells.pop(name, None)
    elif isinstance(value, CellValue) and name in tx.code.co_cellvars + tx.code.co_freevars:
        tx.locals.pop(name, None)
        tx.cells[name] = value
    else:
        tx.locals[name] = value


@handler
def DELETE_FAST(tx: Interpreter, instr: Instruction) -> None:
    if instr.argval not in tx.locals:
        raise_unbound(tx, instr.argval)
    del tx.locals[instr.argval]


# -- cells ----------------------------------------------------------------------------------------
@handler
def MAKE_CELL(tx: Interpreter, instr: Instruction) -> None:
    """The variable's own value (an argument) moves into a new cell, no change that needs replay:
    the rewritten frame and the callee's continuation make the same cell themselves.
    """
    name = instr.argval
    first_line = tx.parent is None and instr.positions[0] is None  # not in a comprehension
    cell = CellValue(tx.locals.pop(name, None), local_name=name if first_line else None)
    tx.output.side_effects.track_new(cell)
    if tx.parent is not None and cell.contents is not None:
        cell.mutation.dirty = True
    tx.cells[name] = cell


@handler
def LOAD_CLOSURE(tx: Interpreter, instr: Instruction) -> None:
    tx.push(tx.cells[instr.argval])


@handler("LOAD_DEREF")
def load_deref(tx: Interpreter, instr: Instruction) -> None:
    value = tx.cells[instr.argval].load(tx)
    if value is None:
        if instr.argval in tx.code.co_freevars:
            raise_python(
                tx,
                NameError,
                f"cannot access free variable {instr.argval!r} where it is not associated with a "
                "value in enclosing scope",
                name=instr.argval,
            )
        raise_unbound(tx, instr.argval)
    tx.push(value)


@handler
def STORE_DEREF(tx: Interpreter, instr: Instruction) -> None:
    tx.cells[instr.argval].store(tx, tx.pop())


@handler
def DELETE_DEREF(tx: Interpreter, instr: Instruction) -> None:
    cell = tx.cells[instr.argval]
    if cell.load(tx) is None:
        raise_unbound(tx, instr.argval)
    cell.store(tx, None)


# -- globals --------------------------------------------------------------------------------------
_BUILTINS = vars(builtins)


@functools.lru_cache(maxsize=1024)
def _builtin_source(name: str) -> Source:
    return AttrSource(ModuleSource("builtins"), name)


def load_global(tx: Interpreter, name: str) -> Value:
    """A global of the frame, or a builtin."""
    stored = tx.output.side_effects.load_global(tx.f_globals, name)
    if isinstance(stored, Value):
        return stored
    if name in tx.f_globals and stored is None:
        return tx.wrap(tx.f_globals[name], tx.global_source(name))
    if stored is None:
        tx.guard_no_global(name)
    own = tx.f_globals.get("__builtins__", _BUILTINS)
    if own is not _BUILTINS and own is not builtins:
        raise Unsupported(breaks.AttributeAccess("a namespace of builtins of its own", name))
    if name in _BUILTINS:
        return tx.wrap(_BUILTINS[name], _builtin_source(name))
    tx.output.lookups.add(_BUILTINS, name)
    raise_python(tx, NameError, f"name {name!r} is not defined", name=name)


@handler("LOAD_GLOBAL")
def load_global_handler(tx: Interpreter, instr: Instruction) -> None:
    tx.push(load_global(tx, instr.argval))


@handler("STORE_GLOBAL")
def store_global(tx: Interpreter, instr: Instruction) -> None:
    source = tx.globals_dict_source()
    tx.output.side_effects.store_global(tx.f_globals, source, instr.argval, tx.pop())


@handler
def DELETE_GLOBAL(tx: Interpreter, instr: Instruction) -> None:
    name = instr.argval
    stored = tx.output.side_effects.load_global(tx.f_globals, name)
    if stored is DELETED or (stored is None and name not in tx.f_globals):
        raise_python(tx, NameError, f"name {name!r} is not defined", name=name)
    tx.output.side_effects.store_global(tx.f_globals, tx.globals_dict_source(), name, DELETED)


@handler
def LOAD_BUILD_CLASS(tx: Interpreter, instr: Instruction) -> None:
    """Push the function whose call makes a class, see values/classes/class_building.py."""
    source = AttrSource(ModuleSource("builtins"), "__build_class__")
    tx.push(tx.wrap(builtins.__build_class__, source))


@handler
def LOAD_ASSERTION_ERROR(tx: Interpreter, instr: Instruction) -> None:
    tx.push(tx.wrap(AssertionError))


# -- attributes -----------------------------------------------------------------------------------
@handler
def LOAD_ATTR(tx: Interpreter, instr: Instruction) -> None:
    owner = tx.pop()
    try:
        _load_attr(tx, owner, instr.argval, ())
    except RaisedException as error:
        name_attribute(tx, error.value, owner, instr.argval)
        raise


def _load_attr(tx: Interpreter, owner: Value, name: str, above: Sequence[Value]) -> None:
    """Push an attribute. above: the values that the instruction pushes behind the attribute."""
    found = tail_read(tx, owner, name, above)
    if above and isinstance(found, (BuiltinMethod, ConstantMethodValue)):
        kind = found.receiver.python_type()
        method = getattr(kind, found.name, None) if leaves_binding(kind) else None
        found.unbound = method if isinstance(method, MethodDescriptorType) else None
    tx.push(found)
    for value in above:
        tx.push(value)


@handler
def LOAD_METHOD(tx: Interpreter, instr: Instruction) -> None:
    """obj -- callable NULL: the bound method carries its receiver itself."""
    owner = tx.pop()
    try:
        _load_attr(tx, owner, instr.argval, (NULL,))
    except RaisedException as error:
        name_attribute(tx, error.value, owner, instr.argval)
        raise


@handler
def STORE_ATTR(tx: Interpreter, instr: Instruction) -> None:
    owner = tx.pop()
    value = tx.pop()
    tx.in_tail_position(owner, "__setattr__", ())
    owner.setattr(tx, instr.argval, value)


@handler
def DELETE_ATTR(tx: Interpreter, instr: Instruction) -> None:
    owner = tx.pop()
    tx.in_tail_position(owner, "__delattr__", ())
    owner.delattr(tx, instr.argval)


def _load_super(tx: Interpreter, argval: Any, above: Sequence[Value]) -> None:
    name, _ = argval
    super_class, klass, receiver = tx.popn(3)
    _load_attr(tx, super_class.call(tx, [klass, receiver], {}), name, above)


@handler
def LOAD_SUPER_ATTR(tx: Interpreter, instr: Instruction) -> None:
    _load_super(tx, instr.argval, ())


@handler
def LOAD_SUPER_METHOD(tx: Interpreter, instr: Instruction) -> None:
    _load_super(tx, instr.argval, (NULL,))


# -- imports --------------------------------------------------------------------------------------
@handler
def IMPORT_NAME(tx: Interpreter, instr: Instruction) -> None:
    """`import a.b` pushes a, `from a.b import c` pushes a.b. A module that is not loaded yet is a
    graph break.
    """
    level, fromlist = (value.as_constant() for value in tx.popn(2))
    name = instr.argval
    if level:
        package = tx.f_globals.get("__package__") or tx.f_globals["__name__"].rpartition(".")[0]
        name = importlib.util.resolve_name("." * level + name, package)
    if sys.modules.get(name) is None or _changes_modules(tx):
        raise Unsupported(breaks.ModuleImport(name))
    missing = [item for item in fromlist or () if not hasattr(sys.modules[name], item)]
    if missing and hasattr(sys.modules[name], "__path__"):  # they may be modules of the package
        raise Unsupported(breaks.ModuleImport(f"{name}.{missing[0]}"))
    if not fromlist and not level:
        name = name.partition(".")[0]
    tx.push(tx.wrap(sys.modules[name], ModuleSource(name)))


def _changes_modules(tx: Interpreter) -> bool:
    """Whether the frame has written to sys.modules, in which an import looks."""
    known = tx.output.values_by_id.get(id(sys.modules))
    return known is not None and tx.output.side_effects.is_dirty(known[1])


@handler
def IMPORT_FROM(tx: Interpreter, instr: Instruction) -> None:
    module = tx.peek()
    known, real = module.identity()
    package = getattr(real, "__name__", None) if known else None
    submodule = f"{package}.{instr.argval}" if isinstance(package, str) else ""
    if known and not hasattr(real, instr.argval) and submodule in sys.modules:
        tx.push(tx.wrap(sys.modules[submodule], ModuleSource(submodule)))
        return
    if known and not hasattr(real, instr.argval):
        raise Unsupported(breaks.ModuleImport(submodule or instr.argval))
    tx.push(module.getattr(tx, instr.argval))
