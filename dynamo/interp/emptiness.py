"""Proofs that operations have no observable effect where they select nothing.

An Emptiness is a state of affairs: sizes that are 0, and tensors that are all zero, such as

    rows = torch.where(chosen)[0]          # if `chosen` is all zero, the size of `rows` is 0
    y = expert(x[rows])                    # of no rows
    out.index_add_(0, rows, y)             # writes nothing
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch

from dynamo.interp.sides import is_tensor, memory_of
from fxgraph import Node, effects
from fxgraph.fallible_operations import can_fail
from fxgraph.symbolic_values import depends_on_data, expr_of, is_symbolic

# In-place operation -> the place of its index among the arguments.
_WRITES_CHOSEN = {"index_add_": 2, "index_copy_": 2, "index_put_": 1, "setitem": 1}

# Likewise, of operations that read. An index that chooses nothing fits whatever is in the tensor.
_READS_CHOSEN = {"getitem": 1, "__getitem__": 1, "index_select": 2, "embedding": 0}

# Functions that take tensors of no elements as well as others, whatever data they are given
# besides.
_FINE_ON_NOTHING = frozenset(
    ["add", "sub", "mul", "truediv", "true_divide", "neg", "pos", "abs", "square", "reciprocal"]
    + ["exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf"]
    + ["sigmoid", "relu", "relu6", "gelu", "silu", "mish", "elu", "celu", "selu", "leaky_relu"]
    + ["softplus", "softsign", "logsigmoid", "hardtanh", "hardswish", "hardsigmoid", "tanhshrink"]
    + ["clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "where", "masked_fill"]
    + ["eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "isnan"]
    + ["floor", "ceil", "round", "trunc", "sign", "atan2", "hypot", "lerp", "addcmul", "pow"]
    + ["matmul", "mm", "bmm", "addmm", "linear", "softmax", "log_softmax", "cumsum"]
    + ["layer_norm", "rms_norm", "dropout", "sum", "mean", "any", "all"]
    + ["transpose", "t", "permute", "movedim", "unsqueeze", "squeeze", "expand", "expand_as"]
    + ["flip", "tril", "triu", "detach", "clone", "contiguous", "to", "type", "type_as", "float"]
    + ["half", "bfloat16", "double", "long", "int", "bool", "zeros_like", "ones_like"]
)
_OUT_OF_PLACE = {
    operator.iadd: "add",
    operator.isub: "sub",
    operator.imul: "mul",
    operator.itruediv: "truediv",
}
_VIEWS = frozenset(["view", "reshape"])
_SELECTS = frozenset(["where", "nonzero", "argwhere"])  # the places of a tensor that are not zero
# Functions that leave zeros as they are, and the elements in their rows or not.
_KEEPS_ZEROS = frozenset(
    [
        "squeeze",
        "unsqueeze",
        "view",
        "reshape",
        "flatten",
        "permute",
        "transpose",
        "t",
        "contiguous",
    ]
    + ["clone", "detach", "to", "bool", "long", "int", "float", "type", "getitem", "select"]
)
_KEEPS_SIGNS = _KEEPS_ZEROS - {"int", "to", "type"} | {"sum", "amax"}
_SAME_ELEMENTS = _KEEPS_ZEROS - {"getitem", "select", "to", "int", "float", "type"}
_COMPARES = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "greater": operator.gt,
    "not_equal": operator.ne,
}


def name_of(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


class Emptiness:
    """sizes: symbols that are 0. is_given: whether a node's tensor is one that is all zero, and
    computed without fail.
    """

    def __init__(
        self, sizes: Iterable[sympy.Symbol], is_given: Callable[[Node], bool] = lambda node: False
    ) -> None:
        self.sizes = dict.fromkeys(sizes, 0)
        self._is_given = is_given
        self.gradients = False  # whether results may require one
        self.draws = False  # whether random numbers may be drawn
        self._own: set[Any] = set()  # the memory of tensors that nobody else has seen

    def spares(self, node: Node) -> bool:
        """Whether a node has no observable effect. Nodes are asked about in their order."""
        if not node.op.startswith("call_"):
            return True
        result, does = node.meta.get("example_value"), effects.of(node)
        graded = isinstance(result, torch.Tensor) and result.requires_grad
        if does.other or (does.random and not self.draws) or (graded and not self.gradients):
            return False
        if does.writes and self._writes_own(node):
            return True
        spared = self._writes_nothing(node) if does.writes else self._is_fine(node, result)
        if spared and not does.writes and isinstance(result, torch.Tensor):
            given = {memory_of(t) for t in _tensors_in(node.all_input_nodes)}
            if memory_of(result) not in given:
                self._own.add(memory_of(result))
        return spared

    def _writes_own(self, node: Node) -> bool:
        target: Any = node.args[0] if node.args else None
        name = _OUT_OF_PLACE.get(node.target, name_of(node).removesuffix("_"))
        if not is_tensor(target) or "out" in node.kwargs or name not in _FINE_ON_NOTHING:
            return False
        return memory_of(target.meta["example_value"]) in self._own

    def _writes_nothing(self, node: Node) -> bool:
        place = _WRITES_CHOSEN.get(name_of(node))
        if place is None or "out" in node.kwargs or len(node.args) <= place:
            return False
        return any(map(self._chooses_nothing, _tensors_of(node.args[place])))

    def _is_fine(self, node: Node, result: Any) -> bool:
        """Whether a node that only computes does not fail."""
        kind = getattr(node.target, "__module__", None) or "torch"
        ours = node.op == "call_method" or kind.partition(".")[0] in ("torch", "_operator")
        if node.target is torch.ops.aten.sym_size.int or (ours and _is_part(node)):
            return True
        if not ours:
            return False
        if self._is_given(node):
            return True
        if self._selects(node):
            self.sizes |= dict.fromkeys(_data_in(result), 0)
            return True
        if not isinstance(result, torch.Tensor):  # a number, or several tensors
            return False
        if not _data_in(node.all_input_nodes, result) and _is_safe(node):
            return True  # the same whatever is selected
        name = name_of(node)
        fine = name in _FINE_ON_NOTHING or (name in _VIEWS and _says_all_sizes(node))
        return fine or _is_basic(node) or self._reads_nothing(node, _READS_CHOSEN.get(name))

    def _selects(self, node: Node) -> bool:
        """Whether a node tells the places of a tensor's ones, or takes those of another tensor, and
        there are none.
        """
        name = name_of(node)
        if name in _SELECTS:
            one = len(node.args) == 1 and is_tensor(node.args[0])
            return one and self._is_zero(node.args[0])
        masks = name == "getitem" and is_tensor(node.args[0]) and is_tensor(node.args[1])
        return masks and is_mask(node.args[1]) and self._is_zero(node.args[1])

    def _reads_nothing(self, node: Node, place: int | None) -> bool:
        """Whether an index at this place among the arguments fits: none of its tensors has an
        element, and numbers stand where sizes are known.
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
        return plain and all(map(self._chooses_nothing, _tensors_of(index)))

    def _chooses_nothing(self, index: Node) -> bool:
        if is_mask(index):
            return self._is_zero(index)
        fake = index.meta["example_value"]
        sizes = [expr_of(n).subs(self.sizes) for n in fake.shape if is_symbolic(n)]
        return fake.dtype in (torch.int64, torch.int32) and 0 in sizes

    def is_chosen(self, size: sympy.Symbol, nodes: Iterable[Node]) -> bool:
        """Whether this size, of a result of one of the nodes, is 0 only if the given tensor is all
        zero.
        """
        for node in nodes:
            if name_of(node) in _SELECTS and size in _data_in(node.meta["example_value"]):
                source: Any = node.args[0]
                while name_of(source) in _SAME_ELEMENTS and not self._is_given(source):
                    source = source.args[0]
                return self._is_given(source)
        return False

    def _is_zero(self, node: Node) -> bool:
        """Whether a node's tensor is all zero."""
        if self._is_given(node):
            return True
        source: Any = node.args[0] if node.args else None
        if not node.op.startswith("call_") or not is_tensor(source):
            return False
        name = name_of(node)
        if name in _KEEPS_ZEROS:
            return self._is_zero(source)
        if name in _COMPARES and len(node.args) == 2 and type(node.args[1]) in (int, bool):
            return not _COMPARES[name](0, node.args[1]) and self._is_zero(source)
        if name in ("mul", "and_", "logical_and", "bitwise_and"):
            parts = [arg for arg in node.args if is_tensor(arg)]
            exact = all(not part.meta["example_value"].is_floating_point() for part in parts)
            return exact and any(map(self._is_zero, parts))
        return False


