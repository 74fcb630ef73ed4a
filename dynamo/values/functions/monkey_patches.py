"""Functions of torch told from the programs' replacements.

Capture knows many functions and methods of torch by name or puts them into the graph as a whole.
That holds for torch's own; a replacement (`torch.Tensor.relu = ...`,
`torch.relu = ...` behind F.relu) is captured as the program's code.
"""

from __future__ import annotations

import builtins
import dis
import os
import sysconfig
import types
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.guards.classes import MISSING, is_trusted_function
from dynamo.guards.lookups import Lookups, in_mro
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.objects.descriptors import bind

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter
    from dynamo.values.base import Value
    from dynamo.values.tensors.tensor import TensorValue

_FOLDERS = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (
        os.path.dirname(torch.__file__),
        sysconfig.get_path("stdlib"),
        os.path.dirname(os.path.dirname(__file__)),
    )
)


def is_programs(obj: Any) -> bool:
    """A callable that neither torch nor the standard library defines."""
    if isinstance(obj, types.MethodType):
        obj = obj.__func__
    if isinstance(obj, types.FunctionType):
        if obj.__code__.co_filename.startswith("<"):  # made by exec()
            return is_programs_code(obj.__code__) and not is_trusted_function(obj)
        return is_programs_code(obj.__code__)
    return callable(obj) and type(obj).__module__.partition(".")[0] == "unittest"


def is_programs_code(code: types.CodeType) -> bool:
    """Code that is in no file of torch, the standard library or ours."""
    filename = code.co_filename
    if filename.startswith("<"):  # the frozen modules are Python's own, such as importlib
        return not filename.startswith("<frozen ")
    return not _is_in_packages(filename)


@cache
def _is_in_packages(filename: str) -> bool:
    return os.path.realpath(filename).startswith(_FOLDERS)


# -- methods of Tensor ----------------------------------------------------------------------------
def _own_attributes(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, held in vars(base).items():
            found.setdefault(name, held)
    return {name: held for name, held in found.items() if not is_programs(held)}


OWN_METHODS = _own_attributes(torch.Tensor)
_OF_PARAMETERS = _own_attributes(torch.nn.Parameter)


def replacement(tx: Interpreter, name: str, kind: type = torch.Tensor) -> Any:
    """The attribute `name` that replaces torch's own in the class of the tensors of this kind;
    MISSING if it is torch's own.
    """
    is_parameter = issubclass(kind, torch.nn.Parameter)
    cls = torch.nn.Parameter if is_parameter else torch.Tensor
    found = in_mro(cls, name)
    tx.output.lookups.add(cls, name, found)
    own = _OF_PARAMETERS if is_parameter else OWN_METHODS
    return MISSING if found is own.get(name, MISSING) else found


def is_original(function: Any) -> bool:
    """A method of torch.Tensor's own."""
    return OWN_METHODS.get(getattr(function, "__name__", ""), MISSING) is function


def call_replacement(
    tx: Interpreter, tensor: TensorValue, name: str, args: Sequence[Value]
) -> Value | None:
    """tensor.name(*args) for a special method that a function has taken the place of; None: torch's
    own is there.
    """
    found = replacement(tx, name, tensor.python_type())
    if found is MISSING:
        return None
    if not isinstance(found, types.FunctionType):
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}, which is another's"))
    return tx.call_at_end(tensor, name, bind(tx, tensor, found, name), args)


def refuse_replacement(tx: Interpreter, tensor: TensorValue, name: str) -> None:
    """A special method of Tensor that is only captured as torch defines it, outside of modes that
    the frame entered.
    """
    if tx.output.modes.asked:
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}, which asks a torch function mode"))
    if replacement(tx, name, tensor.python_type()) is not MISSING:
        raise Unsupported(breaks.UncapturedCall(f"Tensor.{name}, which is another's"))


