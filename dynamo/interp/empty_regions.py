"""Code that a branch skips where there is nothing to do, and that may as well run on nothing:

    rows = torch.where(chosen)[0]           rows = torch.where(chosen)[0]
    if rows.numel() == 0:            ->     out.index_add_(0, rows, expert(x[rows]))
        continue
    out.index_add_(0, rows, expert(x[rows]))

The region from the jump to the instruction at which both ways meet is captured in the same graph,
unconditionally, if it computes tensors by operations that take nothing, writes only where an empty
index chooses, and leaves nothing else behind.

A gradient tells whether a region ran (zeros, not None), and so do random numbers: the graph goes on
as if the region ran, and a check says whether it did.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from dynamo import breaks
from dynamo.bytecode.branches import leads_to, meeting_of
from dynamo.bytecode.liveness import live_before
from dynamo.errors import Unsupported
from dynamo.interp.checks import STATE_FUNCTIONS, written_memories
from dynamo.interp.emptiness import Emptiness, is_mask, name_of
from dynamo.interp.sides import Refused, is_tensor, memory_of, run_until
from dynamo.plans import AttemptEnded, Retry
from dynamo.values.base import Value
from dynamo.values.objects.exceptions import RaisedException
from dynamo.values.scalars.symbol import SymbolValue
from dynamo.values.tensors.captured_scalars import truth_in_graph
from dynamo.values.tensors.deferred_scalar import DeferredScalar
from dynamo.values.tensors.tensor import TensorValue
from fxgraph import Node, effects

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter


def run_region(tx: Interpreter, instr: Instruction, value: Value, jumps_if: bool) -> bool:
    """Run the code that the conditional jump on `value` (popped already) skips where a size is 0;
    False if that cannot be.
    """
    output = tx.output
    size = _tested_size(value)
    step = tx.began
    # A trial wants one iteration of a loop, whichever way its branches go.
    tries = output.trial is not None
    if size is None or output.bodies or tries or step in output.plan.skipped_regions:
        return False
    meeting = meeting_of(tx.code, instr)
    if meeting is None or instr.target is None or not output.checks.can_be_made():
        return False
    symbol, empty = size
    skip, region = instr.target.index, instr.index + 1
    if empty is not jumps_if:
        skip, region = region, skip
    if not leads_to(tx.code, skip, meeting):
        return False
    tx.index = region
    around, last = output.emptiness, last_node(tx)
    try:
        with no_break_inside():
            fits = run_alone(tx, meeting, list(tx.stack))
    except Refused:
        fits = False
    except (Unsupported, RaisedException):
        if around is not None:  # which captures the loop in another way, or not
            raise
        fits = False
    emptiness, ran = Emptiness([symbol]), nodes_behind(tx, last)
    emptiness.gradients = emptiness.draws = True
    fits = fits and output.checks.can_be_made() and all(map(emptiness.spares, ran))
    # In the iterations of a loop that are made it always runs.
    runs = around is not None and around.is_chosen(symbol, reversed(output.graph.nodes))
    if fits and any(telling(ran)) and not runs:
        fits = guess(tx, truth_in_graph(tx, value), not empty)
    if not fits:
        raise Retry(output.plan.skipping(step))
    return True


def guess(tx: Interpreter, truth: Value | None, passes: bool) -> bool:
    """Go on as if a region ran, with a check; False: that cannot be."""
    checks = tx.output.checks
    if truth is None or not checks.may_guess():
        return False
    broken = checks.breaking_at(tx, breaks.DataDependentJump(truth.describe()))
    checks.make(truth, broken, passes, guessed=True)
    return True


@contextlib.contextmanager
def no_break_inside() -> Iterator[None]:
    """Raise Refused where the attempt ends in the block, or another is to break there."""
    try:
        yield
    except Retry as retry:
        if getattr(retry.plan, "stop", None) is None:
            raise
        raise Refused("a break stands in a region that not every call runs") from None
    except AttemptEnded:
        raise Refused("a break stands in a region that not every call runs") from None


def run_alone(tx: Interpreter, meeting: int, stack: list[Any]) -> bool:
    """Run instructions up to `meeting`, where the stack is to be this one; whether they have done
    nothing but compute tensors.
    """
    output = tx.output
    before, exception = dict(tx.locals), tx.exc_info
    grad, crossings = torch.is_grad_enabled(), output.side_effects.crossings
    with output.side_effects.fenced(), output.side_effects.untouched():
        run_until(tx, meeting)
    live = live_before(tx.code)[meeting]
    fits = not tx.done and tx.stack == stack and tx.exc_info is exception
    fits = fits and grad is torch.is_grad_enabled() and not output.finalizable
    fits = fits and crossings == output.side_effects.crossings
    if not fits or any(tx.locals.get(name) is not before.get(name) for name in live):
        return False
    for name in tx.locals.keys() - live:
        del tx.locals[name]
    tx.locals.update({k: v for k, v in before.items() if k not in tx.locals and k in live})
    return True


def last_node(tx: Interpreter) -> Node | None:
    return next(iter(reversed(tx.output.graph.nodes)), None)


def nodes_behind(tx: Interpreter, last: Node | None) -> list[Node]:
    """The nodes behind the one that was the last, in order."""
    behind = itertools.takewhile(lambda node: node is not last, reversed(tx.output.graph.nodes))
    return list(behind)[::-1]


_WRITE_NOTHING = STATE_FUNCTIONS | {"_check"}


def are_written(tx: Interpreter, nodes: Iterable[Node]) -> bool:
    """Whether the memory of one of the nodes was written since."""
    missing = set(nodes)
    memories = {memory_of(node.meta["example_value"]) for node in missing}
    for node in reversed(tx.output.graph.nodes):
        missing.discard(node)
        if not missing:
            return False
        does = effects.of(node) if node.op.startswith("call_") else effects.PURE
        unknown = does.other and name_of(node) not in _WRITE_NOTHING
        if unknown or (does.writes and not memories.isdisjoint(written_memories(node))):
            return True
    return True


def telling(ran: Sequence[Node]) -> tuple[set[Node], bool]:
    """Traces of these nodes: the tensors from before them that get gradients where they run; and
    whether random numbers are drawn.
    """
    inside, used, draws = set(ran), set(), False
    for node in ran:
        does = effects.of(node) if node.op.startswith("call_") else effects.PURE
        draws = draws or does.random
        if not torch.is_grad_enabled() or not _graded(node.meta.get("example_value")):
            continue
        given = node.all_input_nodes
        if does.writes:  # what was in there has a gradient of its own
            given = [arg for arg in given if arg is not node.args[0]]
        used |= {arg for arg in given if arg not in inside and _graded(arg.meta["example_value"])}
    return used, draws


def _graded(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_graded, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


# -- whether a mask has any ones ------------------------------------------------------------------
def run_masked_region(tx: Interpreter, instr: Instruction, value: Value, jumps_if: bool) -> bool:
    """The same of a conditional jump on whether a mask has any ones:

    if mask.any():
        out[mask] = expert(x[mask])
    """
    output, step = tx.output, tx.began
    tested = tested_mask(tx, value)
    if tested is None or output.bodies or output.trial is not None or output.emptiness is not None:
        return False
    meeting = meeting_of(tx.code, instr)
    if step in output.plan.skipped_regions or meeting is None or instr.target is None:
        return False
    (mask, empty), later = tested, value.deferred_truth(tx)
    skip, region = instr.target.index, instr.index + 1
    if empty is not jumps_if:
        skip, region = region, skip
    if later is None or not leads_to(tx.code, skip, meeting):
        return False
    if not (output.checks.can_be_made() or output.conditionals.come_last()):
        return False  # the region may need one
    tx.index = region
    first, last = output.symbols.data.first_read, last_node(tx)
    emptiness = output.emptiness = Emptiness([], lambda node: node is mask)
    emptiness.gradients = emptiness.draws = True
    try:
        with output.symbols.data.selecting(sizes=True), no_break_inside():
            fits = run_alone(tx, meeting, list(tx.stack))
    except (Unsupported, RaisedException, Refused):
        fits = False
    ran = nodes_behind(tx, last)
    output.symbols.data.first_read, output.emptiness = first, None
    fits = fits and all(map(emptiness.spares, ran)) and not are_written(tx, {mask})
    if fits and any(telling(ran)):
        fits = guess(tx, later[0], not empty)
    if not fits:
        raise Retry(output.plan.skipping(step))
    return True


def tested_mask(tx: Interpreter, value: Value) -> tuple[Node, bool] | None:
    """The mask of which `value` says whether any element is one, and the truth that it has where
    none is. (The mask alone may have been written since.)
    """
    tensor = value.tensor if isinstance(value, DeferredScalar) else value
    node: Any = tensor.node if isinstance(tensor, TensorValue) else None
    empty, steps = False, []
    while is_tensor(node) and node.op.startswith("call_") and node.args and not node.kwargs:
        name, (source, *rest) = name_of(node), node.args
        steps.append(node)
        if name in ("any", "sum", "count_nonzero") and not rest:
            return (source, empty) if is_mask(source) and not are_written(tx, steps) else None
        if name in ("logical_not", "not_", "eq") and rest in ([], [0]):
            empty = not empty
        elif name not in ("gt", "ne", "bool", "to") or rest not in ([], [0]):
            return None
        node = source
    return None


def _tested_size(value: Value) -> tuple[Any, bool] | None:
    """The size that `value` compares with 0, and the truth that it has where that is 0."""
    if not isinstance(value, SymbolValue) or not isinstance(value.symbolic, torch.SymBool):
        return None
    condition = value.symbolic.node.expr
    symbols = list(condition.free_symbols)
    if len(symbols) != 1 or value.env.hint(condition) is not None:
        return None
    low = value.env.bounds(symbols[0])[0]
    if low is None or low < 0:
        return None
    rest = sympy.Symbol("rest", integer=True, nonnegative=True)
    empty, other = (sympy.simplify(condition.subs(symbols[0], n)) for n in (0, rest + 1))
    decided = {empty, other} == {sympy.true, sympy.false}
    return (symbols[0], bool(empty)) if decided else None
