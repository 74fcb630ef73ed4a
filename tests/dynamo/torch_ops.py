"""torch's own table of operators (op_db) with sample arguments: each called by its name, as a
method, in place and with out= inside a captured function, and compared with eager.
"""

from __future__ import annotations

import functools
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dynamo.api.compile import compile
from dynamo.errors import Unsupported
from tests.dynamo.values_support import CountingBackend


@functools.cache
def operators() -> dict[str, Any]:
    """Name -> OpInfo. Importing the table takes seconds, so this is not done at the head."""
    if "expecttest" not in sys.modules:  # asked for by the table's module, not by the table
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal import common_methods_invocations as table
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    # The import forbids plain assignments to the flags of torch.backends, for the whole process.
    torch.backends.__allow_nonbracketed_mutation_flag = True  # type: ignore[attr-defined]
    # It asks for the calling unittest, by reading the source of every frame of the stack.
    core.extract_test_fn = common_utils.extract_test_fn = lambda: None
    # It seeds the generator around each random operator; so do we, outside of the program.
    table.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {
        f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name: info
        for info in table.op_db
    }


@dataclass
class Case:
    """One call: `call(args, kwargs)` with the arguments of a sample."""

    variant: str  # function | method | inplace | out
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: bool = True  # whether the values are defined (those of torch.empty are not)


def dtype_of(info: Any) -> torch.dtype:
    supported = info.dtypes
    for dtype in (torch.float32, torch.float64, torch.int64, torch.complex64, torch.bool):
        if dtype in supported:
            return dtype
    return next(iter(supported))


def samples(info: Any, limit: int, dtype: torch.dtype | None = None) -> list[Any]:
    """The first samples, spread over the list."""
    torch.manual_seed(0)
    found = list(info.sample_inputs("cpu", dtype or dtype_of(info)))
    step = max(1, len(found) // limit)
    return found[::step][:limit]


def _call(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(args, kwargs):
        return function(*args, **kwargs)

    return call


def _call_method(name: str) -> Callable[..., Any]:
    def call(args, kwargs):
        receiver, *rest = args
        return getattr(receiver, name)(*rest, **kwargs)

    return call


def _named(info: Any) -> Callable[..., Any]:
    """The operator itself: `lambda x: torch.name(x)` in the table hides nothing from capture."""
    return info.op


def cases(info: Any, limit: int = 1, start: int = 0) -> Iterator[Case]:
    """Every form in which the operator can be called, with the first samples from `start` on."""
    for sample in samples(info, limit)[start:]:
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        values = "empty" not in info.name
        yield Case("function", _call(_named(info)), args, kwargs, values)
        receiver_is_tensor = isinstance(sample.input, torch.Tensor)
        method = getattr(info.method_variant, "__name__", None)
        if method and receiver_is_tensor and hasattr(torch.Tensor, method):
            yield Case("method", _call_method(method), args, kwargs, values)
        inplace = getattr(info.inplace_variant, "__name__", None)
        if inplace and receiver_is_tensor and not sample.broadcasts_input:
            if hasattr(torch.Tensor, inplace):
                yield Case("inplace", _call_method(inplace), args, kwargs)
        if info.supports_out:
            out = _out_like(info, args, kwargs)
            if out is not None:
                yield Case("out", _call(_named(info)), args, {**kwargs, "out": out})


def _out_like(info: Any, args: Any, kwargs: Any) -> Any:
    torch.manual_seed(0)
    args, kwargs = copied((args, kwargs))
    result = _quiet(_named(info), *args, **kwargs)
    if isinstance(result, torch.Tensor):
        return torch.empty_strided(
            result.shape, result.stride(), dtype=result.dtype, device=result.device
        ).zero_()
    if isinstance(result, tuple) and all(isinstance(r, torch.Tensor) for r in result):
        return tuple(torch.zeros_like(r) for r in result)
    return None


def copied(value: Any) -> Any:
    """A deep copy in which views stay views of one storage."""
    return _Copier().copy(value)


class _Copier:
    def __init__(self) -> None:
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.tensors: dict[int, torch.Tensor] = {}

    def copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = self.tensor(value)
            return self.tensors[id(value)]
        if isinstance(value, torch.Generator):
            return torch.Generator().manual_seed(value.initial_seed())
        if type(value) in (list, tuple):
            return type(value)(map(self.copy, value))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.copy, value))
        if type(value) is dict:
            return {key: self.copy(item) for key, item in value.items()}
        return value

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        if value.layout is not torch.strided:
            return value.detach().clone().requires_grad_(value.requires_grad)
        old = value.untyped_storage()
        if old._cdata not in self.storages:
            self.storages[old._cdata] = old.clone()
        new = torch.empty(0, dtype=value.dtype)
        new.set_(self.storages[old._cdata], value.storage_offset(), value.shape, value.stride())
        if value.is_conj():
            new = new.conj()
        if value.is_neg():
            new = torch._neg_view(new)
        return new.requires_grad_(value.requires_grad)


def description(result: Any, given: Any) -> Any:
    """What must be equal: values, types, layout, and which arguments or results share memory."""
    return _Describer(given).describe(result)


