"""Code that a branch skips where there is nothing to do, and that may as well run on nothing:

    rows = torch.where(chosen)[0]           rows = torch.where(chosen)[0]
    if rows.numel() == 0:            ->     out.index_add_(0, rows, expert(x[rows]))
        continue
    out.index_add_(0, rows, expert(x[rows]))

The region from the jump to the instruction at which both ways meet is captured in the same graph,
unconditionally, if it computes tensors by operations that take nothing, writes only where an empty
index chooses, and leaves nothing else behind.

A gradient tells whether a region ran (zeros, not None), so that it breaks the graph as before.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import sympy
import torch

from dynamo.bytecode.branches import leads_to, meeting_of
from dynamo.bytecode.liveness import live_before
from dynamo.errors import Unsupported
from dynamo.interp.sides import is_tensor, run_until
from dynamo.plans import Retry
from dynamo.values.base import Value
from dynamo.values.exceptions import RaisedException
from dynamo.values.symbol import SymbolValue
from fxgraph import Node, effects
from fxgraph.symbolic_values import expr_of, is_symbolic

if TYPE_CHECKING:
    from dynamo.bytecode import Instruction
    from dynamo.interp.interpreter import Interpreter

# In-place operation -> the place of its index among the arguments.
_WRITES_CHOSEN = {"index_add_": 2, "index_copy_": 2, "index_put_": 1, "setitem": 1}

# Likewise, of operations that read. An index that chooses nothing fits whatever is in the tensor.
_READS_CHOSEN = {"getitem": 1, "__getitem__": 1, "index_select": 2, "embedding": 0}

# What gives a tensor for tensors of no elements as for others of those shapes, whatever data they
# are given besides.
_FINE_ON_NOTHING = frozenset(
    ["add", "sub", "mul", "truediv", "true_divide", "neg", "pos", "abs", "square", "reciprocal"]
    + ["exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf"]
    + ["sigmoid", "relu", "relu6", "gelu", "silu", "mish", "elu", "celu", "selu", "leaky_relu"]
    + ["softplus", "softsign", "logsigmoid", "hardtanh", "hardswish", "hardsigmoid", "tanhshrink"]
    + ["clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "where", "masked_fill"]
    + ["eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "isnan"]
    + ["floor", "ceil", "round", "trunc", "sign", "atan2", "hypot", "lerp", "addcmul"]
    + ["matmul", "mm", "bmm", "addmm", "linear", "softmax", "log_softmax", "cumsum"]
    + ["layer_norm", "rms_norm", "dropout", "sum", "mean", "any", "all"]
    + ["transpose", "t", "permute", "movedim", "unsqueeze", "squeeze", "expand", "expand_as"]
    + ["flip", "tril", "triu", "detach", "clone", "contiguous", "to", "type", "type_as", "float"]
    + ["half", "bfloat16", "double", "long", "int", "bool", "zeros_like", "ones_like"]
)
_VIEWS = frozenset(["view", "reshape"])


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
    before, stack, exception = dict(tx.locals), list(tx.stack), tx.exc_info
    nodes = set(output.graph.nodes)
    grad, crossings = torch.is_grad_enabled(), output.side_effects.crossings
    tx.index = region
    try:
        with output.side_effects.fenced(), output.side_effects.untouched():
            run_until(tx, meeting)
    except (Unsupported, RaisedException):
        raise Retry(output.plan.skipping(step)) from None
    live = live_before(tx.code)[meeting]
    fits = not tx.done and tx.stack == stack and tx.exc_info is exception
    fits = fits and grad is torch.is_grad_enabled() and not output.finalizable
    fits = fits and crossings == output.side_effects.crossings and output.checks.can_be_made()
    fits = fits and all(tx.locals.get(name) is before.get(name) for name in live)
    ran = (node for node in output.graph.nodes if node not in nodes)
    if not fits or not all(_is_empty(node, symbol) for node in ran):
        raise Retry(output.plan.skipping(step))
    for name in tx.locals.keys() - live:
        del tx.locals[name]
    tx.locals.update({k: v for k, v in before.items() if k not in tx.locals and k in live})
    return True


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


def _is_empty(node: Node, symbol: Any) -> bool:
    """Whether a node has no observable effect if `symbol` is 0."""
    if not node.op.startswith("call_"):
        return True
    result, does = node.meta.get("example_value"), effects.of(node)
    if does.random or does.other or (isinstance(result, torch.Tensor) and result.requires_grad):
        return False
    name = str(getattr(node.target, "__name__", node.target))
    if not does.writes:
        kind = getattr(node.target, "__module__", None) or "torch"
        ours = node.op == "call_method" or kind.partition(".")[0] in ("torch", "_operator")
        if ours and _is_part(node):
            return True
        if not ours or not isinstance(result, torch.Tensor):  # a number, or several tensors
            return False
        fine = name in _FINE_ON_NOTHING or (name in _VIEWS and _says_all_sizes(node))
        return fine or _reads_nothing(node, _READS_CHOSEN.get(name), symbol)
    place = _WRITES_CHOSEN.get(name)
    if place is None or "out" in node.kwargs or len(node.args) <= place:
        return False
    return any(_is_nothing(tensor, symbol) for tensor in _tensors_of(node.args[place]))


def _is_part(node: Node) -> bool:
    """Whether a node cuts a tensor along a dimension of a known size, or gives one of its parts."""
    name = getattr(node.target, "__name__", node.target)
    if name == "chunk":
        x = node.args[0].meta["example_value"] if is_tensor(node.args[0]) else None
        dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        return x is not None and type(dim) is int and type(x.shape[dim]) is int
    whole = node.args[0] if node.target is operator.getitem else None
    return isinstance(whole, Node) and isinstance(whole.meta["example_value"], tuple | list)


def _says_all_sizes(node: Node) -> bool:
    """Whether the sizes of a view are told: with none of its elements, -1 may be any number."""
    if len(node.args) < 2 or node.kwargs:
        return False
    sizes = node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
    positive = all(type(n) is int and n > 0 for n in sizes if n != -1)
    return positive or not any(type(n) is not Node and n == -1 for n in sizes)


def _reads_nothing(node: Node, place: int | None, symbol: Any) -> bool:
    """Whether an index at this place among the arguments fits if `symbol` is 0: none of its tensors
    has an element then, and numbers stand where sizes are known.
    """
    if place is None or len(node.args) <= place or node.kwargs:
        return False
    index, source = node.args[place], node.args[0 if place else 1]
    if not is_tensor(source):
        return False
    parts = index if isinstance(index, tuple | list) else (index,)
    varies = any(map(is_symbolic, source.meta["example_value"].shape))
    if any(isinstance(part, int | Node) and not is_tensor(part) for part in parts) and varies:
        return False
    kinds = (int, slice, type(None), type(...), Node)
    plain = all(isinstance(part, kinds) for part in parts)
    return plain and all(_is_nothing(tensor, symbol) for tensor in _tensors_of(index))


def _tensors_of(index: Any) -> list[torch.Tensor]:
    chosen = list(index) if isinstance(index, tuple | list) else [index]
    return [part.meta["example_value"] for part in chosen if is_tensor(part)]


def _is_nothing(index: torch.Tensor, symbol: Any) -> bool:
    sizes = [expr_of(n).subs(symbol, 0) for n in index.shape if is_symbolic(n)]
    return index.dtype in (torch.int64, torch.int32) and 0 in sizes
