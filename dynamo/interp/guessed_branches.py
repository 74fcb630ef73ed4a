"""Branches on whether a mask has any ones, or on how many elements data chooses, which no graph can
hold, taken as in the call that is captured:

    padding = ids.eq(pad)           padding, any = compiled_graph(ids)
    if not padding.any():     ->    if any:
        padding = None                  return <the function as it was>(ids)

    y = x[x > 0]                    y = compiled_graph(x)  # and torch._check(y.numel() != 0)
    if y.numel() == 0:        ->
        return None

Masks of padding or of global attention are mostly there or not, in all calls of a program, and what
is chosen is mostly something or nothing. The graph has a check (interp/checks.py); where a few
calls were unlike the first, it breaks instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo.bytecode.branches import decides_turns
from dynamo.interp.conditionals import place_of
from dynamo.interp.empty_regions import are_written, guess, tested_mask
from dynamo.values.base import Value
from dynamo.values.scalars.symbol import SymbolValue, condition_of
from dynamo.values.tensors.captured_scalars import rely_on_truth
from dynamo.values.tensors.known_tensors import alone
from fxgraph import Node, effects
from fxgraph.args import leaves, map_aggregate
from fxgraph.expressions import evaluate

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter

_MOST_NODES = 64  # of which a mask is made
_MOST_ELEMENTS = 1 << 20  # of each of these


def guessed_truth(tx: Interpreter, value: Value) -> bool | None:
    """The truth that `value` has in the call that is captured, with a check in the graph; None: it
    is not known, or may not be taken for granted.
    """
    output = tx.output
    tested = tested_mask(tx, value)
    if tested is None or not _may_guess(tx):
        return None
    mask, empty = tested
    real = _Real(tx).value(mask)
    if real is None:
        return None
    has_ones = bool(real.any())
    later, truth = value.deferred_truth(tx), empty is not has_ones
    if later is None or not guess(tx, later[0], truth):
        return None
    output.conditionals.guessed_masks[mask] = has_ones
    output.conditionals.notes[place_of(tx)] = _NOTE
    return truth


def guessed_number(tx: Interpreter, jump: Instruction, value: Value) -> bool | None:
    """The same of a number that depends on data, if the jump does not decide how many turns a loop
    makes.
    """
    output = tx.output
    if not isinstance(value, SymbolValue) or not value.depends_on_data() or not _may_guess(tx):
        return None
    if decides_turns(tx.code, jump) or output.emptiness is not None:
        return None
    real, expr = _Real(tx), condition_of(value).node.expr
    known = {symbol: value.env.hint(symbol) for symbol in expr.free_symbols}
    for symbol in [symbol for symbol, number in known.items() if number is None]:
        node = output.symbols.data.read_from(symbol)
        known[symbol] = None if node is None else real.value(node)
    if None in known.values():
        return None
    truth = bool(evaluate(expr, known))
    if not rely_on_truth(tx, value, truth):
        return None
    output.conditionals.notes[place_of(tx)] = _NOTE
    return truth


_NOTE = "taken as in this call, with a check"


def _may_guess(tx: Interpreter) -> bool:
    """Whether the frame may rely on what is so in this call; a whole graph would be an error in
    another.
    """
    output = tx.output
    if output.bodies or output.trial is not None or output.guesses:
        return False
    return not output.symbols.data.unbroken and output.checks.may_guess()


def guessed_before(tx: Interpreter, value: Value) -> bool | None:
    """The truth of `value` by an earlier guess about its mask."""
    guessed = tx.output.conditionals.guessed_masks
    tested = tested_mask(tx, value) if guessed and not tx.output.bodies else None
    if tested is None or tested[0] not in guessed or are_written(tx, {tested[0]}):
        return None
    mask, empty = tested
    return empty is not guessed[mask]


class _Real:
    """Values that nodes of the graph have in the call that is captured."""

    def __init__(self, tx: Interpreter) -> None:
        inputs = tx.output.inputs
        self.known: dict[Node, Any] = {item.node: item.example for item in inputs}

    def value(self, node: Node) -> Any:
        """None: not known, or too much to compute."""
        for part in self._cone(node) or ():
            if part.op != "placeholder":
                self.known[part] = _run(part, self.known)
            if not _is_small(self.known[part]):
                return None
        return self.known.get(node)

    def _cone(self, node: Node) -> list[Node] | None:
        """The nodes that this one is made of, in order; None: too many, or others than operations
        on inputs that compute nothing but tensors.
        """
        found, todo = {node}, [node]
        while todo:
            part = todo.pop()
            if part.op == "placeholder" and part in self.known:
                continue
            if not part.op.startswith("call_") or effects.of(part).impure():
                return None
            new = [arg for arg in part.all_input_nodes if arg not in found]
            found.update(new)
            todo += new
            if len(found) > _MOST_NODES:
                return None
        return [part for part in node.graph.nodes if part in found]


def _run(node: Node, known: dict[Node, Any]) -> Any:
    def real(leaf: Any) -> Any:
        return known[leaf] if isinstance(leaf, Node) else leaf

    args, kwargs = map_aggregate((node.args, node.kwargs), real)
    function: Any = node.target
    try:
        if node.op == "call_method":
            function, args = getattr(args[0], function), args[1:]
        with alone():
            return function(*args, **kwargs)
    except Exception:  # the graph raises, too
        return None


def _is_small(value: Any) -> bool:
    """Whether a value is known: plain tensors, or numbers."""
    parts = list(leaves(value))
    return bool(parts) and all(
        part.numel() <= _MOST_ELEMENTS
        if type(part) in (torch.Tensor, torch.nn.Parameter)
        else type(part) in (bool, int, float)
        for part in parts
    )
