"""Numbers and sizes that depend on data, while tracing: a symbol without a value for each.

before (u0)                           after (u1, which is known to be u0)
    n = x.item()                          item = aten._local_scalar_dense.default(x)
    torch._check(n > 3)                   gt = operator.gt(item, 3)
    y = torch.zeros(n)                    aten._assert_scalar.default(gt, ...)
                                          full = aten.full.default([item], 0)

Capture has made symbols for them; the tracer runs the same operators and gets its own, which are
renamed to those of capture: conditions learned from torch._check hold for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

from fxgraph.aot.functional import Unfunctionalizable
from fxgraph.number_calls import number_call
from fxgraph.symbolic_values import is_symbolic, numbers_of
from fxgraph.symbols import DataDependent

if TYPE_CHECKING:
    from fxgraph.node import Node

aten = torch.ops.aten
_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})
COUNT = "count"  # of a mask's node: how many elements the mask selects
CHECK_FAILED = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please "
    "report an enhancement request to PyTorch.)"
)


@contextlib.contextmanager
def data_allowed(mode: FakeTensorMode, *, captured: bool = True) -> Iterator[None]:
    """Fake tensors give symbols for data; if they did so at capture, which there may not have been
    one of.
    """
    env: Any = mode.shape_env
    if env is None or (captured and not env.has_data()):
        yield
        return
    before = env.allow_scalar_outputs, env.allow_dynamic_output_shape_ops
    env.allow_scalar_outputs = env.allow_dynamic_output_shape_ops = True
    try:
        with env.unchecked():
            yield
    except DataDependent as error:
        raise Unfunctionalizable(str(error)) from error
    finally:
        env.allow_scalar_outputs, env.allow_dynamic_output_shape_ops = before
        env.pending_fresh_unbacked_symbols.clear()


def gives_data(op: Any) -> bool:
    """Whether an operator's result, or its size, may depend on data."""
    return op is number_call or not _TAGS.isdisjoint(op.tags)


class FreshSymbols:
    """The symbols of one trace.

    bind: (symbol, node) -> None; told of each symbol, and of the node that is its value.
    size_of: (node, dim) -> the node for a size of the tensor that `node` gives.
    """

    def __init__(
        self,
        mode: FakeTensorMode,
        bind: Callable[[Any, Any], None],
        size_of: Callable[[Any, int, Any], Any],
    ) -> None:
        self.mode = mode
        self.env: Any = mode.shape_env
        self.bind = bind
        self.size_of = size_of
        self.nodes: dict[Any, Node] = {}

    @property
    def allowed(self) -> bool:
        return self.env is not None and self.env.allow_scalar_outputs

    def run(self, op: Any, args: Any, kwargs: Any) -> Any:
        """The fake result of an operator, never that of an earlier call."""
        self.mode.epoch += 1  # fake tensors remember the numbers that they gave
        self.env.pending_fresh_unbacked_symbols.clear()
        try:
            result = self.mode.dispatch(op, (FakeTensor,), args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise Unfunctionalizable(f"the result of {op} depends on the data") from error
        if isinstance(result, torch.SymBool):
            raise Unfunctionalizable(f"the result of {op} depends on the data")
        return result

    def note(self, node: Node, result: Any) -> None:
        """Bind the new symbols in `result` to their values from `node`."""
        fresh = self.env.pending_fresh_unbacked_symbols
        if not fresh:
            return
        if isinstance(result, (torch.SymInt, torch.SymFloat)):
            self.found(result.node.expr, node)
        elif isinstance(result, torch.Tensor):
            for dim, size in enumerate(result.shape):
                if isinstance(size, torch.SymInt) and size.node.expr in fresh:
                    if node.target is aten.index.Tensor:
                        _count(node.args[1], size)
                    self.found(size.node.expr, self.size_of(node, dim, size))

    def found(self, symbol: Any, node: Node) -> None:
        """`node` is the value of a new symbol."""
        self.nodes[symbol] = node
        self.bind(symbol, node)
        fresh = self.env.pending_fresh_unbacked_symbols
        if symbol in fresh:
            fresh.remove(symbol)

    def rename(self, result: Any, captured: Any) -> None:
        """Rename new symbols in `result` to the captured ones at the same places."""
        if not self.nodes:
            return
        for one, other in zip(numbers_of(result), numbers_of(captured)):
            if not is_symbolic(one) or not is_symbolic(other):
                continue
            # As they were made: the captured one may be known by its very value.
            symbol, known = _symbol_of(one), _symbol_of(other)
            if symbol in self.nodes and symbol != known and known.is_Symbol:
                self.env.rename(symbol, known)
                self.bind(known, self.nodes[symbol])


def _symbol_of(number: Any) -> Any:
    """The expression of a number; of a bool that was read (u == 1), its symbol."""
    expr = number.node._expr
    return expr.lhs if isinstance(number, torch.SymBool) and isinstance(expr, sympy.Eq) else expr


def _count(indices: Any, size: torch.SymInt) -> None:
    """Bind the count of a single mask: the mask's node knows it, and the gradient selects as
    many.
    """
    given = [node for node in indices if node is not None]
    if len(given) == 1 and given[0].meta["val"].dtype == torch.bool:
        known = given[0].meta.setdefault(COUNT, size)
        size.node.shape_env.merge(size.node._expr, known.node._expr)
