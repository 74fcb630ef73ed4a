"""torch.func.functional_call: the module's own tables show other tensors while its forward is
captured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import stateless

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.torch.bodies import opened
from dynamo.torch.modules import ModuleTable, ModuleValue
from dynamo.values.base import Value, is_none
from dynamo.values.builtins.table import handles
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def _refuse(text: str) -> Unsupported:
    return Unsupported(breaks.OpError("functional_call", text))


@handles(torch.func.functional_call, stateless._functional_call)
def _functional_call(
    tx, module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=None, strict=None
):
    if not isinstance(module, ModuleValue) or module.real is None:
        raise _refuse("the module was made by the frame")
    tensors = _merged(opened(tx, parameter_and_buffer_dicts))
    if tie_weights is None or tie_weights.as_constant():
        tensors = _tied(module.real, tensors)
    checked = strict is not None and strict.as_constant()
    if checked and tensors.keys() != _names(tx, module):
        raise _refuse("strict is set, and the names are not those of the module")
    positional = () if args is None or is_none(args) else opened(tx, args)
    given = args.unpack(tx) if isinstance(positional, tuple) and args is not None else [args]
    given = [] if positional == () else given
    named = {} if kwargs is None or is_none(kwargs) else kwargs.constant_keys(tx)
    with contextlib.ExitStack() as stack:
        for name, value in tensors.items():
            stack.enter_context(_shown(tx, module, name, value))
        return module.call(tx, given, named)


def _names(tx: Interpreter, module: ModuleValue) -> set[str]:
    """The names of all parameters and buffers, guarded."""
    return {
        pair.unpack(tx)[0].as_constant()
        for method in ("named_parameters", "named_buffers")
        for pair in module.call_method(
            tx, method, [], {"remove_duplicate": ConstantValue(False)}
        ).unpack(tx)
    }


def _merged(nest: Any) -> dict[str, Value]:
    """The merged dict of the call's dict or sequence of dicts."""
    merged: dict[str, Value] = {}
    for part in nest if isinstance(nest, (tuple, list)) else [nest]:
        if not isinstance(part, dict) or not merged.keys().isdisjoint(part):
            raise _refuse("the tensors are given in another way than as dicts without common keys")
        merged.update(part)
    if not all(isinstance(value, TensorValue) for value in merged.values()):
        raise _refuse("a value is no tensor")
    return merged


def _tied(module: torch.nn.Module, tensors: dict[str, Value]) -> dict[str, Value]:
    """The tensors under all names that the module has for each of those they replace."""
    groups: dict[int, list[str]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        groups.setdefault(id(tensor), []).append(name)
    every = dict(tensors)
    for names in groups.values():
        given = [tensors[name] for name in names if name in tensors]
        if any(value is not given[0] for value in given):
            raise _refuse(f"{' and '.join(names)} are the same tensor")
        every.update(dict.fromkeys(names, given[0]) if given else {})
    return every


@contextlib.contextmanager
def _shown(tx: Interpreter, module: ModuleValue, path: str, value: Value) -> Iterator[None]:
    """The module has `value` in the place of its parameter or buffer `path`."""
    *parents, name = path.split(".")
    owner: Value = module
    for part in parents:
        owner = owner.getattr(tx, part)
    table = _table_with(tx, owner, name)
    key = ConstantValue(name)
    own = table.lookup(tx, key)  # guards that it is this tensor
    assert own is not None, "the table has the name"
    shown = table.entries[name] = (key, value)
    try:
        yield
        if table.entries.get(name) is not shown:
            raise _refuse(f"the module stores {name!r} anew")
    finally:
        table.entries[name] = (key, own)


def _table_with(tx: Interpreter, owner: Value, name: str) -> ModuleTable:
    if isinstance(owner, ModuleValue):
        for table_name in ("_parameters", "_buffers"):
            table = owner.table(tx, table_name)
            if isinstance(table, ModuleTable) and table.lookup(tx, ConstantValue(name)) is not None:
                return table
    raise _refuse(f"the module has no {name!r}")
