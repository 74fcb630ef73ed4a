"""State outside that Python code in the graph may write: reads behind the call end the graph.

Capture reads objects as they are when the frame begins. A custom operator, or another function that
the graph calls, may append to a list of the program's, or count in an attribute; the instruction
that looks at the list, the attribute, the global or the cell after that begins the next graph.

Not seen are writes by C code to objects of its own, those of kernels that a torch.library.Library
registers (has_unknown_kernels), and reads of a global through globals().
"""

from __future__ import annotations

import collections
import dis
import sys
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo import breaks
from dynamo.bytecode.cache import CodeMap
from dynamo.errors import Unsupported
from dynamo.values.builder import Lazy
from dynamo.values.functions.monkey_patches import is_programs

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

_CHANGE_CONTAINERS = frozenset(
    ["append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem"]
    + ["remove", "clear", "sort", "reverse", "rotate", "move_to_end", "add", "discard", "update"]
    + ["difference_update", "intersection_update", "symmetric_difference_update", "setdefault"]
    + ["subtract", "__setitem__", "__delitem__", "__iadd__", "__ior__", "heappush", "heappop"]
    + ["heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right"]
)
_KINDS: dict[str, tuple[type, ...]] = {
    "item": (list, dict, set, collections.deque),
    "cell": (types.CellType,),
}
_SET_ATTRIBUTES = frozenset(["setattr", "delattr", "__setattr__", "__dict__", "vars"])
_MAKES_CONTAINER = frozenset(
    ["BUILD_LIST", "BUILD_SET", "BUILD_MAP", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"]
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
_READS_ATTRIBUTE = frozenset(["LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"])
_known_writes: dict[bool, CodeMap[tuple[tuple[str, str], ...]]] = {
    is_entry: CodeMap() for is_entry in (False, True)
}


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
        # By functions: these, the objects that they reach, and whether these are all.
        self.reached: dict[tuple[int, ...], tuple[list[Any], list[Any], bool]] = {}

    def note(
        self,
        tx: Interpreter,
        function: str,
        functions: Sequence[Any],
        reached: Sequence[Any],
        complete: bool,
    ) -> None:
        """Add the writes of functions that reach these objects. Raises Unsupported where the frame
        has looked at the same: what it has seen may be loaded again behind the graph; and where
        they write and reach others, too.
        """
        entries = [f.__code__ for f in functions if isinstance(f, types.FunctionType)]
        written = {("item", "")} if any(map(_changes_container, reached)) else set()
        for obj in reached:
            if isinstance(obj, types.FunctionType) and is_programs(obj):
                found = _writes(obj.__code__, obj.__code__ in entries)
                written.update(found)
                for name in (name for kind, name in found if kind == "global"):
                    self._note_global(obj.__globals__, name)
        if not written:
            return
        if not complete:
            raise Unsupported(breaks.ChangedState(function))
        for kind, name in written:
            self.names[kind].add(name)
            if kind in _KINDS:
                self.held.update((id(obj), obj) for obj in reached if isinstance(obj, _KINDS[kind]))
            if kind == "attribute":
                self._note_owners(name, reached)
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
            raise Unsupported(breaks.ChangedState(function))
        self.function, tx.output.next_event = function, 0

    def _note_global(self, namespace: dict[str, Any], name: str) -> None:
        """Add a global, which is an attribute of its module, too."""
        self.globals.add((id(namespace), name))
        module = sys.modules.get(str(namespace.get("__name__")))
        if module is not None and vars(module) is namespace:
            self.names["attribute"].add(name)
            self.owners[id(module)] = module

    def _note_owners(self, name: str, reached: Sequence[Any]) -> None:
        """Add the objects that have an attribute, or may get what none has."""
        owners = [obj for obj in reached if _has(obj, name)]
        owners = owners or [obj for obj in reached if isinstance(_namespace(obj), dict)]
        self.owners.update((id(obj), obj) for obj in owners)
        modules = [obj for obj in owners if isinstance(obj, types.ModuleType)]
        self.globals.update((id(vars(module)), name) for module in modules)

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
        reads_attribute = instr.op in _READS_ATTRIBUTE and (
            instr.argval in self.names["attribute"] or instr.argval == "__dict__"
        )
        if reads_attribute or instr.op.startswith(("CALL", "MATCH_CLASS")):
            operands = tx.stack[-1:] if reads_attribute else tx.stack
            inherited = reads_attribute and self._inherits(tx.stack[-1])
            if inherited or self._holds(tx, self.owners, operands):
                raise Unsupported(breaks.WrittenState(self.function, "an attribute"))
        if instr.op == "LOAD_GLOBAL" and (id(tx.f_globals), instr.argval) in self.globals:
            raise Unsupported(breaks.WrittenState(self.function, instr.argval))
        if instr.op == "LOAD_DEREF" and self._holds(tx, self.held, [tx.cells[instr.argval]]):
            raise Unsupported(breaks.WrittenState(self.function, instr.argval))

    def _inherits(self, value: Any) -> bool:
        """Whether a value has attributes of a class that is written."""
        classes = tuple(obj for obj in self.owners.values() if isinstance(obj, type))
        value = getattr(value, "receiver", value)  # of super()
        if not classes:
            return False
        known, real = (True, value.obj) if isinstance(value, Lazy) else value.identity()
        if known and isinstance(real, type):
            return issubclass(real, classes)
        try:
            return issubclass(type(real) if known else value.python_type(), classes)
        except Unsupported:
            return True

    def refuse_held(self, obj: Any) -> None:
        """Raise Unsupported where a look begins at a container that was written."""
        if id(obj) in self.held:
            raise Unsupported(breaks.WrittenState(self.function, "a container"))

    @staticmethod
    def _holds(tx: Interpreter, objects: dict[int, Any], values: Sequence[Any]) -> bool:
        """Whether a value stands for one of the objects."""
        known = tx.output.values_by_id
        ids = {id(known[number][1]) for number in objects if number in known}
        return any(
            id(value.obj) in objects if isinstance(value, Lazy) else id(value) in ids
            for value in values
        )


def _has(obj: Any, name: str) -> bool:
    """Whether an object, or its class, has an attribute."""
    return any(name in namespace for namespace in (_namespace(obj), *map(vars, type(obj).__mro__)))


def _namespace(obj: Any) -> Any:
    own = getattr(obj, "__dict__", None)
    return own if isinstance(own, dict | types.MappingProxyType) else ()


def _changes_container(obj: Any) -> bool:
    """Whether an object is such as `log.append`."""
    return isinstance(obj, types.BuiltinMethodType) and obj.__name__ in _CHANGE_CONTAINERS


def _extends(instr: dis.Instruction, last: str) -> bool:
    """Whether an instruction is the addition in `alias += [1]`."""
    return instr.opname == "BINARY_OP" and instr.argrepr[-1] == "=" and last in _MAKES_CONTAINER


def _writes(code: types.CodeType, is_entry: bool) -> tuple[tuple[str, str], ...]:
    """(kind, name) of what code writes outside. The attributes of an entry's own arguments, such
    as an autograd function's ctx, are inside.
    """
    return _known_writes[is_entry].computed(code, lambda: tuple(_found(code, is_entry)))


def _found(code: types.CodeType, is_entry: bool) -> Iterator[tuple[str, str]]:
    arguments = code.co_varnames[: code.co_argcount] if is_entry else ()
    before, last = None, ""
    names = {name for name in code.co_consts if isinstance(name, str) and name.isidentifier()}
    for instr in dis.get_instructions(code):
        if instr.opname in _ATTRIBUTES and before not in arguments:
            yield "attribute", instr.argval
        elif instr.opname in _GLOBALS:
            yield "global", instr.argval
        elif instr.opname in _CELLS and instr.argval in code.co_freevars:
            yield "cell", instr.argval
        elif instr.opname in _ITEMS or instr.argval in _CHANGE_CONTAINERS or _extends(instr, last):
            yield "item", ""
        elif instr.argval in _SET_ATTRIBUTES:
            yield from (("attribute", name) for name in names)
        loads = instr.opname.startswith("LOAD_FAST")
        before = instr.argval[-1] if loads and isinstance(instr.argval, tuple) else instr.argval
        before, last = before if loads else None, instr.opname
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _found(constant, False)
