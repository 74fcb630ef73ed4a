"""Inputs of a saved program, as data, and the check of a call against them.

{"parameters": [{"name": "x", "kind": "POSITIONAL_OR_KEYWORD", "given": true}, ...],
 "nest": {"dict": [["x", {"leaf": 0}], ...]},
 "leaves": [{"path": "x", "tensor": {dtype, size, stride, device, requires_grad}},
            {"path": "n", "symbol": "s1"}, {"path": "mode", "constant": "mean"},
            {"path": "y", "same_as": 0}],
 "reads": {"s0": ["size", 0, 1], "s1": ["number", 2], "s2": ["fixed", 5], "f0": ["schedule", 0]}}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dynamo.errors import ProgramError
from dynamo.saved.nests import check_nest, collector, nest_of
from dynamo.saved.schedule import Rates
from dynamo.static_graph import Graph
from fxgraph.serialize import argument_from_json
from fxgraph.stored import evaluator, from_data
from fxgraph.stored.tensors import dtype_of
from fxgraph.symbols import ShapeEnv

_ANY = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
_KINDS = {kind.name: kind for kind in inspect._ParameterKind}
CONSTANTS = (bool, int, float, str, type(None), complex, torch.dtype, torch.device, torch.layout,
             torch.memory_format, type(...), slice)  # fmt: skip


def signature_of(fn: Any) -> inspect.Signature:
    """The signature of the callable that users call."""
    called = fn
    if isinstance(fn, torch.nn.Module | Graph):
        called = fn.build if isinstance(fn, Graph) else fn.forward
    try:
        # Of a function that wraps another, capture sees the wrapper's own arguments.
        return inspect.signature(called, follow_wrapped=called is not fn)
    except (TypeError, ValueError):
        return _ANY


class Bound:
    """The arguments of the call that a program is exported with."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.signature = signature_of(fn)
        try:
            self.arguments = dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError:  # the program has its own way with them
            self.signature = _ANY
            self.arguments = dict(_ANY.bind(*args, **kwargs).arguments)
        self.leaves: list[Any] = []
        self.paths: list[str] = []
        nests = [[name, nest_of(value, self._leaf, name)] for name, value in self.arguments.items()]
        self.nest = {"dict": nests}
        self.names = self._source_names(fn, args, kwargs)

    def _leaf(self, value: Any, path: str) -> int:
        self.leaves.append(value)
        self.paths.append(path)
        return len(self.leaves) - 1

    def _source_names(self, fn: Any, args: Any, kwargs: Any) -> dict[str, int]:
        """How capture names each leaf -> its number."""
        prefixes = {name: f"L[{name!r}]" for name in self.arguments}
        if isinstance(
            fn, torch.nn.Module | Graph
        ):  # the frame that is captured has args and kwargs
            prefixes = self._module_prefixes(len(args), list(kwargs))
        found = {}
        for number, path in enumerate(self.paths):
            known = [
                p for p in prefixes if path.startswith(p) and path[len(p) :][:1] in ("", "[", ".")
            ]
            if known:
                longest = max(known, key=len)
                found[prefixes[longest] + path[len(longest) :]] = number
        return found

    def _module_prefixes(self, count: int, names: list[str]) -> dict[str, str]:
        """Path of a leaf, or how it begins -> what that is called in terms of args and kwargs."""
        args = [f"L['args'][{i}]" for i in range(count)]
        kwargs = {name: f"L['kwargs'][{name!r}]" for name in names}
        found: dict[str, str] = {}
        for name, value in self.signature.bind(*args, **kwargs).arguments.items():
            if isinstance(value, tuple):
                found.update({f"{name}[{i}]": source for i, source in enumerate(value)})
            elif isinstance(value, dict):
                found.update({f"{name}[{key!r}]": source for key, source in value.items()})
            else:
                found[name] = value
        return found

    def parameters(self) -> list[dict[str, Any]]:
        return [
            {"name": p.name, "kind": p.kind.name, "given": p.name in self.arguments}
            for p in self.signature.parameters.values()
        ]


