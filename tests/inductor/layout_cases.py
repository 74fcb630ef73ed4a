"""torch's table of operators between layouts: each operator reads a product's result in some
layout, and a product reads what it gives.

The leaf of a case is the memory, contiguous; a layout is the view of that memory which has the
sample's values. So a case is a program

    leaf -> leaf @ eye -> view (the layout) -> operator -> result, result @ weight

and a batch of cases is one program, for few runs of the C++ compiler.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.dynamo.torch_ops import dtype_of, operators

Views = Callable[[torch.Tensor], torch.Tensor]


def _rotation(rank: int, by: int) -> list[int]:
    return [(d + by) % rank for d in range(rank)]


def _last_first(t: torch.Tensor) -> list[int]:
    return list(range(t.dim()))[::-1]


# name -> (what memory holds for a tensor, None where the layout is not one of its; the view of it)
LAYOUTS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor, Any], Any]]] = {
    "contiguous": (lambda t: t, lambda m, size: m),
    "transposed": (
        lambda t: t.permute(_last_first(t)) if t.dim() > 1 else None,
        lambda m, size: m.permute(_last_first(m)),
    ),
    "permuted": (
        lambda t: t.permute(_rotation(t.dim(), 1)) if t.dim() > 2 else None,
        lambda m, size: m.permute(_rotation(m.dim(), -1)),
    ),
    "channels_last": (
        lambda t: t.movedim(1, -1) if t.dim() in (4, 5) else None,
        lambda m, size: m.movedim(-1, 1),
    ),
    "expanded": (
        lambda t: t[:1] if t.shape[0] > 1 else None,
        lambda m, size: m.expand(size),
    ),
    "stepped": (lambda t: t.repeat_interleave(2, -1), lambda m, size: m[..., ::2]),
    "offset": (lambda t: torch.cat([t[:1], t]), lambda m, size: m[1:]),
}


# (name, layout) -> why the two are not compared
NOT_COMPARED = {
    ("as_strided", "offset"): "reads memory beside its argument: a returned view of that has the "
    "gradient of the memory, eager's that of the argument, which is zero there",
    ("as_strided.partial_views", "stepped"): "the same",
    (
        "masked.median",
        "expanded",
    ): "eager's nanmedian reads beside the memory of an expanded tensor",
    ("torch._scaled_mm", "*"): "gives numbers of 8 bits, which are compared to the bit",
}


@dataclass
class Case:
    """One operator with one sample in one layout."""

    name: str
    op: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    leaves: list[torch.Tensor]  # memories, in place of the tensors of `places`
    places: list[int]  # positions among the arguments
    view: Callable[[torch.Tensor, Any], torch.Tensor]
    sizes: list[torch.Size]
    eyes: list[torch.Tensor | None]
    weight: torch.Tensor  # 2 columns, more rows than a result's last dimension has

    def __call__(self, leaves: Sequence[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
        """The operator's result, and products of its tensors."""
        args = list(self.args)
        for place, leaf, size, eye in zip(self.places, leaves, self.sizes, self.eyes):
            args[place] = self.view(_product(leaf, eye), size)
        result = self.op(*args, **self.kwargs)
        return result, [_weighed(t, self.weight) for t in _floats(result)]


def _product(leaf: torch.Tensor, eye: torch.Tensor | None) -> torch.Tensor:
    """The very values, by way of a product that nobody sees through."""
    if eye is None:
        return leaf.clone()
    return (leaf.reshape(-1, eye.shape[0]) @ eye).view(leaf.shape)


def _weighed(t: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return t @ weight[: t.shape[-1]].to(t.dtype) if t.dim() else t * 3


def _floats(tree: Any) -> list[torch.Tensor]:
    leaves = tree if isinstance(tree, (list, tuple)) else [tree]
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.dtype == torch.float32]


def case_of(name: str, info: Any, layout: str) -> Case | None:
    """The operator's first sample whose arguments have that layout and which eager takes."""
    if {(name, layout), (info.name, layout), (info.name, "*")} & NOT_COMPARED.keys():
        return None
    dtype = dtype_of(info)
    torch.manual_seed(0)
    for sample in list(info.sample_inputs("cpu", dtype))[:4]:
        made = _made(f"{name} {layout}", info.op, (sample.input, *sample.args), sample, layout)
        if made is not None and _taken(made):
            return made
    return None


def _made(name: str, op: Any, args: tuple[Any, ...], sample: Any, layout: str) -> Case | None:
    pack, view = LAYOUTS[layout]
    places, leaves, sizes = [], [], []
    for place, t in enumerate(args):
        if not isinstance(t, torch.Tensor) or t.dim() == 0 or t.numel() == 0:
            continue
        if t.layout != torch.strided or t.is_conj() or t.is_neg():
            continue
        if not t.dtype.is_floating_point and place:
            continue
        memory = pack(t.detach())
        if memory is None or (layout == "expanded" and place):
            continue
        places.append(place)
        sizes.append(t.shape)
        leaf = memory.clone(memory_format=torch.contiguous_format)
        leaves.append(leaf.requires_grad_(leaf.dtype.is_floating_point))
    if 0 not in places:
        return None
    args = pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), list(args))
    kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), sample.kwargs)
    eyes = [torch.eye(m.shape[-1]) if m.dtype == torch.float32 else None for m in leaves]
    weight = torch.randn(4096, 2, generator=torch.Generator().manual_seed(1))
    return Case(name, op, args, kwargs, leaves, places, view, sizes, eyes, weight)


def _taken(case: Case) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outcome(case, [case])
        except (RuntimeError, ValueError, TypeError, IndexError):
            return False
    return True


def cases(left_out: Any, layouts: Callable[[int], Sequence[str]]) -> Iterator[Case]:
    """For each operator of the table, those of `layouts(number)` that it has."""
    for number, (name, info) in enumerate(operators().items()):
        if info.name in left_out or info.name.startswith("jiterator") or not info.dtypes:
            continue  # the last: on GPUs alone
        for layout in layouts(number):
            found = case_of(name, info, layout)
            if found is not None:
                yield found


class Batch:
    """Many cases as one program."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases

    def __call__(self, leaves: list[list[torch.Tensor]]) -> list[Any]:
        return [case(given) for case, given in zip(self.cases, leaves)]


def outcome(fn: Any, cases: Sequence[Case]) -> list[tuple[Any, Any]]:
    """For each case what it returns and the gradients of its leaves. `fn` is of a batch, or one
    case itself."""
    leaves = [[t.detach().requires_grad_(t.requires_grad) for t in c.leaves] for c in cases]
    torch.manual_seed(0)
    results = [fn(leaves[0])] if isinstance(fn, Case) else fn(leaves)
    total: Any = 0.0
    for result, products in results:
        for t in (*_floats(result), *products):
            if t.requires_grad:
                total = total + (t * _tangent(t)).sum()
    flat = [t for given in leaves for t in given if t.requires_grad]
    grads: Any = [None] * len(flat)
    if isinstance(total, torch.Tensor):
        grads = torch.autograd.grad(total, flat, allow_unused=True)
    found = iter(grads)
    return [
        (result, [next(found) if t.requires_grad else None for t in given])
        for result, given in zip(results, leaves)
    ]


def _tangent(t: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape)
