"""Whether Python code that a graph calls reads what the frame has changed: changes are replayed
behind the graph, and the code would see what was there before.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch._library.custom_ops import OPDEFS

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.functions.cell import is_empty
from dynamo.values.functions.monkey_patches import is_programs

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_MOST = 1000  # objects that are looked at


def refuse_changed_state(tx: Interpreter, name: str, functions: Iterable[Any]) -> None:
    """Raise Unsupported where one of the functions, in Python, reads an object or a global by its
    name, or by an attribute's, that the frame has changed, or holds too many objects to tell.
    """
    effects = tx.output.side_effects
    if not (effects.changes_objects() or effects.context_variables):
        return
    seen: set[int] = set()
    waiting = [*functions]
    while waiting and len(seen) < _MOST:
        obj = waiting.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if _is_changed(tx, obj):
            raise Unsupported(breaks.ChangedState(name))
        function = getattr(obj, "__func__", obj) if isinstance(obj, types.MethodType) else obj
        if not isinstance(function, types.FunctionType) or not is_programs(function):
            continue
        names = set(_names(function.__code__))
        if any((id(function.__globals__), read) in effects.globals for read in names):
            raise Unsupported(breaks.ChangedState(name))
        cells = function.__closure__ or ()
        held = [cell.cell_contents for cell in cells if not is_empty(cell)]
        read = [function.__globals__[n] for n in names if n in function.__globals__]
        waiting += [*cells, *held, *read, *_attributes([*held, *read], names)]
    if waiting:
        raise Unsupported(breaks.ChangedState(name))


def functions_of_operator(operator: Any) -> list[Any]:
    """The Python functions that compute a custom operator of the program's."""
    schema = getattr(operator, "_schema", None)
    qualified = getattr(operator, "_qualified_op_name", None) if schema is None else schema.name
    found = OPDEFS.get(qualified)
    if found is None:
        return []
    wrappers = [inspect.unwrap(kernel) for kernel in found._backend_fns.values()]
    cells = [cell for wrapper in wrappers for cell in wrapper.__closure__ or ()]
    return [found._init_fn, *(cell.cell_contents for cell in cells)]


def _is_changed(tx: Interpreter, obj: Any) -> bool:
    output = tx.output
    if any(variable.real is obj for variable in output.side_effects.context_variables):
        return True
    if isinstance(obj, type):
        return any(number == id(obj) for number, _ in output.side_effects.class_stores)
    known = output.values_by_id.get(id(obj))
    return known is not None and output.side_effects.is_dirty(known[1])


def _names(code: types.CodeType) -> Iterator[str]:
    """Names of globals and attributes in the code, and in that of functions inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _attributes(objects: Iterable[Any], names: set[str]) -> Iterator[Any]:
    for obj in objects:
        namespace = getattr(type(obj), "__dict__", {}).get("__dict__") and vars(obj)
        if isinstance(namespace, dict | types.MappingProxyType):
            yield from (namespace[name] for name in names if name in namespace)
