"""Shim frames: frames on the stack in place of the inlined ones while an instruction runs.

    def f(x):                 def f(x):                          # as rewritten
        return g(x) + 1           ... the graph, until the break in g
                                  results = g_shim(*operands)       # on the line of the call
    def g(x):                     return the rest of f(the rest of g, *results, ...)
        y = x * 2
        print(y)              def g_shim(*operands):         # g's name, file and line
        return y                  return print(y)

Whoever looks at the stack meanwhile (a traceback, a logger, warnings) sees the user's functions.
Shim frames are not compiled.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from dynamo._hook import call_stealing_args
from dynamo.bytecode import versions
from dynamo.bytecode.assemble import CodeShape, assemble
from dynamo.bytecode.cache import CodeMap
from dynamo.bytecode.decode import Positions
from dynamo.bytecode.emit import SUSPENDING, Emitter, frame_prologue
from dynamo.bytecode.opcodes import stack_effect

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction

_DROPPED_FLAGS = (
    inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_NESTED | versions.CO_HAS_DOCSTRING
) | SUSPENDING
_HANDLED, _RESULT = ".handled", ".result"
# Relative to the dict that DICT_MERGE adds to: where the callable is that its errors name, and what
# is above that (the NULL, in whose stead anything will do, and the positional arguments).
BELOW_MERGED = (-3, -1) if versions.NULL_BELOW_CALLABLE else (-3, -1, -1)
_made: CodeMap[bool] = CodeMap()


def is_shim(code: CodeType) -> bool:
    return _made.get(code) is not None


def calling(
    code: CodeType,
    namespace: dict[str, Any],
    instr: Instruction,
    callee: Callable[..., Any],
    count: int,
) -> FunctionType:
    """The shim of a frame that is calling: hands its `count` arguments on, and the result back."""
    emit = Emitter()
    emit.set_location(None, instr.positions)
    names = [f".argument{i}" for i in range(count)]
    emit.load_callable(lambda: emit.load_const(call_stealing_args))
    emit.load_const(callee)
    for name in names:
        emit.load_fast_and_clear(name)
    emit.call(1 + len(names))
    emit.return_value()
    return _function(code, namespace, names, emit)


def handing_on(
    code: CodeType, namespace: dict[str, Any], instr: Instruction, count: int
) -> FunctionType:
    """The shim of a frame that calls its first argument on the other ones, which are `count`."""
    emit = Emitter()
    emit.set_location(None, instr.positions)
    names = [".function", *(f".argument{i}" for i in range(count))]
    emit.load_callable(lambda: emit.load_fast_and_clear(names[0]))
    for name in names[1:]:
        emit.load_fast_and_clear(name)
    emit.call(count)
    emit.return_value()
    return _function(code, namespace, names, emit)


def execute(emit: Any, instr: Instruction) -> None:
    """Execute `instr` on the operands that are on the stack; for DICT_MERGE, above BELOW_MERGED."""
    emit.native(instr)
    for _ in BELOW_MERGED if instr.op == "DICT_MERGE" else ():
        emit.swap(2)
        emit.pop_top()


def performing(
    code: CodeType,
    namespace: dict[str, Any],
    instr: Instruction,
    nulls: Sequence[bool],
    handling: bool,
) -> FunctionType:
    """Executes `instr` on its operands and returns what `result_of` says.

    nulls: which operands, in real order, are NULL; the others are the parameters. handling: the
    last parameter is the exception that is being handled meanwhile.
    """
    emit = Emitter()
    emit.set_location(None, instr.positions)
    names = [f".operand{i}" for i, null in enumerate(nulls) if not null]

    def body() -> None:
        parameters = iter(names)
        for null in nulls:
            if null:
                emit.push_null()
            else:
                emit.load_fast_and_clear(next(parameters))
        _perform(emit, instr)

    if handling:
        while_handling(emit, lambda: emit.load_fast_and_clear(_HANDLED), body, _RESULT)
    else:
        body()
    emit.return_value()
    return _function(code, namespace, [*names, _HANDLED] if handling else names, emit)


def showing(
    code: CodeType, namespace: dict[str, Any], positions: Positions, left: int | None
) -> tuple[FunctionType, int]:
    """A function whose frame it returns, for a traceback: it was at `positions` (the instruction at
    the offset that comes with it), and was left at the line `left`. The frame holds the argument.
    """
    emit = Emitter()
    emit.set_location(None, positions)
    emit.load_callable(lambda: emit.load_const(sys._getframe))
    emit.call(0)
    emit.set_location(left)
    emit.return_value()
    function = _function(code, namespace, (".held",), emit)
    calls = [found.offset for found in dis.get_instructions(function) if found.opname == "CALL"]
    return function, calls[0]


def while_handling(
    emit: Any, load: Callable[[], None], body: Callable[[], None], result: str | None
) -> None:
    """Emit `body` with the exception that `load` pushes as the one being handled.

    result: the local through which the value that `body` pushes is passed; None: it pushes nothing.
    The stack must be empty.
    """
    cleanup, after = emit.label(), emit.label()
    load()
    emit.push_exc_info()
    emit.pop_top()
    with emit.exception_region(cleanup, depth=1):
        body()
        if result is not None:
            emit.store_fast(result)
    emit.pop_except()
    emit.jump(after)
    emit.place(cleanup)  # previous exception
    emit.swap(2)
    emit.pop_except()
    emit.reraise()
    emit.place(after)
    if result is not None:
        emit.load_fast_and_clear(result)


def _perform(emit: Emitter, instr: Instruction) -> None:
    """Execute `instr` and leave one value."""
    op = instr.op
    if op in TRUTH:
        emit.unary_not()
        emit.unary_not()
    elif op == "FOR_ITER":
        exhausted, end = emit.label(), emit.label()
        emit.for_iter(exhausted)
        emit.build_tuple(1)
        emit.swap(2)
        emit.pop_top()
        emit.jump(end)
        emit.place(exhausted)
        emit.load_const(())
        emit.place(end)
    elif op == "LOAD_METHOD":
        emit.load_attr(instr.argval)
    else:
        execute(emit, instr)
        pushed = stack_effect(op, instr.arg)[1]
        if op == "RAISE_VARARGS":
            return
        if pushed == 0:
            emit.load_const(None)
        elif pushed > 1:
            emit.build_tuple(pushed)


TRUTH = frozenset(
    ["POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"]
)


def _function(
    code: CodeType, namespace: dict[str, Any], parameters: Sequence[str], emit: Emitter
) -> FunctionType:
    shape = replace(
        CodeShape.of(code),
        flags=code.co_flags & ~_DROPPED_FLAGS,
        argcount=len(parameters),
        posonlyargcount=0,
        kwonlyargcount=0,
        varnames=tuple(parameters),
        cellvars=(),
        freevars=(),
        docstring=None,
    )
    made = assemble([*frame_prologue(shape), *emit.natives], shape)
    _made.set(made, True)
    return FunctionType(made, namespace)
