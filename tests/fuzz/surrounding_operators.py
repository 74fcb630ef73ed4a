"""Operators of random programs' own: with objects of the program, with writes, with gradients."""

from __future__ import annotations

import torch
from torch._library.opaque_object import register_opaque_type
from torch._opaque_base import OpaqueBase


class Tally(OpaqueBase):
    """Passed to operators by reference."""

    def __init__(self, number: int = 0) -> None:
        self.number = number


class Factor(OpaqueBase):
    """Passed to operators by value."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factor) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __fx_repr__(self) -> tuple[str, dict[str, type]]:
        return f"Factor({self.number})", {"Factor": Factor}


register_opaque_type(Tally, typ="reference")
register_opaque_type(Factor, typ="value")


@torch.library.custom_op("framegraph_fuzz::tallied", mutates_args=())
def tallied(x: torch.Tensor, tally: Tally) -> torch.Tensor:
    return x + tally.number


@torch.library.custom_op("framegraph_fuzz::factored", mutates_args=())
def factored(x: torch.Tensor, factor: Factor) -> torch.Tensor:
    return x * factor.number


@tallied.register_fake
@factored.register_fake
def _(x: torch.Tensor, _: object) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("framegraph_fuzz::raised", mutates_args=("x",))
def raised(x: torch.Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("framegraph_fuzz::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
    return grad * 2


doubled.register_autograd(_backward)
