"""Every reason for a graph break, as a class with a stable code, a text and a hint.

The text is a str.format template over the constructor's positional arguments.
"""

from __future__ import annotations

from typing import ClassVar


class Break:
    """One reason. `str()` is the text; `code` is stable across releases; `hint` says how to remove the break."""

    code: ClassVar[str]
    text: ClassVar[str]
    hint: ClassVar[str]

    def __init__(self, *details: object) -> None:
        self.details = tuple(str(d) for d in details)

    def __str__(self) -> str:
        return self.text.format(*self.details)


def _reason(name: str, code: str, text: str, hint: str) -> type[Break]:
    return type(name, (Break,), {"code": code, "text": text, "hint": hint, "__doc__": text})


UnknownType = _reason(
    "UnknownType", "UNKNOWN_TYPE", "the type of {0} is not known while capturing",
    "move the expression out of the compiled function",
)
NotConstant = _reason(
    "NotConstant", "NOT_CONSTANT", "{0} is needed as a Python constant, and it is not one",
    "compute the value outside the compiled function and pass it in",
)
NotGraphArgument = _reason(
    "NotGraphArgument", "NOT_GRAPH_ARGUMENT", "{0} cannot be an argument of a tensor operation",
    "pass tensors, numbers, or containers of them",
)
AttributeAccess = _reason(
    "AttributeAccess", "ATTRIBUTE_ACCESS", "attribute {1!r} of {0} cannot be read while capturing",
    "read the attribute outside the compiled function",
)
AttributeMutation = _reason(
    "AttributeMutation", "ATTRIBUTE_MUTATION", "attribute {1!r} of {0} cannot be changed while capturing",
    "change the attribute outside the compiled function",
)
NotCallable = _reason(
    "NotCallable", "NOT_CALLABLE", "{0} cannot be called while capturing",
    "call it outside the compiled function, or register it with dynamo.allow_in_graph",
)
UnknownTruth = _reason(
    "UnknownTruth", "UNKNOWN_TRUTH", "the truth value of {0} is not known while capturing",
    "use torch.where or torch.cond, or move the branch out of the compiled function",
)
NotSized = _reason(
    "NotSized", "NOT_SIZED", "the length of {0} is not known while capturing",
    "pass a list, tuple or dict",
)
ItemAccess = _reason(
    "ItemAccess", "ITEM_ACCESS", "items of {0} cannot be read while capturing",
    "read the item outside the compiled function",
)
ItemMutation = _reason(
    "ItemMutation", "ITEM_MUTATION", "items of {0} cannot be changed while capturing",
    "change the item outside the compiled function",
)
NotIterable = _reason(
    "NotIterable", "NOT_ITERABLE", "{0} cannot be iterated while capturing",
    "turn it into a list outside the compiled function",
)
CannotReconstruct = _reason(
    "CannotReconstruct", "CANNOT_RECONSTRUCT", "{0} lives across a graph break and cannot be made again",
    "make it after the break, or pass it in as an argument",
)
