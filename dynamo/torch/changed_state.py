"""Whether Python code that a graph calls reads what the frame has changed: changes are replayed
behind the graph, and the code would see what was there before.
"""

from __future__ import annotations

import collections
import dis
import functools
import inspect
import itertools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS

from dynamo import breaks
from dynamo.bytecode.cache import CodeMap
from dynamo.errors import Unsupported
from dynamo.values.functions.cell import is_empty
from dynamo.values.functions.monkey_patches import is_programs

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_MOST = 1000  # objects that are looked at
_LEAVES = (int, float, complex, str, bytes, torch.dtype, torch.device, torch.Tensor, type(None))
_GLOBALS = frozenset(
    ["LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL"]
)
_known_globals: CodeMap[frozenset[str]] = CodeMap()
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
# Of operators of these namespaces, torch and its own libraries register the kernels.
_OWN_NAMESPACES = (
    *("aten", "prims", "rngprims", "quantized", "quantized_decomposed", "streams", "fsdp", "c10d"),
    *("c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "onednn"),
    *("onnx", "onnx_symbolic", "flex_lib", "_dtensor", "_native", "mkldnn", "mkl", "inductor"),
    *("torchvision", "torchaudio", "torchao"),
)


def refuse_changed_state(
    tx: Interpreter, name: str, functions: Iterable[Any], marked: bool = False
) -> None:
    """Raise Unsupported where one of the functions, in Python, reads an object or a global by
    names and items that the frame has changed, or reaches too many objects to tell. Possible
    writes of the functions are noted for reads behind their call. `marked`: allow_in_graph has
    promised that there are none, and is believed where too many objects are reached to tell.
    """
    effects = tx.output.side_effects
    changed = effects.changes_objects() or effects.context_variables
    functions = [*functions]
    if not functions:
        return
    # Once for a graph: its capture changes none of these objects.
    known = tx.output.written.reached
    key = tuple(map(id, functions))
    if key not in known:
        found = functions, *_reached_by(functions)
        if found[-1] or not marked:
            tx.output.written.note(tx, name, *found)
        known[key] = found
    _, reached, complete = known[key]
    if not changed:
        return
    if not complete:
        raise Unsupported(breaks.ChangedState(name))
    for obj in reached:
        read = _global_names(obj.__code__) if _is_followed(obj) else ()
        if _is_changed(tx, obj) or any((id(obj.__globals__), n) in effects.globals for n in read):
            raise Unsupported(breaks.ChangedState(name))


def _reached_by(functions: list[Any]) -> tuple[list[Any], bool]:
    """The objects that functions reach by the names in the code of all, the near ones first, and
    whether these are all: there may be too many.
    """
    names, known = set[str](), -1
    reached, complete = list[Any](), True
    while complete and known != len(names):  # code behind an attribute knows further names
        known = len(names)
        reached = [*itertools.islice(_reachable(functions, names), _MOST + 1)]
        complete = len(reached) <= _MOST
        names.update(*(_names(obj.__code__) for obj in reached if _is_followed(obj)))
    return reached, complete


def functions_of_operator(operator: Any) -> list[Any]:
    """The Python functions that compute a custom operator of the program's."""
    found = OPDEFS.get(_qualified_name(operator))
    if found is None:
        return []
    wrappers = [inspect.unwrap(kernel) for kernel in found._backend_fns.values()]
    cells = [cell for wrapper in wrappers for cell in wrapper.__closure__ or ()]
    around = [found._setup_context_fn] if found._setup_context_fn else []
    return [found._init_fn, *around, *(cell.cell_contents for cell in cells)]


def has_unknown_kernels(operator: Any) -> bool:
    """Whether the program has registered kernels in Python that only the dispatcher knows."""
    namespace, _, name = (qualified := _qualified_name(operator)).partition("::")
    if namespace in _OWN_NAMESPACES or qualified in OPDEFS:
        return False
    names = {name, name.partition(".")[0]}
    keys = (key.split("/") for key in torch.library._impls if key.startswith(f"{namespace}/"))
    return any(key[1] in names and key[-1] != "Meta" for key in keys)


def _qualified_name(operator: Any) -> str:
    schema = getattr(operator, "_schema", None)
    return getattr(operator, "_qualified_op_name", "") if schema is None else schema.name


def _is_changed(tx: Interpreter, obj: Any) -> bool:
    output = tx.output
    if any(variable.real is obj for variable in output.side_effects.context_variables):
        return True
    if isinstance(obj, type):
        return any(number == id(obj) for number, _ in output.side_effects.class_stores)
    if isinstance(obj, types.ModuleType):
        return any(namespace == id(vars(obj)) for namespace, _ in output.side_effects.globals)
    known = output.values_by_id.get(id(obj))
    return known is not None and output.side_effects.is_dirty(known[1])


def _names(code: types.CodeType) -> Iterator[str]:
    """Names of globals and attributes in the code, and in that of functions inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _global_names(code: types.CodeType) -> frozenset[str]:
    """Names that the code, and that of functions inside, looks up in its globals."""
    return _known_globals.computed(code, lambda: frozenset(_found_globals(code)))


def _found_globals(code: types.CodeType) -> Iterator[str]:
    for instr in dis.get_instructions(code):
        if instr.opname in _GLOBALS:
            yield instr.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _found_globals(constant)


# -- what functions reach -------------------------------------------------------------------------
def _is_followed(obj: Any) -> bool:
    return isinstance(obj, types.FunctionType) and is_programs(obj)


def _reachable(functions: Iterable[Any], names: set[str]) -> Iterator[Any]:
    """The objects that the functions reach through attributes of these names."""
    reached: dict[int, Any] = {}
    waiting = collections.deque(functions)
    while waiting:
        obj = waiting.popleft()
        if isinstance(obj, _LEAVES) or id(obj) in reached:
            continue
        reached[id(obj)] = obj
        yield obj
        waiting += _parts(obj, names)


def _parts(obj: Any, names: set[str]) -> Iterator[Any]:
    """The objects that code reads from this one through attributes of these names, and items."""
    if isinstance(obj, types.FunctionType):
        if is_programs(obj):
            cells = obj.__closure__ or ()
            own = _global_names(obj.__code__)
            yield from cells
            yield from (cell.cell_contents for cell in cells if not is_empty(cell))
            yield from (obj.__globals__[name] for name in own if name in obj.__globals__)
            yield from obj.__defaults__ or ()
            yield from (obj.__kwdefaults__ or {}).values()
            yield from (held for name, held in vars(obj).items() if name in names)
    elif isinstance(obj, (types.MethodType, staticmethod, classmethod)):
        yield from (obj.__func__, getattr(obj, "__self__", None))
    elif isinstance(obj, types.BuiltinMethodType):
        yield getattr(obj, "__self__", None)
    elif isinstance(obj, functools.partial):
        yield from (obj.func, *obj.args, *obj.keywords.values())
    elif isinstance(obj, (property, functools.cached_property)):
        yield obj.fget if isinstance(obj, property) else obj.func
    elif isinstance(obj, type):
        yield from _class_parts(obj, names)
    else:
        yield from _instance_parts(obj, names)


def _class_parts(cls: type, names: set[str]) -> Iterator[Any]:
    """Attributes of these names, and special methods: operations call them without a name."""
    for name, held in itertools.chain(*(vars(base).items() for base in cls.__mro__[:-1])):
        special = name == "forward" or (name.startswith("__") and _is_followed(held))
        if special or name in names:
            yield held


def _instance_parts(obj: Any, names: set[str]) -> Iterator[Any]:
    if isinstance(obj, Mapping) and isinstance(obj, (dict, types.MappingProxyType)):
        yield from obj.values()
    elif isinstance(obj, _CONTAINERS):
        yield from obj
    namespaces = [_namespace(obj)]
    if isinstance(obj, torch.nn.Module):
        namespaces += [namespaces[0].get("_modules", {})]
    for namespace in namespaces:
        yield from (namespace[name] for name in names if name in namespace)
    if isinstance(obj, types.ModuleType):
        return
    for base in (cls := type(obj)).__mro__:
        slots = (held for name, held in vars(base).items() if name in names)
        for slot in slots:
            if isinstance(slot, types.MemberDescriptorType):
                yield getattr(obj, slot.__name__, None)
    yield cls


def _namespace(obj: Any) -> Mapping[str, Any]:
    namespace = getattr(type(obj), "__dict__", {}).get("__dict__") and vars(obj)
    return namespace if isinstance(namespace, dict | types.MappingProxyType) else {}
