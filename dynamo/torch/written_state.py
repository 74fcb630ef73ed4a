"""State outside that Python code in the graph may write: reads behind the call end the graph.

Capture reads objects as they are when the frame begins. A custom operator, or another function that
the graph calls, may append to a list of the program's, or count in an attribute; the instruction
that looks at the list, the attribute, the global or the cell after that begins the next graph.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.builder import Lazy
from dynamo.values.functions.monkey_patches import is_programs

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

_CHANGE_CONTAINERS = frozenset(
    [
        "append",
        "appendleft",
        "extend",
        "insert",
        "pop",
        "popleft",
        "popitem",
        "remove",
        "clear",
        "sort",
        "reverse",
        "add",
        "discard",
        "update",
        "setdefault",
        "subtract",
    ]
)
_ITEMS = frozenset(["STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"])
_ATTRIBUTES = frozenset(["STORE_ATTR", "DELETE_ATTR"])
_GLOBALS = frozenset(["STORE_GLOBAL", "DELETE_GLOBAL"])
_CELLS = frozenset(["STORE_DEREF", "DELETE_DEREF"])
_FIELDS = (
    ("attribute", "key"),
    ("attribute", "attr"),
    ("global", "variable"),
    ("cell", "variable"),
)
_READS_ATTRIBUTE = frozenset(["LOAD_ATTR", "LOAD_METHOD"])


class WrittenState:
    """Objects and names that functions called by the graph may have written."""

    def __init__(self) -> None:
        self.function = ""  # the last one that writes
        self.names: dict[str, set[str]] = {
            kind: set() for kind in ("attribute", "global", "cell", "item")
        }
        self.globals: set[tuple[int, str]] = set()
        self.owners: dict[int, Any] = {}  # have the attributes, and other code reaches them
        self.held: dict[int, Any] = {}  # containers and cells

    def note(
        self, tx: Interpreter, name: str, functions: Sequence[Any], reached: Sequence[Any]
    ) -> None:
        """Add the writes of functions that reach these objects. Raises Unsupported where the frame
        has looked at the same: what it has seen may be loaded again behind the graph.
        """
        entries = [f.__code__ for f in functions if isinstance(f, types.FunctionType)]
        followed = [o for o in reached if isinstance(o, types.FunctionType) and is_programs(o)]
        kinds: tuple[type, ...] = ()
        for function in followed:
            for kind, written in _writes(function.__code__, function.__code__ in entries):
                self.names[kind].add(written)
                kinds += {"cell": (types.CellType,), "item": (list, dict, set)}.get(kind, ())
                if kind == "global":
                    self.globals.add((id(function.__globals__), written))
        if not any(self.names.values()):
            return
        self.held.update((id(obj), obj) for obj in reached if isinstance(obj, kinds))
        self.owners.update(
            (id(obj), obj) for obj in reached if _has_any(obj, self.names["attribute"])
        )
        if not (self.held or self.owners or self.globals):
            return
        known, sources = tx.output.values_by_id, [guard.source for guard in tx.output.guards]
        frame: Interpreter | None = tx
        while frame is not None:
            places = (*frame.stack, *frame.locals.values())
            sources += [value.source for value in places if isinstance(value, Lazy)]
            frame = frame.parent
        seen = (obj for number, obj in self.held.items() if number in known)
        seen_container = any(type(obj) is not types.CellType for obj in seen)
        if seen_container or any(map(self._is_written, sources)):
            raise Unsupported(breaks.ChangedState(name))
        self.function, tx.output.next_event = name, 0

    def _is_written(self, source: Source | None) -> bool:
        """Whether a source reads an attribute, a global or a cell of a written name."""
        while source is not None:
            for kind, field in _FIELDS:
                name = getattr(source, field, None)
                if isinstance(name, str) and name in self.names[kind]:
                    return True
            source = source.base
        return False

    def observe(self, tx: Interpreter) -> None:
        """Raise Unsupported if the next instruction looks at what was written."""
        instr = tx.current
        reads_attribute = instr.op in _READS_ATTRIBUTE and instr.argval in self.names["attribute"]
        if reads_attribute or instr.op.startswith("CALL"):
            operands = tx.stack[-1:] if reads_attribute else tx.stack
            if self._holds(tx, self.owners, operands):
                raise Unsupported(breaks.WrittenState(self.function, "an attribute"))
        if instr.op == "LOAD_GLOBAL" and (id(tx.f_globals), instr.argval) in self.globals:
            raise Unsupported(breaks.WrittenState(self.function, instr.argval))
        cell = [tx.cells[instr.argval]] if instr.op == "LOAD_DEREF" else []
        if self._holds(tx, self.held, [*tx.stack, *cell]):
            raise Unsupported(breaks.WrittenState(self.function, "a container or a variable"))

    @staticmethod
    def _holds(tx: Interpreter, objects: dict[int, Any], values: Sequence[Any]) -> bool:
        """Whether a value stands for one of the objects."""
        known = tx.output.values_by_id
        ids = {id(known[number][1]) for number in objects if number in known}
        return any(
            id(value.obj) in objects if isinstance(value, Lazy) else id(value) in ids
            for value in values
        )


def _has_any(obj: Any, names: set[str]) -> bool:
    """Whether an object, or its class, has an attribute of one of the names."""
    own = getattr(obj, "__dict__", None)
    namespaces = [own if isinstance(own, dict | types.MappingProxyType) else {}]
    namespaces += map(vars, type(obj).__mro__)
    return any(name in namespace for name in names for namespace in namespaces)


@cache
def _writes(code: types.CodeType, is_entry: bool) -> tuple[tuple[str, str], ...]:
    """(kind, name) of what code writes outside. The attributes of an entry's own arguments, such
    as an autograd function's ctx, are inside.
    """
    return tuple(_found(code, is_entry))


def _found(code: types.CodeType, is_entry: bool) -> Iterator[tuple[str, str]]:
    arguments = code.co_varnames[: code.co_argcount] if is_entry else ()
    before: Any = None
    for instr in dis.get_instructions(code):
        if instr.opname in _ATTRIBUTES and before not in arguments:
            yield "attribute", instr.argval
        elif instr.opname in _GLOBALS:
            yield "global", instr.argval
        elif instr.opname in _CELLS and instr.argval in code.co_freevars:
            yield "cell", instr.argval
        elif instr.opname in _ITEMS or instr.argval in _CHANGE_CONTAINERS:
            yield "item", ""
        loads = instr.opname.startswith("LOAD_FAST")
        before = instr.argval[-1] if loads and isinstance(instr.argval, tuple) else instr.argval
        before = before if loads else None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _found(constant, False)