def is_mask(node: Node) -> bool:
    return node.meta["example_value"].dtype is torch.bool


def _data_in(*values: Any) -> set[Any]:
    """The symbols of data in the sizes of tensors."""
    found: set[Any] = set()
    for value in values:
        if isinstance(value, tuple | list):
            found |= _data_in(*value)
            continue
        value = value.meta.get("example_value") if isinstance(value, Node) else value
        numbers = value.shape if isinstance(value, torch.Tensor) else [value]
        symbolic = [n for n in numbers if is_symbolic(n) and depends_on_data(n)]
        found |= {symbol for number in symbolic for symbol in expr_of(number).free_symbols}
    return found


def _is_safe(node: Node) -> bool:
    """Whether a node, of known sizes, cannot fail."""
    if not can_fail(node.target, node.args):
        return True
    return _is_basic(node)


def _is_basic(node: Node) -> bool:
    """Whether a node takes places of known dimensions, and whole ones."""
    if name_of(node) != "getitem" or not is_tensor(node.args[0]):
        return False
    index, shape = node.args[1], node.args[0].meta["example_value"].shape
    parts = list(index) if isinstance(index, tuple | list) else [index]
    if not all(type(part) is int or part is None or part == slice(None) for part in parts):
        return False
    taken = [part for part in parts if part is not None]
    return all(type(part) is slice or type(size) is int for part, size in zip(taken, shape))


