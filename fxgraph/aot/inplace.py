"""Mutating operators and the functional operator that computes the same values.

add_.Tensor(self!, other) -> self           add.Tensor(self, other)
sort.values(..., values!, indices!)         sort.default(...)
_native_batch_norm_legit(.., mean!, var!)   _native_batch_norm_legit_functional(..) -> .., mean, var
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from fxgraph.aot.fake import dense
from fxgraph.aot.functional import Unfunctionalizable

aten = torch.ops.aten


# Operators that draw in the order of a contiguous tensor, the mutating one in that of memory.
DRAWS_IN_ORDER = frozenset({aten.bernoulli.p})
# Operators that draw otherwise for contiguous memory, which copies of tensors with gaps are.
SEES_GAPS = frozenset({aten.normal_functional.default})


@dataclass(frozen=True)
class FunctionalVariant:
    """`op` returns first the mutating operator's fresh results (`fresh` of them), then the new
    values of its written arguments in schema order. `drop`: arguments that `op` does not take."""

    op: torch._ops.OpOverload
    fresh: int
    drop: frozenset[str]


def written_arguments(op: torch._ops.OpOverload) -> list[Any]:
    """Schema arguments that `op` writes."""
    return [a for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def bind(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by name, as given."""
    names = [argument.name for argument in op._schema.arguments]
    return {**dict(zip(names, args)), **kwargs}


@functools.cache
def functional_variant(op: torch._ops.OpOverload) -> FunctionalVariant | None:
    """The functional operator for a mutating one, found by its schema, or None."""
    schema = op._schema
    written = {argument.name for argument in written_arguments(op)}
    out = frozenset(a.name for a in schema.arguments if a.is_out)
    fresh = sum(1 for r in schema.returns if r.alias_info is None)
    wanted = [(a.name, _type(a)) for a in schema.arguments if a.name not in out]
    for candidate in _candidates(op):
        found = candidate._schema
        if found.is_mutable or any(r.alias_info is not None for r in found.returns):
            continue
        if [(a.name, _type(a)) for a in found.arguments] != wanted:
            continue
        if len(found.returns) == fresh + len(written):
            return FunctionalVariant(candidate, fresh, out)
    return None


def stands_for(variant: FunctionalVariant | None, written: dict[str, Any]) -> bool:
    """Whether the functional operator computes the same for the written arguments as they lie."""
    if variant is not None and variant.op in SEES_GAPS and not all(map(dense, written.values())):
        raise Unfunctionalizable(f"{variant.op} of memory with gaps")
    if variant is None or variant.op not in DRAWS_IN_ORDER:
        return variant is not None
    return all(one.is_contiguous() for one in written.values())


def arguments_for(
    variant: FunctionalVariant, op: torch._ops.OpOverload, given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for `variant.op` from those given to `op`, with `op`'s own defaults."""
    defaults = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in variant.op._schema.arguments:
        name = argument.name
        if name in given:
            value = given[name]
        elif name in defaults and not (
            argument.has_default_value() and argument.default_value == defaults[name]
        ):
            value = defaults[name]
        else:
            continue
        follows = variant.op._schema.arguments[len(args)].name == name
        if follows and not argument.kwarg_only and not kwargs:
            args.append(value)
        else:
            kwargs[name] = value
    return tuple(args), kwargs


def _candidates(op: torch._ops.OpOverload) -> Iterator[torch._ops.OpOverload]:
    namespace, name = op._schema.name.split("::")
    plain = name.removesuffix("_")
    # `name` itself holds the functional overload of an out= variant.
    for packet_name in (plain, f"{plain}_functional", f"{plain}_copy"):
        try:
            packet = getattr(getattr(torch.ops, namespace), packet_name)
        except AttributeError:
            continue
        overloads = packet.overloads()
        for overload in sorted(overloads, key=lambda o: o != op._overloadname):
            candidate = getattr(packet, overload)
            if candidate is not op:
                yield candidate


def _type(argument: Any) -> str:
    # `Tensor(a!)` and `Tensor` are one type here; the alias annotation is not part of it.
    return str(argument.type)