# -- functions that go into the graph as a whole --------------------------------------------------
# By the id of a module's dict: the names of the modules that torch's functions call through.
_OWN_FUNCTIONS = {
    id(vars(module)): dict(vars(module))
    for module in (
        torch,
        torch._C,
        torch._C._nn,
        torch._VF,
        torch.fft,
        torch.functional,
        torch.linalg,
        torch.nn.functional,
        torch.special,
    )
}


def _is_replaced(holder: Any, name: str, held: Any) -> bool:
    """Whether `held` stands in the place of a function of torch's."""
    if holder is torch.Tensor:
        return held is not OWN_METHODS.get(name, MISSING)
    if (namespace := _OWN_FUNCTIONS.get(id(holder))) is not None:
        own = namespace.get(name, MISSING)
        if held is not own and (callable(own) or callable(held)):
            return True
    if holder is vars(torch) and type(held) is types.BuiltinFunctionType:
        return held is not getattr(torch._C._VariableFunctions, name, held)
    return is_programs(held)


def changed_function(tx: Interpreter, target: Any) -> UserFunctionValue | None:
    """A Python function of torch, or method of Tensor, that calls another function in place of
    torch's: its code is captured, not put into the graph. None for others.
    """
    function = in_mro(torch.Tensor, target) if isinstance(target, str) else target
    if type(function) is not types.FunctionType:
        return None
    lookups = tx.output.lookups
    known = lookups.analyzed.get(id(function))
    if known is None:
        known = lookups.analyzed[id(function)] = _runs_programs_code(lookups, function)
    return UserFunctionValue(function) if known else None


def _runs_programs_code(lookups: Lookups, function: Any) -> bool:
    """Whether a Python function of torch calls, in place of one of torch's, a function of the
    program's or another of torch's. The names that it and those that it calls look up are added to
    `lookups`.
    """
    found = False
    for holder, name, held in _names_below(function):
        lookups.add(holder, name, held)
        found = found or _is_replaced(holder, name, held)
    return found


def _names_below(function: Any) -> Iterator[tuple[Any, str, Any]]:
    """(module dict or class, name, value) of names read in a function and in its callees."""
    seen: set[types.CodeType] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if type(one) is not types.FunctionType or one.__code__ in seen or is_programs(one):
            continue
        seen.add(one.__code__)
        for path, is_global in _paths(one.__code__):
            for holder, name, held in _resolved(one, path, is_global):
                yield holder, name, held
                waiting.append(held)


def _resolved(
    function: types.FunctionType, path: tuple[str, ...], is_global: bool
) -> Iterator[tuple[Any, str, Any]]:
    names = iter(path)
    if not is_global:
        yield from _of_tensor(names)
        return
    name = next(names)
    owner = function.__globals__.get(name, MISSING)
    yield function.__globals__, name, owner
    if owner is MISSING:
        owner = vars(builtins).get(name, MISSING)
        yield vars(builtins), name, owner
    for name in names:
        if not isinstance(owner, types.ModuleType):
            yield from _of_tensor(iter([name, *names]))
            return
        namespace = vars(owner)
        owner = namespace.get(name, MISSING)
        yield namespace, name, owner


def _of_tensor(names: Iterator[str]) -> Iterator[tuple[Any, str, Any]]:
    for name in names:  # of an object that is not known: it may be a tensor
        held = in_mro(torch.Tensor, name)
        if held is not MISSING or name in OWN_METHODS:
            yield torch.Tensor, name, held


@cache
def _paths(code: types.CodeType) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """The names that code loads: (a.b.c, whether `a` is a global), and attributes of the rest."""
    found: dict[tuple[tuple[str, ...], bool], None] = {}
    path: list[str] = []
    is_global = False
    for instr in dis.get_instructions(code):
        if instr.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(instr.argval)
            continue
        if instr.opname in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            continue
        if path:
            found[tuple(path), is_global] = None
        path, is_global = [], instr.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        if is_global:
            path.append(instr.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= dict.fromkeys(_paths(constant))
    return tuple(found)
