"""Recipes: how values are made, in bytecode and in continuations.

A recipe is (make, operands): the value is make(*operands). It is read by bytecode generation
(framestate/materialise.py), rematerialisation behind a break (framestate/virtual_objects.py) and
reachability. What is written into a value afterwards is the task of `Value.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo.framestate.materialise import Codegen

Recipe = tuple[Callable[..., Any], Sequence[Any]]


class Part:
    """An operand that is no value of the program, such as a function over a frame's cells."""

    def push(self, codegen: Codegen) -> None:
        raise NotImplementedError(type(self))


class Attribute:
    """What makes an attribute of its operand."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, owner: Any) -> Any:
        return getattr(owner, self.name)