def _is_part(node: Node) -> bool:
    """Whether a node cuts a tensor along a dimension of a known size, or gives one of its parts."""
    if name_of(node) in ("chunk", "split"):
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


def _tensors_in(nodes: Iterable[Node]) -> list[torch.Tensor]:
    found = [node.meta.get("example_value") for node in nodes]
    parts = [part for one in found for part in (one if isinstance(one, tuple | list) else [one])]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _tensors_of(index: Any) -> list[Node]:
    chosen = list(index) if isinstance(index, tuple | list) else [index]
    return [part for part in chosen if is_tensor(part)]


# -- rows of a tensor ----------------------------------------------------------------------------
def rows_behind(mask: Node) -> list[Node]:
    """The tensors whose row i is all zero exactly where a vector's element i is: the vector is
    their sum over all other dimensions, say.

        mask = rows.sum(dim=(-1, -2)) > 0
    """
    found: list[Node] = []
    node = mask
    while node.op.startswith("call_") and node.args and is_tensor(node.args[0]):
        name, rest, kwargs = name_of(node), node.args[1:], node.kwargs
        source: Any = node.args[0]
        compares = name in ("gt", "greater", "ne", "not_equal") and rest == (0,) and not kwargs
        if compares and name[0] == "g" and not _is_never_negative(source):
            break
        if name in ("sum", "any", "count_nonzero", "amax"):
            counts = name in ("any", "count_nonzero") or _is_never_negative(source)
            dims = rest[0] if rest else kwargs.get("dim")
            if not counts or not _keeps_first(dims, kwargs.get("keepdim"), source):
                break
        elif not compares and (name not in ("bool", "long", "int") or rest or kwargs):
            break
        node = source
        if node.meta["example_value"].ndim > 1:
            found.append(node)
    return found


def _keeps_first(dims: Any, keepdim: Any, node: Node) -> bool:
    """Whether a reduction over these dimensions keeps the first one as it is."""
    count = node.meta["example_value"].ndim
    given: Sequence[Any] = dims if isinstance(dims, tuple | list) else [dims]
    plain = all(type(dim) is int for dim in given) and not keepdim and len(given) > 0
    return plain and all(dim % count for dim in given)


def _is_never_negative(node: Node) -> bool:
    """Whether no element of a tensor is negative, or no number."""
    if is_mask(node) or name_of(node) in ("one_hot", "count_nonzero"):
        return True
    source: Any = node.args[0] if node.op.startswith("call_") and node.args else None
    if not is_tensor(source):
        return False
    if name_of(node) == "mul":
        numbers = [arg for arg in node.args if not is_tensor(arg)]
        positive = all(type(arg) in (bool, int) and arg >= 0 for arg in numbers)
        return positive and all(_is_never_negative(arg) for arg in node.args if is_tensor(arg))
    name = name_of(node)
    integral = not node.meta["example_value"].dtype.is_floating_point
    return integral and name in _KEEPS_SIGNS and _is_never_negative(source)
