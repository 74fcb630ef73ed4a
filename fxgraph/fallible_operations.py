"""Operations that may fail although their arguments fit: effects that the user was shown before
must not come after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from fxgraph import effects
from fxgraph.args import leaves
from fxgraph.higher_order import branch
from fxgraph.node import Node
from fxgraph.symbolic_values import depends_on_data, is_ragged, is_symbolic

# Operations whose success depends on the values of tensors: an index out of range, a matrix that
# has no inverse, a probability that is none.
_VALUE_DEPENDENT = frozenset(
    ["getitem", "setitem", "__getitem__", "__setitem__", "index_select", "index_add", "index_copy"]
    + ["index_fill", "index_put", "take", "take_along_dim", "take_along_axis", "gather", "scatter"]
    + ["scatter_add"]
    + ["scatter_reduce", "put", "masked_scatter", "embedding", "embedding_bag", "one_hot"]
    + ["nll_loss", "nll_loss_nd", "cross_entropy", "cross_entropy_loss", "multi_margin_loss"]
    + ["multilabel_margin_loss", "ctc_loss", "binary_cross_entropy", "bincount", "histc"]
    + ["multinomial", "bernoulli", "poisson", "normal", "binomial", "cholesky", "inverse", "inv"]
    + ["solve", "lu", "lu_factor", "eigh", "eig", "eigvals", "svd", "svdvals", "lstsq", "pinv"]
    + ["cholesky_solve", "cholesky_inverse", "slogdet", "matrix_rank", "_assert", "_assert_async"]
    + ["index", "index_reduce", "max_unpool1d", "max_unpool2d", "max_unpool3d", "segment_reduce"]
    + ["quantile", "nanquantile", "cholesky_ex", "inv_ex", "matrix_power"]
    + ["linalg_cholesky_ex", "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex"]
    + ["linalg_matrix_norm", "linalg_cond", "linalg_matrix_power", "linalg_solve_ex"]
    + ["uniform", "random", "randint_like", "exponential", "geometric", "cauchy", "log_normal"]
    + ["repeat_interleave", "searchsorted", "bucketize", "tensor_split", "gather_dim", "unfold"]
    + ["item", "as_strided_scatter", "python_number", "number_call", "_linalg_check_errors"]
    + [f"linalg_{name}" for name in ("cholesky", "eig", "eigh", "eigvals", "eigvalsh", "inv")]
    + [f"linalg_{name}" for name in ("lstsq", "lu", "lu_factor", "lu_solve", "pinv", "solve")]
    + [f"linalg_{name}" for name in ("matrix_rank", "svd", "svdvals", "tensorinv", "tensorsolve")]
)
# By zero, of integers.
_DIVISIONS = frozenset(
    ["floordiv", "ifloordiv", "mod", "imod", "floor_divide", "remainder", "fmod", "__floordiv__"]
    + ["div", "divide", "__mod__", "__rfloordiv__", "__rmod__", "__ifloordiv__", "__imod__"]
)
# Of no elements.
_SELECTIONS = frozenset(
    ["max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "median", "nanmedian", "mode"]
)
# By numbers, which tensors may hold; of a tensor, and not.
_BY_NUMBERS = frozenset(
    ["view", "reshape", "expand", "narrow", "select", "split", "split_with_sizes", "chunk", "topk"]
    + ["kthvalue", "unflatten", "repeat", "tile", "pad", "new_zeros", "new_ones", "new_full"]
    + ["new_empty"]
)
_FACTORIES = frozenset(
    ["zeros", "ones", "full", "empty", "rand", "randn", "arange", "eye", "randperm", "linspace"]
)
_INDEXING = frozenset(["getitem", "setitem", "__getitem__", "__setitem__"])


def can_fail(target: Any, args: tuple[Any, ...]) -> bool:
    """Whether the operation, the shapes being right, may fail on the values of tensors."""
    if target is branch:
        return False  # its sides were looked at
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name == "translate":  # a function of numpy
        return args[0].rpartition(".")[2] in _VALUE_DEPENDENT
    name = name.partition(".")[0]  # of an overload
    if name in _DIVISIONS or name.rstrip("_") in _DIVISIONS:
        return _may_be_by_zero(args[:2] if not name.startswith("__r") else args[1::-1])
    if name in _INDEXING:  # numbers and slices fit, since the shape does
        computed = [leaf for leaf in leaves(_places(args[1:2])) if isinstance(leaf, Node)]
        if not all(map(_is_mask, computed)) or any(map(_lists, args[1:2])):
            return True
        return bool(computed) and not all(map(_fits, args[2:]))
    if name == "select" and any(map(_is_data, args[1:])):
        return True
    if name in _BY_NUMBERS or name in _FACTORIES:
        return any(map(_holds_number, leaves(args[name in _BY_NUMBERS :])))
    if name in _SELECTIONS:
        return _may_be_empty(args[:1])
    module = getattr(target, "__module__", None) or "torch"
    known = module.partition(".")[0] in ("torch", "_operator", "builtins", "math")
    return not known or name.rstrip("_") in _VALUE_DEPENDENT or name in _VALUE_DEPENDENT


def may_fail(node: Node) -> bool:
    """The same of a node, or a side of the branch that it is, or a node that kernels refuse."""
    known = node.meta.get("side_may_fail") or node.meta.get("refused")
    return bool(known) or can_fail(node.target, node.args)


def unused_that_may_fail(nodes: Iterable[Node], results: Sequence[Node]) -> list[Node]:
    """The tensors of nodes that may fail, as the program would see, and whose results nobody takes:
    later stages would drop them.
    """
    calls = [node for node in nodes if node.op.startswith("call_")]
    returned = _reached(calls, results)
    used = _reached(calls, [*results, *(node for node in calls if node.is_impure())])
    place = {node: k for k, node in enumerate(calls)}
    found: list[Node] = []
    for node in filter(may_fail, calls):
        if node not in used:
            found += node.users if node.meta.get("side_may_fail") else [node]
        elif effects.of(node).writes and isinstance(stored_in := node.args[0], Node):
            readers = (user for user in stored_in.users if place.get(user, -1) >= place[node])
            if returned.isdisjoint(readers):
                found.append(stored_in)  # later stages drop the store, which nobody reads
    kept = [node for node in found if isinstance(node.meta.get("val"), torch.Tensor)]
    return [n for n in dict.fromkeys(kept) if n.op != "placeholder" and n not in results]


def _reached(nodes: Sequence[Node], ends: Sequence[Node]) -> set[Node]:
    """`ends`, and all nodes on which they depend."""
    found = set(ends)
    for node in reversed(nodes):
        if node in found:
            found.update(node.all_input_nodes)
    return found


def _places(key: Any) -> Any:
    """A key of a tensor without its slices: any numbers do for their ends."""
    if isinstance(key, tuple):
        return tuple(_places(part) for part in key if not isinstance(part, slice))
    return key


def _may_be_by_zero(operands: tuple[Any, ...]) -> bool:
    found = [getattr(operand, "meta", {}).get("val") for operand in operands]
    divisor = found[-1] if found else None
    tensors = [value for value in found if isinstance(value, torch.Tensor)]
    floats = any(value.is_floating_point() for value in tensors)
    floats = floats or any(type(operand) is float for operand in operands)
    by_zero = isinstance(divisor, torch.Tensor) or (bool(operands) and operands[-1] == 0)
    return bool(tensors) and by_zero and not floats


def _holds_number(arg: Any) -> bool:
    """Whether an argument is a number in a tensor."""
    value = arg.meta.get("val") if isinstance(arg, Node) else None
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _is_data(arg: Any) -> bool:
    return isinstance(arg, Node) and depends_on_data(arg.meta.get("val"))


def _may_be_empty(operands: tuple[Any, ...]) -> bool:
    """Whether a tensor may have no elements, of a size that varies."""
    values = [getattr(operand, "meta", {}).get("val") for operand in operands]
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    sizes: list[Any] = [n for shape in shapes for n in shape if is_symbolic(n) and not is_ragged(n)]
    return not all((n != 0).node.statically_known_true() for n in sizes)


def _lists(key: Any) -> bool:
    """Whether a key of a tensor lists places."""
    return isinstance(key, list) or (isinstance(key, tuple) and any(map(_lists, key)))


def _is_mask(node: Node) -> bool:
    """Whether the node is a mask, whose shape has been checked: any content is a valid index."""
    return getattr(node.meta.get("val"), "dtype", None) is torch.bool


def _fits(stored: Any) -> bool:
    """However many places a mask chooses."""
    value = stored.meta.get("val") if isinstance(stored, Node) else stored
    return not isinstance(value, torch.Tensor) or value.dim() == 0
