"""Checks a functional graph against eager: values, strides, aliases, identity, mutation."""

from __future__ import annotations

from typing import Any

import torch

import fxgraph
from fxgraph.aot import functionalize, run_functional


def tensors_of(result: Any) -> list[Any]:
    found: list[Any] = []
    fxgraph.map_aggregate(result, found.append)
    return found


def clone_inputs(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies with the same memory layout, sharing memory among themselves as the originals do."""
    memory: dict[int, torch.UntypedStorage] = {}
    objects: dict[int, torch.Tensor] = {}
    twins: dict[Any, torch.Tensor] = {}
    copies = []
    for tensor in inputs:
        storage = tensor.untyped_storage()
        copied = memory.setdefault(storage._cdata, storage.clone())
        if id(tensor) not in objects:
            new = torch.empty(0, dtype=tensor.dtype)
            new.set_(copied, tensor.storage_offset(), tensor.shape, tensor.stride())
            # Equal views of one memory share a version counter, as detach() makes them.
            place = (copied.data_ptr(), new.storage_offset(), new.shape, new.stride())
            objects[id(tensor)] = twins[place].detach() if place in twins else new
            twins.setdefault(place, new)
        copies.append(objects[id(tensor)])
    return copies


def sharing(inputs: list[torch.Tensor], outputs: list[Any]) -> list[Any]:
    """For each output: which input or earlier output it is, and with whom it shares memory."""
    facts: list[Any] = []
    for index, out in enumerate(outputs):
        if not isinstance(out, torch.Tensor):
            facts.append(None)
            continue
        others = [*inputs, *outputs[:index]]
        same = [i for i, other in enumerate(others) if other is out]
        pointer = out.untyped_storage().data_ptr()
        shared = [
            i
            for i, other in enumerate(others)
            if isinstance(other, torch.Tensor)
            and out.numel() * other.numel()
            and other.untyped_storage().data_ptr() == pointer
        ]
        # Between sharers: where a result starts in memory of its own is nobody's business.
        offset = out.data_ptr() - others[shared[0]].data_ptr() if shared else None
        facts.append((same, shared, offset))
    return facts


def assert_same(expected: Any, actual: Any, exact: bool) -> None:
    if isinstance(expected, torch.Tensor):
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        assert actual.stride() == expected.stride()
        if exact:
            assert torch.equal(actual, expected) or torch.allclose(
                actual.to(torch.float64), expected.to(torch.float64), 0, 0, equal_nan=True
            )
        else:
            torch.testing.assert_close(actual, expected, equal_nan=True)
    else:
        assert actual == expected


def check(fn: Any, *inputs: torch.Tensor, exact: bool = True, gm: Any = None) -> Any:
    """Functionalise `fn` for `inputs`, run it on copies, and compare with `fn` on other copies."""
    if gm is None:
        gm = fn if isinstance(fn, fxgraph.GraphModule) else fxgraph.symbolic_trace(fn)
    functional = functionalize(gm, list(inputs))
    graph = functional.graph_module.graph
    fxgraph.verify(graph)
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable and schema.name != "aten::copy_":
            assert schema.name.split("::")[0] != "aten", f"{node.target} left in the graph"
    for call in range(2):
        torch.manual_seed(call)
        ours = clone_inputs(list(inputs))
        versions = [t._version for t in ours]
        actual = tensors_of(run_functional(functional, ours))
        torch.manual_seed(call)
        theirs = clone_inputs(list(inputs))
        before = [t._version for t in theirs]
        with torch.no_grad():
            expected = tensors_of(fxgraph.Interpreter(gm).run(*theirs))
        assert len(actual) == len(expected)
        for one, other in zip(expected, actual):
            assert_same(one, other, exact)
        for one, other in zip(theirs, ours):
            assert_same(one, other, exact)
        assert sharing(ours, actual) == sharing(theirs, expected)
        for a, b, c, d in zip(theirs, before, ours, versions):
            assert (a._version > b) == (c._version > d)
    return functional