# -- loaded ---------------------------------------------------------------------------------------
class Signature:
    """Checks calls; its `leaves` gives the tensors and numbers of one."""

    def __init__(
        self, data: Any, symbols: Any, env: ShapeEnv | None, name: str, schedule: Rates | None
    ) -> None:
        self.name = name
        self.rows = data["leaves"]
        check_nest(data["nest"], len(self.rows))
        self.signature = _signature(data["parameters"])
        self.given = [p["name"] for p in data["parameters"] if p["given"]]
        self.collectors = [(key, collector(nest, key)) for key, nest in data["nest"]["dict"]]
        self.checks = [self._check_of(i, row) for i, row in enumerate(self.rows)]
        names = {symbol.name: symbol for symbol in env.symbols} if env is not None else {}
        self.reads = [
            (symbol, *_read(data["reads"][symbol], self.rows, schedule)) for symbol in names
        ]
        self.ranges = [
            (row["name"], row["label"], row["low"], row["high"]) for row in symbols["symbols"]
        ]
        self.conditions = [
            (evaluator(row["condition"]), str(row["text"])) for row in symbols["guards"]
        ]
        self.derived = self._derived(names)

    # -- making -----------------------------------------------------------------------------------
    def _check_of(self, number: int, row: Any) -> Callable[[Any, Sequence[Any]], None]:
        path = str(row["path"])
        if "tensor" in row:
            return _TensorCheck(path, row["tensor"])
        if "same_as" in row:
            other = row["same_as"]
            if type(other) is not int or not 0 <= other < number:
                raise ValueError("an input that is the same as none")
            return lambda value, leaves: _check_same(value, leaves[other], path, self.rows[other])
        if "symbol" in row:
            kind = float if row["symbol"].startswith("f") else int
            return lambda value, leaves: _check_number(value, kind, path)
        constant = argument_from_json(row["constant"], {})
        return lambda value, leaves: _check_constant(value, constant, path)

    def _derived(self, names: Mapping[str, Any]) -> list[tuple[str, int, bool, int, Any, str]]:
        """(path, leaf, whether a stride, dimension, function of symbols, text) of all sizes and
        strides that vary."""
        found = []
        for number, row in enumerate(self.rows):
            for key in ("size", "stride") if "tensor" in row else ():
                for dim, n in enumerate(row["tensor"][key]):
                    if isinstance(n, dict):
                        expr = from_data(n["expr"], names)
                        place = str(row["path"]), number, key == "stride", dim
                        found.append((*place, evaluator(n["expr"]), str(expr)))
        return found

    # -- calls ------------------------------------------------------------------------------------
    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of a call's arguments, checked; ProgramError names the first misfit."""
        try:
            arguments = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self._refused(f"{error} (it takes {self.signature})") from None
        found: list[Any] = [None] * len(self.rows)
        for name, collect in self.collectors:
            if name not in arguments:
                raise self._refused(f"argument {name} is missing: it was saved with one")
            collect(arguments[name], found)
        if len(arguments) != len(self.collectors):
            extra = ", ".join(name for name in arguments if name not in self.given)
            raise self._refused(f"argument {extra} is given, and it was saved without")
        for check, value in zip(self.checks, found, strict=True):
            check(value, found)
        return found

    def symbols(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The values of the symbols; ProgramError for sizes out of range."""
        values = {symbol: read(leaves, where) for symbol, read, where in self.reads}
        for symbol, label, low, high in self.ranges:
            value = values[symbol]
            if low is not None and value < low:
                raise self._refused(f"{label} is {value}; the least is {low}")
            if high is not None and value > high:
                raise self._refused(f"{label} is {value}; the most is {high}")
        for path, leaf, strides, dim, function, text in self.derived:
            value = leaves[leaf].stride(dim) if strides else leaves[leaf].shape[dim]
            wanted = function(values)
            if value != wanted:
                what = "stride" if strides else "size"
                raise self._refused(f"{path}.{what}({dim}) is {value} instead of {wanted} ({text})")
        for holds, text in self.conditions:
            if not holds(values):
                raise self._refused(f"its sizes are to keep: {text}")
        return values

    def _refused(self, text: str) -> ProgramError:
        return ProgramError(f"{self.name}: {text}")


def _signature(rows: Any) -> inspect.Signature:
    """Parameters that were not given when it was saved have a default that means so."""
    made: list[inspect.Parameter] = []
    for row in rows:
        kind = _KINDS[row["kind"]]
        several = kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        default = inspect.Parameter.empty if row["given"] or several else None
        if (
            made
            and made[-1].default is None
            and default is not None
            and (
                kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            )
        ):
            default = None
        made.append(inspect.Parameter(row["name"], kind, default=default))
    return inspect.Signature(made)


def _read(
    where: Any, rows: Sequence[Any], schedule: Rates | None
) -> tuple[Callable[[Sequence[Any], Any], Any], Any]:
    kind, *rest = where
    if kind == "schedule":
        (column,) = rest
        if schedule is None or type(column) is not int or not 0 <= column < len(schedule.names):
            raise ValueError("a number of no schedule")
        return (lambda leaves, where: schedule.value(where)), column
    if kind == "fixed":
        (value,) = rest
        if not isinstance(value, int | float):
            raise TypeError("a number that is none")
        return (lambda leaves, where: where), value
    if kind not in _READS or not all(type(n) is int for n in rest):
        raise ValueError("a size of no input")
    limits = [len(rows), *(len(rows[rest[0]]["tensor"][kind]) for _ in rest[1:])]
    if any(not 0 <= n < limit for n, limit in zip(rest, limits, strict=True)):
        raise ValueError("a size of no input")
    return _READS[kind], rest


_READS: dict[str, Callable[[Sequence[Any], Any], Any]] = {
    "size": lambda leaves, where: leaves[where[0]].shape[where[1]],
    "stride": lambda leaves, where: leaves[where[0]].stride(where[1]),
    "number": lambda leaves, where: leaves[where[0]],
}


class _TensorCheck:
    """Dtype, device, and sizes and strides that do not vary."""

    def __init__(self, path: str, data: Any) -> None:
        self.path = path
        self.dtype = dtype_of(data["dtype"])
        self.device = torch.device(data["device"])
        self.requires_grad = bool(data["requires_grad"])
        self.size = [n if type(n) is int else None for n in data["size"]]
        self.stride = [n if type(n) is int else None for n in data["stride"]]
        plain = all(type(n) is int or isinstance(n, dict) for n in (*data["size"], *data["stride"]))
        if not plain or len(self.size) != len(self.stride):
            raise ValueError("a tensor of no size")
        self.fixed = None not in self.size and None not in self.stride
        self.sizes = tuple(self.size), tuple(self.stride)

    def __call__(self, tensor: Any, leaves: Sequence[Any]) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise ProgramError(f"input {self.path} is to be a tensor, not {type(tensor).__name__}")
        if tensor.dtype is not self.dtype:
            raise ProgramError(f"input {self.path} is to be {self.dtype}, not {tensor.dtype}")
        if tensor.device != self.device:
            raise ProgramError(f"input {self.path} is to be on {self.device}, not {tensor.device}")
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            raise ProgramError(f"input {self.path} is to be a plain tensor, not {tensor.layout}")
        if self.fixed and (tensor.shape, tensor.stride()) == self.sizes:
            pass
        elif not _fits(tensor.shape, self.size):
            raise ProgramError(f"input {self.path} is to have the size {_text(self.size)}, not "
                               f"{_text(tensor.shape)}")  # fmt: skip
        elif not _fits(tensor.stride(), self.stride):
            raise ProgramError(f"input {self.path} is to have the stride {_text(self.stride)}, not "
                               f"{_text(tensor.stride())}")  # fmt: skip
        if tensor.requires_grad and not self.requires_grad and torch.is_grad_enabled():
            raise ProgramError(
                f"input {self.path} requires grad, and the program was saved without its gradient"
            )


def _fits(numbers: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(numbers) == len(wanted) and all(
        w is None or n == w for n, w in zip(numbers, wanted, strict=True)
    )


def _text(numbers: Sequence[int | None]) -> str:
    return f"({', '.join('*' if n is None else str(n) for n in numbers)})"


def _check_same(value: Any, other: Any, path: str, row: Any) -> None:
    if value is not other:
        raise ProgramError(f"input {path} is to be the same object as input {row['path']}")


def _check_number(value: Any, kind: type, path: str) -> None:
    if type(value) is not kind:
        raise ProgramError(f"input {path} is to be a {kind.__name__}, not {type(value).__name__}")


def _check_constant(value: Any, constant: Any, path: str) -> None:
    same = type(value) is type(constant) and (value == constant or value != value != constant)
    if not same:
        raise ProgramError(f"input {path} is to be {constant!r}, as it was saved, not {value!r}")


__all__ = ["CONSTANTS", "Bound", "Signature"]
