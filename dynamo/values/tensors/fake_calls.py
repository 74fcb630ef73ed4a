"""Operations on the fake tensors behind nodes: types, shapes and strides of results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)

from dynamo import breaks
from dynamo.errors import Unsupported
from dynamo.values.tensors.fake_mismatches import (
    ask_squeezed,
    refuse_misfits,
    refuse_missing_device,
)
from dynamo.values.tensors.memory_overlap import refuse_partial_overlap
from dynamo.values.tensors.memory_starts import guard_placed
from dynamo.values.tensors.stride_reads import settle_strides
from fxgraph import Node
from fxgraph.aot import scalars
from fxgraph.aot.fake import symbolic_dispatch
from fxgraph.aot.recurrent import has_library_operator, is_cudnns, run_recurrent, takes_cudnns
from fxgraph.general_case import general_case
from fxgraph.symbols import DataDependent

if TYPE_CHECKING:
    from dynamo.interp.interpreter import Interpreter


def run_fake(tx: Interpreter, op: str, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Execute one operation on the fake tensors behind the nodes; its errors are graph breaks."""
    fake_args = to_fake(args)
    fake_kwargs = to_fake(kwargs)
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if is_cudnns(target, fake_args) and not takes_cudnns(target, fake_args):
        raise Unsupported(breaks.UncapturedCall(f"{name}, which cuDNN computes"))
    function, given = target, fake_args
    if op == "call_method":
        function, given = getattr(fake_args[0], target), fake_args[1:]
    symbols = tx.output.symbols
    has_symbols = symbols.data.allow_data()
    assumed, forget = symbols.data.assumptions(), symbols.data.forgetting()
    asks = tx.output.has_overrides  # they were asked before

    def run() -> Any:
        with (
            torch._C.DisableTorchFunctionSubclass() if asks else contextlib.nullcontext(),
            tx.output.fake_mode,
            symbolic_dispatch(tx.output.fake_mode),
            general_case(tx.output.fake_mode.shape_env, target, fake_args),
        ):
            refuse_partial_overlap(target, fake_args, fake_kwargs)
            refuse_misfits(name, fake_args, fake_kwargs)
            ask_squeezed(name, fake_args, fake_kwargs)
            if not fake_kwargs and has_library_operator(target, fake_args):
                result = run_recurrent(target, fake_args)
            else:
                result = scalars.call(target, fake_args, fake_kwargs)
            if result is NotImplemented:
                result = function(*given, **fake_kwargs)
            refuse_missing_device(result)
            return result

    with _errors_as_breaks(name):
        settle_strides(tx, name, args, kwargs)
        guard_placed(tx, name, fake_args, fake_kwargs)
        try:
            result = _run_usual(tx, run)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if has_symbols or not symbols.data.allow_data(first=True):
                raise
            result = _run_usual(tx, run)
    if symbols.data.assumptions() != assumed:
        try:
            symbols.data.check_assumed(tx, assumed)
        except DataDependent as error:
            forget()
            raise Unsupported(breaks.DataDependentValue(str(error))) from error
    return result


@contextlib.contextmanager
def _errors_as_breaks(name: str) -> Iterator[None]:
    """Raise Unsupported in place of what the operation `name` raises on fake tensors."""
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(_break_for(name, error)) from error


def _break_for(name: str, error: Exception) -> breaks.Break:
    if isinstance(error, DataDependentOutputException):
        return breaks.DataDependentValue(name)
    if isinstance(error, DataDependent):
        return breaks.DataDependentValue(str(error))
    if isinstance(error, DynamicOutputShapeException):
        return breaks.DynamicShapeOp(name)
    if isinstance(error, UnsupportedFakeTensorException):
        return breaks.UncapturedCall(name)
    if "data is not allocated yet" in str(error):
        return breaks.DataDependentValue(name)
    text = str(error).splitlines()
    return breaks.OpError(name, text[0] if text else type(error).__name__)


_QUESTIONS = 6  # of one operation, at most


def _run_usual(tx: Interpreter, run: Callable[[], Any]) -> Any:
    """The result of `run`; what its shape rules ask of data is answered as is usual, and checked
    when the graph runs.
    """
    symbols = tx.output.symbols
    forget, first = symbols.data.forgetting(), None
    for _ in range(_QUESTIONS):
        try:
            return run()
        except DataDependent as error:
            first = first or error
            if not symbols.data.answer_as_usual(tx, error.condition):
                break
        except Exception:
            if first is None:
                raise
            break  # the rule refuses data of these answers
    assert first is not None, "nothing else ends the loop"
    forget()
    raise first


def to_fake(arg: Any) -> Any:
    """Nodes -> their fake results, in any nest."""
    if isinstance(arg, Node):
        return arg.meta["example_value"]
    kind = type(arg)
    if kind is tuple:
        return tuple(to_fake(item) for item in arg)
    if kind is list:
        return [to_fake(item) for item in arg]
    if isinstance(arg, dict):
        return kind((key, to_fake(item)) for key, item in arg.items())
    if isinstance(arg, tuple) and hasattr(kind, "_fields"):
        return kind(*[to_fake(item) for item in arg])
    if kind is slice:
        return slice(to_fake(arg.start), to_fake(arg.stop), to_fake(arg.step))
    return arg
