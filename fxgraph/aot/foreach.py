"""The operators on lists of tensors, one tensor at a time, as ATen runs them on CPUs.

before                                                after
    _foreach_add_.List([p, q], [g, h], alpha=2)           p.add_(g, alpha=2); q.add_(h, alpha=2)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

_PREFIX = "aten::_foreach_"
_WITH_VALUE = {"addcdiv", "addcmul"}  # which take their number by name only
# With a number, the method has another name.
_OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}
_LEFT_WHOLE = {"powsum", "clone"}


@functools.cache
def rules() -> dict[Any, Callable[..., Any]]:
    """Overload -> rule, for the functional and the in-place operators."""
    return {
        **dict(_rules()),
        torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
    }


def _unscale(tensors: Any, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """Set found_inf to 1 where a value is not finite, and leave it unchanged otherwise."""
    for tensor in tensors:
        wrong = torch.isfinite(tensor).logical_not().any()
        found_inf.copy_(torch.where(wrong, torch.ones_like(found_inf), found_inf))
        tensor.mul_(inv_scale)


def _rules() -> Iterator[tuple[Any, Callable[..., Any]]]:
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.partition(".")
        packet = name.removeprefix("aten::")
        base = name.removeprefix(_PREFIX).rstrip("_")
        if not name.startswith(_PREFIX) or base in _LEFT_WHOLE:
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if any(argument.is_out for argument in op._schema.arguments):
            continue
        if name.endswith("_") or not op._schema.is_mutable:
            yield op, functools.partial(_one_by_one, op, base)


def _one_by_one(op: Any, base: str, *args: Any, **kwargs: Any) -> Any:
    in_place = op._schema.is_mutable
    given = {a.name: value for a, value in zip(op._schema.arguments, args)} | kwargs
    if isinstance(given.get("scalars"), torch.Tensor):
        return NotImplemented  # their values would be read
    lists = {name: value for name, value in given.items() if isinstance(value, (list, tuple))}
    rest = {name: value for name, value in given.items() if name not in lists}
    count = max(map(len, lists.values()))
    results = []
    for i in range(count):
        one = {name: values[i] for name, values in lists.items()} | rest
        results.append(_call(base, {name: one[name] for name in given}, in_place))
    if in_place:
        # By hand: the dispatcher counts the writes of an operator's kernel, and none of a mode.
        torch._C._increment_version([one for one in lists["self"] if not one.is_inference()])
    return None if in_place else results


def _call(base: str, given: dict[str, Any], in_place: bool) -> Any:
    """The call for a single tensor; `given`: its arguments in the order of the schema."""
    if base == "norm":
        order = given.get("ord", 2)
        return torch.linalg.vector_norm(given["self"], order, dtype=given.get("dtype"))
    this, *values = given.values()
    names = list(given)[1:]
    if base in _OF_NUMBERS and not isinstance(values[0], torch.Tensor):
        base = _OF_NUMBERS[base]
    named = {name: v for name, v in zip(names, values) if name in ("alpha", "non_blocking")}
    values = [v for name, v in zip(names, values) if name not in named]
    if base in _WITH_VALUE and len(values) == 3:
        named["value"] = values.pop()
    if not isinstance(this, torch.Tensor):
        return torch.pow(this, *values)
    if not in_place:
        return getattr(this, base)(*values, **named)
    write = getattr(this, f"{base}_", None)  # not of maximum and minimum
    if write is None:
        return this.copy_(getattr(this, base)(*values, **named))
    return write(*values, **named)