class _Describer:
    def __init__(self, given: Any) -> None:
        self.storages: dict[int, int] = {}
        self.objects: dict[int, str] = {}
        self.kept: list[Any] = []
        for i, tensor in enumerate(tensors_in(given)):
            self.objects[id(tensor)] = f"argument {i}"
            self.storage(tensor)

    def storage(self, tensor: torch.Tensor) -> int:
        try:
            key = tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):
            return -1
        self.kept.append(tensor)
        return self.storages.setdefault(key, len(self.storages))

    def describe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (tuple, list)):
            return type(value).__name__, [self.describe(item) for item in value]
        if isinstance(value, dict):
            return "dict", [(key, self.describe(item)) for key, item in value.items()]
        return type(value), repr(value) if isinstance(value, float) else value

    def tensor(self, value: torch.Tensor) -> Any:
        identity = self.objects.setdefault(id(value), f"result {len(self.objects)}")
        self.kept.append(value)
        strided = value.layout is torch.strided
        facts = (
            identity,
            type(value),
            value.dtype,
            tuple(value.shape),
            value.stride() if strided else value.layout,
            value.storage_offset() if strided else 0,
            self.storage(value) if strided else 0,
            value.requires_grad,
            value.is_conj(),
            value.is_neg(),
        )
        return facts, Bits(value)


class Bits:
    """The values of a tensor; equal if the same to the last bit."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Bits)
        left, right = self.tensor, other.tensor
        if left.dtype is torch.complex32:
            left, right = left.to(torch.complex64), right.to(torch.complex64)
        if left.dtype != right.dtype or left.shape != right.shape or left.layout != right.layout:
            return False
        if left.layout is not torch.strided:
            left, right = left.to_dense(), right.to_dense()
        return torch.equal(left, right) or bool(
            torch.isclose(left, right, rtol=0, atol=0, equal_nan=True).all()
        )

    def __repr__(self) -> str:
        return repr(self.tensor)


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def _quiet(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def outcome(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a call did, in comparable form: result or exception, and the arguments afterwards."""
    torch.manual_seed(0)
    given = (args, kwargs)
    tensors = tensors_in(given)
    try:
        result = _quiet(call, args, kwargs)
    except Unsupported:
        raise
    except Exception as error:
        return ("raised", type(error), str(error).split("\n")[0]), None
    draws = torch.rand(1).item()  # the same numbers were drawn
    return ("returned", draws), description((result, tensors), given)


@dataclass
class Report:
    """How one case went. `reason`: why it was not one graph, or what differs."""

    variant: str
    status: str  # captured | break | wrong | raises (in eager too)
    code: str = ""
    detail: str = ""


def _repeated(case: Case) -> Iterator[Any]:
    """Eager's outcomes in other calls: LAPACK rounds by the place of the operands in memory."""
    for _ in range(30):
        yield outcome(case.call, *copied((case.args, case.kwargs)))


def run_case(case: Case) -> Report:
    """Eager against captured."""
    expected = outcome(case.call, *copied((case.args, case.kwargs)))
    backend = CountingBackend()
    captured = compile(case.call, backend=backend, fullgraph=True)
    code = ""
    try:
        found = outcome(captured, *copied((case.args, case.kwargs)))
    except Unsupported as error:
        code = getattr(error.reason, "code", "?")
        detail = str(error.reason).split("\n")[0]
        captured = compile(case.call, backend=backend)
        found = outcome(captured, *copied((case.args, case.kwargs)))
    if not case.values and expected[0] == found[0]:
        found = expected
    if found != expected and not any(found == again for again in _repeated(case)):
        return Report(case.variant, "wrong", code, f"expected {expected}, got {found}")
    if expected[0][0] == "raised":
        return Report(case.variant, "raises", code, str(expected[0]))
    if code:
        return Report(case.variant, "break", code, detail)
    if backend.graphs != 1:
        return Report(case.variant, "folded" if backend.graphs == 0 else "break")
    return Report(case.variant, "captured")


class Programs(list):
    """Rows of a table for check_program: functions decorated by it."""

    def __call__(
        self, *args: Any, graphs: int = 1, breaks: str | None = None
    ) -> Callable[..., Any]:
        """Register a program: what makes its arguments, at most so many graphs, the first break."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.append(pytest.param(function, args, graphs, breaks, id=function.__name__))
            return function

        return register


def check_program(
    function: Callable[..., Any], args: tuple[Any, ...], graphs: int, code: str | None
) -> None:
    """Eager against captured, twice. graphs: at most so many; `code` is that of the first break,
    None: there is none. `args` are made anew for each call: callables are called.
    """

    def given() -> tuple[Any, ...]:
        torch.manual_seed(0)
        return tuple(a() for a in args)

    def call(arguments, kwargs):
        return function(*arguments)

    expected = outcome(call, given(), {})
    if code is not None:
        try:
            found = outcome(compile(call, backend=CountingBackend(), fullgraph=True), given(), {})
        except Unsupported as error:
            assert error.reason.code == code, str(error)
        else:
            raise AssertionError(f"{code} is the reason of a break no more: {found}")
    backend = CountingBackend()
    captured = compile(call, backend=backend, fullgraph=code is None)
    for _ in range(2):
        found = outcome(captured, given(), {})
        assert found == expected, f"expected {expected}\nfound {found}"
    assert backend.graphs <= graphs, f"{backend.graphs} graphs"
