"""Plans of models as they would be on a GPU, made without one: of tensors that have no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

import dynamo
from fxgraph.aot import functionalize_training, partition
from fxgraph.torch_fx import fake_tensor_mode
from inductor import layout
from inductor.lowering.graph import LOWERINGS
from inductor.options import Options
from inductor.pipeline import Compilation, arrange, new_compilation, run_stages

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


def captured(
    fn: Callable[..., Any], inputs: dict[str, Any], *, training: bool = False
) -> list[tuple[Any, list[Any]]]:
    """The graphs of one call, with their inputs."""
    found = []

    def backend(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append((gm, list(example_inputs)))
        return gm.forward

    with torch.set_grad_enabled(training):
        dynamo.compile(fn, backend=backend)(**inputs)
    return found


def plans(
    gm: Any,
    inputs: Sequence[Any],
    dtype: torch.dtype | None = None,
    training: bool = False,
    whole: bool = False,
    **options: Any,
) -> list[Compilation]:
    """The plan of a graph; of training, those of its forward and backward. whole: operators as
    eager runs them, few of them decomposed."""
    if not training:
        return [plan(gm, inputs, dtype, **options)]
    table: Any = {} if whole else None
    on_gpu = (
        mock.patch.object(partition, "on_gpu", lambda node: True),
        mock.patch.dict(layout.LIBRARIES, cpu=layout.LIBRARIES["cuda"]),
    )
    with on_gpu[0], on_gpu[1]:
        arranged = None if whole else arrange
        traced = functionalize_training(gm, inputs, table, keep=LOWERINGS, arrange=arranged)
    found = []
    for part in (traced.forward, traced.backward):
        count = len(part.graph_module.graph.find_nodes(op="placeholder"))
        c = Compilation(None, [None] * count, [False] * count, Options.of(options), part)
        c.inference = False
        found.append(_planned(c, dtype))
    return found


def plan(
    gm: Any, inputs: Sequence[Any], dtype: torch.dtype | None = None, **options: Any
) -> Compilation:
    """The stages of the default backend up to the plan. dtype: in place of float32.

    The graph becomes functional as on a CPU, which takes a few operators for others than a GPU's
    aten would: attention has the CPU's name.
    """
    return _planned(new_compilation(gm, inputs, options), dtype)


def _planned(c: Compilation, dtype: torch.dtype | None) -> Compilation:
    with torch.no_grad(), mock.patch.object(torch.cuda, "_lazy_init", lambda: None):
        run_stages(c, until="functionalize")
        assert c.functional is not None
        _move(c.functional.graph_module.graph, dtype)
        return run_stages(c, until="codegen")


def _move(graph: Any, dtype: torch.dtype | None) -> None:
    def moved(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            kind = dtype if dtype is not None and arg.dtype == torch.float32 else arg.dtype
            return torch.empty_strided(arg.size(), arg.stride(), dtype=kind, device=CUDA)
        if isinstance(arg, torch.device):
            return CUDA if arg == CPU else arg
        if dtype is not None and arg is torch.float32:
            return dtype
        if isinstance(arg, (list, tuple)) and not isinstance(arg, torch.Size):
            return [moved(a) for a in arg] if isinstance(arg, list) else tuple(map(moved, arg))
        return arg

    with fake_tensor_mode():
        for node in graph.nodes:
            node.args = moved(node.args)
            node.kwargs = {name: moved(arg) for name, arg in node.kwargs.items()}
            if "val" in node.meta and node.op != "get_attr":
                node.meta["val"] = moved(node.meta["val"])
