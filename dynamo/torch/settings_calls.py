"""Calls that change settings of torch and numpy which no one function of torch._C sets: the default
device, deterministic algorithms, numpy's floating-point errors.

They are changed while capturing, and as the frame leaves them behind the graph or at a break.
Deterministic algorithms are a node of the graph, too, whose operators ask for them; the default
device is an argument of the graph's constructors, and no captured function of numpy heeds errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.polyfills.numpy_errors import ErrorState
from dynamo.torch import torch_state
from dynamo.torch.numpy_values import refuse
from dynamo.values.base import Value
from dynamo.values.builtins.table import handles
from dynamo.values.objects.exceptions import call_real
from dynamo.values.scalars.constant import ConstantValue, constant_argument
from dynamo.values.scalars.literals import from_constant
from fxgraph.aot.functional import read_deterministic, set_deterministic

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter

_PASSING = ("ignore", "warn")


def _entry(tx: Interpreter, read: Callable[[], Any]) -> Any:
    """The current value of a setting; its value at the frame's entry is guarded."""
    now = read()
    torch_state.read_flag(read)(tx, [], {})
    tx.output.settings_before.setdefault(read, now)
    return now


@handles(torch.set_default_device)
def _set_default_device(tx, device):
    call_real(tx, torch.set_default_device, constant_argument(tx, device))
    tx.output.side_effects.touch()
    return ConstantValue(None)


@handles(torch.use_deterministic_algorithms)
def _use_deterministic_algorithms(tx, mode, *, warn_only=None):
    wanted = (_flag(tx, mode), _flag(tx, warn_only))
    if _entry(tx, read_deterministic) != wanted:
        set_deterministic(wanted)
        tx.output.create_node("call_function", set_deterministic, (wanted,), {}, None, tx)
    return ConstantValue(None)


def _flag(tx: Interpreter, value: Value | None) -> bool:
    real = False if value is None else constant_argument(tx, value)
    if not isinstance(real, bool):
        raise Unsupported(breaks.UncapturedCall("torch.use_deterministic_algorithms"))
    return real


@handles(torch.are_deterministic_algorithms_enabled)
def _are_deterministic(tx):
    return ConstantValue(_entry(tx, read_deterministic)[0])


@handles(torch.is_deterministic_algorithms_warn_only_enabled)
def _is_warn_only(tx):
    return ConstantValue(_entry(tx, read_deterministic)[1])


@handles(np.geterr)
def _geterr(tx):
    _entry(tx, torch_state.read_floating_point_errors)
    return from_constant(dict(np.geterr()))


@handles(np.seterr)
def _seterr(tx, **kinds):
    known = {kind: constant_argument(tx, value) for kind, value in kinds.items()}
    if any(value not in (*_PASSING, None) for value in known.values()):
        raise refuse("numpy.seterr")
    before = _entry(tx, torch_state.read_floating_point_errors)
    if any(one not in _PASSING for one in before):
        raise refuse("numpy.seterr")
    answer = from_constant(dict(np.geterr()))
    call_real(tx, lambda: np.seterr(**known))
    tx.output.side_effects.touch()
    return answer


@handles(np.errstate)
def _errstate(tx, **kinds):
    if "call" in kinds:
        raise refuse("numpy.errstate(call=...)")
    return tx.wrap(ErrorState), [], kinds


@handles(torch.compiler.cudagraph_mark_step_begin)
def _mark_step(tx):
    tx.output.side_effects.call_later(torch.compiler.cudagraph_mark_step_begin)
    return ConstantValue(None)
