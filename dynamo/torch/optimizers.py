"""The optimizers of torch.optim: the state that their first step makes, and the meaning of the
flags of their update functions in captured code.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import _functional, lbfgs, sparse_adam

from dynamo import directives
from dynamo.plans import Retry
from dynamo.values.base import Value
from dynamo.values.builder import realized, special_builder
from dynamo.values.containers.containers import ListValue, SequenceValue
from dynamo.values.functions.function import UserFunctionValue
from dynamo.values.scalars.constant import ConstantValue
from dynamo.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from dynamo.guards.sources import Source
    from dynamo.interp.interpreter import Interpreter

# Optimizers whose formula depends on the number of steps; others only compute with it, and do so
# in fewer operations where they are not capturable.
_DECIDED_BY_STEPS = frozenset(["radam", "asgd"])
# Updates that subtract nearly equal numbers, in Python's floats in eager, and where their steps
# are among the arguments.
_CANCELLING = frozenset(["_single_tensor_radam", "_multi_tensor_radam"])
_STEPS = 4
_UPDATE = re.compile("_(?:single|multi)_tensor_(.*)")


class OptimizerUpdateValue(UserFunctionValue):
    """`_single_tensor_radam` and its like. torch means their `capturable` to be true in captured
    code ("torch.compile x capturable" in torch/optim/optimizer.py): steps are counted in tensors,
    whose values nothing reads. As in eager, those have to be where the parameters are.
    """

    def is_plain_function(self) -> bool:
        return False

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        if "capturable" in kwargs and _on_one_device(tx, args):
            kwargs = {**kwargs, "capturable": ConstantValue(True)}
            if self.function.__name__ in _CANCELLING:
                args = [*args[:_STEPS], _exactly(tx, args[_STEPS]), *args[_STEPS + 1 :]]
        return UserFunctionValue(self.function, self.source), args, kwargs


def _exactly(tx: Interpreter, steps: Value) -> Value:
    """Steps to compute with, and to count for nobody; those given are counted here."""
    exact: list[Value] = []
    for step in steps.unpack(tx):
        exact.append(step.call_method(tx, "double", [], {}))
        step.call_method(tx, "add_", [ConstantValue(1)], {})
    return tx.output.side_effects.track_new(ListValue(exact))


def _on_one_device(tx: Interpreter, args: Sequence[Value]) -> bool:
    lists = [arg.unpack(tx) for arg in args if isinstance(arg, SequenceValue)]
    tensors = [item for items in lists for item in items]
    return len({t.fake.device for t in tensors if isinstance(t, TensorValue)}) <= 1


def _is_of_torch(obj: Any) -> bool:
    """Whether the object is a function of an optimizer's module."""
    if type(obj) is not types.FunctionType:
        return False
    return (obj.__globals__.get("__name__") or "").startswith("torch.optim.")


def _is_update(obj: Any) -> bool:
    named = _UPDATE.fullmatch(obj.__name__) if _is_of_torch(obj) else None
    return named is not None and named[1] in _DECIDED_BY_STEPS


@special_builder(_is_update)
def build_update(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, OptimizerUpdateValue(obj, source))


# -- the first step -------------------------------------------------------------------------------
class InitGroupValue(UserFunctionValue):
    """`_init_group` of an optimizer, which collects what the update needs, and makes the state of
    the parameters that have none. The state is made before the graph, while capturing, so that the
    first step is no graph of its own: zeros, as if the step had begun.
    """

    def is_plain_function(self) -> bool:
        return False

    def forwards(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, Sequence[Value], dict[str, Value]]:
        optimizer: Any = realized(tx, args[0]) if args else None
        real = None if optimizer is None else optimizer.identity()[1]
        if isinstance(real, torch.optim.Optimizer):
            if optimizer.source is not None and not tx.output.context.export:
                tx.output.symbols.varying |= _scheduled(real, optimizer.source)
            if _makes_state(tx, real):
                make_state(real, self.function)
                if not _without_state(real):
                    raise Retry(tx.output.plan.anew("the state of an optimizer is made"))
        return UserFunctionValue(self.function, self.source), args, kwargs


def _scheduled(optimizer: torch.optim.Optimizer, source: Source) -> set[str]:
    """The sources of numbers that schedulers change: they left marks in the parameter groups."""
    found = set()
    for index, group in enumerate(optimizer.param_groups):
        place = f"{source.name}.__dict__['param_groups'][{index}]"
        if "initial_lr" in group:
            found.add(f"{place}['lr']")
        if "max_momentum" in group:
            found |= {f"{place}['momentum']", f"{place}['betas'][0]"}
    return found


def _makes_state(tx: Interpreter, optimizer: torch.optim.Optimizer) -> bool:
    """Whether parameters wait for their state, and neither the frame has seen that, nor does it
    change what the state is made of.
    """
    output = tx.output
    if output.context.export or output.context.hooks is not None or output.guesses:
        return False
    waiting = _without_state(optimizer)
    if not waiting or optimizer.defaults.get("differentiable"):
        return False
    known = output.values_by_id
    seen = [optimizer.state, *(optimizer.state[p] for p in waiting if p in optimizer.state)]
    if any(id(obj) in known for obj in seen):
        return False
    used = [optimizer, vars(optimizer), optimizer.param_groups]
    for group in optimizer.param_groups:
        used += [group, group["params"], *group["params"]]
    values = (known[id(obj)][1] for obj in used if id(obj) in known)
    dirty = filter(output.side_effects.is_dirty, values)
    return all(value.mutation.attrs.keys() == _OF_SCHEDULERS for value in dirty)


_OF_SCHEDULERS = {"_opt_called"}  # an attribute that they store in each step, of no state


def _without_state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [p for p in parameters if p.grad is not None and not optimizer.state.get(p)]


def make_state(optimizer: torch.optim.Optimizer, init_group: types.FunctionType) -> None:
    """Make the state of all parameters that have gradients; what `init_group` collects is dropped,
    and where it fails, it will fail in the program.
    """
    collected = len(inspect.signature(init_group).parameters) - 2  # but for self and the group
    waiting = {id(p) for p in _without_state(optimizer)}
    with torch.no_grad(), contextlib.suppress(Exception):
        for group in optimizer.param_groups:
            params = [p for p in group["params"] if id(p) in waiting]
            lists: list[list[Any]] = [[] for _ in range(collected)]
            init_group(optimizer, {**group, "params": params}, *lists)


def _is_init(obj: Any) -> bool:
    return _is_of_torch(obj) and obj.__name__ == "_init_group"


@special_builder(_is_init)
def build_init(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    tx.guard(source, "id", obj)
    return tx.output.remember(obj, source, InitGroupValue(obj, source))


# -- optimizers that run as they are ---------------------------------------------------------------
def _leave_alone(module: types.ModuleType, reason: str) -> None:
    """Leave the functions and methods of a module as they are, and capture what they call."""
    holders = [held for held in vars(module).values() if isinstance(held, type)]
    for held in [*vars(module).values(), *(v for cls in holders for v in vars(cls).values())]:
        if isinstance(held, types.FunctionType) and held.__module__ == module.__name__:
            waiting = [inspect.unwrap(held).__code__]
            while waiting:
                code = waiting.pop()
                directives.LEFT_TO_PYTHON.set(code, reason)
                waiting += [part for part in code.co_consts if isinstance(part, types.CodeType)]


# Graphs of these steps would hold one or two operations each.
_leave_alone(lbfgs, "each part of a step depends on numbers in tensors")
_leave_alone(sparse_adam, "its tensors are sparse")
_leave_alone(_functional, "its tensors are sparse")
