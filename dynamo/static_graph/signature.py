"""The inputs that a static graph was built for; what differs is named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from dynamo.errors import GraphError

_NUMBERS = (int, float)
# Values that are constants of the graph; other objects are held by guards.
_CONSTANTS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class TensorSpec:
    """The type of a tensor in a graph's signature."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = False

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorSpec:
        shape = tuple(tensor.shape)
        return TensorSpec(shape, tensor.dtype, tensor.device, tensor.requires_grad)

    def __str__(self) -> str:
        parts = ["..."]
        if self.device.type != "cpu":
            parts.append(f"device='{self.device}'")
        sizes = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        parts += [f"size=({sizes})", f"dtype={self.dtype}"]
        if self.requires_grad:
            parts.append("requires_grad=True")
        return f"tensor({', '.join(parts)})"


class Signature:
    """The arguments of the first call."""

    def __init__(
        self,
        build: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dynamic: bool,
    ) -> None:
        self.build = build
        self.dynamic = dynamic
        self.key = self._key((args, kwargs))
        self.inputs = {name: _spec(leaf) for name, leaf in named_leaves(build, args, kwargs)}

    def tensors(self) -> list[TensorSpec]:
        return [spec for spec in self.inputs.values() if isinstance(spec, TensorSpec)]

    def check(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the first call had them, by position or by keyword. Raises GraphError
        unless the graph called `name` serves these, TypeError where build() takes others.
        """
        if self._key((args, kwargs)) == self.key:
            return args, kwargs
        try:
            args, kwargs = in_order(self.build, args, kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: build() is {error}") from None
        if self._key((args, kwargs)) == self.key:
            return args, kwargs
        differences = list(self._differences(args, kwargs))
        if not differences:  # the same leaves, in other containers
            differences = ["the arguments are in other containers, or have other names"]
        hint = "another instance of the class takes other inputs"
        if not self.dynamic:
            hint += ", and super().__init__(dynamic=True) makes sizes and numbers vary"
        raise GraphError(f"{name} was built for other inputs: {'; '.join(differences)} ({hint})")

    def _key(self, value: Any) -> Any:
        """Equal for the inputs that one graph serves."""
        if isinstance(value, torch.Tensor):
            shape = value.dim() if self.dynamic else value.shape
            return shape, value.dtype, value.device
        kind = type(value)
        if kind is tuple or kind is list:
            return kind, *map(self._key, value)
        if kind is dict:
            return kind, *((key, self._key(item)) for key, item in value.items())
        if kind in _NUMBERS and self.dynamic:
            return kind
        return (kind, _same(value)) if kind in _CONSTANTS else kind

    def _differences(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[str]:
        found = {name: _spec(leaf) for name, leaf in named_leaves(self.build, args, kwargs)}
        for name, spec in self.inputs.items():
            if name not in found:
                yield f"{name} is missing"
                continue
            yield from _tell(name, spec, found[name], self.dynamic)
        yield from (f"{name} is new" for name in found if name not in self.inputs)


def _same(value: Any) -> Any:
    return "nan" if value != value else value


def _spec(leaf: Any) -> Any:
    return TensorSpec.of(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _tell(name: str, before: Any, now: Any, dynamic: bool) -> Iterator[str]:
    if not (isinstance(before, TensorSpec) and isinstance(now, TensorSpec)):
        varies = dynamic and type(before) in _NUMBERS
        both = type(before), type(now)
        if both[0] is both[1] and (varies or both[0] not in _CONSTANTS):
            return
        if both[0] is not both[1] or _same(before) != _same(now):
            yield f"{name} was {_show(before)} and is {_show(now)}"
        return
    if len(before.shape) != len(now.shape) or (before.shape != now.shape and not dynamic):
        yield f"{name} had shape {before.shape} and has {now.shape}"
    if before.dtype != now.dtype:
        yield f"{name} had dtype {before.dtype} and has {now.dtype}"
    if before.device != now.device:
        yield f"{name} was on {before.device} and is on {now.device}"


def _show(value: Any) -> str:
    if isinstance(value, TensorSpec):
        return "a tensor"
    return repr(value) if type(value) in _CONSTANTS else f"a {type(value).__name__}"


def in_order(
    build: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments, by position where that is possible."""
    bound = inspect.signature(build, follow_wrapped=False).bind(*args, **kwargs)
    return bound.args, bound.kwargs


def named_leaves(
    build: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Tensors and other values of the arguments, named after build's: x, batch['ids']."""
    try:
        bound = inspect.signature(build).bind(*args, **kwargs).arguments
    except TypeError:  # raised to the user by the call itself
        bound = {f"argument {i}": value for i, value in enumerate(args)} | kwargs
    for name, value in bound.items():
        yield from leaves(name, value)


def specs_of(value: Any) -> list[TensorSpec]:
    """The tensors in what a graph returns."""
    found = (leaf for _, leaf in leaves("", value))
    return [TensorSpec.of(leaf) for leaf in found if isinstance(leaf, torch.Tensor)]


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested containers, with the path to each."""
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from leaves(f"{name}[{i}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}[{key!r}]", item)
    else:
        yield name, value
