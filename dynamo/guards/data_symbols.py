"""Numbers and sizes of one frame that only the call knows: which are captured, what checks them.

A number that is read from a tensor, or a size that a mask decides, is a symbol without a value. The
graph reads the symbol from the node that makes it, and checks what shape rules and the program
assume of it (interp/checks.py); a frame that may break holds a bounded count of them.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from dynamo import breaks
from dynamo.config import config
from dynamo.errors import Unsupported
from fxgraph import Node, general_case
from fxgraph.expression_nodes import ExpressionNodes
from fxgraph.expressions import is_condition
from fxgraph.symbolic_values import depends_on_data, is_symbolic, layout_numbers
from fxgraph.symbols import DataDependent

if TYPE_CHECKING:
    from dynamo.guards.shapes import FrameSymbols
    from dynamo.interp.interpreter import Interpreter
    from dynamo.interp.output import OutputGraph
    from dynamo.plans import BreakBefore
    from dynamo.torch.subgraph import Subgraph

MOST_LISTED = 8  # numbers that one `tolist` gives as symbols
MOST_DATA = 32  # symbols for data in one graph that may break
MOST_IN_LOOPS = 256  # and those of loops that are captured as a whole
# Of one loop, those whose iterations a call may not make: each takes its time to compile, and some
# in every call (128 experts, of which one token uses 8: 7.8 ms, 4.2 in eager).
MOST_PLACES = 32


class DataSymbols:
    """The symbols for data of one attempt to capture a frame."""

    def __init__(self, symbols: FrameSymbols, output: OutputGraph) -> None:
        self.symbols = symbols
        self.output = output
        self._selecting = self._sizing = False
        self._in_loops = 0  # symbols in loops that are captured as a whole
        # The break before the graph's first symbol for data, if nothing else is computed before.
        self.first_read: BreakBefore | None = None

    @property
    def _whole(self) -> bool:
        """Whether the graph is to be a whole one, which no break at data can end."""
        return self.output.guesses or self.unbroken

    @property
    def unbroken(self) -> bool:
        """Whether a break is an error wherever the graph breaks."""
        context = self.output.context
        return context.fullgraph or context.export or context.hooks is not None

    @property
    def _has_plan(self) -> bool:
        """Whether the attempt is one that captures data."""
        return bool(self.output.plan.captures_data)

    def reads_captured(self, count: int = 1) -> bool:
        """Whether numbers that are read from a tensor become symbols: of many, one read of all, and
        a break, are faster.
        """
        if count > MOST_LISTED and not self._whole:
            return False
        wanted = config.capture_scalar_outputs or self._whole or self._has_plan
        in_side = bool(self.output.bodies) and self._sizing
        return (wanted or in_side) and self.selects_captured()

    def sizes_captured(self) -> bool:
        """Whether numbers that are read, and sizes that depend on data, become symbols."""
        wanted = config.capture_dynamic_output_shape_ops or self._whole or self._has_plan
        return wanted and self.reads_captured()

    @contextlib.contextmanager
    def selecting(self, sizes: bool = False) -> Iterator[None]:
        """Capture reads of data inside of the block, whatever the options say; sizes: and sizes."""
        before = self._selecting, self._sizing
        self._selecting, self._sizing = True, sizes or self._sizing
        try:
            yield
        finally:
            self._selecting, self._sizing = before

    def takes_sizes(self) -> bool:
        """Whether sizes are captured whatever the options say (`selecting`)."""
        return self._sizing

    def selects_captured(self) -> bool:
        """Whether x[t] is captured: the selection by a number that only the call knows needs no
        more of it.
        """
        return self.has_room_for(1)

    def has_room_for(self, count: int) -> bool:
        """Whether so many more numbers from data may become symbols. Their count is bounded: the
        facts about each symbol are compared with those of all others, and a loop may read in every
        iteration.
        """
        if not self.symbols.allowed or self._in_closed_body():
            return False
        symbols = self.symbols.env.symbols if self.symbols.active else {}
        known = sum(info.hint is None for info in symbols.values())
        if self._sizing or self._has_plan:
            most = self.output.plan.numbers or MOST_IN_LOOPS
            return self._whole or known + count <= most
        return self._whole or known - self._in_loops + count <= MOST_DATA

    def _in_closed_body(self) -> bool:
        """Whether the frame is in a body whose operations may make no symbols for data."""
        return not all(body.takes_data for body in self.output.bodies)

    def has_room_in_loop(self, count: int) -> bool:
        """The same, of numbers in a loop over places that is captured as a whole."""
        if count > MOST_PLACES and not self._whole:
            return False
        with self.selecting(sizes=True):
            return self.has_room_for(count)

    def allow_data(self, first: bool = False) -> bool:
        """Have fake tensors give symbols for data, where config says so, or a break is an error;
        whether they do. first: also where the frame has no symbol yet (frames without any are
        captured faster).
        """
        if not self.symbols.active and not first:
            return False
        scalars, sizes = config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops
        scalars, sizes = scalars or self._selecting, sizes or self._sizing
        if self._whole or self._has_plan:
            scalars = sizes = True
        usable = self.selects_captured()
        if not (usable and (scalars or sizes)):
            self.close()
            return False
        self.symbols.env.allow_scalar_outputs = scalars
        self.symbols.env.allow_dynamic_output_shape_ops = sizes
        self.symbols.env.pending_fresh_unbacked_symbols.clear()  # of an operation that failed
        return True

    def are_read(self, expr: Any) -> bool:
        """Whether all symbols of data in `expr` are numbers of the graph."""
        nodes, symbols = self.symbols.nodes, self.symbols.env.symbols
        of_data = [s for s in expr.free_symbols if symbols[s].hint is None]
        return not of_data or (nodes is not None and all(map(nodes.is_known, of_data)))

    def read_from(self, symbol: sympy.Symbol) -> Any:
        """The node that a symbol for data is read from; None: the graph has none."""
        nodes = self.symbols.nodes
        return nodes.of_expression(symbol) if nodes is not None and nodes.is_known(symbol) else None

    def has_data(self) -> bool:
        """Whether a symbol depends on data."""
        return self.symbols.active and self.symbols.env.has_data()

    def are_sizes(self) -> bool:
        """Whether the size of a tensor in the graph is data."""
        nodes = self.output.graph.nodes if self.has_data() else ()
        fakes = (node.meta.get("example_value") for node in nodes)
        shapes = (fake.shape for fake in fakes if isinstance(fake, torch.Tensor))
        return any(is_symbolic(n) and depends_on_data(n) for shape in shapes for n in shape)

    def are_used(self) -> bool:
        """Whether an operation of the graph takes a number that is data, and gives a tensor."""
        nodes = self.output.graph.nodes if self.has_data() else ()
        return any(
            isinstance(node.meta.get("example_value"), torch.Tensor)
            and any(map(_is_of_data, node.all_input_nodes))
            for node in nodes
            if node.op.startswith("call_")
        )

    def has_fresh(self) -> bool:
        """Whether the last operation made symbols for data."""
        return self.symbols.active and bool(self.symbols.env.pending_fresh_unbacked_symbols)

    def bind_fresh(self, tx: Interpreter, node: Node, result: Any) -> None:
        """The symbols that `node` made, if any, are read from the node's result."""
        if not self.has_fresh():
            return
        assert self.symbols.nodes is not None, "a symbol exists"
        if self._in_closed_body():  # of a part whose ends are data
            raise Unsupported(breaks.DynamicShapeOp(getattr(node.target, "__name__", node.target)))
        in_frame = not self.output.bodies
        if in_frame and self.first_read is None and not self._computes_before(node):
            name = getattr(node.target, "__name__", str(node.target))
            reason = breaks.DataDependentValue(name)
            self.first_read = self.output.checks.breaking_at(tx, reason)
        fresh = self.symbols.env.pending_fresh_unbacked_symbols
        self._in_loops += len(fresh) if self._sizing else 0
        self._bind(node, result, fresh)
        fresh.clear()

    def _bind(self, node: Node, result: Any, fresh: Sequence[sympy.Symbol]) -> None:
        """The fresh symbols among the numbers and sizes in `result`, each read from the first."""
        nodes = self.symbols.nodes
        assert nodes is not None, "a symbol exists"
        if isinstance(result, torch.SymInt | torch.SymFloat | torch.SymBool):
            nodes.bind(result.node.expr, node)
        elif isinstance(result, tuple | list):
            for number, item in enumerate(result):
                if any(n.node.expr.free_symbols & {*fresh} for n in layout_numbers(item)):
                    part = node.graph.call_function(operator.getitem, (node, number))
                    part.meta["val"] = part.meta["example_value"] = item
                    self._bind(part, item, fresh)
        elif isinstance(result, torch.Tensor):
            for dim, size in enumerate(result.shape):
                if not isinstance(size, torch.SymInt) or nodes.is_known(size.node.expr):
                    continue
                if size.node.expr in fresh:
                    made = node.graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                    made.meta["val"] = made.meta["example_value"] = size
                    nodes.bind(size.node.expr, made)

    def _computes_before(self, node: Node) -> bool:
        """Whether the graph has operations before `node`."""
        calls = (n for n in self.output.graph.nodes if n.op.startswith("call_") and n is not node)
        return any(isinstance(n.meta["example_value"], torch.Tensor) for n in calls)

    def check_in_graph(self, tx: Interpreter, condition: Any) -> None:
        """Have the graph check a condition on data, which the program or an operator asked for."""
        assert self.symbols.nodes is not None, "a symbol exists"
        if isinstance(condition, sympy.And):  # each part is known where its own check stands
            for part in condition.args:
                self.check_in_graph(tx, part)
            return
        node = self.symbols.nodes.of_expression(condition)
        if isinstance(node, Node):
            self.output.checks.promise()
            self.output.create_node("call_function", torch._check, (node,), {}, None, tx)

    def rely_on(self, condition: Any) -> None:
        """Go on as if a condition on data held, with a check in the graph: where it fails, the
        frame runs again, eagerly. Raises DataDependent where no check can be made.
        """
        output, tx = self.output, self.output.running
        error = DataDependent(condition, self.symbols.env.describe(condition))
        if tx is None or output.bodies or not self.are_read(condition):
            raise error
        if not output.checks.supposes(tx, breaks.DataDependentValue(str(error))):
            raise error
        self.symbols.env.check(condition)
        self.check_in_graph(tx, condition)

    def answer_as_usual(self, tx: Interpreter, question: Any) -> bool:
        """Whether a shape rule's question about data has a usual answer; it is assumed (and checked
        by `check_assumed`).
        """
        usual = None
        if is_condition(question):
            usual = general_case.usual(general_case.of_remainder(self.symbols.env, question))
        if usual is None or self.output.bodies or not self.are_read(usual):
            return False
        reason = breaks.DataDependentValue(self.symbols.env.describe(question))
        if not self.output.checks.supposes(tx, reason):
            return False
        self.symbols.env.pending_fresh_unbacked_symbols.clear()
        return self.symbols.env.check(usual)

    def assumptions(self) -> int:
        """How many conditions on data were assumed so far."""
        return len(self.symbols.env.assertions) if self.symbols.active else 0

    def forgetting(self) -> Callable[[], None]:
        """A function that drops the assumptions about data made from now on, which the graph does
        not need after all.
        """
        if self.symbols.active:
            return self.symbols.env.abandoning()
        return lambda: self.symbols.env.abandoning(whole=True)() if self.symbols.active else None

    def check_assumed(self, tx: Interpreter, start: int) -> None:
        """Check in the graph, before their use, the assumptions that shape rules have made about
        data since assertion number `start`. Raises DataDependent where eager execution, to which
        the frame cannot go back, may go through without them (by broadcasting, or a -1).
        """
        if not self.symbols.active or self.symbols.nodes is None or self._in_closed_body():
            return
        made = self.symbols.env.assertions[start:]
        for condition in [assumed.condition for assumed in made]:
            # An operator's own words on the data that it gives need no check.
            if not self.are_read(condition):
                self.symbols.env.given(condition)
                continue
            if self.output.bodies:
                raise DataDependent(condition, self.symbols.env.describe(condition))
            if not (self._whole or self.output.checks.can_be_made()):
                raise DataDependent(condition, self.symbols.env.describe(condition))
            self.check_in_graph(tx, condition)

    def close(self) -> None:
        """Capture is over: in a backend, data has no symbols."""
        if self.symbols.active:
            self.symbols.env.allow_scalar_outputs = False
            self.symbols.env.allow_dynamic_output_shape_ops = False


class BodyNumbers(ExpressionNodes):
    """Nodes of expressions in a body: of those with symbols that the body makes, in its graph."""

    def __init__(self, outer: ExpressionNodes, body: Subgraph) -> None:
        super().__init__(outer.env, outer.symbol_node, self._in_body)
        self.outer = outer
        self.body = body
        self.made: set[Any] = set()  # symbols of data

    def _in_body(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        return self.body.graph.call_function(function, self.body.local(args))

    def bind(self, symbol: Any, node: Node) -> None:
        super().bind(symbol, node)
        self.made.add(symbol)

    def is_known(self, symbol: Any) -> bool:
        return super().is_known(symbol) or self.outer.is_known(symbol)

    def of_expression(self, expr: Any) -> Any:
        if self.made.isdisjoint(expr.free_symbols):
            return self.outer.of_expression(expr)
        return super().of_expression(expr)


def _is_of_data(node: Node) -> bool:
    """Whether a node gives a number that only the call knows."""
    value = node.meta.get("example_value")
    return is_symbolic(value) and depends_on_data(value)
